import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.questions import rows as question_answering
from bert_tf.tasks.questions.rows import question_examples
from tests.pipelines.test_answers import extract_answers
from tests.pipelines.test_long_texts import (
    CONTEXTS,
    LENGTHS,
    QUESTIONS,
    TOKENIZER,
    make_windows,
    pack_windows,
)

from . import twin as twin

PAPER = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}


def _data(**options):
    return question_examples(TOKENIZER, QUESTIONS, CONTEXTS, **{**LENGTHS, **options})


def _all_answers():
    """Yields byte ranges of some contexts, and unanswerable questions: (question, start, end)."""
    for number in (0, 1, 3, 4, 6, 7):
        size = len(CONTEXTS[number])
        yield number, -1, -1
        for start in range(0, size, 3):
            for length in (1, 2, 3, 7, 20):
                if start + length <= size:
                    yield number, start, start + length


def _expected_rows(answers):
    """Returns ids and answer columns per window, and the indices of lost answers."""
    rows, lost = [], []
    for index, (number, start, end) in enumerate(answers):
        question = twin.tokenize(TOKENIZER, QUESTIONS[number])[:6]
        context = twin.tokenize(TOKENIZER, CONTEXTS[number])
        answer = twin.overlapping_tokens(context, start, end)
        found = []
        for window in twin.windows(len(question), len(context), 16, 5):
            columns = twin.columns(len(question), window, *answer) if answer[0] >= 0 else (0, 0)
            found.append((twin.row(TOKENIZER, question, context, window)[0], columns))
        lost += [index] * (start >= 0 and all(columns == (0, 0) for _, columns in found))
        rows += found
    return rows, lost


def test_batches_contain_each_window_with_its_answer():
    answers = list(_all_answers())
    numbers, starts, ends = zip(*answers, strict=True)
    texts = ([column[number] for number in numbers] for column in (QUESTIONS, CONTEXTS))
    data = question_examples(TOKENIZER, *texts, answer_starts=starts, answer_ends=ends, **LENGTHS)
    expected, lost = _expected_rows(answers)
    assert data.lost_answers.tolist() == lost and len(lost) == data.examples.num_lost > 10
    seen = []
    for rows, labels in data.examples.training_batches(64, length_multiple=1):
        lengths = tf.reduce_sum(rows["input_mask"], 1).numpy()
        assert rows["input_word_ids"].shape[1] == lengths.max()
        found = (rows["example_index"], rows["input_word_ids"], *labels.values())
        for length, *values in zip(lengths, *(value.numpy() for value in found), strict=True):
            index, ids, start, end = values
            assert (ids[:length].tolist(), (start, end)) == expected[index]
            seen.append(index)
    assert list(labels) == ["start_logits", "end_logits"]
    assert sorted(seen) == list(range(len(expected)))
    absent = sum(columns == (0, 0) for _, columns in expected)
    assert 100 < absent < len(expected) - 100


def test_counts_of_long_questions_and_lost_answers():
    data = question_examples(
        TOKENIZER,
        ["a"] * 4,
        ["a b c d e f a b", "a b", "\u0301", "\u0301 a"],
        answer_starts=[0, -1, 0, 0],
        answer_ends=[1, -1, 2, 4],
        **{"max_seq_length": 9, "max_query_length": 1, "doc_stride": 2},
    )
    assert (data.examples.num_too_long, data.examples.num_lost) == (1, 1)
    assert data.lost_answers.tolist() == [2]
    assert data.windows.questions.numpy().tolist() == [0, 0, 0, 1, 2, 3]


class _Model:
    """Returns logits that depend on tokens and columns; padding has the largest ones."""

    def __call__(self, rows, training):
        assert training is False
        ids = rows[features.INPUT_WORD_IDS]
        columns = tf.range(tf.shape(ids)[1])[None, :]
        real = rows[features.INPUT_MASK] == 1

        def logits(factor):
            return tf.where(real, tf.cast((ids * factor + columns * 5) % 11, tf.float32) / 4, 99.0)

        return {"start_logits": logits(3), "end_logits": logits(7)}


