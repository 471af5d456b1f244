"""JSON documents and lines are read from whatever file they come in, and what is none is named."""

import gzip
import os
import re

import pytest

from bert_tf.readers import records
from bert_tf.readers.notes import encoding_notes
from bert_tf.readers.records import read_json_document, read_lines

TEXT = '{"id": ["Ünë", 1.5, null]}'
DOCUMENT = {"id": ["Ünë", 1.5, None]}


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        gzip.compress(TEXT.encode()),
    ],
    ids=["plain", "byte order mark", "gzip"],
)
def test_every_form_holds_the_same(tmp_path, content):
    path = tmp_path / "any_name"
    path.write_bytes(content)
    assert read_json_document(str(path)) == DOCUMENT


def test_another_file_system():
    import tensorflow as tf

    with tf.io.gfile.GFile("ram://folder/dev.json", "w") as file:
        file.write(TEXT)
    assert read_json_document("ram://folder/dev.json") == DOCUMENT


WHOLE = gzip.compress(os.urandom(500))


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "FILE is empty: expected a JSON document."),
        (gzip.compress(b" \n", mtime=0), "FILE is empty: expected a JSON document."),
        (b'{"a": 1,\n "b" 2}',
         "FILE is not JSON: Expecting ':' delimiter: line 2 column 6 (char 14)."),
        (b"[" * 200_000, "FILE is not JSON that is read: it is nested too deep."),
        ("[1, 'ü']".encode("latin-1"),
         "FILE is not UTF-8 text (0xfc at byte 5): expected a JSON document, plain or gzipped."),
        (WHOLE[:-20],
         "FILE is not a whole gzip file (Compressed file ended before the end-of-stream marker was "
         "reached): it is damaged or was cut short; copy it again."),
    ],
)  # fmt: skip
def test_what_is_no_document(tmp_path, content, sentence):
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_json_document(str(path))
    assert str(caught.value) == sentence.replace("FILE", str(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_is_too_large_is_not_unpacked(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(records, "_MAX_BYTES", 1000)
    path = tmp_path / "dev.json"
    path.write_bytes(pack(b" " * 998 + b"[]"))
    assert read_json_document(str(path)) == []
    path.write_bytes(pack(b" " * 999 + b"[]"))
    with pytest.raises(ValueError) as caught:
        read_json_document(str(path))
    assert str(caught.value) == (
        f"{path} holds more than 1,000 bytes: expected a JSON document that fits into memory; "
        "split it."
    )


def test_a_device_is_no_document():
    with pytest.raises(ValueError, match=r"^/dev/zero is a pipe or a device: expected a file\.$"):
        read_json_document("/dev/zero")
    with pytest.raises(ValueError, match=r"^/dev/zero is a pipe or a device: expected a file\.$"):
        list(read_lines("/dev/zero"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_does_not_end(tmp_path, monkeypatch, pack):
    monkeypatch.setenv("BERT_TF_MAX_LINE_MB", "1")
    monkeypatch.setattr(records, "_CHUNK_BYTES", 1 << 18)
    path = tmp_path / "a.csv"
    path.write_bytes(pack(b"a\nb\n" + b"x" * ((1 << 20) - 1) + b"\n" + b"x" * (1 << 21)))
    with pytest.raises(ValueError) as caught:
        list(read_lines(str(path)))
    assert str(caught.value) == (
        f"{path}, line 4: expected a line of at most 1 MiB, got more; if it is meant, "
        "set the environment variable BERT_TF_MAX_LINE_MB=2."
    )
    monkeypatch.setenv("BERT_TF_MAX_LINE_MB", "3")
    assert len(list(read_lines(str(path)))) == 4


def test_a_missing_file_and_a_folder(tmp_path):
    missing = tmp_path / "dev.json"
    with pytest.raises(ValueError, match=f"^There is no file at {missing}: expected a text file"):
        read_json_document(str(missing))
    with pytest.raises(ValueError, match=f"^{tmp_path} is a folder: expected a text file; name"):
        read_json_document(str(tmp_path))
    (tmp_path / "a.zip").touch()
    with pytest.raises(ValueError, match="a.zip is an archive: unpack it, and name the file in it"):
        list(read_lines(str(tmp_path / "a.zip")))


def test_json_lines_are_named(tmp_path):
    path = tmp_path / "train.json"
    path.write_text('{"question": "a"}\n{"question": "b"}\n')
    message = r"train\.json holds several JSON documents, a line each: .* let its name end in \.jso"
    with pytest.raises(ValueError, match=message):
        read_json_document(str(path))
    path.write_text('{"a": 1}\n')
    assert read_json_document(str(path)) == {"a": 1}


# === Lines ===


def lines_of(path, content, **arguments):
    path.write_bytes(content)
    return list(read_lines(str(path), **arguments))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\n", ["one", ""]),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", ["one", "two"]),
        # Only \n ends a line: neither a lone return nor Unicode's line separators.
        ("a\rb\u2028c\x85d\x0ce\nf".encode(), ["a\rb\u2028c\x85d\x0ce", "f"]),
        ("\ufeffa\n\ufeffb\ufeff\r\n\ufeff".encode(), ["a", "b\ufeff", ""]),
    ],
)
def test_lines(tmp_path, content, lines, monkeypatch):
    expected = list(enumerate(lines, 1))
    assert lines_of(tmp_path / "a.txt", content) == expected
    assert lines_of(tmp_path / "a.gz", gzip.compress(content)) == expected
    # Wherever a chunk ends, in a character or between \r and \n too.
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(records, "_CHUNK_BYTES", size)
        assert lines_of(tmp_path / "a.txt", content) == expected


def test_encodings(tmp_path):
    path = tmp_path / "a.txt"
    assert lines_of(path, "señor\n".encode("latin-1"), encoding="latin-1") == [(1, "señor")]
    message = (
        f"{path}, line 3: expected text in utf-8, got the byte 0xf1; save the file as UTF-8, or "
    )
    message += "name its encoding: finetune and predict take --encoding, such as cp1252 "
    message += "(Windows) or latin-1."
    with pytest.raises(ValueError, match=re.escape(message)):
        lines_of(path, "a\nb\nseñor\n".encode("latin-1"))
    with pytest.raises(ValueError, match="Unknown encoding 'utf-9': expected a name such as utf-8"):
        lines_of(path, b"", encoding="utf-9")


def test_the_line_of_a_bad_byte_counts_the_chunks_before(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_CHUNK_BYTES", 8)
    with pytest.raises(ValueError, match="line 9: expected text in utf-8, got the byte 0xff"):
        lines_of(tmp_path / "a.txt", b"one\n" * 8 + b"tw\xffo\n")


def test_says_what_is_no_file(tmp_path):
    with pytest.raises(ValueError, match="There is no file at /no/such.txt: expected a text file"):
        list(read_lines("/no/such.txt"))
    with pytest.raises(ValueError, match=rf"^{tmp_path} is a folder: expected a text file; name"):
        list(read_lines(str(tmp_path)))
    (tmp_path / "reviews.csv").touch()
    with pytest.raises(ValueError, match=rf"file \(did you mean {tmp_path}/reviews.csv\?\)\.$"):
        list(read_lines(f"{tmp_path}/reviwes.csv"))
    with pytest.raises(ValueError, match="is not a whole gzip file"):
        lines_of(tmp_path / "a.gz", gzip.compress(b"x" * 1000)[:-9])


def test_single_returns_alone_end_no_lines(tmp_path):
    message = r"a\.txt: expected lines that end with a line feed, got only single carriage returns"
    with pytest.raises(ValueError, match=message):
        lines_of(tmp_path / "a.txt", b"text\tlabel\rso\tx\r")
    assert lines_of(tmp_path / "a.txt", b"text\tlabel\r") == [(1, "text\tlabel")]


def test_utf_16_is_named(tmp_path):
    with pytest.raises(ValueError, match="line 1: expected text in utf-8, got UTF-16; save the"):
        lines_of(tmp_path / "a.txt", "text\tlabel\n".encode("utf-16"))


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["It’s café…", "naïve", "漢字", "plain"] * 9, None),
        (["It\x92s on", "plain"] * 2, None),
        (["It\x92s on", "plain"] * 3,
         "3 of 6 examples hold control characters, such as 'It\\x92s', where cp1252 has"),
        (["le cafÃ© – “bon”"] * 3, None),
        (["le cafÃ© bon"] * 3,
         "3 of 3 examples seem to be UTF-8 that was read as another encoding, such as 'cafÃ©'"),
        (["don’t".encode().decode("latin-1")] * 3, "3 of 3 examples seem to be UTF-8 that"),
    ],
)  # fmt: skip
def test_texts_in_another_encoding_than_their_own(texts, note):
    found = encoding_notes(texts)
    assert [line[: len(note or "")] for line in found] == ([note] if note else [])
