import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig, features
from bert_tf.modeling import BertSpanPredictor
from bert_tf.pipelines import question_answering
from bert_tf.pipelines.answers import extract_answers
from bert_tf.pipelines.context_windows import (
    cut_windows,
    make_windows,
    pack_windows,
    tokenize_questions,
)
from bert_tf.pipelines.question_answering import _find_tokens, _window_spans, question_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.pipelines import question_answering_twin as twin
from tests.pipelines.test_context_windows import CONTEXTS, LENGTHS, QUESTIONS, TOKENIZER


def _answers():
    """Some bytes of each context that has any; -1 and -1 for the others."""
    found = [(min(3, len(text) - 1), min(9, len(text))) if text else (-1, -1) for text in CONTEXTS]
    return [start for start, _ in found], [end for _, end in found]


def _data(**options):
    return question_examples(TOKENIZER, QUESTIONS, CONTEXTS, **{**LENGTHS, **options})


def _labelled():
    starts, ends = _answers()
    return _data(answer_starts=starts, answer_ends=ends)


def _expected_rows():
    """Of each window the row's ids, and the columns of its answer."""
    rows = []
    for question, context, start, end in zip(QUESTIONS, CONTEXTS, *_answers(), strict=True):
        question = twin.tokenize(TOKENIZER, question)[:6]
        context = twin.tokenize(TOKENIZER, context)
        answer = twin.overlapping_tokens(context, start, end)
        for window in twin.windows(len(question), len(context), 16, 5):
            columns = twin.columns(len(question), window, *answer) if answer[0] >= 0 else (0, 0)
            rows.append((twin.row(TOKENIZER, question, context, window)[0], columns))
    return rows


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_batches_hold_every_window_and_its_answer(kind):
    data, expected = _labelled(), _expected_rows()
    seen = []
    for rows, labels in getattr(data.examples, f"{kind}_batches")(4, length_multiple=1):
        lengths = tf.reduce_sum(rows[features.INPUT_MASK], 1).numpy()
        assert rows[features.INPUT_WORD_IDS].shape[1] == lengths.max()
        for place, index in enumerate(rows[features.EXAMPLE_INDEX].numpy()):
            ids, columns = expected[index]
            assert rows[features.INPUT_WORD_IDS][place, : lengths[place]].numpy().tolist() == ids
            assert labels["start_logits"][place] == columns[0]
            assert labels["end_logits"][place] == columns[1]
            seen.append(index)
    assert sorted(seen) == list(range(len(expected)))
    assert any(columns != (0, 0) for _, columns in expected)


def test_counts():
    contexts = ["a b c d e f a b", "a b", "\u0301", "\u0301 a"]
    data = question_examples(
        TOKENIZER,
        ["a"] * 4,
        contexts,
        answer_starts=[0, -1, 0, 0],
        answer_ends=[1, -1, 2, 4],
        max_seq_length=9,
        max_query_length=1,
        doc_stride=2,
    )
    assert data.examples.num_too_long == 1
    assert data.lost_answers.tolist() == [2]
    assert data.examples.num_lost == 1
    assert data.windows.questions.numpy().tolist() == [0, 0, 0, 1, 2, 3]


class _Model:
    """Logits that depend on a row's tokens and columns; the greatest stand on padding."""

    def __call__(self, rows, training):
        assert training is False
        ids = rows[features.INPUT_WORD_IDS]
        columns = tf.range(tf.shape(ids)[1])[None, :]
        real = rows[features.INPUT_MASK] == 1

        def logits(factor):
            return tf.where(real, tf.cast((ids * factor + columns * 5) % 11, tf.float32) / 4, 99.0)

        return {"start_logits": logits(3), "end_logits": logits(7)}


@pytest.mark.parametrize("windows_at_once", [7, 512])
def test_predicted_answers_equal_those_of_all_windows_at_once(monkeypatch, windows_at_once):
    monkeypatch.setattr(question_answering, "_WINDOWS_AT_ONCE", windows_at_once)
    windows = make_windows(TOKENIZER, QUESTIONS, CONTEXTS, **LENGTHS)
    logits = _Model()(pack_windows(windows, TOKENIZER), training=False)
    options = {"n_best": 6, "max_answer_length": 7}
    expected = extract_answers(
        logits["start_logits"], logits["end_logits"], windows, tf.constant(CONTEXTS), **options
    )
    for data in (_data(), _labelled()):
        received = data.predict_answers(_Model(), batch_size=5, **options)
        for values, wanted in zip(received, expected, strict=True):
            np.testing.assert_array_equal(values, wanted)


def test_more_answers_than_a_row_has_columns():
    data = question_examples(TOKENIZER, ["a"], ["b"])
    answers = data.predict_answers(_Model(), n_best=20)
    assert answers.texts.shape == (1, 20)
    assert answers.counts.tolist() == [1]


