"""``task.json``: written, read, and refused where it is damaged."""

import json
import pathlib

import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task_file import TaskFile, task_of, to_json
from tests.finetuning.small_runs import write_task_file

TEXTS = {"text_columns": ["title", "text"], "label_separator": ";", "id_column": None}
TASK = TaskFile("multilabel", "tags", 96, TEXTS)
QUESTIONS = {
    **{"doc_stride": 128, "max_query_length": 64, "n_best_size": 20, "max_answer_length": 30},
    "with_null": True,
}


def options(**changed):
    """The options of questions as a change."""
    return {"kind": "squad", "columns": {}, "options": {**QUESTIONS, **changed}}


def read_task_file(folder):
    """The task of a checkpoint whose directory has the file."""
    path = pathlib.Path(folder, "task.json")
    found = json.loads(path.read_text()) if path.exists() else None
    return task_of(Checkpoint(str(folder), "bert_tf", None, None, {}, task=found))


def test_what_is_written_is_read(tmp_path):
    assert read_task_file(str(tmp_path)) is None
    write_task_file(tmp_path, TASK)
    assert read_task_file(str(tmp_path)) == TASK


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version is not 1: it was written by another version"),
        ({"more": 1}, "expected the keys columns, kind, max_seq_length, name, options, got"),
        ({"kind": "ranking"}, "kind is 'ranking', expected one of classification, multilabel,"),
        ({"name": 3}, "name is 3, expected a text"),
        ({"max_seq_length": 0}, "max_seq_length is 0, expected a whole number from 1"),
        ({"max_seq_length": True}, "max_seq_length is True, expected"),
        ({"columns": []}, "columns is [], expected"),
        ({"options": None}, "options is None, expected"),
        ({"kind": ["squad"]}, "kind is ['squad'], expected one of"),
        ({"columns": {"text_columns": "text"}}, "text_columns is 'text', expected a list of 1 to"),
        ({"columns": {"text_columns": ["a", 1]}}, "text_columns is ['a', 1], expected a list of 1"),
        ({"columns": {"text_columns": ["a"] * 3}}, "text_columns is ['a', 'a', 'a'], expected a l"),
        ({"columns": {"label_separator": 1}}, "label_separator is 1, expected a text"),
        ({"columns": {"id_column": 5}}, "id_column is 5, expected a text or null"),
        ({"columns": {"words_column": "a"}}, "'words_column' is not known, expected text_columns,"),
        ({"options": {"option": True}}, "'option' is not known, expected long_text; fine-tune aga"),
        (options(doc_stride="abc"), "doc_stride is 'abc', expected a whole number from 1"),
        (options(doc_stride=0), "doc_stride is 0, expected a whole number from 1 to"),
        (options(max_query_length=1.5), "max_query_length is 1.5, expected a whole number"),
        (options(n_best_size=1e9), "n_best_size is 1000000000.0, expected a whole number"),
        (options(n_best_size=10**9), "n_best_size is 1000000000, expected a whole number"),
        (options(max_answer_length=True), "max_answer_length is True, expected a whole number"),
        (options(max_answer_length=10**99), "max_answer_length is 1000"),
        (options(with_null="false"), "with_null is 'false', expected true or false or null"),
    ],
)
def test_a_damaged_file_is_refused_with_its_path(tmp_path, change, message):
    path = tmp_path / "task.json"
    path.write_text(json.dumps({**to_json(TASK), **change}))
    with pytest.raises(ValueError) as caught:
        read_task_file(str(tmp_path))
    assert str(caught.value).startswith(f"{path}: {message}")
    assert str(caught.value).endswith("fine-tune again.")


def test_every_kind_of_file_is_read(tmp_path):
    """As each kind of task has written them."""
    texts = {"text_columns": ["a", "b"], "label_column": None, "id_column": "id"}
    named = {
        "classification": texts,
        "multilabel": {**texts, "label_separator": "|"},
        "regression": texts,
        "tagging": {"text_columns": ["w"], "label_column": "t"},
        "multiple_choice": {"text_columns": ["c", "a", "b"]},
        "similarity": {"text_columns": ["a", "b", "c"], "label_column": None},
        "squad": {"text_columns": ["q", "c"], "answer_start_column": None},
    }
    kept = {"tagging": {"document_context": False}, "squad": QUESTIONS}
    for kind in KINDS:
        for columns in (named[kind], {}):
            task = TaskFile(kind, "mine", 128, columns, kept.get(kind, {}))
            write_task_file(tmp_path, task)
            assert read_task_file(str(tmp_path)) == task
