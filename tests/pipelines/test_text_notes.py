"""Sentences on what a text and a tokenizer make of each other."""

import pytest

from bert_tf.pipelines.sources import from_documents
from bert_tf.pipelines.text_notes import corpus_lines, marks_note, unknown_note
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer

LETTERS = [*"abcdeghilmnoprstuy.", *(f"##{letter}" for letter in "abcdeghilmnoprstuy")]
UNCASED = BertTokenizer([*SPECIAL_TOKENS, *LETTERS])
CASED = BertTokenizer([*SPECIAL_TOKENS, *LETTERS], do_lower_case=False)


@pytest.mark.parametrize(
    "text, examples",
    [
        ("私はごはんを食べながら、がくせいの本を読む。", r"(が, ご, べ)"),
        ("나는 학교에 간다.", r"(나, 는, 학, 교, 에)"),
        ("यह पुस्तक बहुत अच्छी थी।", r"(ु, ्)"),
        ("แม่กำลังทำอาหาร", r"(่, ั)"),
        ("我每天在学校学习汉语。", None),
        ("L'été à la plage était très agréable.", None),
        ("Tôi học tiếng Việt ở trường. Đó là がく.", None),
        ("Мой ёж ещё спит.", None),
    ],
)
def test_marks_that_lower_casing_strips_are_told_where_nothing_has_a_capital(text, examples):
    note = marks_note(from_documents([[text]]))
    assert (note is None) if examples is None else (examples in note)
    assert examples is None or note.endswith(": --do_lower_case=false keeps them.")


@pytest.mark.parametrize(
    "texts, tokenizer, told",
    [
        (["A plain test. " * 10, "Ünaccented"], UNCASED, None),
        (["a b " * 49 + "z"], UNCASED, None),  # one word in 99
        (["a " * 40 + "zoo zebra jazz"], UNCASED,
         "7.0% of the words in a sample are unknown to the vocabulary, such as zoo, zebra, jazz: "
         "it lacks z, j, as it was made of other text."),
        (["a Big Big Dog"], CASED,
         "75.0% of the words in a sample are unknown to the vocabulary, such as Big, Dog: it "
         "lacks the capitals B, D, and do_lower_case is false."),
        (["a " + "b" * 201], CASED, f"such as {'b' * 28}...{'b' * 29}: these are too long, or"),
        (["a 猫 狗"], UNCASED, "such as 猫, 狗: it lacks 猫, 狗, as"),
    ],
)  # fmt: skip
def test_more_unknown_words_than_one_in_fifty_are_told_with_the_likely_cause(
    texts, tokenizer, told
):
    note = unknown_note(texts, tokenizer)
    assert (note is None) if told is None else (told in note)


def _lines(documents, masking="token", **rows):
    return corpus_lines(from_documents(documents), UNCASED, masking, **rows)[1:]


def test_documents_of_one_sentence_and_whole_words_of_chinese_are_told():
    single = [[f"the letter {letter}"] for letter in "abcdeghi"]
    (line,) = _lines(single)
    assert line.startswith("In 100% of the pairs the second text is of another document, as most")
    assert _lines(single, pairs=False) == []
    assert _lines([["a b c. "] * 20] * 4, masking="whole_word") == []
    chinese, _ = _lines([["我每天在学校学习汉语。"] * 20] * 4, masking="whole_word")
    assert chinese.startswith("Whole words of Chinese are single characters to BERT")


def test_a_cased_vocabulary_on_lower_cased_text_is_told():
    cased = BertTokenizer([*SPECIAL_TOKENS, *LETTERS, "The"])
    lines = corpus_lines(from_documents([["the top."] * 20] * 4), cased, "token")
    assert lines[1].startswith("The vocabulary seems to be cased (1 pieces with capitals, such as")
