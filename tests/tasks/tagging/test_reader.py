"""Custom tables of tagged words, and CoNLL's column files."""

import gzip
import re

import pytest

from bert_tf.readers.examples import TaggedExample
from bert_tf.tasks.tagging.entities import find_all
from bert_tf.tasks.tagging.reader import read_conll, read_tagging


def test_tagging_table(write):
    content = '{"words": ["New", "York", "!"], "tags": ["B", "I", "O"]}\n'
    path = write("a.jsonl", content + '{"words": "So be it", "tags": "O O I"}\n')
    examples = read_tagging(path)
    assert examples.items == [
        TaggedExample("0", ("New", "York", "!"), ("B", "I", "O"), 0),
        TaggedExample("1", ("So", "be", "it"), ("O", "O", "I"), 1),
    ]
    assert examples.labels == ("B", "I", "O")
    path = write("a.tsv", "n\tw\tt\n5\tSo be it\tO O I\n")
    columns = {"text_columns": ["w"], "label_column": "t", "id_column": "n"}
    examples = read_tagging(path, **columns, labels=["O", "I"])
    assert examples.items == [TaggedExample("5", ("So", "be", "it"), ("O", "O", "I"), 0)]
    assert examples.labels == ("O", "I")
    unlabeled = read_tagging(path, **{**columns, "label_column": None})
    assert unlabeled.items[0].tags is None
    assert unlabeled.labels == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("('a' b)", ["('a'", "b)"]),
        ("{'a': 1}", ["{'a':", "1}"]),
        ("[a b]", ["[a", "b]"]),
        ("[ 'a' ]x", ["[", "'a'", "]x"]),
        ("[1]", ["[1]"]),
        ("['", ["['"]),
        ('("Hello there, friend")', ['("Hello', "there,", 'friend")']),
    ],
)
def test_bracketed_texts_are_not_lists(write, text, words):
    path = write("a.jsonl", [{"words": text}])
    assert read_tagging(path, label_column=None).items[0].words == tuple(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("['a' 'b' ... 'c']", "expected a list in column 'words', got \"['a' 'b' ... 'c']\", "
         "which cannot be parsed (use .jsonl or .parquet for lists)"),
        ("[['a'], ['b']]", "which cannot be parsed"),
        ('["Hi" he said]', "which cannot be parsed"),
        ("['a''b']", "which cannot be parsed"),
        (r"['\x']", "which cannot be parsed"),
        ("[b'a' b'b']", "expected a string in column 'words', got b'a'"),
        ("['a', None]", "expected a string in column 'words', got None"),
        ("['a', __import__('os')]", "which cannot be parsed"),
        ("[" + "'a\\" * 50_000 + "]", "which cannot be parsed"),
    ],
)  # fmt: skip
def test_unparsable_lists_raise_error(write, words, message):
    path = write("a.jsonl", [{"words": words, "tags": "O"}])
    with pytest.raises(ValueError, match=re.escape(message)):
        read_tagging(path)


ONE_WORD_PER_ROW = [
    ("Sentence #,w,t", ["Sentence: 1,Mira,B-X", ",runs,O", "Sentence: 2,So,O"]),
    ("sentence_id,w,t", ["0,Mira,B-X", "0,runs,O", "1,So,O"]),
]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("sentence,t", {"text_columns": ["sentence"]}),
        ("w,t,sentiment", {"text_columns": ["w"]}),
        ("w,sent", {"text_columns": ["w"], "label_column": "sent"}),
    ],
)
def test_similar_column_names_are_not_sentence_ids(write, header, columns):
    rows = [["so", "O", "good"], ["so", "O", "good"], ["it", "O", "bad"]]
    count = header.count(",") + 1
    path = write("a.csv", [header, *(",".join(row[:count]) for row in rows)])
    assert len(read_tagging(path, **{"label_column": "t", **columns}).items) == 3


