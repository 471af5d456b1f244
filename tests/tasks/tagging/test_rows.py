import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.tasks.tagging.rows import _context, _tag_rows, tagging_examples
from tests.pipelines.small_vocabulary import TOKENIZER

PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, G, SUB_B, SUB_C, BANG = range(15)
WORDS = [["abc", "!", "a!b"], ["d"], ["a", "\x01", "ab", ""], [], ["e", "abcbc"]]
TAGS = [[1, 0, 2], [0], [2, 1, 1, 2], [], [0, 1]]
NONE = -1


def _lists(*tensors):
    return [np.asarray(tensor).tolist() for tensor in tensors]


def test_rows_equal_literals():
    examples = tagging_examples(TOKENIZER, WORDS, tags=TAGS, max_seq_length=9)
    assert (len(examples), examples.num_too_long) == (4, 0)
    ((batch, labels),) = examples.sorted_batches(8)[0]
    features.check_batch(batch, features.ENCODER_FEATURES)
    assert {labels.dtype, *(value.dtype for value in batch.values())} == {tf.int32}
    ids, numbers, words = _lists(
        *(batch[key] for key in ("input_word_ids", "example_index", "word_index"))
    )
    assert numbers == [0, 4, 2, 1]
    assert ids == [
        [CLS, A, SUB_B, SUB_C, BANG, A, BANG, B, SEP],
        [CLS, E, A, SUB_B, SUB_C, SUB_B, SUB_C, SEP, PAD],
        # A word without pieces becomes [UNK].
        [CLS, A, UNK, A, SUB_B, UNK, SEP, PAD, PAD],
        [CLS, D, SEP, PAD, PAD, PAD, PAD, PAD, PAD],
    ]
    assert words == [
        [NONE, 0, NONE, NONE, 1, 2, NONE, NONE, NONE],
        [NONE, 0, 1, NONE, NONE, NONE, NONE, NONE, NONE],
        [NONE, 0, 1, 2, NONE, 3, NONE, NONE, NONE],
        [NONE, 0, NONE, NONE, NONE, NONE, NONE, NONE, NONE],
    ]
    assert _lists(labels)[0] == [
        [NONE, 1, NONE, NONE, 0, 2, NONE, NONE, NONE],
        [NONE, 0, 1, NONE, NONE, NONE, NONE, NONE, NONE],
        [NONE, 2, 1, 1, NONE, 2, NONE, NONE, NONE],
        [NONE, 0, NONE, NONE, NONE, NONE, NONE, NONE, NONE],
    ]


def test_long_sentences_are_split_into_rows():
    examples = tagging_examples(
        TOKENIZER, [["d"], ["a", "b", "c", "d", "e"]], tags=[[9], [0, 1, 2, 3, 4]], max_seq_length=5
    )
    assert (len(examples), examples.num_too_long) == (4, 1)
    ((batch, labels),) = examples.sorted_batches(8)[0]
    assert _lists(batch["input_word_ids"], batch["example_index"], labels) == [
        [[CLS, A, B, C, SEP], [CLS, B, C, D, SEP], [CLS, C, D, E, SEP], [CLS, D, SEP, PAD, PAD]],
        [1, 1, 1, 0],
        [
            [NONE, 0, 1, NONE, NONE],
            [NONE, NONE, 2, NONE, NONE],
            [NONE, NONE, 3, 4, NONE],
            [NONE, 9, NONE, NONE, NONE],
        ],
    ]


