"""PyTorch's files are read only when asked to, and only for their tensors."""

import collections
import json
import os
import pickle
import sys
import tracemalloc
import types
import zipfile

import ml_dtypes
import numpy as np
import pytest

from bert_tf.interchange import torch_files
from bert_tf.interchange.torch_files import open_pytorch_bin

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


@pytest.fixture
def pretended(monkeypatch, path):
    """A torch that gives what the test puts into ``loaded``."""
    loaded = {}
    fake = types.SimpleNamespace(__version__="2.10.0", load=lambda *_, **__: loaded["value"])
    monkeypatch.setitem(sys.modules, "torch", fake)
    with open(path, "wb") as file:
        file.write(b"pickle")
    return loaded


def test_a_file_that_is_not_there_or_not_local_is_refused(pretended, tmp_path):
    for name, sentence in (
        (str(tmp_path / "none.bin"), r"none\.bin cannot be read: .*No such file"),
        (str(tmp_path), r"cannot be read: Is a directory\."),
        ("gs://bucket/pytorch_model.bin", r"local files only: copy it to a local disk first\."),
    ):
        with pytest.raises(ValueError, match=sentence):
            open_pytorch_bin(name, allow_pickle=True)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1], r"pytorch_model\.bin: expected a dict of tensors by name, got a list\."),
        ({"epoch": 2}, r"expected 'epoch' to be a tensor, got a int: save the model's state_dict"),
        ({"state_dict": {}}, r"expected 'state_dict' to be a tensor, got a dict: save the model's"),
    ],
)
def test_what_is_no_state_dict_is_refused(pretended, path, value, sentence):
    pretended["value"] = value
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
    # Every bit pattern of 16, those that are no numbers among them.
    values["all.bf16"] = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16)
    values["all.f16"] = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)
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


@PARITY
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux' /proc is missing")
def test_one_tensor_at_a_time(torch, path, monkeypatch):
    size = 4 << 20
    torch.save({str(n): torch.full((size // 4,), float(n)) for n in range(10)}, path)
    mapped = []
    to_numpy = torch_files._to_numpy
    monkeypatch.setattr(
        torch_files, "_to_numpy", lambda t: [mapped.append(_mappings(path)), to_numpy(t)][1]
    )
    entries = open_pytorch_bin(path, allow_pickle=True)
    tracemalloc.start()
    for number, entry in enumerate(entries.values()):
        assert entry.read()[-1] == number
        assert _mappings(path) == 0
    assert size < tracemalloc.get_traced_memory()[1] < 2.5 * size
    tracemalloc.stop()
    assert len(mapped) == 10 and min(mapped) > 0


def _mappings(path):
    """How often a file is mapped into this process."""
    with open("/proc/self/maps") as file:
        return sum(line.rstrip().endswith(path) for line in file)


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
    for size in (0, 3, 10, len(whole) // 2, len(whole) - 70):
        with open(path, "wb") as file:
            file.write(whole[:size])
        with pytest.raises(ValueError, match=r"was refused by torch\.load \(.+\): exp") as caught:
            open_pytorch_bin(path, allow_pickle=True)
        assert "\n" not in str(caught.value) and ". " not in str(caught.value)


@PARITY
def test_what_torch_says_of_a_file_is_cut(torch, path):
    torch.save({"a": torch.ones(2)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, bytes(1 << 20) if name.endswith("byteorder") else content)
    with pytest.raises(ValueError, match=r"was refused by torch\.load \(Unknown endian") as caught:
        open_pytorch_bin(path, allow_pickle=True)
    assert len(str(caught.value)) < 1000


@PARITY
def test_what_numpy_cannot_hold_is_refused(torch, path):
    for tensor, sentence in (
        (torch.zeros(2).to(torch.float8_e4m3fn), r"'a' has the dtype float8_e4m3fn, .*: expected"),
        (torch.zeros(2).to_sparse(), r"'a' has the dtype float32, the layout torch\.sparse_coo"),
        (torch.zeros(2, device="meta"), r"'a' has the dtype float32, .* and the device meta"),
        (torch.zeros(1).expand(1 << 40), r"'a' of shape \(1099511627776,\) has more elements than"),
    ):
        torch.save({"a": tensor}, path)
        with pytest.raises(ValueError, match=sentence):
            open_pytorch_bin(path, allow_pickle=True)
