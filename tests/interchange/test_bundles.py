"""TensorFlow's tensor bundles: found, read by tensor and by columns, written."""

import os
import pathlib

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleHeaderProto

from bert_tf.interchange import bundles
from bert_tf.training import bundle_reader
from tests.interchange.small_bundles import entry, make_table, varint, write_index
from tests.interchange.small_checkpoints import stored

DATA = ".data-00000-of-00001"
ARRAYS = {
    "a/kernel": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.float16([1.5, -2]),
    "brain": np.array([[3.0]], ml_dtypes.bfloat16),
    "step": np.int64(7),
}


@pytest.fixture
def prefix(tmp_path):
    path = str(tmp_path / "bert_model.ckpt")
    bundles.write(path, [(name, stored("x", array)) for name, array in ARRAYS.items()])
    return path


def test_tensorflow_and_this_library_read_what_was_written(prefix):
    reader, bundle = tf.train.load_checkpoint(prefix), bundles.Bundle(prefix)
    assert reader.get_variable_to_shape_map().keys() == ARRAYS.keys()
    assert bundle.shapes == {name: array.shape for name, array in ARRAYS.items()}
    for name, array in ARRAYS.items():
        tensor = bundle.tensor(name)
        assert (tensor.names, tensor.shape, tensor.dtype) == ((name,), array.shape, array.dtype)
        for value in (reader.get_tensor(name), tensor.read()):
            assert value.dtype == array.dtype and np.array_equal(value, array), name


# === Finding ===


def test_found_by_prefix_and_by_directory(prefix, tmp_path):
    assert bundles.find(prefix).prefix == bundles.find(str(tmp_path)).prefix == prefix
    (tmp_path / "empty").mkdir()
    assert bundles.find(str(tmp_path / "empty")) is None
    assert bundles.find(str(tmp_path / "nothing")) is None


@pytest.fixture
def several(tmp_path):
    for name in ("model.ckpt-10", "model.ckpt-20", "model.ckpt-30"):
        bundles.write(str(tmp_path / name), [("x", stored("x", np.zeros(1)))])
    return tmp_path


