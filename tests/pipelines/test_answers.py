import numpy as np
import tensorflow as tf

from bert_tf.pipelines import answers as answers_module
from bert_tf.pipelines.answers import Answers, answers_from_columns, best_columns
from bert_tf.pipelines.long_texts import context_columns
from bert_tf.pipelines.normalization import code_points
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.pipelines.test_long_texts import (
    CONTEXTS,
    LENGTHS,
    QUESTIONS,
    TOKENIZER,
    make_windows,
)
from tests.tasks.questions import twin as twin

LIMITS = {"n_best": 6, "max_answer_length": 7}


def _row_lengths(windows):
    return context_columns(windows) + windows.lengths + 1


def extract_answers(starts, ends, windows, contexts, n_best=20, max_answer_length=30):
    best = best_columns(starts, ends, _row_lengths(windows), n_best)
    return answers_from_columns(best, windows, contexts, max_answer_length=max_answer_length)


def _random_logits(seed):
    """Draws from few distinct values, so that many scores tie."""
    windows = make_windows(TOKENIZER, QUESTIONS, CONTEXTS, **LENGTHS)
    logits = np.random.default_rng(seed).integers(-4, 5, [2, len(windows.firsts), 16]) / 4
    return windows, *logits.astype(np.float32)


def _assert_equal_to_twin(answers, starts, ends):
    assert answers.texts.shape == (len(CONTEXTS), LIMITS["n_best"])
    row, counts = 0, []
    for number, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True)):
        question = twin.tokenize(TOKENIZER, question)[:6]
        tokens = twin.tokenize(TOKENIZER, context)
        spans = twin.windows(len(question), len(tokens), 16, 5)
        logits = []
        for _, length in spans:
            size = len(question) + length + 3
            logits.append((starts[row, :size].tolist(), ends[row, :size].tolist()))
            row += 1
        wanted, null = twin.n_best(
            context, tokens, len(question), spans, logits, LIMITS["n_best"], 7
        )
        answer = Answers(*(values[number].numpy() for values in answers))
        count = len(wanted)
        counts.append(count)
        assert answer.counts == count
        texts = [text.decode() for text in answer.texts]
        fields = (answer.byte_starts, answer.start_logits, answer.end_logits)
        kept = list(zip(texts, *map(np.ndarray.tolist, fields), strict=True))
        assert kept[:count] == wanted
        assert kept[count:] == [("", -1, 0.0, 0.0)] * (LIMITS["n_best"] - count)
        for text, begin, end in zip(texts, answer.byte_starts, answer.byte_ends, strict=True):
            assert not text or context[begin:end].decode("utf-8", "ignore") == text
        assert set(answer.byte_ends[count:]) <= {-1}
        assert (answer.null_start_logits, answer.null_end_logits) == null
        assert answer.null_scores == sum(null)
    assert row == len(starts)
    assert min(counts) < max(counts) == LIMITS["n_best"]


def _extract_and_compare(seed):
    windows, *logits = _random_logits(seed)
    _assert_equal_to_twin(
        extract_answers(*logits, windows, tf.constant(CONTEXTS), **LIMITS), *logits
    )


def test_answers_match_googles_loop():
    for seed in (1, 2, 3):
        _extract_and_compare(seed)


def test_chunk_size_does_not_affect_answers(monkeypatch):
    monkeypatch.setattr(answers_module, "_PAIRS_CHUNK_SIZE", 3 * LIMITS["n_best"] ** 2)
    _extract_and_compare(4)


def test_padding_and_half_precision_do_not_affect_answers():
    windows, *logits = _random_logits(3)
    padding = np.arange(16)[None, :] >= _row_lengths(windows).numpy()[:, None]
    assert padding.any()
    noisy = [np.where(padding, np.float32(50), values) for values in logits]
    wide = [np.pad(values, [[0, 0], [0, 9]], constant_values=60) for values in noisy]
    halves = [tf.cast(values, tf.bfloat16) for values in logits]
    expected, *others = (
        extract_answers(*some, windows, tf.constant(CONTEXTS), **LIMITS)
        for some in (logits, noisy, wide, halves)
    )
    for received in others:
        for values, wanted in zip(received, expected, strict=True):
            assert values.dtype == wanted.dtype
            np.testing.assert_array_equal(values, wanted)


