"""Truncation and windows of long texts, compared with plain loops."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines import long_texts
from bert_tf.pipelines.packing import pack
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.tasks.questions import twin as twin

CLS, SEP, PAD = 2, 3, 0


def windows_twin(tokens, room):
    """Creates windows up to the end of the text or ``MAX_WINDOWS``."""
    stride, found, start = room * 3 // 4, [], 0
    while len(found) < long_texts.MAX_WINDOWS:
        if start + room >= len(tokens):
            found.append(tokens[max(len(tokens) - room, 0) :])
            break
        found.append(tokens[start : start + room])
        start += stride
    return found


@pytest.mark.parametrize("room", [3, 6, 126, 510])
def test_truncation_and_windows_match_plain_loops(room):
    rng = np.random.default_rng(room)
    last = long_texts.max_window_tokens(room)
    lengths = [0, 1, room - 1, room, room + 1, last - 1, last, last + 1, last + 3 * room]
    lengths += rng.integers(0, 5 * room, 20).tolist()
    texts = [rng.integers(0, 1000, length).tolist() for length in lengths]
    ids = tf.ragged.constant(texts, tf.int32, row_splits_dtype=tf.int64)
    head = max(room * 128 // 510, 1)
    assert long_texts.head_and_tail(ids, room).to_list() == [
        text if len(text) <= room else text[:head] + text[len(text) - room + head :]
        for text in texts
    ]
    for dtype in (tf.int32, tf.int64):
        begins, sizes = long_texts.cut_windows(tf.constant(lengths, dtype), room)
        for text, starts, counts in zip(texts, begins.to_list(), sizes.to_list(), strict=True):
            found = [text[a : a + n] for a, n in zip(starts, counts, strict=True)]
            assert found == windows_twin(text, room)
            assert (len(text) > last) == (starts[-1] + counts[-1] < len(text))


def test_mean_of_windows_has_correct_gradient():
    outputs = tf.Variable([[1.0, 2.0], [3.0, 4.0], [7.0, 9.0]])
    with tf.GradientTape() as tape:
        means = long_texts.mean_of_windows(outputs, tf.constant([2, 1]))
        loss = tf.reduce_sum(means * [[1.0, 1.0], [5.0, 1.0]])
    assert means.numpy().tolist() == [[2.0, 3.0], [7.0, 9.0]]
    assert tape.gradient(loss, outputs).numpy().tolist() == [[0.5, 0.5], [0.5, 0.5], [5.0, 1.0]]


VOCAB = [*SPECIAL_TOKENS, *"abcdef", "##a", "##b", "##cd", "?", ",", "."]
TOKENIZER = BertTokenizer(VOCAB)
LENGTHS = {"max_seq_length": 16, "doc_stride": 5, "max_query_length": 6}


def make_windows(
    tokenizer, questions, contexts, max_seq_length=384, doc_stride=128, max_query_length=64
):
    columns = [tf.convert_to_tensor(texts) for texts in (questions, contexts)]
    tokens = long_texts.tokenize_questions(
        tokenizer.tokenize_with_offsets, *columns, max_query_length
    )
    return long_texts.context_windows(tokens, max_seq_length, doc_stride)


def pack_windows(windows, max_seq_length):
    return pack(windows.tokens.ids, long_texts.row_segments(windows), max_seq_length, TOKENIZER)


def random_texts(seed, count, max_words=40):
    """Draws short texts, some empty, some with characters that are removed or invalid."""
    generator = random.Random(seed)
    words = [b"a", b"b", b"abcd", b"ab", b"caa", b"f,", b"d.", b"x", "É\u0301a".encode()]
    words += ["b\u200b".encode(), b"c\xff", b"\xed\xa0\x80d", b"e\x00", "\u00adf".encode()]
    return [
        b" ".join(generator.choices(words, k=generator.randrange(max_words))) for _ in range(count)
    ]


QUESTIONS = [b"", b"a b?", *random_texts(1, 18, max_words=9)]
CONTEXTS = [b"", b"a", *random_texts(2, 18)]
# Several questions share a context.
CONTEXTS[4] = CONTEXTS[5] = CONTEXTS[12] = CONTEXTS[3]


def test_windows_match_googles_loop():
    windows = make_windows(TOKENIZER, QUESTIONS, CONTEXTS, **LENGTHS)
    rows = pack_windows(windows, 16)
    columns = tf.broadcast_to(tf.range(16), [tf.size(windows.questions), 16])
    has_most_context = long_texts.has_most_context(windows, columns)
    expected = []
    for number, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True)):
        question = twin.tokenize(TOKENIZER, question)[:6]
        context = twin.tokenize(TOKENIZER, context)
        spans = twin.windows(len(question), len(context), 16, 5)
        for window_index, (first, length) in enumerate(spans):
            ids, types = twin.row(TOKENIZER, question, context, (first, length))
            flags = [
                twin.most_context(spans, first + token) == window_index for token in range(length)
            ]
            flags = [0] * (len(question) + 2) + flags + [0]
            columns = (ids, types, [1] * len(ids), flags)
            padding = [0] * (16 - len(ids))
            expected.append((number, first, length, *(column + padding for column in columns)))
    assert len(expected) > 3 * len(QUESTIONS)
    received = (
        windows.questions,
        windows.firsts,
        windows.lengths,
        *(rows[key] for key in ("input_word_ids", "input_type_ids", "input_mask")),
        tf.cast(has_most_context, tf.int32),
    )
    for values, wanted in zip(received, zip(*expected, strict=True), strict=True):
        assert values.dtype == tf.int32
        np.testing.assert_array_equal(values, wanted)


def _make_context_windows(context_lengths, question_length, max_seq_length, doc_stride):
    """Creates windows over contexts of these lengths."""
    lengths = tf.constant(context_lengths, tf.int32)
    zeros = tf.zeros_like(lengths)
    tokens = long_texts.QuestionTokens(
        ids=tf.zeros([0], tf.int32),
        byte_starts=tf.zeros([0], tf.int64),
        byte_ends=tf.zeros([0], tf.int64),
        question_starts=zeros,
        question_lengths=zeros + question_length,
        context_starts=zeros,
        context_lengths=lengths,
    )
    return long_texts.context_windows(tokens, max_seq_length, doc_stride)


# Rounding decides which window has more context if the hundredths of their lengths differ by 1,
# as with a stride of 101 tokens.
@pytest.mark.parametrize(
    ("question_length", "max_seq_length", "doc_stride"),
    [
        (12, 384, 128),
        (0, 384, 300),
        (0, 384, 381),
        (0, 159, 101),
        (0, 210, 101),
        (3, 22, 5),
        (1, 8, 128),
        (2, 6, 1),
    ],
)
def test_has_most_context_at_every_length(question_length, max_seq_length, doc_stride):
    room = max_seq_length - 3 - question_length
    stride = min(room, doc_stride)
    context_lengths = sorted({*range(0, room + 3 * stride, 7), *range(room + 1, room + stride, 3)})
    windows = _make_context_windows(context_lengths, question_length, max_seq_length, doc_stride)
    columns = tf.broadcast_to(tf.range(max_seq_length), [len(windows.firsts), max_seq_length])
    best, inside = (
        long_texts.has_most_context(windows, columns).numpy(),
        long_texts.is_context(windows, columns).numpy(),
    )
    row = 0
    for length in context_lengths:
        spans = twin.windows(question_length, length, max_seq_length, doc_stride)
        chosen = [twin.most_context(spans, token) for token in range(length)]
        for number, (first, size) in enumerate(spans):
            context = slice(question_length + 2, question_length + 2 + size)
            assert inside[row].sum() == size == inside[row, context].sum()
            wanted = [chosen[token] == number for token in range(first, first + size)]
            assert best[row, context].tolist() == wanted, (length, number)
            assert best[row].sum() == sum(wanted)
            row += 1
    assert row == len(best)


def test_shared_context_is_tokenized_once():
    seen = []

    def tokenize(strings):
        seen.extend(strings.numpy().tolist())
        return TOKENIZER.tokenize_with_offsets(strings)

    contexts = tf.constant([b"a b", b"c", b"a b"])
    tokens = long_texts.tokenize_questions(tokenize, tf.constant([b"d", b"e", b"d"]), contexts, 6)
    assert seen == [b"a b", b"c", b"d", b"e", b"d"]
    assert tokens.context_starts.numpy().tolist() == [0, 2, 0]
    assert tokens.question_starts.numpy().tolist() == [3, 4, 5]
