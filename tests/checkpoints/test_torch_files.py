"""PyTorch's files are read only when asked to, and only for their tensors."""

import collections
import json
import os
import pickle
import sys
import types
import zipfile

import ml_dtypes
import numpy as np
import pytest

from bert_tf.checkpoints.torch_files import open_pytorch_bin

PARITY = pytest.mark.parity


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "pytorch_model.bin")


# === What needs no torch ===


def test_a_pickle_is_not_opened_unasked(path):
    sentence = r"bin is a pickle, which can run code .* bert_tf\.convert .* --allow_pickle \(in"
    with pytest.raises(ValueError, match=sentence):
        open_pytorch_bin(path, allow_pickle=False)


@pytest.mark.parametrize(
    ("torch", "sentence"),
    [
        (None, r"PyTorch only, which is not installed: pip install torch"),
        ("2.5.1+cu121", r"expected torch 2\.6 or later, .* got 2\.5\.1"),
    ],
)
def test_no_torch_or_one_whose_reader_runs_code(path, monkeypatch, torch, sentence):
    module = torch and types.SimpleNamespace(__version__=torch)
    monkeypatch.setitem(sys.modules, "torch", module)
    with pytest.raises(ValueError, match=sentence):
        open_pytorch_bin(path, allow_pickle=True)


# === What torch writes ===


def _values(torch):
    generator = torch.Generator().manual_seed(0)
    values = {
        f"a.{dtype}": torch.randn((3, 5), generator=generator).to(dtype)
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    }
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        values[f"a.{dtype}"] = torch.randint(0, 2, (4,), generator=generator).to(dtype)
    values["all.bf16"] = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16)
    values["transposed"] = torch.randn((3, 5), generator=generator).T
    values["part"] = torch.arange(10.0)[2:8:3]
    values["negative"] = torch._neg_view(torch.tensor([1.0, -2.0]))
    values["parameter"] = torch.nn.Parameter(torch.ones(2))
    values["scalar"] = torch.tensor(3)
    values["empty"] = torch.zeros((0, 4))
    values["tied"] = values["a.torch.float32"]
    return collections.OrderedDict(values)


@PARITY
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_come_bit_for_bit(torch, path, zipped):
    values = _values(torch)
    torch.save(values, path, _use_new_zipfile_serialization=zipped)
    assert zipfile.is_zipfile(path) == zipped
    entries = open_pytorch_bin(path, allow_pickle=True)
    assert list(entries) == list(values)
    for name, value in values.items():
        entry = entries[name]
        array = entry.read()
        found = (entry.name, entry.dtype, entry.shape)
        assert found == (name, str(value.dtype)[6:], tuple(value.shape))
        assert (array.dtype, array.shape) == (np.dtype(entry.dtype), entry.shape)
        bits = value.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        assert array.tobytes() == bytes(bits.numpy())
        assert array.flags.owndata and array.flags.writeable
    assert entries["all.bf16"].read().dtype == ml_dtypes.bfloat16
    # What a caller does to an array does not reach the next reader.
    entries["part"].read()[:] = 0
    assert entries["part"].read().tolist() == [2, 5]
    assert entries["negative"].read().tolist() == [-1, 2]


@PARITY
def test_shards_are_one_checkpoint(torch, tmp_path):
    values = {"a": [1.0, 1.0], "b": [0.0, 0.0, 0.0]}
    for name, value in values.items():
        torch.save({name: torch.tensor(value)}, tmp_path / f"{name}.bin")
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "a.bin", "b": "b.bin"}}))
    entries = open_pytorch_bin(str(index), allow_pickle=True)
    assert {name: entry.read().tolist() for name, entry in entries.items()} == values


# === What torch or this library refuses ===


class _Malicious:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


@PARITY
@pytest.mark.parametrize("form", ["zip", "old", "bare"])
def test_a_pickle_that_runs_code_does_not(torch, path, tmp_path, form):
    target = str(tmp_path / "made by a pickle")
    content = {"b": _Malicious(target)}
    if form == "bare":
        with open(path, "wb") as file:
            pickle.dump(content, file, protocol=2)
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    sentence = r"bin was refused by torch\.load \(.*mkdir [^.\n]*\): expected a dict of tensors\.$"
    with pytest.raises(ValueError, match=sentence):
        open_pytorch_bin(path, allow_pickle=True)
    assert not os.path.exists(target)
    # Read as Python reads pickles, it would have run: the test is no empty one.
    if form == "bare":
        with open(path, "rb") as file:
            pickle.load(file)
        assert os.path.isdir(target)


@PARITY
@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_file_is_refused_in_one_sentence(torch, path, zipped):
    torch.save({"a": torch.ones(64)}, path, _use_new_zipfile_serialization=zipped)
    with open(path, "rb") as file:
        whole = file.read()
    for size in (0, 3, len(whole) // 2, len(whole) - 70):
        with open(path, "wb") as file:
            file.write(whole[:size])
        with pytest.raises(ValueError, match=r"was refused by torch\.load \(.+\): exp") as caught:
            open_pytorch_bin(path, allow_pickle=True)
        assert "\n" not in str(caught.value) and ". " not in str(caught.value)


@PARITY
def test_what_numpy_cannot_hold_is_refused(torch, path):
    torch.save([1], path)
    with pytest.raises(ValueError, match="expected a dict of tensors by name, got a list"):
        open_pytorch_bin(path, allow_pickle=True)
    for tensor, sentence in (
        ({}, "expected 'a' to be a tensor, got a dict: save the model's state_dict"),
        (torch.zeros(2).to(torch.float8_e4m3fn), r"'a' has the dtype float8_e4m3fn, .*: expected"),
        (torch.zeros(2).to_sparse(), r"'a' has the dtype float32, the layout torch\.sparse_coo"),
        (torch.zeros(2, device="meta"), r"'a' has the dtype float32, .* and the device meta"),
        (torch.zeros(1).expand(1 << 40), r"'a' of shape \(1099511627776,\) has more elements than"),
    ):
        torch.save({"a": tensor}, path)
        with pytest.raises(ValueError, match=sentence):
            open_pytorch_bin(path, allow_pickle=True)
