import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.context_windows import cut_windows, make_windows, tokenize_questions
from bert_tf.pipelines.gold_spans import find_tokens, window_spans
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.pipelines import question_answering_twin as twin
from tests.pipelines.test_context_windows import CONTEXTS, LENGTHS, QUESTIONS, TOKENIZER


def _all_answers():
    """Every range of bytes of some contexts, and no answer: (question, start, end)."""
    for number in (0, 1, 3, 4, 6, 7):
        size = len(CONTEXTS[number])
        yield number, -1, -1
        for start in range(0, size, 3):
            for length in (1, 2, 3, 7, 20):
                if start + length <= size:
                    yield number, start, start + length


ANSWERS = list(_all_answers())


@tf.autograph.experimental.do_not_convert
def _spans(questions, contexts, byte_starts, byte_ends):
    windows = make_windows(TOKENIZER, questions, contexts, **LENGTHS)
    firsts, lasts = find_tokens(windows.tokens, byte_starts, byte_ends)
    return windows.questions, firsts, lasts, *window_spans(windows, firsts, lasts)


def _columns():
    numbers, starts, ends = zip(*ANSWERS, strict=True)
    texts = [tf.constant([column[n] for n in numbers]) for column in (QUESTIONS, CONTEXTS)]
    return *texts, tf.constant(starts, tf.int64), tf.constant(ends, tf.int64)


def _check(questions, firsts, lasts, starts, ends):
    row, found, absent = 0, 0, 0
    for answer, (number, start, end) in enumerate(ANSWERS):
        question = twin.tokenize(TOKENIZER, QUESTIONS[number])[:6]
        context = twin.tokenize(TOKENIZER, CONTEXTS[number])
        first, last = twin.overlapping_tokens(context, start, end)
        assert (firsts[answer], lasts[answer]) == (first, last), (CONTEXTS[number], start, end)
        for window in twin.windows(len(question), len(context), 16, 5):
            wanted = twin.columns(len(question), window, first, last) if first >= 0 else (0, 0)
            assert questions[row] == answer
            assert (starts[row], ends[row]) == wanted
            found += wanted != (0, 0)
            absent += wanted == (0, 0)
            row += 1
    assert row == len(questions)
    assert found > 100 and absent > 100


def test_spans_equal_googles_loop():
    _check(*(values.numpy() for values in _spans(*_columns())))


def test_spans_in_a_dataset():
    dataset = tf.data.Dataset.from_tensors(_columns()).map(_spans)
    _check(*next(dataset.as_numpy_iterator()))


def test_spans_in_a_function():
    signature = [tf.TensorSpec([None], dtype) for dtype in ("string",) * 2 + ("int64",) * 2]
    spans = tf.function(_spans, input_signature=signature)(*_columns())
    _check(*(values.numpy() for values in spans))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("cab", (2, 4)),
        (" cab", (2, 4)),
        ("ab", (3, 4)),  # a part of a word: the pieces that it consists of
        ("c", (2, 2)),
        ("a, ", (0, 1)),
        (" ", (-1, -1)),
    ],
)
def test_pieces_of_words(answer, expected):
    context = "a, cab e"
    start = context.index(answer)
    tokens = tokenize_questions(
        TOKENIZER.tokenize_with_offsets, tf.constant(["a"]), tf.constant([context]), 6
    )
    found = find_tokens(tokens, np.int64([start]), np.int64([start + len(answer)]))
    assert tuple(int(value[0]) for value in found) == expected


def _gold_answers(data_dir):
    with zipfile.ZipFile(data_dir / "squad" / "dev-v1.1.json.zip") as archive:
        articles = json.loads(archive.read("dev-v1.1.json"))["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            for question in paragraph["qas"]:
                for answer in question["answers"]:
                    start = len(context[: answer["answer_start"]].encode())
                    yield question["question"], context, start, answer["text"]


def _recovered(data_dir, rows):
    """The gold answers that their tokens give back, as shares of all: exactly, and nearly."""
    tokenizer = BertTokenizer(str(data_dir / "vocab" / "bert-base-uncased.txt"))
    exact, total, others = 0, 0, []
    for begin in range(0, len(rows), 512):
        questions, contexts, starts, golds = zip(*rows[begin : begin + 512], strict=True)
        tokens = tokenize_questions(
            tokenizer.tokenize_with_offsets, tf.constant(questions), tf.constant(contexts), 64
        )
        ends = [start + len(gold.encode()) for start, gold in zip(starts, golds, strict=True)]
        firsts, lasts = find_tokens(tokens, np.int64(starts), np.int64(ends))
        begins = tf.gather(tokens.byte_starts, tokens.context_starts + firsts).numpy()
        limits = tf.gather(tokens.byte_ends, tokens.context_starts + lasts).numpy()
        assert firsts.numpy().min() >= 0
        for context, gold, first, last in zip(contexts, golds, begins, limits, strict=True):
            text = twin.text(context.encode(), first, last)
            total += 1
            exact += text == gold
            if text != gold:
                others.append((gold, text))
        windows = cut_windows(tokens, 384, 128)
        columns, _ = window_spans(windows, firsts, lasts)
        has_answer = tf.math.unsorted_segment_max(columns, windows.questions, len(golds))
        assert has_answer.numpy().min() > 0
    return exact / total, others


def test_gold_answers_come_back(data_dir):
    exact, others = _recovered(data_dir, list(_gold_answers(data_dir))[::60])
    assert exact > 0.99, others


@pytest.mark.slow
def test_all_gold_answers_come_back(data_dir):
    exact, others = _recovered(data_dir, list(_gold_answers(data_dir)))
    assert exact > 0.99, others
    # What differs is longer: the annotator marked a part of a word or of a number.
    assert all(gold.strip() in text for gold, text in others)
