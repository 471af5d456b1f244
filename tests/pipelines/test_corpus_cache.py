import gzip
import io
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines import corpus, corpus_cache, corpus_files


def rewritten(path, cache_dir, text_key="text"):
    source = corpus_files.describe_file(str(path))
    scanned = corpus_files.scan_file(source, None, 1)
    assert scanned.ranges is None
    return corpus_cache.RewrittenFile(source, scanned, str(cache_dir), text_key)


def test_json_lines_become_paragraphs(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": 1, "text": "One. Two.\\n\\n  Three \\r\\nFour\\u2028Five"}\r\n'
        b'\n{"text": " \\n "}\n{"text": "Gr\xc3\xb6\\u00dfe \\ud800."}'
    )
    file = rewritten(path, tmp_path / "cache")
    assert file.text_format == "paragraphs"
    assert not file.is_written()
    assert file.space() == path.stat().st_size
    file.write()
    assert file.is_written()
    with open(file.path, encoding="utf-8") as text:
        assert text.read() == "One. Two.\nThree\nFour\nFive\n\nGröße ?.\n\n"


def test_gzip_is_unpacked_once_per_version_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "MAX_DOCUMENT_BYTES", 10)
    path = tmp_path / "a.txt.gz"
    text = b"One.\nTwo.\n\n" * 100
    path.write_bytes(gzip.compress(text))
    first = rewritten(path, tmp_path / "cache")
    assert first.text_format == "google"
    assert first.space() == 4 * path.stat().st_size
    first.write()
    with open(first.path, "rb") as file:
        assert file.read() == text
    assert rewritten(path, tmp_path / "cache").is_written()
    path.write_bytes(gzip.compress(text + b"More.\n"))
    assert not rewritten(path, tmp_path / "cache").is_written()


def test_other_keys_are_other_files(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "One.", "title": "Two."}\n')
    assert rewritten(path, tmp_path).path != rewritten(path, tmp_path, "title").path


BAD_LINES = [
    (
        b'{"text": "x"}\n{"text": x}\n',
        r"a\.jsonl:2 is not JSON: Expecting value.* Every line must be one object such as",
    ),
    (b'{"text": "x"}\n\n["x"]\n', r"a\.jsonl:3 has no string under 'text' but no object"),
    (b'{"body": "x", "id": 1}\n', "a.jsonl:1 has no string under 'text' but the keys body, id:"),
    (b'{"text": 1}\n', "a.jsonl:1 has no string under 'text' but the keys text: name the key"),
    (b'{"text": "x"}\n{"text": "\xff"}\n', "a.jsonl is not UTF-8: invalid byte 0xff at byte .* 24"),
]


@pytest.mark.parametrize(("data", "message"), BAD_LINES)
def test_bad_lines_are_named_and_leave_nothing(tmp_path, data, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    file = rewritten(path, tmp_path / "cache")
    with pytest.raises(ValueError, match=message):
        file.write()
    assert list((tmp_path / "cache").iterdir()) == []


def test_lines_longer_than_a_chunk(monkeypatch):
    monkeypatch.setattr(corpus_cache, "_CHUNK", 5)
    lines = b'{"text": "A long line."}\n{"text": "B"}\n\n{"text": "C"}'
    texts = corpus_cache.json_texts(io.BytesIO(lines), "a", "text")
    assert list(texts) == ["A long line.", "B", "C"]


def test_space_is_asked_for_first(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=3_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    corpus_cache.check_space(str(tmp_path), 3_000_000, "text")
    corpus_cache.check_space("gs://bucket/cache", 4_000_000, "text")
    message = (
        f"The cache folder {tmp_path} needs about 4 MB for text and has 3 MB free: free some space "
        "or choose another cache folder."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_cache.check_space(str(tmp_path), 4_000_000, "text")


def test_tfds_texts_name_the_example_that_is_not_utf8():
    examples = [{"text": "Grüß".encode()}, {"text": b"a\xff"}]
    texts = corpus_cache.tfds_texts(examples, "text", "toy")
    assert next(texts) == "Grüß"
    message = "Example 1 of toy is not UTF-8: invalid byte 0xff at byte offset 1 of 'text'."
    with pytest.raises(ValueError, match=message):
        next(texts)


@pytest.fixture
def blocks(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One.\nTwo.\n\nThree.\n\nOne.\nTwo.\n\n\n\nOne. Two.\n")
    scanned = corpus_files.scan_file(corpus_files.describe_file(str(path)), "google", 20)
    return corpus.file_blocks([scanned])


def test_counts_what_is_read(blocks):
    shares = []
    table = corpus.count_documents(blocks, shares.append)
    assert table.block_splits.tolist() == [0, 2, 3, 4]
    assert table.num_sentences.tolist() == [2, 1, 2, 1]
    first, second, third, fourth = table.fingerprints.tolist()
    assert first == third
    assert len({first, second, fourth}) == 3
    assert shares[-1] == 1.0


def test_fingerprints_stay_the_same_for_ever():
    documents = tf.ragged.constant([["One.", "Zwei."], ["Größe."]])
    assert corpus.fingerprint_documents(documents).numpy().tolist() == [
        935866395755577359,
        4312544572758382873,
    ]


def test_is_saved_and_loaded(blocks, tmp_path):
    table = corpus.count_documents(blocks)
    path = corpus_cache.index_path(str(tmp_path), "parts", 1)
    assert corpus_cache.load_index(path) is None
    corpus_cache.save_index(path, "google, prose", blocks, table)
    formats, loaded_blocks, loaded_table = corpus_cache.load_index(path)
    assert formats == "google, prose"
    for saved, loaded in ((blocks, loaded_blocks), (table, loaded_table)):
        for name, value in vars(saved).items():
            np.testing.assert_array_equal(getattr(loaded, name), value)
            assert type(getattr(loaded, name)) is type(value)
    again = corpus.count_documents(loaded_blocks)
    np.testing.assert_array_equal(again.fingerprints, table.fingerprints)


def test_an_index_that_does_not_hold_is_not_used(blocks, tmp_path):
    index, text = tmp_path / "index.npz", tmp_path / "a.txt"
    corpus_cache.save_index(str(index), "google", blocks, corpus.count_documents(blocks))
    data = index.read_bytes()
    for damaged in (data[:-30], data[:100], b"", b"nonsense"):
        index.write_bytes(damaged)
        assert corpus_cache.load_index(str(index)) is None
    index.write_bytes(data)
    assert corpus_cache.load_index(str(index)) is not None
    for change in (lambda: text.write_text("Another size."), text.unlink):
        change()
        assert corpus_cache.load_index(str(index)) is None


def test_the_key_depends_on_everything(monkeypatch):
    path = corpus_cache.index_path("c", "parts", 1)
    assert path == corpus_cache.index_path("c", "parts", 1)
    assert path != corpus_cache.index_path("c", "parts", 2)
    monkeypatch.setattr(corpus_cache.corpus_formats, "PATTERNS", ("other",))
    assert path != corpus_cache.index_path("c", "parts", 1)
