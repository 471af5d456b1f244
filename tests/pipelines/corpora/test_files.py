import bz2
import gzip
import io
import lzma
import pickle
import re
import shutil
import tarfile

import numpy as np
import pytest

from bert_tf.pipelines.corpora import files as corpus_files
from bert_tf.pipelines.corpora import sources, text_bytes
from bert_tf.readers.table_formats import read_json_document, read_lines


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "c.md", "sub/d.txt", ".hidden", "_SUCCESS", "sub/_x/e.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


def names(folder, inputs):
    return [file.path.removeprefix(f"{folder}/") for file in corpus_files.find_files(inputs)]


def test_find_files_returns_unique_files_in_order(folder):
    found = names(folder, f"{folder}/c.md, {folder}/*.txt,{folder}/a.txt")
    assert found == ["c.md", "a.txt", "b.txt"]
    assert names(folder, [f"{folder}/sub", f"{folder}/?.md"]) == ["sub/d.txt", "c.md"]
    for inputs in (str(folder), f"{folder}/"):
        assert names(folder, inputs) == ["a.txt", "b.txt", "c.md", "sub/d.txt"]
    (folder / "x[1].txt").write_text("A path may have the characters of a glob.")
    assert names(folder, f"{folder}/x[1].txt") == ["x[1].txt"]


def test_file_is_found_once_for_all_its_names(folder, monkeypatch):
    (folder / "link.txt").symlink_to(folder / "a.txt")
    monkeypatch.chdir(folder)
    found = [file.path for file in corpus_files.find_files(f"a.txt,./a.txt,file://{folder}/*.txt")]
    assert found == ["a.txt", f"file://{folder}/b.txt"]


def test_cyclic_links_are_followed_once(folder):
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "again").symlink_to(folder / "sub")
    assert names(folder, str(folder)) == ["a.txt", "again/d.txt", "b.txt", "c.md"]
    assert names(folder, f"file://{folder}/") == [
        f"file://{folder}/{name}" for name in ("a.txt", "again/d.txt", "b.txt", "c.md")
    ]


PASS_PATHS = "Pass comma-separated paths or glob patterns of text files."


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("{0}/a.txt,{0}/*.tex", f"No file matches '{{0}}/*.tex'. {PASS_PATHS}"),
        ("/no/such/folder/*", f"No file matches '/no/such/folder/*'. {PASS_PATHS}"),
        ("{0}/**/*.txt",
         "{0}/**/*.txt: ** is not supported. Pass the folder, which is searched recursively."),
        (" , ", "The input contains no paths. Pass comma-separated paths or globs of text files."),
        ("{0}/empty.txt",
         "All files of the input {0}/empty.txt are empty. Pass files that contain text."),
    ],
)  # fmt: skip
def test_input_without_files_or_text_raises_error(folder, inputs, message):
    with pytest.raises(ValueError, match=re.escape(message.format(folder))):
        corpus_files.find_files(inputs.format(folder))


def test_inflate_small_matches_tensorflow(tmp_path):
    def inflate(data, limit=100):
        path = tmp_path / "text.gz"
        path.write_bytes(data)
        return text_bytes.inflate_small(str(path), len(data), limit)

    packed = gzip.compress(b"x" * 100)
    assert inflate(packed) == b"x" * 100
    assert inflate(packed, limit=99) is None
    assert inflate(packed + packed, limit=300) is None
    assert inflate(packed + b"\0\0") is None
    for damaged in (packed[:-1], packed[:-8] + b"\0" * 8):
        with pytest.raises(ValueError, match="is damaged or incomplete"):
            inflate(damaged)


def test_invalid_utf8_error_states_remedy():
    for text, remedy in (
        (b"caf\xe9", r"Convert the file, for example with iconv\."),
        (b"\0\xe9", "It contains zero bytes, as binary files do. Use a text file."),
    ):
        with pytest.raises(ValueError, match=rf"^a is not UTF-8: .* offset \d+ \(.*\)\. {remedy}"):
            text_bytes.check_utf8(text, "a", 7)


def tar(name="a.txt", text=b"It rained."):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return file.getvalue()


def saved(save):
    file = io.BytesIO()
    save(file)
    return file.getvalue()


