"""JSON documents are read plain, gzipped and zipped, and what is none is named."""

import gzip
import io
import os
import zipfile

import pytest

from bert_tf.tasks import json_files
from bert_tf.tasks.json_files import read_json_document

TEXT = '{"id": ["Ünë", 1.5, null]}'
DOCUMENT = {"id": ["Ünë", 1.5, None]}


def zipped(members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        gzip.compress(TEXT.encode()),
        zipped({"dev.json": TEXT}),
        zipped({"dev/": "", "dev/dev.json": TEXT, "__MACOSX/dev/._dev.json": "x", "README": "x"}),
    ],
    ids=["plain", "byte order mark", "gzip", "zip", "zip with other files"],
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
ENCRYPTED = bytearray(zipped({"dev.json": TEXT}))
ENCRYPTED[6] |= 1  # the flag in the member's header, and in the archive's directory
ENCRYPTED[ENCRYPTED.index(b"PK\x01\x02") + 8] |= 1


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "FILE is empty: expected a JSON document."),
        (gzip.compress(b" \n", mtime=0), "FILE is empty: expected a JSON document."),
        (
            b'{"a": 1,\n "b" 2}',
            "FILE is not JSON: Expecting ':' delimiter: line 2 column 6 (char 14).",
        ),
        (
            b"[" * 200_000,
            "FILE is not JSON that is read: it is nested deeper than 64 levels.",
        ),
        (
            "[1, 'ü']".encode("latin-1"),
            "FILE is not UTF-8 text (0xfc at byte 5): expected a JSON document, plain, gzipped or "
            "zipped.",
        ),
        (
            WHOLE[:-20],
            "FILE cannot be unpacked (Compressed file ended before the end-of-stream marker was "
            "reached): expected a whole gzip or zip file without a password; fetch it again.",
        ),
        (
            zipped({"dev.json": TEXT})[:-9],
            "FILE cannot be unpacked (File is not a zip file): expected a whole gzip or zip file "
            "without a password; fetch it again.",
        ),
        (
            bytes(ENCRYPTED),
            "FILE cannot be unpacked (File 'dev.json' is encrypted, password required for "
            "extraction): expected a whole gzip or zip file without a password; fetch it again.",
        ),
        (
            zipped({"train.json": TEXT, "dev.json": TEXT}),
            "FILE holds 2 files named *.json (train.json, dev.json): expected exactly one; unpack "
            "it and name the file.",
        ),
        (
            zipped({"dev.txt": TEXT}),
            "FILE holds 0 files named *.json (none): expected exactly one; unpack it and name the "
            "file.",
        ),
    ],
)
def test_what_is_no_document(tmp_path, content, sentence):
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_json_document(str(path))
    assert str(caught.value) == sentence.replace("FILE", str(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda text: zipped({"dev.json": text})])
def test_what_is_too_large_is_not_unpacked(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(json_files, "_MAX_BYTES", 1000)
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


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        read_json_document(str(tmp_path / "dev.json"))
    assert str(caught.value) == f"{tmp_path}/dev.json cannot be read: No such file or directory."
    with pytest.raises(IsADirectoryError) as caught:
        read_json_document(str(tmp_path))
    assert str(caught.value) == f"{tmp_path} cannot be read: Is a directory."


def test_json_lines_are_named(tmp_path):
    path = tmp_path / "train.json"
    path.write_text('{"question": "a"}\n{"question": "b"}\n')
    message = (
        r"train\.json holds several JSON documents, a line each: .* let its name end in \.jsonl"
    )
    with pytest.raises(ValueError, match=message):
        read_json_document(str(path))
    path.write_text('{"a": 1}\n')
    assert read_json_document(str(path)) == {"a": 1}
