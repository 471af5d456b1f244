import gzip
import re

import pytest

from bert_tf.pipelines import corpus_files


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


def test_a_sample_is_of_all_of_a_small_file_and_of_a_large_ones_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "_SAMPLE_BYTES", 64)
    monkeypatch.setattr(corpus_files, "_SMALLEST_SAMPLE", 32)
    path = tmp_path / "a"

    def samples(size):
        """How many bytes make a difference: pieces are of 4 bytes, 16 of them."""
        digests = set()
        for changed in range(size):
            path.write_bytes(b"a" * changed + b"b" + b"a" * (size - changed - 1))
            digests.update(corpus_files.sample_files([str(path)]))
        path.write_bytes(b"a" * size)
        return len(digests - set(corpus_files.sample_files([str(path)])))

    assert [samples(size) for size in (1, 3, 63, 64, 80)] == [1, 3, 63, 64, 64]
    assert corpus_files.sample_files(["gs://bucket/a"]) == [""]


def test_a_path_with_a_globs_characters_is_a_path(folder):
    (folder / "x[1].txt").write_text("x")
    assert names(folder, f"{folder}/x[1].txt") == ["x[1].txt"]


def test_says_what_matches_nothing(folder):
    message = f"No file matches '{folder}/*.tex': give paths or globs of text files"
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_files.find_files(f"{folder}/a.txt,{folder}/*.tex")
    with pytest.raises(ValueError, match=r"No file matches '/no/such/folder/\*'"):
        corpus_files.find_files("/no/such/folder/*")
    with pytest.raises(ValueError, match="The input names no file: give paths or globs"):
        corpus_files.find_files(" , ")


def test_says_that_all_files_are_empty(folder):
    message = f"The input {folder}/empty.txt is empty: every file that it names has 0 bytes"
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_files.find_files(f"{folder}/empty.txt")


def test_opens_gzip_by_its_first_bytes(tmp_path):
    for name in ("text.txt", "text.gz"):
        plain, packed = tmp_path / name, tmp_path / f"packed_{name}"
        plain.write_bytes(b"plain")
        packed.write_bytes(gzip.compress(b"packed"))
        with corpus_files.open_text(str(plain)) as file:
            assert file.read() == b"plain"
        with corpus_files.open_text(str(packed)) as file:
            assert file.read() == b"packed"


def test_inflates_only_what_tensorflow_reads_alike(tmp_path):
    def inflate(data, limit=100):
        path = tmp_path / "text.gz"
        path.write_bytes(data)
        return corpus_files.inflate_small(corpus_files.describe_file(str(path)), limit)

    packed = gzip.compress(b"x" * 100)
    assert inflate(packed) == b"x" * 100
    assert inflate(packed, limit=99) is None
    assert inflate(packed + packed, limit=300) is None
    assert inflate(packed + b"\0\0") is None
    for damaged in (packed[:-1], packed[:-8] + b"\0" * 8):
        with pytest.raises(ValueError, match="is not a whole gzip file"):
            inflate(damaged)


WIKI_TEXT = b"".join(
    b'<doc id="%d" title="t">\nt\n\n%s\n</doc>\n' % (i, b"Some text. " * i) for i in range(12)
)
GOOGLE_TEXT = "".join(f"Größe {'x' * i}.\nZwei.\n{chr(13) * (i % 2)}\n" for i in range(60)).encode()


def cut(text, text_format, block_bytes):
    """The blocks of a text, cut one after another."""
    blocks = []
    while text:
        window = text[: max(block_bytes, corpus_files.MAX_DOCUMENT_BYTES)]
        length = corpus_files.find_cut(window, text_format, block_bytes, window == text)
        blocks.append(text[:length])
        text = text[length:]
    return blocks


def test_blocks_end_with_the_last_document_that_fits():
    assert cut(b"One.\n\nTwo.\n\nThree.\n", "google", 12) == [b"One.\n\nTwo.\n\n", b"Three.\n"]
    assert cut(b"One.\n\nTwo.\n\nThree.\n", "google", 11) == [b"One.\n\n", b"Two.\n\n", b"Three.\n"]
    assert cut(b"One.\r\n\r\nTwo.\r\n", "google", 9) == [b"One.\r\n\r\n", b"Two.\r\n"]
    # One that does not fit makes a larger block.
    assert cut(b"One.\nTwo.\n\nThree.\n\nFour.", "google", 3) == [
        b"One.\nTwo.\n\n",
        b"Three.\n\n",
        b"Four.",
    ]
    assert cut(b"<doc 1>\na\n</doc>\n<doc 2>\nb\n</doc>\n", "wikiextractor", 20) == [
        b"<doc 1>\na\n</doc>\n",
        b"<doc 2>\nb\n</doc>\n",
    ]
    assert cut(b"One.\n\nTwo.\n\n", "prose", 3) == [b"One.\n\nTwo.\n\n"]


def test_long_documents_are_cut_at_the_best_place_there_is(monkeypatch):
    monkeypatch.setattr(corpus_files, "MAX_DOCUMENT_BYTES", 12)
    assert cut(b"One.\n\nTwo.\nThree.\n", "prose", 4) == [b"One.\n\n", b"Two.\nThree.\n"]
    assert cut(b"One two.\nThree.\n", "prose", 4) == [b"One two.\n", b"Three.\n"]
    assert cut(b"One two three four", "prose", 4) == [b"One two ", b"three four"]
    assert cut("äöüäöüäöü".encode(), "google", 4) == ["äöüäö".encode(), "üäöü".encode()]
    # Invalid text is cut too; the check of its bytes comes later.
    assert cut(b"\x80" * 13, "google", 4)[0] == b"\x80"


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 200, 1000, 10_000])
@pytest.mark.parametrize("text_format", ["google", "wikiextractor"])
def test_ranges_cover_a_file_and_start_documents(tmp_path, monkeypatch, block_bytes, text_format):
    monkeypatch.setattr(corpus_files, "MAX_DOCUMENT_BYTES", 300)
    text = WIKI_TEXT if text_format == "wikiextractor" else GOOGLE_TEXT
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    scanned = corpus_files.scan_file(corpus_files.describe_file(str(path)), None, block_bytes)
    assert scanned.text_format == text_format
    blocks = [text[offset : offset + length] for offset, length in scanned.ranges]
    assert b"".join(blocks) == text
    assert [offset for offset, _ in scanned.ranges[1:]] == [
        sum(map(len, blocks[:i])) for i in range(1, len(blocks))
    ]
    for block in blocks:
        assert block.startswith(b"<doc " if text_format == "wikiextractor" else "Größe".encode())
    if block_bytes == 1:
        assert len(blocks) == (12 if text_format == "wikiextractor" else 60)
    assert len(blocks) > 1 or block_bytes == 10_000


@pytest.mark.parametrize("block_bytes", [5, 1 << 20])
def test_invalid_bytes_are_named_with_their_offset(tmp_path, block_bytes):
    path = tmp_path / "text.txt"
    path.write_bytes("Grüß.\n\nGott.\n\n".encode() + b"Bad \xff byte.\n")
    message = (
        f"{path} is not UTF-8: invalid byte 0xff at byte offset 20 (invalid start byte); "
        "convert the file, for example with iconv."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_files.scan_file(corpus_files.describe_file(str(path)), "google", block_bytes)


def test_wiki_format_needs_a_document_line(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("No <doc here.\n")
    message = f"{path} has no line that begins with '<doc ', as WikiExtractor's output has"
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_files.scan_file(corpus_files.describe_file(str(path)), "wikiextractor", 1 << 20)
