"""Block indexes: building in parallel, saving, loading and invalidation."""

import concurrent.futures
import gzip
import json
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.corpora import block_index as corpus_index
from bert_tf.pipelines.corpora import corpus, sources, text_bytes
from bert_tf.pipelines.corpora import files as corpus_files

READING = corpus_index.Reading(None, "text", 100)
GOOGLE = "".join(f"This is {i}.\nIt is so.\n\n" for i in range(40))


def open_index(folder, cache=None, reading=READING, progress=None):
    files = corpus_files.find_files(str(folder))
    return corpus_index.open_index(files, reading, cache and str(cache), progress)


def assert_equal(first, second, except_fields=()):
    assert first.formats == second.formats
    for part in ("blocks", "table"):
        for name, value in vars(getattr(first, part)).items():
            other = getattr(getattr(second, part), name)
            assert type(value) is type(other)
            if name not in except_fields:
                np.testing.assert_array_equal(value, other, name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Plain files, a small and a large gzip file, and JSON lines, plain and gzip."""
    monkeypatch.setattr(corpus_index.corpus_formats, "MAX_DOCUMENT_BYTES", 200)
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "1.txt").write_text(GOOGLE)
    (folder / "2.txt.gz").write_bytes(gzip.compress(GOOGLE[:300].encode()))
    (folder / "3.txt.gz").write_bytes(gzip.compress(GOOGLE.encode()))
    lines = "".join(
        json.dumps({"text": f"{i} is it. It is Gr\u00f6\u00dfe."}) + "\n" for i in range(60)
    )
    (folder / "4.jsonl").write_text(lines)
    (folder / "5.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def test_index_describes_the_documents_of_its_blocks(folder, tmp_path):
    index = open_index(folder, tmp_path / "cache")
    assert index.formats == ("google", "jsonl")
    assert np.bincount(index.blocks.block_files).tolist() == [10, 1, 10, 20, 20]
    assert index.blocks.file_is_gzip.tolist() == [False, True, True, True, True]
    read_block = tf.function(
        index.blocks.read, [tf.TensorSpec([], tf.int32)], autograph=False, reduce_retracing=True
    )
    read = [
        [b"\n".join(document) for document in read_block(number).to_list()]
        for number in range(len(index.blocks.lengths))
    ]
    assert np.diff(index.table.block_splits).tolist() == [*map(len, read)]
    assert len(index.table.num_bytes) == 40 + 14 + 40 + 60 + 60
    # JSON lines are counted before their paragraphs are split into sentences.
    texts = [text.replace(b"it.\nIt", b"it. It") for block in read for text in block]
    assert index.table.num_bytes.tolist() == [*map(len, texts)]
    prints = corpus.fingerprint_texts(texts).numpy()
    assert index.table.fingerprints.tolist() == prints.tolist()


def test_parallel_indexing_equals_sequential_indexing(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(GOOGLE)
    count, order = corpus.count_text, []
    second_block_done = threading.Event()

    def count_first_block_last(text, text_format):
        """Finishes the first block last."""
        if text.startswith(b"This is 0."):
            second_block_done.wait(10)
        found = count(text, text_format)
        order.append(text)
        if len(order) == 2:
            second_block_done.set()
        return found

    expected = open_index(path)
    monkeypatch.setattr(corpus_index, "count_text", count_first_block_last)
    monkeypatch.setattr(corpus_index, "usable_cores", lambda: 3)
    assert_equal(open_index(path), expected)
    assert order[0] != GOOGLE.encode()[: len(order[0])]


@pytest.fixture
def read_files(monkeypatch):
    """Names of the files that are read."""
    names, open_file = [], text_bytes.open_bytes

    def recording_open(path):
        if "/cache/" not in path:
            names.append(os.path.basename(path))
        return open_file(path)

    monkeypatch.setattr(text_bytes, "open_bytes", recording_open)
    return names


def _change_preserving_times(folder):
    path = folder / "1.txt"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(GOOGLE.replace("This is 20.", "That is 20."))
    os.utime(path, ns=times)


@pytest.mark.parametrize(
    "change",
    [
        _change_preserving_times,
        lambda folder: (folder / "2.txt.gz").unlink(),
        lambda folder: (folder / "0.txt").write_text("New.\n"),
    ],
    ids=["content", "deleted", "new"],
)
def test_index_is_rebuilt_if_files_change(folder, tmp_path, read_files, change):
    first = open_index(folder, tmp_path / "cache")
    read_files.clear()
    assert_equal(open_index(folder, tmp_path / "cache"), first)
    assert not read_files
    change(folder)
    index = open_index(folder, tmp_path / "cache")
    assert set(read_files) == {path.name for path in folder.iterdir()}
    fresh = open_index(folder, tmp_path / "other" / "cache")
    assert_equal(index, fresh, except_fields=("files",))


def test_pending_indexes_are_merged_at_limit(folder, tmp_path, monkeypatch):
    expected = open_index(folder, tmp_path / "cache")
    monkeypatch.setattr(corpus_index, "_MAX_PENDING_INDEXES", 2)
    index = open_index(folder, tmp_path / "other")
    np.testing.assert_array_equal(index.table.fingerprints, expected.table.fingerprints)
    np.testing.assert_array_equal(index.blocks.block_files, expected.blocks.block_files)


def test_concurrent_index_creation(folder, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: open_index(folder, tmp_path / "cache"), range(4)))
    for index in made:
        assert_equal(index, made[0])
    names = [path.name for path in (tmp_path / "cache").iterdir()]
    assert not [name for name in names if name.endswith(".tmp")] and len(names) == 1 + 3


def test_insufficient_disk_space_for_packed_files_raises_error(folder, tmp_path, monkeypatch):
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    needed = sizes["3.txt.gz"] + sizes["4.jsonl"] // 2 + sizes["5.jsonl.gz"]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    open_index(folder, tmp_path / "cache")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    message = "needs about 0 MB for packed blocks of JSON lines and gzip files, but has 0 MB free"
    with pytest.raises(ValueError, match=message):
        open_index(folder, tmp_path / "other")


def test_fingerprints_do_not_change_between_versions():
    expected = [935866395755577359, 4312544572758382873]
    assert corpus.fingerprint_texts(["One.\nZwei.", "Größe."]).numpy().tolist() == expected
    counts = corpus.count_text("One.\nZwei.\n\nGröße.\n".encode(), "google")
    assert [array.tolist() for array in counts] == [[10, 8], expected]


def test_damaged_or_outdated_index_is_not_loaded(tmp_path):
    path, text = tmp_path / "index.npz", tmp_path / "a.txt"
    text.write_text("One.\nTwo.\n\nThree.\n\nOne.\nTwo.\n\n\n\nOne. Two.\n")
    files = corpus_files.find_files(str(text))
    index = open_index(text, reading=corpus_index.Reading("google", "text", 20))
    corpus_index.save_index(str(path), index)
    data = path.read_bytes()
    for damaged in (data[:-30], data[:100], b"", b"nonsense"):
        path.write_bytes(damaged)
        assert corpus_index.load_index(str(path)) is None
    path.write_bytes(data)
    assert corpus_index.load_index(str(path)) is not None
    for change in (lambda: text.write_text("Another size."), text.unlink):
        change()
        assert corpus_index.load_index(str(path)) is None
        # `files` that the caller passes are not checked again.
        assert corpus_index.load_index(str(path), files) is not None


def test_moved_cache_folder_is_reused(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "One. Two."}\n{"text": "Three."}\n')
    made = sources.open_corpus(str(source), cache_dir=str(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "two").iterdir()}
    moved = sources.open_corpus(str(source), cache_dir=str(tmp_path / "two"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "two").iterdir()} == written
    assert list(moved.sentences()) == ["One.", "Two.", "Three."]
    assert moved.fingerprint == made.fingerprint


def test_index_path_depends_on_files_block_size_and_formats(monkeypatch):
    path = corpus_index.index_path("c", "parts", 1)
    assert path == corpus_index.index_path("c", "parts", 1)
    assert path != corpus_index.index_path("c", "parts", 2)
    monkeypatch.setattr(corpus_index.corpus_formats, "PATTERNS", ("other",))
    assert path != corpus_index.index_path("c", "parts", 1)
