"""Vocabularies: files read and refused, and learning, against counts made by hand."""

import gzip
import subprocess
import sys
import time

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


def test_save_round_trip_replaces_and_leaves_nothing_else(tmp_path):
    path = str(tmp_path / "new" / "vocab.txt")
    for last in ("z", "y"):
        vocabulary.save_vocabulary(path, [*SPECIALS, "\u2028", "##é", last])
        assert vocabulary.load_vocabulary(path) == [*SPECIALS, "\u2028", "##é", last]
    assert tf.io.gfile.listdir(str(tmp_path / "new")) == ["vocab.txt"]


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = str(tmp_path / "vocab.txt")
    vocabulary.save_vocabulary(path, [*SPECIALS, "old"])

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.io.gfile, "rename", full)
    with pytest.raises(OSError, match="No space"):
        vocabulary.save_vocabulary(path, [*SPECIALS, "new"])
    assert vocabulary.load_vocabulary(path) == [*SPECIALS, "old"]
    assert tf.io.gfile.listdir(str(tmp_path)) == ["vocab.txt"]


@pytest.mark.parametrize("piece", ["a b\n", " a", "a\r"])
def test_save_refuses_white_space(tmp_path, piece):
    with pytest.raises(ValueError, match="for line 6 holds white space that a file"):
        vocabulary.save_vocabulary(str(tmp_path / "vocab.txt"), [*SPECIALS, piece])
    assert not list(tmp_path.iterdir())


def test_missing_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(ValueError, match=r"There is no vocabulary file at '.*one piece a line"):
            vocabulary.load_vocabulary(str(path))


def test_invalid_utf8_names_file_line_and_byte(tmp_path):
    path = write(tmp_path, b"[PAD]\n[UNK]\nab\xff\n")
    with pytest.raises(ValueError, match=rf"{path}: line 3 is not UTF-8 \(byte 14 of the file\)"):
        vocabulary.load_vocabulary(path)


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
    ],
)
def test_faulty_vocabularies(tmp_path, content, message):
    with pytest.raises(ValueError, match=f"vocab.txt: {message}"):
        vocabulary.load_vocabulary(write(tmp_path, content))


def test_vocabulary_larger_than_the_model():
    vocabulary.check_vocabulary_fits(SPECIALS, 5, "v.txt")
    vocabulary.check_vocabulary_fits(SPECIALS, 6, "v.txt")
    with pytest.raises(ValueError, match=r"v\.txt has 5 pieces, but the model's vocab_size is 4"):
        vocabulary.check_vocabulary_fits(SPECIALS, 4, "v.txt")


def test_learned_by_hand():
    # Letters: w 7, l 5, o 5, e 2, s 2, r 1 (dropped); "!" 2, "," 1 (dropped). Pairs: "l ##o" and
    # "##o ##w" 5 each, so the lower id decides: "##w" is before "l". Then "low" (5), and of the
    # pairs with 2 "low ##e" or "##e ##s", again by id.
    lines = ["low low low, LOWES lowes r", "w! w!"]
    vocab = vocabulary.learn_vocabulary(lines, vocab_size=100)
    assert vocab[:5] == SPECIALS
    singles = ["w", "##w", "l", "##l", "o", "##o", "!", "e", "##e", "s", "##s"]
    assert vocab[5:16] == singles
    assert vocab[16:] == ["lo", "low", "##es", "lowes"]


def test_special_tokens_in_the_text_are_ordinary_words():
    vocab = vocabulary.learn_vocabulary(["[MASK] [CLS] ##mask"] * 50, vocab_size=100)
    assert vocab[:5] == SPECIALS
    assert {"mask", "cls", "[", "]", "#"} <= set(vocab)
    assert len(vocab) == len(set(vocab))


def test_case_accents_and_chinese():
    lines = ["Été été ÉTÉ 東京 東京"] * 3
    lower = vocabulary.learn_vocabulary(lines, vocab_size=50)
    assert "ete" in lower and not any("é" in p or "E" in p for p in lower[5:])
    cased = vocabulary.learn_vocabulary(lines, vocab_size=50, do_lower_case=False)
    assert {"Été", "été", "ÉTÉ"} <= set(cased)
    # A Chinese character is a word of its own: no pair, and no continuing form.
    assert {"東", "京"} <= set(lower) and not {"東京", "##京", "##東"} & set(lower)


