"""Warnings about data that may not be as intended."""

import pytest

from bert_tf.readers.data_warnings import text_notes
from bert_tf.readers.own_data import read_classification, read_multilabel
from bert_tf.tasks.tagging.reader import read_tagging
from bert_tf.tasks.texts.multiple_choice import read_choices

LABELS = {"text_columns": ["t"], "label_column": "l"}
TAGS = {"text_columns": ["t"], "label_column": "l"}
INCLUDE = "the classes include"


def assert_begin(notes, path, starts):
    found = [note.removeprefix(path) for note in notes]
    assert [note[: len(start)] for note, start in zip(found, starts, strict=True)] == starts


NO_LABEL = "Remove these rows if their label is missing."
LOOK_ALIKE = "look alike or contain invisible characters. Write each class name in only one way."
CASES = [
    (read_classification, ["a", "b"] * 30, []),
    (read_classification, ["a"] * 99, []),
    (read_classification, ["a"] * 97 + ["b"] * 3, ["97.0% of the examples have the class 'a', so "
        "accuracy is not meaningful. Use --metric=macro_f1 or matthews_correlation, and try "
     "--class_weights=balanced."]),
    (read_classification, ["a", "b", "l", "a"],
     [", line 4: the class 'l' equals the column name. If files were concatenated, remove the "
      "extra header."]),
    (read_classification, ["a", "nan", "NULL", "a"],
     [f": {INCLUDE} 'nan' (line 3), 'NULL' (line 4). {NO_LABEL}"]),
    (read_classification, ["a", "-100", "-", "b"],
     [f": {INCLUDE} '-100' (line 3), '-' (line 4). {NO_LABEL}"]),
    (read_classification, ["a", "a\u200b", "b"],
     [f": the classes 'a' (line 2), 'a\\u200b' (line 3) {LOOK_ALIKE}"]),
    (read_classification, ["So so", "so\xa0so", "b"],
     [f": the classes 'So so' (line 2), 'so\\xa0so' (line 3) {LOOK_ALIKE}"]),
    (read_classification, ["می\u200cخواهم", "a\u200db", "b"], []),
    (read_classification, ["1.0", "0.0", "1.0"],
     [f": {INCLUDE} '1.0' (line 2), '0.0' (line 3). pandas converts integers to floats if values"]),
    (read_classification, [f"row {n}" for n in range(30)],
     ["l has 30 classes in 30 examples. Check --label_column."]),
    (read_classification, [str(n % 20 - 3) for n in range(60)], [f": {INCLUDE} '-3' (line 2), "
        "'-2' (line 3)"]),
    (read_classification, [f"{n % 20}.5" for n in range(60)], [f": {INCLUDE} '0.5' (line 2), "
        "'1.5' (line 3)"]),
    (read_classification, [f"{n % 19}" for n in range(60)], []),
    (read_classification, ["0", "1", "0"], []),
    (read_classification, ["a", "b", "a,b", "b, c", "d"] * 5,
     [": labels such as a,b are read as one class each. Use --task=multilabel if they combine"]),
    (read_multilabel, ["a;b", "b;c", "a;b"],
     [": labels such as a;b, b;c are read as one class each. Set --label_separator if they"]),
    (read_multilabel, ["['a', 'b']", "['a']", "a,b"], []),
    (read_multilabel, ["[a, b]", "a,b"],
     [f": {INCLUDE} '[a' (line 2), 'b]' (line 2). They look like lists or pieces"]),
    (read_classification, ["['a']", "['b']"],
     [f""": {INCLUDE} "['a']" (line 2), "['b']" (line 3). They look like lists or pieces"""]),
    (read_tagging, ["0 1", "[0 1]"],
     [": the tags are numbers, such as '0' (line 2), so words are scored, not entities."]),
    (read_multilabel, ["a,b", "a", ""], []),
    *(
        (read_multilabel, rows, [f": {INCLUDE} '{first}' (line 2), '{second}' (line {line}). If "
            "they "
         "are yes/no values of several classes, write the names of the classes that apply into one "
         "column, separated by --label_separator."])
        for rows, first, second, line in (
            (["0", "1", "0"], 0, 1, 3), (["False", "True"], False, True, 3),
            (["0,1", "1,0"], 0, 1, 2),
        )
    ),
    (read_multilabel, ["0,1", "1", ""], []),
    (read_tagging, ["O O", "B-X I-X", "o B_X", "O O", "O o"],
     [": most tags are entity tags, but not 'o' (line 4), 'B_X' (line 4), which are scored as O. "
      "Correct misspelled tags."]),
    (read_tagging, ["o o", "b-x i-x"],
     [": some tags, such as 'o' (line 2), "]),
    (read_tagging, ["NOUN O", "B-X I-X", "NOUN VERB"], []),
    (read_tagging, ["NOUN\u200e O", "VERB O"],
     [f": the classes 'NOUN\\u200e' (line 2) {LOOK_ALIKE}"]),
    (read_tagging, ["O O", "S-X U-X"], []),
]  # fmt: skip