def test_rows_with_document_context():
    examples = tagging_examples(
        TOKENIZER,
        [["a", "b"], ["cc"], ["d"], ["e"]],
        tags=[[1, 2], [3], [4], [5]],
        documents=["x", "x", "x", "y"],
        max_seq_length=6,
    )
    (batch, labels), _ = examples.evaluation_batches(3)
    assert _lists(batch["input_word_ids"], batch["example_index"], labels) == [
        [[CLS, A, B, C, SUB_C, SEP], [CLS, B, C, SUB_C, D, SEP], [CLS, B, C, SUB_C, D, SEP]],
        [0, 1, 2],
        [
            [NONE, 1, 2, NONE, NONE, NONE],
            [NONE, NONE, 3, NONE, NONE, NONE],
            [NONE, NONE, NONE, NONE, 4, NONE],
        ],
    ]
    # The other document has one sentence.
    *_, (batch, labels) = examples.evaluation_batches(3)
    assert _lists(batch["input_word_ids"]) == [[[CLS, E, SEP, PAD, PAD, PAD]]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"words": ["ab"]}, r"words\[0\]: expected a list of words, got 'ab'"),
        ({"words": [["a"], 3]}, r"words\[1\]: expected a list of words, got 3"),
        ({"words": [[], []]}, "words: expected at least one string, got none"),
        ({"tags": [[0, 1]]}, "tags: expected one row for each of the 2 examples, got 1"),
        ({"tags": [[0, 1], [0, 1]]}, r"tags\[1\] has 2 tags: expected 1, one per word"),
        ({"tags": [[0, 1], [-2]]}, r"tags\[1\]\[0\] is -2: expected 0 or more"),
        ({"tags": [["O", "O"], ["O"]]}, "tags: expected integer ids, got dtype <U1"),
        ({"documents": [0]}, "documents: expected one row for each of the 2 examples, got 1"),
        ({"max_seq_length": 4}, "max_seq_length: expected at least 5, got 4"),
    ],
)
def test_invalid_arguments_raise_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        tagging_examples(TOKENIZER, **{"words": [["a", "b"], ["c"]], **arguments})


def _rows_by_loop(tokens_per_word, words_per_sentence, room):
    """Computes the rows by plain loops: (sentence, start, length, tagged words)."""
    rows, word, begin = [], 0, 0
    for sentence, count in enumerate(words_per_sentence):
        sizes = tokens_per_word[word : word + count]
        end = begin + sum(sizes)
        starts = [begin]
        while starts[-1] + room < end:
            starts.append(min(starts[-1] + max(1, room // 2), end - room))
        windows = {start: [] for start in starts}
        first = begin
        for size in sizes:
            scores = {
                start: min(first - start, min(start + room, end) - 1 - first)
                for start in starts
                if start <= first < start + room
            }
            # The first one wins ties.
            windows[max(scores, key=scores.get)].append(word)
            word, first = word + 1, first + size
        rows += [
            (sentence, start, min(room, end - start), tagged)
            for start, tagged in windows.items()
            if tagged
        ]
        begin = end
    return rows


@pytest.mark.parametrize("room", [3, 7, 12, 60])
def test_rows_equal_plain_loops(room):
    rng = np.random.default_rng(room)
    for _ in range(10):
        words_per_sentence = rng.integers(0, 13, 12)
        words_per_sentence[0] = 20
        tokens_per_word = rng.choice([1, 1, 2, 3, 9], words_per_sentence.sum())
        firsts = np.cumsum(tokens_per_word) - tokens_per_word
        bounds = np.append(firsts, tokens_per_word.sum())[np.cumsum([0, *words_per_sentence])]
        *row_fields, row_of_word = (
            field.numpy().tolist() for field in _tag_rows(firsts, bounds, room, None)
        )
        found = [
            (*values, [word for word, row in enumerate(row_of_word) if row == number])
            for number, values in enumerate(zip(*row_fields, strict=True))
        ]
        assert found == _rows_by_loop(tokens_per_word.tolist(), words_per_sentence.tolist(), room)


def test_context_is_split_evenly_around_a_sentence():
    """Room that the context on one side does not fill goes to the other side."""
    # One document has sentences of 1, 1, 5, 1 and 6 tokens, the other two of 2 tokens.
    bounds, documents = np.array([0, 1, 2, 7, 8, 14, 16, 18]), np.array([0] * 5 + [1] * 2)
    before, after = _context(bounds, documents, max_tokens=6)
    assert before.tolist() == [0, 1, 0, 2, 0, 0, 2]
    assert after.tolist() == [5, 4, 1, 3, 0, 2, 0]