def test_single_word_texts_with_spans_cause_no_warning(write):
    rows = [{"text": "Ann", "spans": [], "sentence_id": 0}] * 2
    columns = {"text_columns": ["text"], "label_column": "spans", "character_spans": True}
    found = read_tagging(write("a.jsonl", rows), **columns, labels=["O", "B-X", "I-X"])
    assert not found.notes


@pytest.mark.parametrize(("header", "rows"), ONE_WORD_PER_ROW)
@pytest.mark.parametrize("label", ["t", None])
def test_one_word_per_row_with_sentence_ids_raises_error(write, header, rows, label):
    path = write("a.csv", [header, *rows])
    column = header.split(",")[0]
    message = (
        "has one word per row: expected one sentence per row, with lists of words and tags. "
        f"In pandas, use frame['{column}'] = frame['{column}'].ffill() and "
        f"frame.groupby('{column}', sort=False).agg(list).reset_index()."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        read_tagging(path, text_columns=["w"], label_column=label)
    columns = {"text_columns": ["w"], "label_column": "t"}
    for good in (["0,Mira,B-X", "1,runs,O"], ["0,Mira,B-X", "0,so it,O O"]):
        read_tagging(write("a.csv", [header, *good]), **columns)
    pandas = pytest.importorskip("pandas")  # follow the advice of the error message
    frame = pandas.read_csv(write("a.csv", [header, *rows]))
    frame[column] = frame[column].ffill()
    grouped = frame.groupby(column, sort=False).agg(list).reset_index()
    grouped.to_json(path + ".jsonl", orient="records", lines=True)
    items = read_tagging(path + ".jsonl", **columns).items
    assert [item.words for item in items] == [("Mira", "runs"), ("So",)]


# === CoNLL files: sentences, documents, schemes and invalid lines ===

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

York NNP B-NP I-LOC
Paris NNP B-NP B-LOC
"""

IOB2 = "Ann\tB-PER\nLee\tI-PER\nsang\tO\n\n\n \t\nin\tO\nRome\tB-LOC\nItaly\tB-LOC"


@pytest.fixture
def read(tmp_path):
    def read_text(text, encoding="utf-8", **arguments):
        path = tmp_path / "a.txt"
        path.write_bytes(text.encode(encoding))
        return read_conll(str(path), encoding=encoding, **arguments)

    return read_text


def test_iob1_with_documents(read, tmp_path):
    expected = [
        TaggedExample("0", ("EU", "rejects", "German"), ("B-ORG", "O", "B-MISC"), 0),
        TaggedExample("1", ("Peter", "Blackburn"), ("B-PER", "I-PER"), 0),
        TaggedExample("2", ("York", "Paris"), ("B-LOC", "B-LOC"), 1),
    ]
    examples = read(CONLL_2003)
    assert examples.items == expected
    assert examples.labels == (
        *("O", "B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER"),
    )
    assert read(CONLL_2003.replace("\n", "\r\n")) == examples
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(CONLL_2003.encode()))
    assert read_conll(str(packed)) == examples


def test_iob2_without_documents(read):
    examples = read(IOB2)
    assert examples.items == [
        TaggedExample("0", ("Ann", "Lee", "sang"), ("B-PER", "I-PER", "O"), 0),
        TaggedExample("1", ("in", "Rome", "Italy"), ("O", "B-LOC", "B-LOC"), 0),
    ]


def test_only_spaces_and_tabs_separate_columns(read):
    examples = read("1\u00a0000  N \t O \n\u2028 P O\n", labelled=True)
    assert examples.items[0].words == ("1\u00a0000", "\u2028")
    assert examples.labels == ("O",)


def test_custom_encoding(read):
    assert read("señor B-PER\n", encoding="latin-1").items[0].words == ("señor",)


def test_words_without_tags(read):
    examples = read("-DOCSTART-\n\nAnn\nsang well\n\n-DOCSTART-\nYes\n", labelled=False)
    assert examples.items == [
        TaggedExample("0", ("Ann", "sang"), None, 0),
        TaggedExample("1", ("Yes",), None, 1),
    ]
    assert examples.labels == ()
    with pytest.raises(ValueError, match="line 3: expected a word and its tag, got one column"):
        read("-DOCSTART-\n\nAnn\nsang\n")
    with pytest.raises(
        ValueError, match="line 3: expected .* as before, got 3. .* --input_format=lines"
    ):
        read("Yes\nAnn sang\nBob did not\n", labelled=False)


def test_entity_may_continue_in_the_next_sentence(read):
    text = "In O\n. B-LOC\n\nSan I-LOC\nMarino I-LOC\n\nAnn B-PER\n"
    assert [item.tags for item in read(text).items] == [
        ("O", "B-LOC"),
        ("B-LOC", "I-LOC"),
        ("B-PER",),
    ]
    # It cannot continue in another document or as another type.
    for text, kind in (
        ("In O\n. B-LOC\n\n-DOCSTART- O\nSan I-LOC\n\nAnn B-PER\n", "LOC"),
        ("In O\n. B-LOC\n\n\nSan I-PER\n\nAnn B-PER\n", "PER"),
    ):
        message = f"line 5: Tag 0 is 'I-{kind}': in IOB2 an entity begins with B-{kind}"
        with pytest.raises(ValueError, match=message):
            read(text)


def test_scheme_of_most_sentences_is_used(read):
    iob1 = CONLL_2003.replace("rejects VBZ B-VP O", "rejects VBZ B-VP B-LOC")
    message = (
        "line 4: Tag 1 is 'B-LOC' after 'I-ORG': in IOB1 an entity begins with I-LOC "
        "unless it follows another LOC"
    )
    with pytest.raises(ValueError, match=message):
        read(iob1)


@pytest.mark.parametrize(("scheme", "last", "single"), [("BIOES", "E", "S"), ("BILOU", "L", "U")])
def test_bioes_and_bilou_tags(read, scheme, last, single):
    tags = ("B-PER", f"{last}-PER", "O", f"{single}-LOC", "B-LOC", "I-LOC", f"{last}-LOC")
    text = "".join(f"word{n} {tag}\n" for n, tag in enumerate(tags))
    examples = read(text)
    assert examples.items[0].tags == tags
    assert examples.labels == (
        "O", "B-LOC", "I-LOC", f"{last}-LOC", f"{single}-LOC",
        "B-PER", "I-PER", f"{last}-PER", f"{single}-PER",
    )  # fmt: skip
    converted = read(text, labels=read(IOB2).labels).items[0].tags
    assert converted == ("B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC", "I-LOC")
    broken = text.replace(f"6 {last}-LOC", "6 O")
    ends = f"in {scheme} an entity ends with {last}-LOC or is {single}-LOC"
    message = f"line 15: Tag 6 is 'O' after 'I-LOC': {ends}"
    with pytest.raises(ValueError, match=message):
        read(f"{text}\n{broken}")
    message = f"line 14: Tag 5, the last one, is 'I-LOC': {ends}"
    with pytest.raises(ValueError, match=message):
        read(f"{text}\n{text.rsplit('word6')[0]}")
    message = f"line 21: Tag 0 is '{single}-LOC': IOB2 has no prefix {single}-"
    with pytest.raises(ValueError, match=message):
        read(f"{IOB2}\n\n{IOB2}\n\nRome {single}-LOC\n")


def test_unknown_tag_raises_error(read):
    labels = read(IOB2).labels
    assert labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    examples = read("Rome B-LOC\nItaly I-LOC\n", labels=labels)
    assert examples.labels == labels
    message = "line 2: expected one of O, B-LOC, I-LOC, B-PER, I-PER, got the tag 'B-ORG'"
    with pytest.raises(ValueError, match=message):
        read("Rome B-LOC\nUN B-ORG\n", labels=labels)


def test_file_without_sentences_raises_error(read):
    for text in ("", "\n\n", "-DOCSTART- O\n\n"):
        with pytest.raises(
            ValueError, match="a.txt has no rows. Use a file with at least one example"
        ):
            read(text)


NUMBERS = "1 Ann B-PER O\n2 sang O O\n\n1 It O O\n2 rained O O\n"
NOT_WORDS = {
    "numbers": (NUMBERS, "1 Ann B-PER O"),
    "numbers from 0": ("0 Ann B-PER\n1 sang O\n", "0 Ann B-PER"),
    "CoNLL-U": ("1-2 vamos _ O\n1 ir O O\n2 nos O O\n2.1 a O O\n3 x O O\n", "1-2 vamos _ O"),
    "GermEval": (f"#\thttp://a.de [2009-10-17]\n{NUMBERS}", "# http://a.de [2009-10-17]"),
    "MultiCoNER": ("# id 5ce domain=en\nAnn _ _ B-PER\n", "# id 5ce domain=en"),
    "OntoNotes": (
        "#begin document (a); part 000\na 0 Ann B-PER\n",
        "#begin document (a); part 000",
    ),
}


@pytest.mark.parametrize("form", NOT_WORDS)
@pytest.mark.parametrize("labelled", [True, False])
def test_comments_and_word_numbers_raise_error(read, form, labelled):
    text, first = NOT_WORDS[form]
    message = (
        f"a.txt, line 1: expected a word first and its tag last, got {first!r}. Remove comments "
        "and columns before the words, for example with 'cut -f2,3' if tabs separate columns."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        read(text, labelled=labelled, skip_bad_rows=True)


def test_words_may_be_numbers_or_start_with_a_hash(read):
    for text in ("1 O\n2 O\n\nAnn B-PER\nsang O\n", "1 O\n\n1 O\n", "1 O\n2 O\n4 O\n",
                 "# O\n1 O\n", "#rome B-LOC\nx O\n"):  # fmt: skip
        assert read(text).items[0].words[0] == text.split(" ")[0]
    for text in ("#\na\n", "#rome\nis well\n", "#rome NN _\nis VB _\n"):
        assert read(text, labelled=False).items[0].words[0] == text.split()[0]


# Numbers of sentences, words and documents of the published files.
REAL = {"esp.testb": (1517, 51533, 1), "ned.testa": (2895, 37687, 74)}


@pytest.mark.parametrize("name", REAL)
def test_published_files_are_read(unpacked, name):
    examples = read_conll(str(unpacked("ner/conll2002.zip") / "conll2002" / name))
    words = sum(len(item.words) for item in examples.items)
    assert (len(examples.items), words, examples.items[-1].document + 1) == REAL[name]
    assert examples.skipped == []
    assert len(examples.labels) == 9
    if name == "esp.testb":
        found = find_all([item.tags for item in examples.items])
        kinds = [entity.type for entities in found for entity in entities]
        counts = {kind: kinds.count(kind) for kind in ("LOC", "MISC", "ORG", "PER")}
        # conlleval's counts, plus one MISC that a sentence boundary splits.
        assert counts == {"LOC": 1084, "MISC": 340, "ORG": 1400, "PER": 735}


def test_concatenated_or_truncated_files(read):
    examples = read(CONLL_2003 + "\n\ufeff" + CONLL_2003 + "\n")
    assert [item.document for item in examples.items] == [0, 0, 1, 2, 2, 3]
    assert examples.items[3].words == examples.items[0].words
    with pytest.raises(ValueError, match=r"line 2: expected a word, got '\\x00\\x00'"):
        read("Ann\n\0\0", labelled=False)


def test_space_before_a_tab_is_a_word(read):
    text = "A\tB-X\n \tI-X\n\ufeff  \tO\n  Ann O\n \t\nb\tO\n"
    (first, second) = read(text).items
    assert first.words == ("A", " ", "  ", "Ann") and second.words == ("b",)
    assert first.tags == ("B-X", "I-X", "O", "O")
    assert [item.words for item in read(text, labelled=False).items] == [first.words, second.words]
    # In a line that starts with a tab, the tag is not read as the word.
    for flags in ({}, {"labelled": False}):
        with pytest.raises(ValueError, match=r"line 2: expected a word, got ''"):
            read("1 O\n\tO\n", **flags)
