"""Reading of lines from text and gzip files."""

import gzip

import pytest

from bert_tf.extraction.run import fingerprint, read_lines
from bert_tf.pipelines.corpora import text_bytes
from bert_tf.pipelines.corpora.files import find_files


@pytest.fixture
def files(tmp_path):
    (tmp_path / "1.txt").write_bytes(b"one\r\n\n a ||| b ||| c \ntwo \xff")
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress("drei\nvierß\n".encode()) * 2)
    (tmp_path / "3.txt").write_bytes("\u2028five\x0bsix\n".encode())
    return find_files([str(tmp_path / "*")])


EXPECTED = [
    ("one", None, True), ("", None, True), ("a ||| b", "c", True), ("two ", None, False),
    ("drei", None, True), ("vierß", None, True), ("drei", None, True), ("vierß", None, True),
    ("five\x0bsix", None, True),
]  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_lines_do_not_depend_on_chunks(files, monkeypatch, chunk):
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", chunk)
    lines = list(read_lines(files))
    assert [(line.first.rstrip("\n"), *line[1:3]) for line in lines] == [
        (first.strip(), second, is_utf8) for first, second, is_utf8 in EXPECTED
    ]
    assert [line.line_index for line in lines] == list(range(9))
    assert lines[-1].bytes_read == sum(file.size for file in files)
    assert [line.bytes_read for line in lines] == sorted(line.bytes_read for line in lines)


def test_fingerprint_depends_on_text_and_not_on_names(files, tmp_path):
    before = fingerprint(files)
    (tmp_path / "3.txt").rename(tmp_path / "4.txt")
    assert fingerprint(find_files([str(tmp_path / "*")])) == before
    (tmp_path / "4.txt").write_bytes("\u2028five\x0bsiX\n".encode())
    assert fingerprint(find_files([str(tmp_path / "*")])) != before