def test_size_limit_and_coverage():
    text = [" ".join(f"{a}{b}{c}" for a in "abcdefgh" for b in "ijkl" for c in "mnop")] * 3
    for size in (7, 20, 36, 37, 60):
        vocab = vocabulary.learn_vocabulary(text, vocab_size=size)
        # Sixteen letters of two forms each, as many as there is room for; the rest is merges.
        assert len(vocab) == size
        assert sum(len(piece.removeprefix("##")) == 1 for piece in vocab) == min(
            32, (size - 5) // 2 * 2
        )
    rare = ["a" * 10 + "b" * 9 + "z"] * 3
    assert "z" in vocabulary.learn_vocabulary(rare, 50, character_coverage=0.96)
    assert "z" not in vocabulary.learn_vocabulary(rare, 50, character_coverage=0.95)
    assert "z" not in vocabulary.learn_vocabulary(rare, 50, min_frequency=4)


def test_iterators_lists_and_streams_agree():
    lines = [f"the {word} of a {word}er" for word in ("sun", "moon", "star", "sky")] * 3000

    class Stream:
        def __iter__(self):
            yield from lines

    vocab = vocabulary.learn_vocabulary(lines, 60)
    assert vocabulary.learn_vocabulary(iter(lines), 60) == vocab
    assert vocabulary.learn_vocabulary(Stream(), 60) == vocab
    assert {"the", "##er", "moon"} <= set(vocab)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 6}, "vocab_size is 6: expected at least 7, for the 5 special tokens and"),
        ({"min_frequency": 0}, "min_frequency is 0: expected 1 or more"),
        ({"character_coverage": 0.0}, r"character_coverage is 0\.0: expected more than 0"),
        ({"character_coverage": 1.5}, r"character_coverage is 1\.5"),
        ({"lines": ["", " \t\u3000", "\x00"]}, "There is no text to learn a vocabulary from"),
    ],
)
def test_learning_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        vocabulary.learn_vocabulary(**{"lines": ["some text"], **arguments})


LEARN = """
import hashlib
from bert_tf.pipelines.vocabulary import learn_vocabulary
lines = [f"{a}{b}{c} {c}{a} {b}{a}{a}" for a in "abcdefgh" for b in "hijklmn" for c in "öpqrst"]
vocab = learn_vocabulary(lines, 150)
digest = hashlib.sha256("\\n".join(vocab).encode()).hexdigest()
print(len(vocab), digest)
"""


def test_same_in_another_process():
    # Every count occurs many times here: whatever breaks ties by a hash's order would show.
    other = subprocess.run(
        [sys.executable, "-c", LEARN], capture_output=True, text=True, check=True
    )
    scope: dict = {}
    exec(LEARN, scope)
    assert other.stdout.split() == [str(len(scope["vocab"])), scope["digest"]]
    assert len(scope["vocab"]) == 150


@pytest.mark.slow
def test_a_hundred_megabytes_in_a_minute(data_dir):
    files = sorted(data_dir.glob("corpora/enwiki/*.gz")) + sorted(
        data_dir.glob("corpora/books/*.gz")
    )

    class Lines:
        def __iter__(self):
            for path in files:
                with gzip.open(path, "rt", encoding="utf-8") as file:
                    yield from file

    start = time.process_time()
    vocab = vocabulary.learn_vocabulary(Lines(), 30522)
    # Of processor time, which other work on the machine does not change much: two cores have
    # 120 seconds of it in a minute, and part of the work takes turns.
    assert time.process_time() - start < 90
    assert len(vocab) == 30522
    with open(data_dir / "vocab" / "bert-base-uncased.txt", encoding="utf-8") as file:
        released = set(file.read().split("\n"))
    # Another corpus, but the same language: most pieces are shared.
    assert len(released & set(vocab)) > 15_000