@pytest.mark.parametrize(("read", "rows", "starts"), CASES)
def test_suspicious_labels_cause_a_warning(write, read, rows, starts):
    path = write("a.tsv", ["t\tl", *(f"text {n}\t{label}" for n, label in enumerate(rows))])
    columns = TAGS if read is read_tagging else LABELS
    assert_begin(read(path, **columns).notes, path, starts)


@pytest.mark.parametrize(
    ("read", "labels", "note"),
    [
        (read_classification, [1, 0], ("1", "'1'")),
        (read_classification, ["a", True], ("True", "'true'")),
        (read_classification, [2.0, 1.0], ("2.0", "'2'")),
        (read_classification, ["1", "0"], None),
        (read_multilabel, [["a"], [], ["b", 1]], ("1", "'1'")),
        (read_multilabel, [["a"], []], None),
        (read_tagging, [["a"], [0]], ("0", "'0'")),
        (read_tagging, [["0"], ["1"]], None),
    ],
)
def test_labels_that_are_not_strings_cause_a_warning(write, read, labels, note):
    rows = [{"t": ["a"] if read is read_tagging else "a", "l": label} for label in labels]
    path = write("a.jsonl", rows)
    notes = [each for each in read(path, **LABELS).notes if "class names are strings" in each]
    assert notes == [
        f"{path}: class names are strings, so the label {value} is predicted as {text}. "
        "Pass the labels as strings if you want to compare them with the predictions."
        for value, text in [note] * (note is not None)
    ]
    known = read(path, **LABELS, labels=["a", "b", "0", "1", "2", "true"])
    assert not any("class names are strings" in each for each in known.notes)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        (
            '"fine,pos\nso,neg\nso"',
            [": 3 texts contain lines that end with a class name, as rows do (first: row"],
        ),
        ('"fine,possible\nneg\n, pos"', []),
    ],
)
def test_texts_that_contain_rows_cause_a_warning(write, text, starts):
    rows = [f"{text},{label}" for label in ("pos", "neg", "pos")]
    path = write("a.csv", ["t,l", *rows, "fine,pos", "bad,neg"])
    assert_begin(read_classification(path, **LABELS).notes, path, starts)


# A text, which three rows contain, and the note that it causes, if any.
TEXTS = [
    ("It\x92s on", "control characters, which the tokenizer deletes, such as 'It\\x92s'. Pass "
     "--encoding=cp1252 instead of latin-1, or correct the file."),
    ("le cafÃ© bon", "UTF-8 that was read as another encoding, such as 'cafÃ©'. Remove --encoding, "
     "or correct the file."),
    ("don’t".encode().decode("latin-1"), "UTF-8 that was read as another encoding, such as"),
    ("fine [SEP] text", "'[CLS]' or '[SEP]', which are read as plain text, such as '[SEP]'. Remove "
     "them, and pass two texts as two columns (--text_columns=first,second)."),
    ("[CLS] fine", "'[CLS]' or '[SEP]'"),
    ("['fine' 'text']", "a list or an object that was written as text, such as "
     "\"['fine' 'text']\". Write one text, "
     "or pass a .jsonl or .parquet file if the task reads lists."),
    ('["a",\n"b"]', "a list or an object that was written as text"),
    ('{"text": "a", "n": 1}', "a list or an object that was written as text"),
    ("b'fine'", "Python bytes literals, such as \"b'fine'\". Decode the bytes before writing "
     "them."),
    ('b"it\'s" ', "Python bytes literals"),
    ("R&amp;D", "HTML entities, such as 'R&amp;D'. Decode them, for example with Python's "
     "html.unescape."),
    ("it&#39;s", "HTML entities"), ("it #39;s", "HTML entities"), ("&#x2019;", "HTML entities"),
    ("caf&eacute;", "HTML entities"),
    ("it\\u2019s so", "escape sequences instead of characters, such as 'it\\\\u2019s'. Write the "
     "characters, for example with json.dumps(..., ensure_ascii=False)."),
    ("\\xe2\\x80", "escape sequences"), ("\\U0001f600", "escape sequences"),
    ('"so ""fine"", ok"', "quotes around the text and doubled quotes inside, as in .csv files"),
    *((text, None) for text in (
        "It’s café…", "naïve", "漢字", "le cafÃ© – “bon”", "a [SEP", '"so fine"', "['90s rock]",
        "[so 'fine']", "b 'fine'", "b'day party", "AT&T; R&D", "a & b;", "C:\\users", "\\unit",
        "#3;",
    )),
]  # fmt: skip


