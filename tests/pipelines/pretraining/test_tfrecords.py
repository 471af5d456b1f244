import io
import os
import struct
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.pretraining import tfrecords
from bert_tf.pipelines.pretraining.tfrecords import (
    GOOGLE_NAMES,
    fingerprint,
    match_files,
    open_records,
    tfrecord_dataset,
    write_tfrecords,
)

S, P = 6, 2


def _batch(first, size, padding=0):
    """Rows with distinct first ids, then ``padding`` rows of zeros."""
    number = np.arange(first, first + size, dtype=np.int32)[:, None]
    rows = {
        "input_word_ids": number + np.arange(S, dtype=np.int32),
        "input_mask": np.ones((size, S), np.int32),
        "input_type_ids": np.tile(np.int32([0, 0, 0, 1, 1, 1]), (size, 1)),
        "masked_lm_positions": np.tile(np.int32([1, 4]), (size, 1)),
        "masked_lm_ids": number * 2 + np.int32([5, 6]),
        "masked_lm_weights": np.tile(np.float32([1, 0]), (size, 1)),
        "next_sentence_labels": number[:, 0] % 2,
    }
    return {
        key: np.concatenate([value, np.zeros((padding, *value.shape[1:]), value.dtype)])
        for key, value in rows.items()
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """23 rows in two files of 12 and 11, in blocks of three and pools of two blocks."""
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / "a.tfrecord"), str(folder / "b.tfrecord")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tfrecords, "_RECORDS_PER_BLOCK", 3)
        patched.setattr(tfrecords, "_BLOCKS_PER_POOL", 2)
        assert write_tfrecords([_batch(0, 20), _batch(20, 3, padding=5)], paths) == 23
        yield paths


def _rows(paths, **options):
    defaults = {"batch_size": 4, "max_seq_length": S, "max_predictions_per_seq": P, "num_epochs": 1}
    dataset = tfrecord_dataset(paths, **{**defaults, "drop_remainder": False, **options})
    batches = list(dataset.as_numpy_iterator())
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


@pytest.fixture(scope="module")
def two_epochs(files):
    return _rows(files, num_epochs=2)


def test_records_have_googles_features(files):
    record = next(iter(tf.data.TFRecordDataset(files[1]))).numpy()
    written = tf.train.Example.FromString(record).features.feature
    values = {
        "input_ids": [1, 2, 3, 4, 5, 6],
        "input_mask": [1] * 6,
        "segment_ids": [0, 0, 0, 1, 1, 1],
        "masked_lm_positions": [1, 4],
        "masked_lm_ids": [7, 8],
        "next_sentence_labels": [1],
    }
    assert set(written) == {*values, "masked_lm_weights"}
    for name, expected in values.items():
        assert list(written[name].int64_list.value) == expected
    assert list(written["masked_lm_weights"].float_list.value) == [1.0, 0.0]


def test_every_epoch_has_every_row_once_in_new_order(two_epochs):
    numbers = two_epochs["input_word_ids"][:, 0]
    expected = _batch(0, 23)
    for epoch in (0, 1):
        in_epoch = two_epochs["cursor"][:, 0] == epoch
        order = np.argsort(numbers[in_epoch])
        for key, values in expected.items():
            got = two_epochs[key][in_epoch][order]
            assert got.dtype == values.dtype
            np.testing.assert_array_equal(got, values, err_msg=key)
    assert set(two_epochs["cursor"][:, 1]) == {0, 1, 2, 3}


def test_order_does_not_change_between_versions_and_resumes(files, two_epochs):
    expected = [
        *(9, 6, 8, 10, 7, 11, 13, 15, 4, 2, 17, 0, 20, 22, 19, 21, 18, 12, 16, 1, 14, 3, 5),
        *(5, 3, 21, 19, 1, 7, 11, 9, 13, 17, 15, 10, 20, 8, 22, 6, 18, 14, 2, 0, 4, 12, 16),
    ]
    assert two_epochs["input_word_ids"][:, 0].tolist() == expected
    start = tuple(two_epochs["cursor"][7].tolist())
    options = {"batch_size": 5, "num_parallel_calls": 1, "start": start}
    rest = _rows(",".join(files), num_epochs=2, **options)
    for key, values in two_epochs.items():
        np.testing.assert_array_equal(rest[key], values[7:])


def test_seed_changes_order_and_final_batch_is_padded(files, two_epochs):
    rows = _rows(files, seed=1, pad_final_batch=True)
    assert rows["input_mask"].any(1).tolist() == [True] * 23 + [False]
    assert rows["cursor"][-1].tolist() == [-1, -1, -1]
    assert (rows["input_word_ids"][:23] != two_epochs["input_word_ids"][:23]).any()


def test_records_larger_than_read_size(files, monkeypatch):
    expected = open_records(files)
    monkeypatch.setattr(tfrecords, "_READ_BYTES", 11)
    tfrecords._open.cache_clear()
    assert_equal(open_records(files), expected)


