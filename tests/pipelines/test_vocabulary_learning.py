"""Learning a vocabulary, against counts made by hand."""

import subprocess
import sys

import pytest

from bert_tf.pipelines import vocabulary_learning

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_learned_by_hand():
    # Letters: w 7, l 5, o 5, e 2, s 2, r 1 (dropped); "!" 2, "," 1 (dropped). Pairs: "l ##o" and
    # "##o ##w" 5 each, so the lower id decides: "##w" is before "l". Then "low" (5), and of the
    # pairs with 2 "low ##e" or "##e ##s", again by id.
    lines = ["low low low, LOWES lowes r", "w! w!"]
    vocab = vocabulary_learning.learn_vocabulary(lines, vocab_size=100)
    assert vocab[:5] == SPECIALS
    singles = ["w", "##w", "l", "##l", "o", "##o", "!", "e", "##e", "s", "##s"]
    assert vocab[5:16] == singles
    assert vocab[16:] == ["lo", "low", "##es", "lowes"]


def test_special_tokens_in_the_text_are_ordinary_words():
    vocab = vocabulary_learning.learn_vocabulary(["[MASK] [CLS] ##mask"] * 50, vocab_size=100)
    assert vocab[:5] == SPECIALS
    assert {"mask", "cls", "[", "]", "#"} <= set(vocab)
    assert len(vocab) == len(set(vocab))


def test_case_accents_and_chinese():
    lines = ["Été été ÉTÉ 東京 東京"] * 3
    lower = vocabulary_learning.learn_vocabulary(lines, vocab_size=50)
    assert "ete" in lower and not any("é" in p or "E" in p for p in lower[5:])
    cased = vocabulary_learning.learn_vocabulary(lines, vocab_size=50, do_lower_case=False)
    assert {"Été", "été", "ÉTÉ"} <= set(cased)
    # A Chinese character is a word of its own: no pair, and no continuing form.
    assert {"東", "京"} <= set(lower) and not {"東京", "##京", "##東"} & set(lower)


def test_size_limit_and_coverage(monkeypatch):
    text = [" ".join(f"{a}{b}{c}" for a in "abcdefgh" for b in "ijkl" for c in "mnop")] * 3
    for size in (7, 20, 36, 37, 60):
        vocab = vocabulary_learning.learn_vocabulary(text, vocab_size=size)
        # Sixteen letters of two forms each, as many as there is room for; the rest is merges.
        assert len(vocab) == size
        assert sum(len(piece.removeprefix("##")) == 1 for piece in vocab) == min(
            32, (size - 5) // 2 * 2
        )
    rare = ["a" * 10 + "b" * 9 + "z"] * 3
    monkeypatch.setattr(vocabulary_learning, "_CHARACTER_COVERAGE", 0.96)
    assert "z" in vocabulary_learning.learn_vocabulary(rare, 50)
    monkeypatch.setattr(vocabulary_learning, "_CHARACTER_COVERAGE", 0.95)
    assert "z" not in vocabulary_learning.learn_vocabulary(rare, 50)
    assert "z" not in vocabulary_learning.learn_vocabulary(rare, 50, min_frequency=4)


def test_long_lines_are_few_at_a_time(monkeypatch):
    monkeypatch.setattr(vocabulary_learning, "_CHARACTERS_PER_BATCH", 5)
    batches = vocabulary_learning._batches(["abc", "de", "fghijk", "l"])
    assert [*batches] == [["abc", "de"], ["fghijk"], ["l"]]


def test_iterators_lists_and_streams_agree():
    lines = [f"the {word} of a {word}er" for word in ("sun", "moon", "star", "sky")] * 3000

    class Stream:
        def __iter__(self):
            yield from lines

    vocab = vocabulary_learning.learn_vocabulary(lines, 60)
    assert vocabulary_learning.learn_vocabulary(iter(lines), 60) == vocab
    assert vocabulary_learning.learn_vocabulary(Stream(), 60) == vocab
    assert {"the", "##er", "moon"} <= set(vocab)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 6}, "vocab_size is 6: expected at least 7, for the 5 special tokens and"),
        ({"min_frequency": 0}, "min_frequency is 0: expected 1 or more"),
        ({"lines": ["", " \t\u3000", "\x00"]}, "There is no text to learn a vocabulary from"),
    ],
)
def test_learning_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        vocabulary_learning.learn_vocabulary(**{"lines": ["some text"], **arguments})


LEARN = """
import hashlib
from bert_tf.pipelines.vocabulary_learning import learn_vocabulary
lines = [f"{a}{b}{c} {c}{a} {b}{a}{a}" for a in "abcdefgh" for b in "hijklmn" for c in "öpqrst"]
vocab = learn_vocabulary(lines, 150)
digest = hashlib.sha256("\\n".join(vocab).encode()).hexdigest()
print(len(vocab), digest)
"""


@pytest.mark.slow
def test_same_in_another_process():
    # Every count occurs many times here: whatever breaks ties by a hash's order would show.
    other = subprocess.run(
        [sys.executable, "-c", LEARN], capture_output=True, text=True, check=True
    )
    scope: dict = {}
    exec(LEARN, scope)
    assert other.stdout.split() == [str(len(scope["vocab"])), scope["digest"]]
    assert len(scope["vocab"]) == 150
