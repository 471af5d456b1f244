import numpy as np
import pytest

from bert_tf.pipelines.tagging_windows import tag_windows


def _twin(tokens_per_word, words_per_sentence, room, documents):
    """The rows by plain loops: (sentence, start, length, words tagged)."""
    rows, word, token = [], 0, 0
    ends = []  # of the sentences, in tokens
    for count in words_per_sentence:
        firsts = []
        begin = token
        for _ in range(count):
            firsts.append(token)
            token += tokens_per_word[word]
            word += 1
        ends.append((begin, token, firsts, word - count))
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
            if tagged:
                rows.append((sentence, *_widen(start, min(start + room, end)), tagged))
                if documents is not None and len(starts) == 1:
                    rows[-1] = (*_around(sentence, ends, documents, room), tagged)
    return rows


def _widen(start, end):
    return start, end - start


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
    return sentence, start, end - start


@pytest.mark.parametrize("with_documents", [False, True])
@pytest.mark.parametrize("room", [3, 4, 7, 12, 60])
def test_rows_are_the_twins(room, with_documents):
    rng = np.random.default_rng(room)
    for _ in range(10):
        words_per_sentence = rng.integers(0, 13, 12)
        words_per_sentence[0] = 20
        tokens_per_word = rng.choice([1, 1, 2, 3, 9], words_per_sentence.sum())
        documents = np.sort(rng.integers(0, 4, 12)) % 3 if with_documents else None
        rows = tag_windows(tokens_per_word, words_per_sentence, room, documents)
        assert {field.dtype for field in rows} == {np.dtype(np.int32)}
        found = [
            (sentence, start, length, list(range(first, end)))
            for sentence, start, length, first, end in zip(
                *map(np.ndarray.tolist, rows), strict=True
            )
        ]
        assert found == _twin(
            tokens_per_word.tolist(), words_per_sentence.tolist(), room, documents
        )
        assert [word for row in found for word in row[3]] == list(range(len(tokens_per_word)))


def test_every_word_of_a_long_sentence_has_a_quarter_of_the_room_on_each_side():
    rows = tag_windows(np.ones(101, int), np.array([101]), 20)
    assert rows.starts.tolist() == [0, 10, 20, 30, 40, 50, 60, 70, 80, 81]
    for start, length, first, end in zip(*rows[1:], strict=True):
        assert length == 20
        assert first - start >= 4 or start == 0
        assert start + length - end >= 4 or start + length == 101