PARQUET = (
    "a Parquet or Arrow file. Write its texts as JSON lines; finetune and predict read .parquet "
    "and .arrow."
)
BINARY = "a NumPy, pickle, SQLite or HDF5 file. Write its texts as .jsonl or .csv."
PACKED = "compressed twice, or not by gzip. Decompress it first."
TAR = "a tar archive. Unpack it, and pass its files or their folder."
HTML = (
    "an HTML page. Extract its text first, or if the page describes the file, download the file "
    "itself."
)
XML = "an XML file. Extract its text first; use WikiExtractor for a Wikipedia dump."
UTF_16 = (
    'encoded as UTF-16 or UTF-32. Save it as UTF-8 (in Excel "CSV UTF-8"), or run '
    "iconv -f UTF-16 -t UTF-8."
)
NOT_TEXT = [
    (b"PK\x03\x04 a workbook", "a zip archive or an Office file (.xlsx, .docx). Unpack it, save a "
     'workbook as "CSV UTF-8", or save a document as plain text.'),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file (.xls, .doc). Save a workbook as "
     ".csv, or a document as plain text."),
    (b"PAR1\x15\x04", PARQUET),
    (b"ARROW1\0\0", PARQUET),
    (b"\xff\xff\xff\xff\x00\x01\0\0", PARQUET),
    (b"%PDF-1.7\n", "a PDF. Extract its text first, for example with pdftotext."),
    (rb"{\rtf1\ansi so}", "a Rich Text file. Save it as plain text."),
    (saved(lambda file: np.save(file, np.arange(3))), BINARY),
    (pickle.dumps(["so"]), BINARY),
    (b"SQLite format 3\0", BINARY),
    (bz2.compress(b"so"), PACKED),
    (lzma.compress(b"so"), PACKED),
    (b"\x28\xb5\x2f\xfd\x04", PACKED),
    (gzip.compress(gzip.compress(b"so", mtime=0), mtime=0), PACKED),
    (tar(), TAR),
    (gzip.compress(tar(), mtime=0), TAR),
    (b"\xef\xbb\xbf\n<!DOCTYPE html>\n", HTML),
    (b"<!-- saved from x -->\n<HTML lang='en'>", HTML),
    (b"<?xml version='1.0'?>", XML),
    (b"<mediawiki xmlns=", XML),
    ("text\tlabel\n".encode("utf-16"), UTF_16),
    ("\ufefftext\tlabel\n".encode("utf-16-be"), UTF_16),
    ("text\tlabel\n".encode("utf-16-le"), UTF_16),
    (b"\x9a\x02\0\0\0\0\0\0\x11", "a binary file. Pass text files; for Google's records, pass "
     "--input_format=tfrecord to pretrain."),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), NOT_TEXT)
def test_known_binary_format_is_named_in_error(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for read in (corpus_of, lambda path: list(read_lines(path)), read_json_document):
        with pytest.raises(ValueError, match=f"^{re.escape(f'{path} is {message}')}$"):
            read(str(path))


def corpus_of(path):
    return sources.open_corpus(path, cache_dir=f"{path}-cache")


SIMILAR_TEXTS = (
    "PARIS",
    "PAR1\tF2R",
    "BZh9 is gzip's rival.",
    "<htmlx>",
    "<p>So.</p>",
    "7z",
    "%PDF",
)


@pytest.mark.parametrize("text", [*SIMILAR_TEXTS, "GIF8", "x" * 257 + "ustar"])
def test_text_that_resembles_binary_format_is_read(tmp_path, text):
    path = tmp_path / "a.txt"
    for content in (text.encode(), gzip.compress(text.encode())):
        path.write_bytes(content)
        assert list(corpus_of(str(path)).sentences()) == [text]
        assert list(read_lines(str(path))) == [(1, text)]


def test_insufficient_disk_space_raises_error(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=3_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    corpus_files.check_space(str(tmp_path), 3_000_000, "text")
    corpus_files.check_space("gs://bucket/cache", 4_000_000, "text")
    for folder in (str(tmp_path), f"file://{tmp_path}"):
        message = (
            f"The cache folder {folder} needs about 4 MB for text, but has 3 MB free. Free disk "
            "space, or use another cache folder."
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            corpus_files.check_space(folder, 4_000_000, "text")