# Columns: [CLS] a [SEP] c a b . [SEP], and in the second window [CLS] a [SEP] b . a [SEP].
GOLDEN_STARTS = [[1.0, 9, 9, 0, 3, 0, 0, 0], [0.5, 9, 9, 8, 0, 2, 9, 0]]
GOLDEN_ENDS = [[1.0, 9, 9, 0, 2, 1, 0, 9], [0.0, 9, 9, 1, 0, 1, 9, 0]]


def test_golden_answers():
    # "b" and "." are in both windows; "b" has more context in the first, "." in the second.
    contexts = tf.constant(["c  A b. a"])
    lengths = {"max_seq_length": 8, "doc_stride": 2, "max_query_length": 1}
    windows = make_windows(TOKENIZER, ["a"], contexts, **lengths)
    assert windows.lengths.numpy().tolist() == [4, 3]
    answers = extract_answers(
        tf.constant(GOLDEN_STARTS), tf.constant(GOLDEN_ENDS), windows, contexts, n_best=9
    )
    expected = Answers(
        texts=[b"A", b"A b", b"A b.", b"a", b"c  A", b"c  A b", b"b", b". a", b"c"],
        byte_starts=[3, 3, 3, 8, 0, 0, 5, 6, 0],
        byte_ends=[4, 6, 7, 9, 4, 6, 6, 9, 1],
        start_logits=[3, 3, 3, 2, 0, 0, 0, 0, 0],
        end_logits=[2, 1, 0, 1, 2, 1, 1, 1, 0],
        counts=9,
        null_start_logits=0.5,
        null_end_logits=0.0,
    )
    for values, wanted in zip(answers, expected, strict=True):
        assert values[0].numpy().tolist() == wanted, (values[0].numpy().tolist(), wanted)


def test_nan_logits_give_nan_null_scores():
    windows, starts, _ = _random_logits(5)
    nan_logits = np.full_like(starts, np.nan)
    answers = extract_answers(nan_logits, nan_logits, windows, tf.constant(CONTEXTS), **LIMITS)
    assert answers.texts.shape == (len(CONTEXTS), 6)
    assert np.isnan(answers.null_scores).all()


def test_answers_do_not_end_with_removed_characters():
    # A letter, followed by a code point that the tokenizer removes (except accents) or keeps.
    table = code_points()
    spaces = {"\t", "\n", "\r"}
    removed = [
        chr(code)
        for code in np.flatnonzero(table.dropped)
        if chr(code) not in spaces and not 0xD800 <= code < 0xE000
    ]
    assert len(removed) > 100
    contexts = tf.constant(["a" + character for character in [*removed, "é", "."]])
    windows = make_windows(TOKENIZER, tf.fill([len(contexts)], ""), contexts)
    logits = tf.one_hot(tf.fill([len(contexts)], 2), 6)
    answers = extract_answers(logits, logits, windows, contexts, n_best=1)
    assert set(answers.texts[:, 0].numpy()[: len(removed)]) == {b"a"}
    assert set(answers.byte_ends[:, 0].numpy()[: len(removed)]) == {1}


def test_answers_are_empty_only_for_contexts_without_tokens():
    # A later Unicode version may have a control character that the tokenizer treats as a letter.
    codes = [*range(1, 0x3100), *range(0x3100, 0xD800, 23), *range(0xE000, 0x14000, 23)]
    contexts = tf.strings.unicode_encode(tf.constant(codes)[:, None], "UTF-8")
    for do_lower_case in (True, False):
        tokenizer = BertTokenizer(TOKENIZER.vocab, do_lower_case)
        windows = make_windows(tokenizer, tf.fill([len(codes)], ""), contexts)
        logits = tf.one_hot(tf.fill([len(codes)], 2), 4)
        answers = extract_answers(logits, logits, windows, contexts, n_best=1)
        has_token = windows.lengths.numpy() > 0
        assert 0 < has_token.sum() < len(codes)
        np.testing.assert_array_equal(answers.counts.numpy() > 0, has_token)
        lengths = tf.strings.length(answers.texts[:, 0]).numpy()
        np.testing.assert_array_equal(lengths > 0, has_token)
