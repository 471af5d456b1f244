import io
import re
import shutil

import pytest

from bert_tf.pipelines import corpus_cache, text_bytes
from bert_tf.untrusted import LINE_VARIABLE


def test_json_lines_become_paragraphs():
    lines = (
        b'\xef\xbb\xbf{"id": 1, "text": "One. Two.\\n\\n  Three \\r\\nFour\\u2028Five"}\r\n'
        b'\n{"text": " \\n "}\n{"text": "Gr\xc3\xb6\\u00dfe \\ud800."}'
    )
    texts = corpus_cache.json_texts(io.BytesIO(lines), "a.jsonl", "text")
    written = b"".join(corpus_cache.paragraphs(texts)).decode()
    assert written == "One. Two.\nThree\nFour\nFive\n\nGröße ?.\n\n"


def test_paragraphs_come_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(corpus_cache, "_CHUNK", 12)
    chunks = list(corpus_cache.paragraphs(["One.", "Two.", " ", "Three.\n\nFour.", "Five."]))
    assert chunks == [b"One.\n\nTwo.\n\n", b"Three.\nFour.\n\n", b"Five.\n\n"]


BAD_LINES = [
    (
        b'{"text": "x"}\n{"text": x}\n',
        r"a\.jsonl:2 is not JSON: Expecting value.* Every line must be one object such as",
    ),
    (b'{"text": "x"}\n\n["x"]\n', r"a\.jsonl:3 has no string under 'text' but no object"),
    (b'{"body": "x", "id": 1}\n', "a.jsonl:1 has no string under 'text' but the keys body, id:"),
    (b'{"text": 1}\n', "a.jsonl:1 has no string under 'text' but the keys text: rename the"),
    (b'{"text": "x"}\n{"text": "\xff"}\n', "a.jsonl is not UTF-8: invalid byte 0xff at byte .* 24"),
]


@pytest.mark.parametrize(("data", "message"), BAD_LINES)
def test_bad_lines_are_named(data, message):
    with pytest.raises(ValueError, match=message):
        list(corpus_cache.json_texts(io.BytesIO(data), "a.jsonl", "text"))


def test_lines_longer_than_a_chunk(monkeypatch):
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", 5)
    lines = b'{"text": "A long line."}\n{"text": "B"}\n\n{"text": "C"}'
    texts = corpus_cache.json_texts(io.BytesIO(lines), "a", "text")
    assert list(texts) == ["A long line.", "B", "C"]


def test_a_line_that_does_not_end_is_refused(monkeypatch):
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", 1 << 14)
    monkeypatch.setenv(LINE_VARIABLE, "1")
    stream = io.BytesIO(b'{"text": "a"}\n' + b"[" * (2 << 20))
    with pytest.raises(ValueError, match="x.jsonl, the line at byte 14: expected a line of at"):
        list(corpus_cache.json_texts(stream, "x.jsonl", "text"))
    assert stream.tell() < (1 << 20) + (1 << 15)


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
    with pytest.raises(ValueError, match=re.escape(f"file://{tmp_path} needs about 4 MB")):
        corpus_cache.check_space(f"file://{tmp_path}", 4_000_000, "text")


def test_tfds_texts_name_the_example_that_is_not_utf8():
    examples = [{"text": "Grüß".encode()}, {"text": b"a\xff"}]
    texts = corpus_cache.tfds_texts(examples, "text", "toy")
    assert next(texts) == "Grüß"
    message = "Example 1 of toy is not UTF-8: invalid byte 0xff at byte offset 1 of 'text'."
    with pytest.raises(ValueError, match=message):
        next(texts)
