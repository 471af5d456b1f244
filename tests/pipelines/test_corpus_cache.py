import gzip
import io
import re
import shutil

import pytest

from bert_tf.pipelines import corpus_cache, corpus_files, corpus_scan


def rewritten(path, cache_dir, text_key="text"):
    source = corpus_files.describe_file(str(path))
    scanned = corpus_scan.scan_file(source, None, 1)
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
    monkeypatch.setattr(corpus_scan, "MAX_DOCUMENT_BYTES", 10)
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
    assert list(corpus_cache.json_texts(io.BytesIO(lines), "a", "text")) == [
        "A long line.",
        "B",
        "C",
    ]


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