@pytest.mark.slow
def test_a_model_learns_where_answers_stand():
    # The answer begins with c and ends with e; four in five windows are without it.
    contexts, golds = [], []
    for place in range(24):
        words = ["ab?"[(place * i + i * i) % 3] for i in range(30)]
        golds.append(("c  f. e", "C D e")[place % 2])
        contexts.append(" ".join([*words[:place], golds[-1], *words[place:]]))
    starts = [context.index(gold) for context, gold in zip(contexts, golds, strict=True)]
    data = question_examples(
        TOKENIZER,
        ["f?"] * len(contexts),
        contexts,
        answer_starts=starts,
        answer_ends=[start + len(gold) for start, gold in zip(starts, golds, strict=True)],
        **LENGTHS,
    )
    assert len(data.examples) > 4 * len(contexts)
    keras.utils.set_random_seed(0)
    model = BertSpanPredictor(
        BertConfig.from_preset(
            "bert-tiny",
            vocab_size=len(TOKENIZER.vocab),
            hidden_size=32,
            intermediate_size=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss=loss, loss_weights=0.5)
    history = model.fit(
        data.examples.training_batches(16, epochs=14),
        epochs=14,
        steps_per_epoch=data.examples.num_batches(16),
        shuffle=False,
        verbose=0,
    )
    assert history.history["loss"][-1] < 0.1
    answers = data.predict_answers(model, n_best=3)
    assert [text.decode() for text in answers.texts[:, 0]] == golds
    np.testing.assert_array_equal(answers.byte_starts[:, 0], starts)


def test_bad_columns():
    with pytest.raises(ValueError, match="contexts: expected one row for each of the 1 examples"):
        question_examples(TOKENIZER, ["a"], ["a", "b"])
    with pytest.raises(ValueError, match="questions is empty"):
        question_examples(TOKENIZER, [], [])
    with pytest.raises(ValueError, match=r"contexts\[0\] is None"):
        question_examples(TOKENIZER, ["a"], [None])
    with pytest.raises(ValueError, match="max_seq_length is 20: expected at least 68"):
        question_examples(TOKENIZER, ["a"], ["b"], max_seq_length=20)


@pytest.mark.parametrize(
    ("starts", "ends", "message"),
    [
        ([0], None, "answer_ends: expected integers of shape .N,.; got dtype object"),
        ([0.5], [1], "answer_starts: expected integers of shape .N,.; got dtype float64"),
        ([[0]], [1], r"answer_starts: expected integers .* and shape \(1, 1\)"),
        ([0, 0], [1, 1], "answer_starts: expected one row for each of the 1 examples; got 2"),
        ([0], [4], "Answer 0 is bytes 0 to 4: expected a range within its context's 3 bytes"),
        ([2], [2], "Answer 0 is bytes 2 to 2: .* not empty, or -1 and -1 for no answer"),
        ([-1], [2], "Answer 0 is bytes -1 to 2"),
    ],
)
def test_bad_answers(starts, ends, message):
    with pytest.raises(ValueError, match=message):
        question_examples(TOKENIZER, ["a"], ["a b"], answer_starts=starts, answer_ends=ends)


def test_bad_limits():
    with pytest.raises(ValueError, match="n_best: expected 1 or more; got 0"):
        _data().predict_answers(_Model(), n_best=0)
    with pytest.raises(ValueError, match="max_answer_length: expected 1 or more; got 0"):
        _data().predict_answers(_Model(), max_answer_length=0)


@pytest.mark.slow
def test_windows_of_published_questions_equal_googles_loop(data_dir):
    tokenizer = BertTokenizer(str(data_dir / "vocab" / "bert-base-uncased.txt"))
    with zipfile.ZipFile(data_dir / "squad" / "dev-v1.1.json.zip") as archive:
        articles = json.loads(archive.read("dev-v1.1.json"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [(item, paragraph["context"]) for paragraph in paragraphs for item in paragraph["qas"]]
    starts, ends = [], []
    for question, context in asked:
        answer = question["answers"][0]
        starts.append(len(context[: answer["answer_start"]].encode()))
        ends.append(starts[-1] + len(answer["text"].encode()))
    data = question_examples(
        tokenizer,
        [question["question"] for question, _ in asked],
        [context for _, context in asked],
        answer_starts=starts,
        answer_ends=ends,
    )
    assert len(asked) == 10570 and not len(data.lost_answers)
    tokens = tf.nest.map_structure(lambda values: values.numpy(), data.windows.tokens)
    expected = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        first, length = tokens.context_starts[number], tokens.context_lengths[number]
        begins = tokens.byte_starts[first : first + length].tolist()
        limits = tokens.byte_ends[first : first + length].tolist()
        context = list(zip(range(length), begins, limits, strict=True))
        answer = twin.overlapping_tokens(context, start, end)
        size = tokens.question_lengths[number]
        for window in twin.windows(size, length, 384, 128):
            expected.append((number, *window, *twin.columns(size, window, *answer)))
    columns = np.full([len(expected), 2], -1)
    for rows, labels in data.examples.evaluation_batches(256):
        index = rows[features.EXAMPLE_INDEX].numpy()
        columns[index] = np.stack([labels["start_logits"], labels["end_logits"]], 1)
    windows = np.stack([data.windows.questions, data.windows.firsts, data.windows.lengths], 1)
    np.testing.assert_array_equal(np.concatenate([windows, columns], 1), expected)


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
    firsts, lasts = _find_tokens(windows.tokens, byte_starts, byte_ends)
    return windows.questions, firsts, lasts, *_window_spans(windows, firsts, lasts)


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
    found = _find_tokens(tokens, np.int64([start]), np.int64([start + len(answer)]))
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
        firsts, lasts = _find_tokens(tokens, np.int64(starts), np.int64(ends))
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
        columns, _ = _window_spans(windows, firsts, lasts)
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
