import pytest

from bert_tf.pipelines.wordpiece_model import build_wordpiece_operation, matchable_pieces


def test_pieces_that_no_text_can_produce_get_stand_ins():
    vocab = [
        "[UNK]",
        "a",
        "##a",
        "É",
        "é",
        "Σ",
        "##",
        "#",
        "a b",
        "z\x00",
        "e.g.",
        "–",
        "[1]",
        "中",
    ]
    uncased = matchable_pieces(vocab, do_lower_case=True)
    cased = matchable_pieces(vocab, do_lower_case=False)
    kept = ["[0]", "a", "##a", "É", "é", "Σ", "[6]", "#", "[8]", "[9]", "[10]", "–", "[12]", "中"]
    assert cased == kept
    assert uncased == [*kept[:3], "[3]", "[4]", *kept[5:]]


def test_refuses_pieces_that_the_operation_cannot_hold():
    assert matchable_pieces(["ก" * 85], do_lower_case=True) == ["ก" * 85]
    with pytest.raises(ValueError, match=r"Piece 1 .*, .##กก.*has 258 bytes: expected at most 256"):
        matchable_pieces(["a", "##" + "ก" * 86], do_lower_case=True)
    # Too long, but no text can produce it.
    assert matchable_pieces(["É" * 200], do_lower_case=True) == ["[0]"]


def test_words_longer_than_the_limit_are_unknown():
    operation = build_wordpiece_operation(["[0]", "x", "##x", "!"], 0, max_bytes_per_word=3)
    assert operation.tokenize(["x xxx xxxx x!", ""]).to_list() == [[1, 1, 2, 2, 0, 1, 3], []]
