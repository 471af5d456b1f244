"""Vocabulary files: read and refused."""

import pytest
import tensorflow as tf

from bert_tf.pipelines import vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize(
    ("name", "size", "cls_id", "line", "piece"),
    [
        ("bert-base-uncased", 30522, 101, 30521, "##～"),
        ("bert-base-cased", 28996, 101, 28995, "##："),
        ("bert-base-multilingual-cased", 119547, 101, 119546, "##𩾌"),
        ("bert-base-chinese", 21128, 101, 343, "\u2028"),
    ],
)
def test_released_vocabularies(data_dir, name, size, cls_id, line, piece):
    vocab = vocabulary.load_vocabulary(str(data_dir / "vocab" / f"{name}.txt"))
    assert len(vocab) == len(set(vocab)) == size
    assert vocab.index("[CLS]") == cls_id
    assert vocab[line] == piece


def write(tmp_path, content: bytes) -> str:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    return str(path)


def test_line_number_is_id_whatever_the_line_ends(tmp_path):
    pieces = [*SPECIALS, "a", "\u2028", "##\u2028", "\x85", "é"]
    for end in (b"\n", b"\r\n", b" \n"):
        content = end.join(piece.encode() for piece in pieces)
        for tail in (b"", end, end + end):
            assert vocabulary.load_vocabulary(write(tmp_path, content + tail)) == pieces
    marked = b"\xef\xbb\xbf" + "\n".join(pieces).encode()
    assert vocabulary.load_vocabulary(write(tmp_path, marked)) == pieces


def test_save_replaces_and_leaves_nothing_else(tmp_path, monkeypatch):
    path = str(tmp_path / "new" / "vocab.txt")
    for last in ("z", "y"):
        vocabulary.save_vocabulary(path, [*SPECIALS, "\u2028", "##é", last])
        assert vocabulary.load_vocabulary(path) == [*SPECIALS, "\u2028", "##é", last]

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.io.gfile, "rename", full)
    with pytest.raises(OSError, match="No space"):
        vocabulary.save_vocabulary(path, [*SPECIALS, "new"])
    assert vocabulary.load_vocabulary(path) == [*SPECIALS, "\u2028", "##é", "y"]
    assert tf.io.gfile.listdir(str(tmp_path / "new")) == ["vocab.txt"]


@pytest.mark.parametrize("piece", ["a b\n", " a", "a\r"])
def test_save_refuses_white_space(tmp_path, piece):
    with pytest.raises(ValueError, match="for line 6 holds white space that a file"):
        vocabulary.save_vocabulary(str(tmp_path / "vocab.txt"), [*SPECIALS, piece])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n", "it is empty; expected one piece a line"),
        (b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\n", "line 3 is empty"),
        (b"[PAD]\n[CLS]\na\n[SEP]\n", r"no line holds \[UNK\], \[MASK\]; a BERT .* 4 lines"),
        (
            b"[PAD]\n[UNK]\nthe\n[CLS]\n[SEP]\n[MASK]\nthe\n",
            "'the' stands on line 3 and again on line 7",
        ),
        (b"[PAD]\n[UNK]\nab\xff\n", r"line 3 is not UTF-8 \(byte 14 of the file\)"),
    ],
)
def test_faulty_vocabularies(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=f"{path}: {message}"):
        vocabulary.load_vocabulary(path)
    for missing in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(ValueError, match=r"There is no vocabulary file at '.*one piece a line"):
            vocabulary.load_vocabulary(str(missing))


def test_vocabulary_larger_than_the_model():
    vocabulary.check_vocabulary_fits(SPECIALS, 5, "v.txt")
    vocabulary.check_vocabulary_fits(SPECIALS, 6, "v.txt")
    with pytest.raises(ValueError, match=r"v\.txt has 5 pieces, but the model's vocab_size is 4"):
        vocabulary.check_vocabulary_fits(SPECIALS, 4, "v.txt")
