import gzip

import pytest
import tensorflow as tf

from bert_tf.pipelines import sentences

# Each line a case: its sentences are joined by one blank to make the input.
TABLE = [
    # Plain ends.
    ["It rained.", "We stayed."],
    ["Did it?", "Yes!", "It did."],
    ["What?!", "No..."],
    ["The sum is 12.", "Then 13 follows."],
    ["It was 1990.", "7 men came."],
    ["NATO.", "The pact holds."],
    ["He came from NYC.", "Boston is near."],
    # Quotes and brackets.
    ['"Go!" she said.', '"Why?"', "He went."],
    ["(It rained.)", "[So it did.]", "End."],
    ["“Go.”", "‘Why?’", "He left."],
    ["»Komm.«", "Er kam.", "„Gut.“", "Sie ging."],
    ['"What?" he asked.'],
    ["¡Vamos!", "¿Adónde?", "A casa."],
    # Titles, initials, acronyms.
    ["Mr. Smith and Mrs. Jones met Dr. No. 5 people saw St. Paul vs. Rome."],
    ["J. R. R. Tolkien wrote it.", "A. S. Byatt did not."],
    ["J.R.R. Tolkien met John F. Kennedy."],
    ["He left the U.S. Army.", "She stayed."],
    ["He left the U.S.", "The army stayed."],
    ["It ended World War I.", "In Paris, they met."],
    ["Vitamin C.", "The end."],
    ["А. С. Пушкин родился.", "Он писал."],
    ["It is 20 °C.", "Later it froze."],
    # Abbreviations.
    ["See e.g. Paris, i.e. France, cf. Rome."],
    ["Acme Inc. Chairman Lee spoke.", "He left."],
    ["He works at Acme Inc.", "The firm pays."],
    ["At 5 p.m. Monday it closed."],
    ["It closed at 5 p.m.", "He went."],
    ["Cats, dogs, etc.", "Mice too."],
    ["See No. 5, vol. 3, pp. 7, Fig. 2 and c. 1850."],
    ["He said no.", "She agreed."],
    ["On Jan. 5 it snowed."],
    ["It ended in Jan.", "February came."],
    # Numbers and ellipses.
    ["Pi is 3.14 and 2. is odd."],
    ["1. The first point.", "It is short."],
    ["IV. The fourth chapter."],
    ["He paused... then spoke."],
    ["He paused … then spoke.", "So it was…", "Then he left."],
    ["wait . . . Light came."],
    # Lower case after a full stop is no sentence.
    ["The file a.out ran. it stopped."],
    # Scripts without case.
    ["هل جاء؟", "نعم جاء."],
    ["यह है।", "वह था।"],
]

CHINESE = [
    ("他來了。她走了！真的嗎？", ["他來了。", "她走了！", "真的嗎？"]),
    ("他說：「走。」她走了。", ["他說：「走。」", "她走了。"]),
    ("有3.5米。　好。", ["有3.5米。", "好。"]),
]


@pytest.mark.parametrize("expected", TABLE, ids=lambda case: case[0])
def test_splits_where_a_reader_would(expected):
    split = sentences.split_sentences(tf.constant([" ".join(expected)]))
    assert [line.decode() for line in split[0].numpy()] == expected


@pytest.mark.parametrize(("text", "expected"), CHINESE)
def test_ideographic_full_stops_need_no_blank(text, expected):
    split = sentences.split_sentences(tf.constant([text]))
    assert [line.decode() for line in split[0].numpy()] == expected


def test_line_breaks_end_sentences_whatever_stands_before_them():
    text = "A heading\nMr.\r\nSmith came.\r\rHe left. \n\n"
    expected = [[b"A heading", b"Mr.", b"Smith came.", b"He left."], []]
    assert sentences.split_sentences(tf.constant([text, " \t"])).to_list() == expected


def test_is_the_same_in_a_graph_and_for_the_whole_table_at_once():
    texts = [" ".join(case) for case in TABLE]
    whole = sentences.split_sentences(tf.constant(texts))
    mapped = tf.data.Dataset.from_tensor_slices(texts).map(
        lambda text: sentences.split_sentences(text[tf.newaxis])[0]
    )
    expected = [[line.encode() for line in case] for case in TABLE]
    assert whole.to_list() == expected
    assert [list(case) for case in mapped.as_numpy_iterator()] == expected
    # A block of text is marked in one go.
    block = sentences.mark_sentences(tf.constant("\n".join(texts))).numpy().decode()
    assert [line for line in block.splitlines() if line] == [
        line for case in TABLE for line in case
    ]


def test_real_text_loses_nothing_but_white_space(data_dir):
    with gzip.open(data_dir / "corpora/enwiki/wiki_00.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    split = sentences.split_sentences(tf.constant(lines))
    joined = tf.strings.reduce_join(split, axis=-1, separator=" ").numpy()
    assert [line.decode().split() for line in joined] == [line.split() for line in lines]
    lengths = tf.strings.length(split.values, "UTF8_CHAR").numpy()
    assert 100 < lengths.mean() < 140
    assert (lengths > 600).mean() < 0.002