@pytest.mark.parametrize("column", ["", "B"])
@pytest.mark.parametrize(("text", "note"), TEXTS)
def test_conversion_artifacts_in_texts_cause_a_warning(text, note, column):
    def notes_of(count):
        texts = [text] * count + [f"plain {n}" for n in range(97)]
        examples = [{"A": f"fine {n}", column: text} for n, text in enumerate(texts)]
        return text_notes({"train": examples[:9:-1], "dev": examples})

    where = f"dev, {column}" if column else "dev"
    assert notes_of(2) == [] == text_notes({"train": []})
    assert_begin(notes_of(3), where, [f": 3 of 100 texts contain {note}"] if note else [])


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["a"] * 29 + ["b"], None),
        (["a"] * 97 + ["b"] * 3, "dev, B: 97 of 100 texts are 'a'. Check --text_columns."),
        (["a"] * 20, "dev, B: 20 of 20 texts are 'a'. Check --text_columns."),
        (["a"] * 19, None),
    ],
)
def test_mostly_constant_column_causes_a_warning(texts, note):
    examples = [{"A": f"fine {n}", "B": text, "0": "yes"} for n, text in enumerate(texts)]
    assert text_notes({"train": [], "dev": examples}) == ([note] if note else [])


def test_spans_in_utf16_units_cause_a_warning_for_chinese(write):
    rows = [("\u738b\u82b3\u662f\u8c01", 0), ("\U0001f600\u738b\u82b3\u662f\u8c01", 1)]
    columns = {"text_columns": ["text"], "label_column": "entities", "character_spans": True}
    for shift, starts in (
        (0, []),
        (1, [": the offsets of spans after an emoji or a rare ideograph seem to be in UTF-16 code "
             "units, as in browsers: '\u82b3\u662f' is read instead of '\u738b\u82b3'. Use "
             "offsets in characters."]),
    ):  # fmt: skip
        shifted = [(text, at + shift * at) for text, at in rows]
        path = write(
            "a.jsonl",
            [
                {"text": text, "entities": [{"start": at, "end": at + 2, "label": "PER"}]}
                for text, at in shifted
            ],
        )
        assert_begin(read_tagging(path, **columns).notes, path, starts)


def test_ambiguous_spans_cause_a_warning(write):
    columns = {"text_columns": ["text"], "label_column": "entities", "character_spans": True}
    text, span = "\U00020bb7\u91ce\u5bb6\u6771\u4eac\u672c", {"start": 4, "end": 6, "label": "LOC"}
    emoji = ("\U0001f600 Ann left", {"start": 2, "end": 5, "label": "PER"})
    warning = [": the offsets of spans after an emoji or a rare ideograph may be in UTF-16 code "
           "units, as in browsers: '\u4eac\u672c' is read instead of '\u6771\u4eac'. "
           "Use offsets in characters."]  # fmt: skip
    for rows, starts in (
        ([(text, span)], warning),
        ([(text, span | {"text": "\u4eac\u672c"})], []),
        ([emoji], []),  # in UTF-16 units it would not be a word
        ([(text, span), emoji], []),
    ):
        path = write("a.jsonl", [{"text": text, "entities": [one]} for text, one in rows])
        assert_begin(read_tagging(path, **columns).notes, path, starts)


def test_one_word_per_row_causes_a_warning(write):
    path = write("a.tsv", ["words\ttags", "Ann\tB-X", "so\tO"])
    message = (
        ": each row has a single word and is read as a sentence. If sentences have several words, "
        "use one row per sentence, with lists of words and tags."
    )
    assert_begin(read_tagging(path).notes, path, [message])
    assert not read_tagging(write("a.tsv", ["words\ttags", "Ann\tB-X"])).notes


def test_choices_counted_from_1_cause_a_warning(write):
    columns = {"text_columns": ["q", "c"], "label_column": "y"}
    for first, count, notes in ((1, 21, 1), (0, 21, 0), (1, 20, 0)):
        rows = [{"q": "Why?", "c": ["A", "B", "C"], "y": first + n % 2} for n in range(count)]
        assert len(read_choices(write("a.jsonl", rows), **columns).notes) == notes
