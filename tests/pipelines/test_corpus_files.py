import gzip
import re
import shutil

import pytest

from bert_tf.pipelines import corpus_files, text_bytes


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


def test_finds_files_in_order_each_once(folder):
    assert names(folder, f"{folder}/c.md, {folder}/*.txt,{folder}/a.txt") == [
        "c.md",
        "a.txt",
        "b.txt",
    ]
    assert names(folder, [f"{folder}/sub", f"{folder}/?.md"]) == ["sub/d.txt", "c.md"]
    assert names(folder, str(folder)) == ["a.txt", "b.txt", "c.md", "sub/d.txt"]
    assert names(folder, f"{folder}/") == ["a.txt", "b.txt", "c.md", "sub/d.txt"]


def test_a_file_counts_once_by_whatever_name(folder, monkeypatch):
    (folder / "link.txt").symlink_to(folder / "a.txt")
    monkeypatch.chdir(folder)
    found = [file.path for file in corpus_files.find_files(f"a.txt,./a.txt,file://{folder}/*.txt")]
    assert found == ["a.txt", f"file://{folder}/b.txt"]


def test_links_that_lead_round_are_walked_once(folder):
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "again").symlink_to(folder / "sub")
    assert names(folder, str(folder)) == ["a.txt", "again/d.txt", "b.txt", "c.md"]
    assert names(folder, f"file://{folder}/") == [
        f"file://{folder}/{name}" for name in ("a.txt", "again/d.txt", "b.txt", "c.md")
    ]


def test_a_path_with_a_globs_characters_is_a_path(folder):
    (folder / "x[1].txt").write_text("x")
    assert names(folder, f"{folder}/x[1].txt") == ["x[1].txt"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("{0}/a.txt,{0}/*.tex", "No file matches '{0}/*.tex': give paths or globs of text files"),
        ("/no/such/folder/*", "No file matches '/no/such/folder/*'"),
        ("{0}/**/*.txt", "{0}/**/*.txt: ** would stand for one folder, and leave out what"),
        (" , ", "The input names no file: give paths or globs"),
        ("{0}/empty.txt", "The input {0}/empty.txt is empty: every file that it names has 0 byt"),
    ],
)
def test_says_what_is_nothing(folder, inputs, message):
    with pytest.raises(ValueError, match=re.escape(message.format(folder))):
        corpus_files.find_files(inputs.format(folder))


def test_inflates_only_what_tensorflow_reads_alike(tmp_path):
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
        with pytest.raises(ValueError, match="is not a whole gzip file"):
            inflate(damaged)


@pytest.mark.parametrize(
    ("name", "remedy"), [("a.txt.xz", "unpack it first"), ("a", "convert the")]
)
def test_what_is_no_text_is_converted_or_unpacked(name, remedy):
    with pytest.raises(ValueError, match=rf"^{name} is not UTF-8: .* offset 7 \(.*\); {remedy}"):
        text_bytes.check_utf8(b"\xfd7zXZ", name, 7)


def test_space_is_asked_for_first(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=3_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    corpus_files.check_space(str(tmp_path), 3_000_000, "text")
    corpus_files.check_space("gs://bucket/cache", 4_000_000, "text")
    message = (
        f"The cache folder {tmp_path} needs about 4 MB for text and has 3 MB free: free some space "
        "or choose another cache folder."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_files.check_space(str(tmp_path), 4_000_000, "text")
    with pytest.raises(ValueError, match=re.escape(f"file://{tmp_path} needs about 4 MB")):
        corpus_files.check_space(f"file://{tmp_path}", 4_000_000, "text")
