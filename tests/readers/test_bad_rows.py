"""Invalid rows raise an error with file and line, or are skipped."""

import dataclasses
import functools
from collections.abc import Callable

import pytest

from bert_tf.readers.glue import read_glue
from bert_tf.readers.own_data import read_classification, read_multilabel, read_regression
from bert_tf.tasks.questions.reader import read_questions
from bert_tf.tasks.similarity.task import read_similarity
from bert_tf.tasks.tagging.reader import read_conll, read_tagging
from bert_tf.tasks.texts.multiple_choice import read_choices, read_swag


@dataclasses.dataclass(frozen=True)
class Form:
    """A reader and a file of valid rows; the invalid row follows ``before``."""

    read: Callable
    name: str
    before: tuple
    after: tuple = ()
    kept: tuple = ("0",)


SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
SWAG_ROW = "1,v2,9,A man runs. ,A man runs.,,gen,a.,b.,c.,d."
CONLL = ("Ann\tB-PER", "Lee\tI-PER", "sang\tO", "", "in\tO", "Rome\tB-LOC", "Italy\tB-LOC", "")
CONTEXT = "Äh, Ann and Äh, Bo did."
SPAN = {"start": 0, "end": 3, "label": "PER"}
LABELS = ["no", "yes"]
TEXTS = {"text_columns": ["t"], "label_column": "y"}
FORMS = {
    "classification": Form(
        functools.partial(read_classification, **TEXTS, id_column="n", labels=LABELS),
        "a.tsv", ("n\tt\ty", "0\tfine\tno"), ("2\tso\tyes",), kept=("0", "2"),
    ),
    "multilabel": Form(
        functools.partial(read_multilabel, **TEXTS, labels=["joy"]), "a.jsonl",
        ({"t": "a", "y": "joy"},),
    ),
    "regression": Form(functools.partial(read_regression, **TEXTS), "a.csv", ("t,y", "a,1")),
    "tagging": Form(
        functools.partial(read_tagging, labels=["O"]), "a.jsonl", ({"words": ["a"], "tags": ["O"]},)
    ),
    "spans": Form(
        functools.partial(
            read_tagging, text_columns=["text"], label_column="entities", character_spans=True,
            labels=["O", "B-ORG", "I-ORG", "B-PER", "I-PER"],
        ),
        "a.jsonl", ({"text": "Ann", "entities": [SPAN]},),
    ),
    "similarity": Form(
        functools.partial(read_similarity, text_columns=["a", "b"]),
        "t.csv", ("a,b", "x,y"),
    ),
    "SWAG": Form(read_swag, "a.csv", (f"{SWAG},label", f"{SWAG_ROW},3")),
    "choices": Form(
        functools.partial(read_choices, text_columns=["q", "c"], label_column="y"),
        "a.jsonl", ({"q": "Why?", "c": ["A", "B", "C"], "y": 2},),
    ),
    "questions": Form(
        functools.partial(read_questions, id_column="id"), "a.jsonl",
        ({"question": "Who?", "context": CONTEXT, "id": "0", "answers": []},),
    ),
    "CoNLL": Form(
        read_conll, "a.txt", (*CONLL, "to O"), ("now O", "", "Yes O"), kept=("0", "1", "3")
    ),
    "GLUE": Form(
        lambda path, **how: read_glue("SST-2", path.rpartition("/")[0], "dev", **how),
        "dev.tsv", ("sentence\tlabel", "a\t1"), ("f\t0",), kept=("0", "2"),
    ),
}  # fmt: skip


def _spans(*entities):
    return {"text": "Ann Lee left", "entities": list(entities)}


def _span(start, end, label="PER"):
    return {"start": start, "end": end, "label": label}


def _after_emoji(*entities):
    return {"text": "\U0001f600 Ann left \u5317\u4eac", "entities": list(entities)}


def _choices(choices, label=0):
    return {"q": "How?", "c": choices, "y": label}


def _question(**fields):
    return {"question": "Who?", "context": CONTEXT, "id": "1", **fields}


