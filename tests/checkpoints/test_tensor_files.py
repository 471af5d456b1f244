"""A checkpoint of several files is what its index says, and lies where the index lies."""

import json
import os

import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 by it)
import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import StoredTensor
from bert_tf.checkpoints.tensor_files import open_shards


def _open_shard(path):
    """A shard for these tests: the names of its tensors, separated by spaces."""
    with open(path) as file:
        names = file.read().split()
    return {name: StoredTensor((name,), (), "float32", lambda: np.zeros(())) for name in names}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "1.bin").write_text("a b")
    (tmp_path / "model" / "2.bin").write_text("c")
    (tmp_path / "model" / "3.bin").write_text("c a")
    (tmp_path / "outside.bin").write_text("a")
    return tmp_path / "model"


def _open(folder, weight_map):
    index = folder / "index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return open_shards(str(index), _open_shard)


def test_tensors_of_all_shards(folder):
    tensors = _open(folder, {"c": "2.bin", "a": "1.bin", "b": "1.bin"})
    assert {name: entry.name for name, entry in tensors.items()} == {"a": "a", "b": "b", "c": "c"}


OUTSIDE = ["", "..", "../outside.bin", "/etc/passwd", "x/../1.bin", "..\\1.bin", "gs://a/1.bin"]


@pytest.mark.parametrize("name", [*OUTSIDE, "1.bin\0", "1.bin\n", "\ud800", 1, None], ids=repr)
def test_a_shard_outside_is_refused(folder, name):
    with pytest.raises(ValueError, match=r"index\.json names the file .*: expected a plain file n"):
        _open(folder, {"a": name})


@pytest.mark.parametrize("weight_map", [{}, None, ["1.bin"], "1.bin"])
def test_what_is_no_weight_map_is_refused(folder, weight_map):
    with pytest.raises(ValueError, match=r"index\.json: expected weight_map, an object of "):
        _open(folder, weight_map)


@pytest.mark.parametrize(
    ("weight_map", "sentence"),
    [
        ({"a": "1.bin", "b": "1.bin", "c": "4.bin"}, r"json names '4\.bin', which is not th"),
        ({"a": "1.bin", "b": "1.bin", "d": "1.bin", "c": "2.bin"},
         r"index\.json gives 'd' to '1\.bin', which does not hold it: they do not belong"),
        ({"a": "1.bin", "b": "2.bin", "c": "2.bin"},
         r"1\.bin holds 'b', which .*index\.json gives to '2\.bin': they do not belong"),
        ({"a": "1.bin", "c": "2.bin"},
         r"1\.bin holds 'b', which .*index\.json gives to no file: they do not belong"),
        # A tensor in two files.
        ({"a": "1.bin", "b": "1.bin", "c": "3.bin"}, r"3\.bin holds 'a', .* gives to '1\.bin'"),
    ],
)  # fmt: skip
def test_index_and_shards_must_agree(folder, weight_map, sentence):
    with pytest.raises(ValueError, match=sentence):
        _open(folder, weight_map)


def test_a_download_cache_is_followed(folder, tmp_path):
    """The hub's cache: plain names that link to files named by their content, elsewhere."""
    snapshot = tmp_path / "snapshots" / "revision"
    snapshot.mkdir(parents=True)
    os.symlink("../../outside.bin", snapshot / "1.bin")
    assert set(_open(snapshot, {"a": "1.bin"})) == {"a"}
