import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.tagging import _tag_rows, tagging_examples

from .small_vocabulary import TOKENIZER

PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, G, SUB_B, SUB_C, BANG = range(15)
WORDS = [["abc", "!", "a!b"], ["d"], ["a", "\x01", "ab", ""], [], ["e", "abcbc"]]
TAGS = [[1, 0, 2], [0], [2, 1, 1, 2], [], [0, 1]]
NONE = -1


def _lists(*tensors):
    return [np.asarray(tensor).tolist() for tensor in tensors]


def test_rows():
    examples = tagging_examples(TOKENIZER, WORDS, tags=TAGS, max_seq_length=9)
    assert (len(examples), examples.num_too_long) == (4, 0)
    ((batch, labels),) = examples.evaluation_batches(8, longest_first=True)
    features.check_batch(batch, features.ENCODER_FEATURES)
    assert {labels.dtype, *(value.dtype for value in batch.values())} == {tf.int32}
    ids, numbers, words = _lists(
        *(batch[key] for key in ("input_word_ids", "example_index", "word_index"))
    )
    assert numbers == [0, 4, 2, 1]
    assert ids == [
        [CLS, A, SUB_B, SUB_C, BANG, A, BANG, B, SEP],
        [CLS, E, A, SUB_B, SUB_C, SUB_B, SUB_C, SEP, PAD],
        # A word without a piece is unknown.
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


def test_long_sentences_become_several_rows():
    examples = tagging_examples(
        TOKENIZER, [["d"], ["a", "b", "c", "d", "e"]], tags=[[9], [0, 1, 2, 3, 4]], max_seq_length=5
    )
    assert (len(examples), examples.num_too_long) == (4, 1)
    ((batch, labels),) = examples.evaluation_batches(8, longest_first=True)
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


def test_document_context():
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
        ({"words": ["ab"]}, r"words\[0\] is 'ab': expected a list of words"),
        ({"words": [["a"], 3]}, r"words\[1\] is 3: expected a list of words"),
        ({"words": [[], []]}, "words is empty: expected one string at least"),
        ({"tags": [[0, 1]]}, "tags: expected one row for each of the 2 examples; got 1"),
        ({"tags": [[0, 1], [0, 1]]}, r"tags\[1\] has 2 tags: expected 1, one for each word"),
        ({"tags": [[0, 1], [-2]]}, r"tags\[1\]\[0\] is -2: expected 0 or more"),
        ({"tags": [["O", "O"], ["O"]]}, "tags: expected integers, the tags' ids; got dtype <U1"),
        ({"documents": [0]}, "documents: expected one row for each of the 2 examples; got 1"),
        ({"max_seq_length": 4}, "max_seq_length: expected 5 or more; got 4"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        tagging_examples(TOKENIZER, **{"words": [["a", "b"], ["c"]], **arguments})


def _twin(tokens_per_word, words_per_sentence, room, documents):
    """The rows by plain loops: (sentence, start, length, words tagged)."""
    rows, word, token = [], 0, 0
    ends = []  # of the sentences, in tokens
    for count in words_per_sentence:
        firsts, begin = [], token
        for size in tokens_per_word[word : word + count]:
            firsts.append(token)
            token += size
        ends.append((begin, token, firsts, word))
        word += count
    for sentence, (begin, end, firsts, first_word) in enumerate(ends):
        stride = max(1, room // 2)
        starts = [begin]
        while starts[-1] + room < end:
            starts.append(min(starts[-1] + stride, end - room))
        windows = {start: [] for start in starts}
        for number, first in enumerate(firsts):
            scores = {
                start: min(first - start, min(start + room, end) - 1 - first)
                for start in starts
                if start <= first < start + room
            }
            # The first of equals.
            windows[max(scores, key=scores.get)].append(first_word + number)
        for start, tagged in windows.items():
            place = start, min(room, end - start)
            if documents is not None and len(starts) == 1:
                place = _around(sentence, ends, documents, room)
            if tagged:
                rows.append((sentence, *place, tagged))
    return rows


def _around(sentence, ends, documents, room):
    """Takes a token behind, then one before, and so on, as long as there are any and room."""
    first = last = sentence
    while first > 0 and documents[first - 1] == documents[sentence]:
        first -= 1
    while last + 1 < len(documents) and documents[last + 1] == documents[sentence]:
        last += 1
    start, end = ends[sentence][:2]
    behind = True
    while end - start < room and (start > ends[first][0] or end < ends[last][1]):
        if behind and end < ends[last][1]:
            end += 1
        elif not behind and start > ends[first][0]:
            start -= 1
        behind = not behind
    return start, end - start


@pytest.mark.parametrize("with_documents", [False, True])
@pytest.mark.parametrize("room", [3, 7, 12, 60])
def test_rows_are_the_twins(room, with_documents):
    rng = np.random.default_rng(room)
    for _ in range(5):
        words_per_sentence = rng.integers(0, 13, 12)
        words_per_sentence[0] = 20
        tokens_per_word = rng.choice([1, 1, 2, 3, 9], words_per_sentence.sum())
        documents = np.sort(rng.integers(0, 4, 12)) % 3 if with_documents else None
        firsts = np.cumsum(tokens_per_word) - tokens_per_word
        bounds = np.append(firsts, tokens_per_word.sum())[np.cumsum([0, *words_per_sentence])]
        *places, row_of_word = (
            field.numpy().tolist() for field in _tag_rows(firsts, bounds, room, documents)
        )
        found = [
            (*place, [word for word, row in enumerate(row_of_word) if row == number])
            for number, place in enumerate(zip(*places, strict=True))
        ]
        counts = tokens_per_word.tolist(), words_per_sentence.tolist()
        assert found == [(*place, words) for *place, words in _twin(*counts, room, documents)]
        assert [word for row in found for word in row[3]] == list(range(len(tokens_per_word)))