def test_the_last_saved_or_the_released_one_of_several(several):
    bundles.write(str(several / "bert_model.ckpt"), [("x", stored("x", np.zeros(1)))])
    assert bundles.find(str(several)).prefix == str(several / "bert_model.ckpt")
    (several / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-20"\n')
    assert bundles.find(str(several)).prefix == str(several / "model.ckpt-20")


@pytest.mark.parametrize(
    "state", [None, b"garbage {", b'model_checkpoint_path: "../../model.ckpt"', b"\xff\xfe", b"\0"]
)
def test_several_and_nothing_says_which(several, state):
    if state:
        (several / "checkpoint").write_bytes(state)
    sentence = (
        r"holds 3 checkpoints, model\.ckpt-10, model\.ckpt-20, model\.ckpt-30, and nothing says "
        r"which to take: name one, .*/model\.ckpt-30 for example\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        bundles.find(str(several))


# === Damaged ===


@pytest.mark.parametrize(
    "file, change, sentence",
    [
        (".index", lambda path: os.truncate(path, 50),
         r"ckpt\.index is not a TensorFlow checkpoint that can be"),
        (DATA, lambda path: os.truncate(path, 31),
         r"ckpt: .+ cannot be read, the checkpoint's data file is damaged or cut off: it "
         r"ends at \d+ of the 31 bytes of .+/bert_model\.ckpt\.data-00000-of-00001\."),
        (DATA, os.remove, r"a/kernel cannot be read, .* No such file"),
    ],
)  # fmt: skip
def test_a_file_cut_off(prefix, file, change, sentence):
    change(prefix + file)
    with pytest.raises(ValueError, match=sentence):
        bundles.Bundle(prefix)


def test_data_with_a_bit_turned(prefix):
    data = pathlib.Path(prefix + DATA)
    content = bytearray(data.read_bytes())
    content[3] ^= 16
    data.write_bytes(content)
    with pytest.raises(ValueError, match=r"a/kernel cannot be read.*[Cc]hecksum") as caught:
        bundles.Bundle(prefix).tensor("a/kernel").read()
    assert "\n" not in str(caught.value)


# === What a stranger may write ===


def test_an_index_of_several_blocks(tmp_path):
    names = [f"layer_{number}/{'long' * 500}" for number in range(300)]
    tensors = [(name, stored("x", np.int32([number]))) for number, name in enumerate(names)]
    bundles.write(str(tmp_path / "a"), tensors)
    bundle = bundles.Bundle(str(tmp_path / "a"))
    assert bundle.shapes == dict.fromkeys(sorted(names), (1,))
    for number in (0, 150, 299):
        assert bundle.read(names[number]).tolist() == [number]


# Where what TensorFlow did with such an entry is not said, it read it or gave an error.
HOSTILE = {
    "no entry": (b"\xff\xff\xff", "what it says of x is not what TensorFlow writes"),  # aborted
    "type 0": (entry(dtype=0), "x is of the unknown type 0"),
    "type 9999": (entry(dtype=9999), "x is of the unknown type 9999"),
    "dimension -1": (entry(shape=(-1,)), r"x has the shape \(-1,\)"),  # aborted
    "dimension -5": (entry(shape=(2, -5)), r"x has the shape \(2, -5\)"),  # aborted
    "too many": (entry(shape=(1 << 62, 4)), r"x has the shape \(461168601842738790"),  # aborted
    "rank 300": (entry(shape=[1] * 300), "x has 300 dimensions"),  # aborted
    "slices": (entry(slices=2), "x is a partitioned variable: save it whole"),  # aborted
    "bytes": (entry(size=12), r"x is float32 \(2,\), and has 12 bytes"),
    "no bytes": (entry(size=-8), r"x is float32 \(2,\), and has -8 bytes"),
    "before the file": (entry(offset=-8), "x has the 8 bytes from -8"),
    "of another file": (entry(shard=1), "x lies in the data file 1 of 1"),
    "of no file": (entry(shard=-1), "x lies in the data file -1 of 1"),
    "a string without end": (entry(7, (), size=1 << 60), "x has the 1,152,921,504,606,846,976 b"),
}


X = [(b"x", entry())]
UNREADABLE = [
    *(([(b"x", value)], {}, sentence) for value, sentence in HOSTILE.values()),
    ([*X, (b"x", entry(offset=8))], {}, ".*names are not in ascending order"),
    ([(b"\x7fx", entry())], {}, "a block's names are not those of the table's index"),
    ([(b"\0x", entry())], {}, "it holds a partitioned variable: save the variable whole"),
    ([(b"x\xc3", entry())], {}, "a tensor's name is not UTF-8"),
    ([(b"x" * 2_049, entry())], {}, "a name has 2,049 bytes, expected 2,048 at most"),
    (X, {"compression": 1}, "it is compressed"),
    (X, {"restarts": ()}, ".*has 0 restarts"),
    (X, {"restarts": (0, 3)}, ".*restarts are not where its entries are"),
    (X, {"limit": b""}, "a block's names are not those of the table's index"),
    (X, {"header": b"\xff"}, "what it says of the header is not"),
    (X, {"header": BundleHeaderProto(endianness=1)}, "its numbers are big-endian"),
    (X, {"header": BundleHeaderProto(version={"min_consumer": 2})}, "its version is 2, expected"),
]


@pytest.mark.parametrize(
    ("entries", "table", "sentence"), UNREADABLE, ids=[sentence for *_, sentence in UNREADABLE]
)
def test_what_tensorflow_never_writes_is_refused(tmp_path, entries, table, sentence):
    prefix = write_index(tmp_path / "a", entries, **table)
    with pytest.raises(ValueError, match=rf"a(\.index is not a TensorFlow check.*)?: {sentence}"):
        bundles.Bundle(prefix)


def test_an_index_that_tensorflow_does_not_write(tmp_path, monkeypatch):
    prefix = str(tmp_path / "a")

    def refused(sentence):
        with pytest.raises(ValueError, match=sentence):
            bundles.Bundle(prefix)

    for content, sentence in (
        (make_table([(b"x", entry())]), "it has no header"),
        (bytes((16 << 20) + 1), "it has 16,777,217 bytes, expected .*16,777,216 at most"),
    ):
        (tmp_path / "a.index").write_bytes(content)
        refused(rf"a\.index is not a TensorFlow .*{sentence}")
    # A small file would make a model of any size.
    write_index(prefix, [(b"x", entry()), (b"y", entry(offset=4))])
    refused(r"a: y cannot be read, .*it begins at 4, within another")
    monkeypatch.setattr(bundle_reader, "MAX_TENSORS", 1)
    write_index(prefix, [(b"x", entry()), (b"y", entry(offset=8))])
    refused(r"a\.index is not .*it names more than 1 tensors\.")


STRINGS = {
    "2^60 bytes": varint(1 << 60) + bytes(4),  # ended the process
    "10^11 bytes": varint(10**11) + bytes(4),  # ended the process
    "no end": b"\xff" * 14,
    "a byte too many": varint(2) + bytes(4) + b"ab\0",
    "another checksum": varint(2) + bytes(4) + b"ab",
}


@pytest.mark.parametrize("case", STRINGS)
def test_strings_that_tensorflow_does_not_write(tmp_path, case):
    content = STRINGS[case]
    given = entry(types_pb2.DT_STRING, (), size=len(content))
    bundle = bundles.Bundle(write_index(tmp_path / "a", [(b"x", given)], data=content))
    with pytest.raises(ValueError, match="a: x cannot be read, the checkpoint's data file is dama"):
        bundle.read_string("x")


def test_numbers_are_no_strings_and_strings_no_numbers(tmp_path):
    given = [(b"x", entry(types_pb2.DT_STRING, (2,))), (b"y", entry(offset=8))]
    bundle = bundles.Bundle(write_index(tmp_path / "a", given))
    with pytest.raises(ValueError, match=r"a: x is string \(2,\), expected one string\."):
        bundle.read_string("x")
    with pytest.raises(ValueError, match=r"a: y is float32 \(2,\), expected one string\."):
        bundle.read_string("y")
    with pytest.raises(ValueError, match=r"a: x is string, expected a tensor of numbers\."):
        bundle.read("x")
