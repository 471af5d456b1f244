"""Where records begin is found once, kept, and found again where a file has changed."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest

from bert_tf.pipelines import record_files
from bert_tf.pipelines.record_files import open_records
from bert_tf.pipelines.tfrecords import write_tfrecords
from tests.pipelines.test_tfrecords import P, S, _batch, _rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of 7, 7 and 6 rows, in blocks of three."""
    monkeypatch.setattr(record_files, "_RECORDS_PER_BLOCK", 3)
    folder = tmp_path / "records"
    write_tfrecords([_batch(0, 20)], [str(folder / name) for name in "abc"])
    return folder


@pytest.fixture
def read(monkeypatch):
    """The names of the files that were read."""
    names, find = [], record_files._find

    def counted(file):
        names.append(os.path.basename(file.path))
        return find(file)

    monkeypatch.setattr(record_files, "_find", counted)
    return names


def opened(folder, cache=None):
    """What another process finds."""
    record_files._open.cache_clear()
    return open_records([f"{folder}/*"], cache and str(cache))


def assert_equal(first, second):
    assert first.files == second.files
    for one, other in zip(first.blocks, second.blocks, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [each.values for each in first.found] == [each.values for each in second.found]


def test_blocks(folder):
    owners, offsets, sizes = opened(folder).blocks
    record = os.path.getsize(folder / "c") // 6
    assert owners.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert offsets.tolist() == [record * number for number in (0, 3, 6, 0, 3, 6, 0, 3)]
    assert sizes.tolist() == [3, 3, 1, 3, 3, 1, 3, 3]


def test_nothing_is_read_the_second_time(folder, tmp_path, read):
    first = opened(folder, tmp_path / "cache")
    assert sorted(read) == ["a", "b", "c"]
    read.clear()
    assert_equal(opened(folder, tmp_path / "cache"), first)
    assert not read


def test_without_a_folder_a_process_reads_once(folder, read):
    record_files._open.cache_clear()
    assert open_records(f"{folder}/*") is open_records(f"{folder}/*")
    assert read == ["a", "b", "c"]


def _rewrite(path):
    """Other rows, of the same size and time."""
    times = path.stat()
    write_tfrecords([_batch(30, 7)], str(path))
    assert path.stat().st_size == times.st_size
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: _rewrite(folder / "b"),
        lambda folder: write_tfrecords([_batch(50, 9)], str(folder / "bb")),
        lambda folder: (folder / "b").unlink(),
        lambda folder: (folder / "b").rename(folder / "d"),
    ],
    ids=["content", "new", "gone", "name"],
)
def test_what_changed_is_read_again(folder, tmp_path, change):
    opened(folder, tmp_path / "cache")
    change(folder)
    assert_equal(opened(folder, tmp_path / "cache"), opened(folder))


def _zipped(data, compression=zipfile.ZIP_STORED, **members):
    """The archive with other members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, members.get(name[:-4], old.read(name)))
    return buffer.getvalue()


def _array(value, dtype=np.int64):
    buffer = io.BytesIO()
    np.save(buffer, np.array(value, dtype))
    return buffer.getvalue()


def _huge():
    """An array whose header promises more than any memory holds."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846975,), }\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-30],
        lambda data: _zipped(data, zipfile.ZIP_DEFLATED),
        lambda data: _zipped(data, counts=_array([7, 7, 10**15])),
        lambda data: _zipped(data, counts=_array([7, 7, -6])),
        lambda data: _zipped(data, counts=_array(["7", "7", "6"], np.str_)),
        lambda data: _zipped(data, counts=_huge()),
        lambda data: _zipped(data, offsets=_array([0] * 7 + [10**9])),
        lambda data: _zipped(data, values=_array([[1, 2]] * 3)),
    ],
)
def test_what_is_damaged_is_made_anew(folder, tmp_path, read, damage):
    first = opened(folder, tmp_path / "cache")
    (index,) = (tmp_path / "cache").iterdir()
    index.write_bytes(damage(index.read_bytes()))
    read.clear()
    assert_equal(opened(folder, tmp_path / "cache"), first)
    assert sorted(read) == ["a", "b", "c"]


def test_what_is_kept_is_of_the_files_not_of_the_lengths_that_are_asked_for(folder, tmp_path):
    opened(folder, tmp_path / "cache")
    records = opened(folder, tmp_path / "cache")
    with pytest.raises(ValueError, match=r"/a: feature 'input_ids' has 6 values .* expected 8: pa"):
        _rows(records, max_seq_length=8)
    assert len(_rows(records, max_seq_length=S, max_predictions_per_seq=P)["cursor"]) == 20