SPAN_HINT = (
    'Use {"start": 0, "end": 3, "label": "PER"}; examples/convert_annotations.py converts files'
)
ROWS = {
    "classification": [
        ("1\tgood", "expected 3 columns, got 2"),
        ("1\tgood\tmaybe", "expected one of no, yes in column 'y', got 'maybe'"),
        ("1\tgood\t ", "expected non-empty text in column 'y', got ' '"),
        ("1\t \tyes", "expected non-empty text in column 't', got ' '"),
        ("1\t\u200b \u200d\tyes", "expected visible text in column 't', got only invisible "
            "characters"),
        ("\tgood\tyes", "expected non-empty text in the id, got ''"),
    ],
    "multilabel": [
        ({"t": "a", "y": {}}, "expected class names in column 'y', got {}"),
        ({"t": "a", "y": ["joy", None]}, "expected a string in column 'y', got None"),
        ({"t": "a", "y": "joy,awe"}, "expected one of joy in column 'y', got 'awe'"),
        ({"t": "a", "y": "joy,"}, "expected non-empty text in column 'y', got ''"),
    ],
    "similarity": [("z,", "expected non-empty text in column 'b', got ''")],
    "regression": [("b,nan", "expected a finite number in column 'y', got 'nan'")],
    "tagging": [
        ({"words": ["a", "b"], "tags": ["O"]}, "expected a tag for each of 2 words, got 1"),
        ({"words": [], "tags": []}, "expected words in column 'words', got none"),
        ({"words": ["a", " "], "tags": ["O", "O"]}, "expected non-empty text in column 'words', "
            "got ' '"),
        ({"words": 3, "tags": ["O"]}, "expected a list in column 'words', got 3"),
        ({"words": ["a"], "tags": ["X"]}, "expected one of O in column 'tags', got 'X'"),
        ({"words": ["a"]}, "expected the key 'tags', got words"),
        ({"words": "a", "tags": [{"start": 0}]},
         "expected tags in column 'tags', got {'start': 0}. Use --character_spans"),
    ],
    "spans": [
        (_spans(_span(0, 2)), "expected spans of whole words in column 'entities', got 'An' "
         "(characters 0 to 2) of 'Ann'"),
        (_spans(_span(4, 8)),
         "got 'Lee ' (characters 4 to 8) of 'Lee '. Remove the spaces at its ends"),
        (_spans(_span(3, 7)),
         "got ' Lee' (characters 3 to 7) of ' Lee'. Remove the spaces at its ends"),
        (_spans(_span(3, 4)),
         "got ' ' (characters 3 to 4) of ' '. Remove the spaces at its ends"),
        (_spans(_span(0, 7), _span(4, 7, "ORG")), "expected spans that do not overlap in column "
         "'entities', got {'end': 7, 'label': 'ORG', 'start': 4}"),
        (_spans(_span(0, 99)), "expected spans within the 12 characters of the text in column "
         "'entities', got 'Ann Lee left' (characters 0 to 99) of 'Ann Lee left'"),
        (_spans(_span(3, 3)), "expected 0 <= start < end in column 'entities', "
         "got {'end': 3, 'label': 'PER', 'start': 3}"),
        (_spans(_span(0, 3, "LOC")),
         "expected one of ORG, PER in the label of column 'entities', got 'LOC'"),
        (_spans({"start": 0}),
         "expected objects with start, end, label in column 'entities', got {'start': 0}"),
        (_after_emoji(_span(3, 6)), "got 'nn ' (characters 3 to 6) of 'Ann '. In UTF-16 code "
         "units, the span is 'Ann'. Use offsets in characters (an emoji is one)"),
        (_after_emoji(_span(12, 14)), "expected spans within the 13 characters of the text in "
         "column 'entities', got '\u4eac' (characters 12 to 14) of '\u4eac'. In UTF-16 code "
         "units, the span is '\u5317\u4eac'. Use offsets in characters (an emoji is one)"),
        (_after_emoji({**_span(12, 13), "text": "\u5317"}), "expected '\u5317', the text of the "
         "span, in column 'entities', got '\u4eac' (characters 12 to 13) of '\u4eac'. In "
         "UTF-16 code units, the span is '\u5317'. Use offsets in characters (an emoji is one)"),
        (_after_emoji({**_span(2, 5), "text": "\u5317"}), "expected '\u5317', the text of the "
         "span, in column 'entities', got 'Ann' (characters 2 to 5) of 'Ann'"),
        (_spans([0, 3, "PER"]), "expected objects with start, end, label in column 'entities', got "
         f"[0, 3, 'PER'] (the format of doccano or spaCy). {SPAN_HINT}"),
        (_spans({"start_offset": 0, "end_offset": 3, "label": "PER"}),
         f"(the format of doccano). {SPAN_HINT}"),
        (_spans({"start": 0, "end": 3, "labels": ["PER"]}),
         f"(the format of Label Studio). {SPAN_HINT}"),
        ({**_spans(_span(0, 3)), "_task_hash": 7, "answer": "reject"},
         "expected Prodigy's answer 'accept', got 'reject'"),
        ({"id": 1, "annotations": [{"result": []}], "data": {"text": "Ann"}},
         "expected a row, got a Label Studio task (export JSON-MIN, or convert entities with "
         "examples/convert_annotations.py)"),
        ({"text": "Ann", "entities": "B-PER O"},
         "expected a list of {start, end, label} in column 'entities', got 'B-PER O'"),
        ({"text": "\u200b \u200b", "entities": []},
         "expected visible text in column 'text', got only invisible characters"),
    ],
    "SWAG": [
        (f"{SWAG_ROW},4", "expected an integer from 0 to 3 in the label (choices are numbered from "
         "0, not from 1 or A), got '4'"),
        ("0,v,9,s,,He,gold,a.,b.,c.,d.,0", "expected non-empty text in the context, got ''"),
        ("0,v,9,s,A.,He,gold,a.,b.,,d.,0", "expected non-empty text in an ending, got ''"),
        ('0,v,9,s,"A" b,He,gold,a.,b.,c.,d.,0', "expected comma-separated fields, got: "),
    ],
    "choices": [
        (_choices(["A"]), "expected a list of 2 to 1,000 choices in column 'c', got ['A']"),
        (_choices(["A"] * 1001), "expected a list of 2 to 1,000 choices in column 'c', "
         "got ['A', 'A', 'A', 'A', 'A', 'A', ...]"),
        (_choices(["A", "B", 3]), "expected a string in choice 2, got 3"),
        (_choices(["A", "B", "C"], None), "expected an integer from 0 to 2 in the label "
         "(choices are numbered from 0, not from 1 or A), got None"),
    ],
    "questions": [
        (_question(answers={"text": ["Ann"], "answer_start": [3]}),
         "expected the answer 'Ann' at character 3 of the context, got ' An'"),
        (_question(answers={"text": ["Ann"], "answer_start": []}),
         "expected lists of equal length in 'text' and 'answer_start' of the answers, "
         "got {'answer_start': [], 'text': ['Ann']}"),
        (_question(answers="Ann"), "expected a list of answers in 'answers', got 'Ann'"),
        (_question(answers=[], question=""), "expected non-empty text in 'question', got ''"),
        (_question(answers=[], context=None), "expected a string in 'context', got None"),
        (_question(answers=[], id=0), "expected a unique id per row, got '0' again"),
        (_question(), "expected the key 'answers', got question, context, id"),
    ],
    "CoNLL": [
        ("Rome I-LOC", "Tag 1 is 'I-LOC' after 'O': in IOB2 an entity begins with B-LOC"),
        ("Rome LOC", "Tag 1 is 'LOC': expected O, B-TYPE or I-TYPE"),
        ("Rome B-LOC x", "expected 2 columns as in the first line, got 3"),
        ("Rome", "expected 2 columns as in the first line, got 1"),
    ],
    "GLUE": [
        ("b\t2", "expected one of 0, 1 in the label of SST-2, got '2'"),
        ("d\t0\t1", "expected 2 columns, got 3"),
        ("e\t", "expected non-empty text in the label of SST-2, got ''"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "row", "message"), [(form, *row) for form, rows in ROWS.items() for row in rows]
)
def test_bad_row_raises_error_or_is_skipped(write, form, row, message):
    form = FORMS[form]
    path = write(form.name, [*form.before, row, *form.after])
    with pytest.raises(ValueError) as error:
        form.read(path)
    assert str(error.value).startswith(f"{path}, line {len(form.before) + 1}: ")
    assert message in str(error.value)
    examples = form.read(path, skip_bad_rows=True)
    assert tuple(item.id for item in examples.items) == form.kept
    (skipped,) = examples.skipped
    assert message in skipped and skipped.endswith(".") and "--skip_bad_rows" not in skipped