def test_fingerprint_and_matching(files):
    assert match_files([files[0].replace("a.tf", "*.tf")]) == files
    assert match_files([files[1], files[0], files[1]]) == files
    all_files = fingerprint(open_records(files))
    assert all_files == fingerprint(open_records(list(files)))
    assert all_files != fingerprint(open_records(files[:1]))


def _error(paths, **options):
    with pytest.raises(ValueError) as error:
        _rows(paths, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "wrong", "feature", "right"),
    [
        ("max_seq_length", 8, "input_ids", 6),
        ("max_predictions_per_seq", 20, "masked_lm_positions", 2),
    ],
)
def test_wrong_length_raises_error(files, name, wrong, feature, right):
    assert _error(files, **{name: wrong}) == (
        f"{files[0]}: expected {wrong} values of type int64 in feature '{feature}' of the first "
        f"record, got {right}. Pass {name}={right}, or --{name}={right}."
    )


def _write(path, *records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def test_foreign_or_missing_records_raise_error(tmp_path):
    example = tf.train.Example()
    example.features.feature["image"].bytes_list.value.append(b"")
    other = _write(tmp_path / "other", example.SerializeToString())
    names = ", ".join(GOOGLE_NAMES.values())
    assert _error(other) == (
        f"{other}: the records have no feature 'input_ids': expected {names}, got image."
    )
    no_example = _write(tmp_path / "no_example", b"\xff\xff")
    started = f"{no_example}: the first record is not a tf.train.Example ("
    assert _error(no_example).startswith(started)
    pattern, empty = str(tmp_path / "*.x"), _write(tmp_path / "empty")
    assert _error(pattern) == f"No file matches '{pattern}'. Pass TFRecord files."
    assert _error(empty) == f"No records in {empty}. Pass files of pre-training examples."


def test_truncated_file_raises_error(files, tmp_path):
    with open(files[1], "rb") as file:
        content = file.read()
    size, path = len(content) // 11, tmp_path / "cut"
    for cut in (len(content) - 1, 10 * size + 3):
        path.write_bytes(content[:cut])
        message = _error([files[0], str(path)])
        assert message.startswith(f"{path}: record 10, at byte {10 * size}, ends at byte ")
        assert message.endswith(
            f", but the file has only {cut} bytes. Pass complete, uncompressed TFRecord files."
        )


NO_MASK = {"input_word_ids": np.zeros((1, S), np.int32)}


@pytest.mark.parametrize(
    ("batches", "names", "message"),
    [
        ([], [], "files: expected at least one path, got none"),
        ([], ["x", "x"], "files: expected each file once, got .*x"),
        ([NO_MASK], ["x"], "The batch has no key 'input_mask'"),
    ],
)
def test_invalid_arguments_raise_error_and_write_nothing(tmp_path, batches, names, message):
    with pytest.raises(ValueError, match=message):
        write_tfrecords(batches, [str(tmp_path / name) for name in names])
    assert not list(tmp_path.iterdir())


# === Index of records ===


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of 7, 7 and 6 rows, in blocks of three."""
    monkeypatch.setattr(tfrecords, "_RECORDS_PER_BLOCK", 3)
    folder = tmp_path / "records"
    write_tfrecords([_batch(0, 20)], [str(folder / name) for name in "abc"])
    return folder


@pytest.fixture
def indexed_files(monkeypatch):
    """Names of the files that were indexed."""
    names, find = [], tfrecords._index_file

    def recording_index(file):
        names.append(os.path.basename(file.path))
        return find(file)

    monkeypatch.setattr(tfrecords, "_index_file", recording_index)
    return names


def opened(folder, cache=None):
    """Returns the records that another process opens."""
    tfrecords._open.cache_clear()
    return open_records([f"{folder}/*"], cache and str(cache))


def assert_equal(first, second):
    assert first.files == second.files
    for one, other in zip(first.blocks, second.blocks, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first.values, second.values)


def test_without_cache_folder_files_are_indexed_once_per_process(folder, indexed_files):
    tfrecords._open.cache_clear()
    assert open_records(f"{folder}/*") is open_records(f"{folder}/*")
    assert indexed_files == ["a", "b", "c"]


def _rewrite(path):
    """Writes other rows with the same size and time."""
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
    ids=["content", "new", "deleted", "renamed"],
)
def test_index_is_rebuilt_if_files_change(folder, tmp_path, change):
    opened(folder, tmp_path / "cache")
    change(folder)
    assert_equal(opened(folder, tmp_path / "cache"), opened(folder))


def _zipped(data, compression=zipfile.ZIP_STORED, **members):
    """Returns the archive with these members replaced."""
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
    """A NumPy file whose header specifies an array larger than any memory."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846975,), }\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data,
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
def test_files_are_read_again_only_if_index_is_damaged(folder, tmp_path, indexed_files, change):
    first = opened(folder, tmp_path / "cache")
    (index,) = (tmp_path / "cache").iterdir()
    data = index.read_bytes()
    index.write_bytes(change(data))
    damaged = index.read_bytes() != data
    indexed_files.clear()
    assert_equal(opened(folder, tmp_path / "cache"), first)
    assert sorted(indexed_files) == (["a", "b", "c"] if damaged else [])