def test_predictions_in_chunks_equal_those_of_all_windows(monkeypatch):
    monkeypatch.setattr(question_answering, "_WINDOWS_CHUNK_SIZE", 7)
    windows = make_windows(TOKENIZER, QUESTIONS, CONTEXTS, **LENGTHS)
    logits = _Model()(pack_windows(windows, 16), training=False)
    options = {"n_best": 6, "max_answer_length": 7}
    expected = extract_answers(
        logits["start_logits"], logits["end_logits"], windows, tf.constant(CONTEXTS), **options
    )
    no_answers = [-1] * len(CONTEXTS)
    data = _data(answer_starts=no_answers, answer_ends=no_answers)
    received, _ = data.predict_answers(_Model(), batch_size=5, **options)
    for values, expected_values in zip(received, expected, strict=True):
        np.testing.assert_array_equal(values, expected_values)


WITHIN = "expected a non-empty range within the 3 bytes of its context, or -1 and -1 for no answer"


def _answers(starts, ends):
    return {"answer_starts": starts, "answer_ends": ends}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"contexts": ["a", "b"]}, "contexts: expected one row for each of the 1 examples"),
        ({"questions": []}, "questions: expected at least one string, got none"),
        ({"contexts": [None]}, r"contexts\[0\]: expected a string, got None"),
        ({"max_seq_length": 20}, "max_seq_length=20: expected at least 68, because a row "
         "contains a question of up to max_query_length=64 tokens, a token of the context, "
         r"\[CLS\] and two \[SEP\]"),
        ({"doc_stride": 0}, "doc_stride: expected at least 1, got 0"),
        ({"max_query_length": 0}, "max_query_length: expected at least 1, got 0"),
        (_answers([0], None), r"answer_ends: expected integers of shape \(N,\), got dtype object "
         r"and shape \(\)"),
        (_answers([0.5], [1]), r"answer_starts: expected integers of shape \(N,\), got dtype "
         r"float64 and shape \(1,\)"),
        (_answers([[0]], [1]), r"answer_starts: expected integers .* and shape \(1, 1\)"),
        (_answers([0, 0], [1, 1]),
         "answer_starts: expected one row for each of the 1 examples, got 2"),
        (_answers([0], [4]), f"Answer 0 has the bytes 0 to 4: {WITHIN}"),
        (_answers([2], [2]), f"Answer 0 has the bytes 2 to 2: {WITHIN}"),
        (_answers([-1], [2]), f"Answer 0 has the bytes -1 to 2: {WITHIN}"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_error(arguments, message):
    inputs = {"questions": ["a"], "contexts": ["a b"], **PAPER, **arguments}
    with pytest.raises(ValueError, match=message):
        question_examples(TOKENIZER, **inputs)


def test_invalid_limits_raise_error():
    for name in ("n_best", "max_answer_length"):
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            limits = {"n_best": 1, "max_answer_length": 1, name: 0}
            _data().predict_answers(_Model(), batch_size=5, **limits)


@pytest.mark.parametrize("step", [120, pytest.param(1, marks=pytest.mark.slow)])
def test_published_questions_keep_their_answers(data_dir, step):
    tokenizer = BertTokenizer(str(data_dir / "vocab" / "bert-base-uncased.txt"))
    with zipfile.ZipFile(data_dir / "squad" / "dev-v1.1.json.zip") as archive:
        articles = json.loads(archive.read("dev-v1.1.json"))["data"]
    questions_and_answers = [
        (item["question"], paragraph["context"], item["answers"][0])
        for article in articles
        for paragraph in article["paragraphs"]
        for item in paragraph["qas"]
    ]
    assert len(questions_and_answers) == 10570
    questions, contexts, answers = zip(*questions_and_answers[::step], strict=True)
    starts = [
        len(context[: answer["answer_start"]].encode())
        for context, answer in zip(contexts, answers, strict=True)
    ]
    ends = [
        start + len(answer["text"].encode()) for start, answer in zip(starts, answers, strict=True)
    ]
    data = question_examples(
        tokenizer, questions, contexts, answer_starts=starts, answer_ends=ends, **PAPER
    )
    assert not len(data.lost_answers)
    has_answer = np.zeros(len(answers), bool)
    for rows, labels in data.examples.evaluation_batches(256):
        windows = rows["example_index"].numpy()[labels["start_logits"].numpy() > 0]
        has_answer[data.windows.questions.numpy()[windows]] = True
    assert has_answer.all()
