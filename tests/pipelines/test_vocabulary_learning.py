"""Learning a vocabulary: hand computations, and the words of ``tokenizers``."""

import pytest
import tokenizers

from bert_tf.pipelines import vocabulary_learning
from bert_tf.pipelines.corpora.text_bytes import group_items
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.vocabulary_learning import learn_vocabulary, word_separator
from tests.processes import run_python

SPECIALS = [*SPECIAL_TOKENS]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_words_equal_those_of_tokenizers_for_every_character(do_lower_case):
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=do_lower_case)
    pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    codes = [*range(0xD800), *range(0xE000, 0x14700), *range(0x1B000, 0x32000), 0xE0001, 0x10FFFD]
    # Neighbors change the form of some characters.
    lines = [f"A{chr(code)}b {chr(code)}{chr(code)}\u1e9e,{chr(code)}" for code in codes]
    for line, words in zip(lines, word_separator(do_lower_case)(lines), strict=True):
        expected = pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(line))
        assert words.decode().split() == [word for word, _ in expected], line


def test_learned_vocabulary_matches_hand_computation():
    # Letters: w 7, l 5, o 5, e 2, s 2, r 1 (dropped); "!" 2, "," 1 (dropped). Pairs: "l ##o" and
    # "##o ##w" 5 each, so the lower id decides: "##w" is before "l". Then "low" (5), and of the
    # pairs with 2 "low ##e" or "##e ##s", again by id.
    lines = ["low low low, LOWES lowes r", "w! w!"]
    vocab = learn_vocabulary(lines, vocab_size=100)
    assert vocab[:5] == SPECIALS
    singles = ["w", "##w", "l", "##l", "o", "##o", "!", "e", "##e", "s", "##s"]
    assert vocab[5:16] == singles
    assert vocab[16:] == ["lo", "low", "##es", "lowes"]


def test_special_tokens_in_text_are_learned_as_words():
    vocab = learn_vocabulary(["[MASK] [CLS] ##mask"] * 50, vocab_size=100)
    assert vocab[:5] == SPECIALS
    assert {"mask", "cls", "[", "]", "#"} <= set(vocab)
    assert len(vocab) == len(set(vocab))


def test_case_accents_and_chinese():
    lines = ["Été été ÉTÉ 東京 東京"] * 3
    lower = learn_vocabulary(lines, vocab_size=50)
    assert "ete" in lower and not any("é" in p or "E" in p for p in lower[5:])
    cased = learn_vocabulary(lines, vocab_size=50, do_lower_case=False)
    assert {"Été", "été", "ÉTÉ"} <= set(cased)
    # A Chinese character is a separate word, with no merges and no "##" form.
    assert {"東", "京"} <= set(lower) and not {"東京", "##京", "##東"} & set(lower)


def test_size_limit_and_coverage(monkeypatch):
    text = [" ".join(f"{a}{b}{c}" for a in "abcdefgh" for b in "ijkl" for c in "mnop")] * 3
    for size in (7, 20, 36, 37, 60):
        vocab = learn_vocabulary(text, vocab_size=size)
        # Sixteen letters with two forms each fit; the remaining pieces are merges.
        assert len(vocab) == size
        assert sum(len(piece.removeprefix("##")) == 1 for piece in vocab) == min(
            32, (size - 5) // 2 * 2
        )
    rare = ["a" * 10 + "b" * 9 + "z"] * 3
    monkeypatch.setattr(vocabulary_learning, "_CHARACTER_COVERAGE", 0.96)
    assert "z" in learn_vocabulary(rare, 50)
    monkeypatch.setattr(vocabulary_learning, "_CHARACTER_COVERAGE", 0.95)
    assert "z" not in learn_vocabulary(rare, 50)
    assert "z" not in learn_vocabulary(rare, 50, min_frequency=4)


def test_line_ends_do_not_change_the_vocabulary():
    words = [f"{a}{b}" for a in "abcdefgh" for b in "ijklmnop"] * 3
    assert learn_vocabulary(words, 100) == learn_vocabulary([" ".join(words)], 100)


def test_words_above_length_limit_are_not_learned():
    lines = ["low lower lowest 東京 東京"] * 3
    long_words = ["xy" * 101, "É" * 201, "q" * (1 << 18)]
    others = ["東" * 300, "xy" * 100, f"{'x' * 150}.{'y' * 150}"]  # words of up to 200 characters
    vocab = learn_vocabulary([*lines, *others], 100)
    assert learn_vocabulary([*lines, *others, " ".join(long_words)], 100) == vocab
    assert any("xyxy" in piece for piece in vocab)


def test_group_items_limits_count_and_size():
    batches = group_items(["abc", "de", "fghijk", "l", "m", "n"], len, max_items=2, max_size=5)
    assert [*batches] == [["abc", "de"], ["fghijk"], ["l", "m"], ["n"]]


def test_iterator_list_and_stream_give_equal_vocabularies():
    lines = [f"the {word} of a {word}er" for word in ("sun", "moon", "star", "sky")] * 3000

    class Stream:
        def __iter__(self):
            yield from lines

    vocab = learn_vocabulary(lines, 60)
    assert learn_vocabulary(iter(lines), 60) == vocab
    assert learn_vocabulary(Stream(), 60) == vocab
    assert {"the", "##er", "moon"} <= set(vocab)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"vocab_size": 6},
            "vocab_size=6: expected at least 7, for the 5 special tokens and one letter",
        ),
        ({"min_frequency": 0}, "min_frequency=0: expected at least 1"),
        ({"lines": ["", " \t\u3000", "\x00"]}, "Cannot learn a vocabulary: every line"),
    ],
)
def test_invalid_learning_arguments_raise_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        learn_vocabulary(**{"lines": ["some text"], **arguments})


LEARN = """
import hashlib
from bert_tf.pipelines.vocabulary_learning import learn_vocabulary
lines = [f"{a}{b}{c} {c}{a} {b}{a}{a}" for a in "abcdefgh" for b in "hijklmn" for c in "öpqrst"]
vocab = learn_vocabulary(lines, 150)
digest = hashlib.sha256("\\n".join(vocab).encode()).hexdigest()
print(len(vocab), digest)
"""


@pytest.mark.slow
def test_learning_is_deterministic_across_processes():
    # Many words have equal counts, so breaking ties by hash order would change the result.
    one, other = (run_python(LEARN).stdout for _ in range(2))
    assert one == other and one.startswith("150 ")
