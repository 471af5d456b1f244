import re

import pytest

from bert_tf.pipelines import corpus_files, corpus_scan

WIKI_TEXT = b"".join(
    b'<doc id="%d" title="t">\nt\n\n%s\n</doc>\n' % (i, b"Some text. " * i) for i in range(12)
)
GOOGLE_TEXT = "".join(f"Größe {'x' * i}.\nZwei.\n{chr(13) * (i % 2)}\n" for i in range(60)).encode()


def cut(text, text_format, block_bytes):
    """The blocks of a text, cut one after another."""
    blocks = []
    while text:
        window = text[: max(block_bytes, corpus_scan.MAX_DOCUMENT_BYTES)]
        length = corpus_scan.find_cut(window, text_format, block_bytes, window == text)
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
    monkeypatch.setattr(corpus_scan, "MAX_DOCUMENT_BYTES", 12)
    assert cut(b"One.\n\nTwo.\nThree.\n", "prose", 4) == [b"One.\n\n", b"Two.\nThree.\n"]
    assert cut(b"One two.\nThree.\n", "prose", 4) == [b"One two.\n", b"Three.\n"]
    assert cut(b"One two three four", "prose", 4) == [b"One two ", b"three four"]
    assert cut("äöüäöüäöü".encode(), "google", 4) == ["äöüäö".encode(), "üäöü".encode()]
    # Invalid text is cut too; the check of its bytes comes later.
    assert cut(b"\x80" * 13, "google", 4)[0] == b"\x80"


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 200, 1000, 10_000])
@pytest.mark.parametrize("text_format", ["google", "wikiextractor"])
def test_ranges_cover_a_file_and_start_documents(tmp_path, monkeypatch, block_bytes, text_format):
    monkeypatch.setattr(corpus_scan, "MAX_DOCUMENT_BYTES", 300)
    text = WIKI_TEXT if text_format == "wikiextractor" else GOOGLE_TEXT
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    scanned = corpus_scan.scan_file(corpus_files.describe_file(str(path)), None, block_bytes)
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
        corpus_scan.scan_file(corpus_files.describe_file(str(path)), "google", block_bytes)


def test_wiki_format_needs_a_document_line(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("No <doc here.\n")
    message = f"{path} has no line that begins with '<doc ', as WikiExtractor's output has"
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_scan.scan_file(corpus_files.describe_file(str(path)), "wikiextractor", 1 << 20)
