"""Writing and reading ``task.json``, and errors for damaged files."""

import json
import pathlib

import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task_file import TaskFile, load_task_file, to_json
from tests.finetuning.small_runs import write_task_file

TEXTS = {"text_columns": ["title", "text"], "label_separator": ";", "id_column": None}
TASK = TaskFile("multilabel", "tags", 96, TEXTS)
QUESTIONS = {
    **{"doc_stride": 128, "max_query_length": 64, "n_best_size": 20, "max_answer_length": 30},
    "with_null": True,
}


def options(**changed):
    """Returns a change that sets options of question answering."""
    return {"kind": "squad", "columns": {}, "options": {**QUESTIONS, **changed}}


def read_task_file(folder):
    """Returns the task of a checkpoint directory that contains the file."""
    path = pathlib.Path(folder, "task.json")
    found = json.loads(path.read_text()) if path.exists() else None
    return load_task_file(Checkpoint(str(folder), "bert_tf", None, None, {}, task=found))


EXPECTED_KIND = (
    "expected one of classification, multilabel, regression, tagging, multiple_choice, "
    "similarity, squad. Run the command from the program that registers the task type, or "
    "fine-tune again."
)
EXPECTED_COUNT = "expected an integer from 1 to 2,147,483,647."
EXPECTED_NAMES = "expected a list of 1 to 2 column names."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2},
         "format_version is not 1, so another version of bert_tf wrote the file."),
        ({"more": 1}, "expected the keys columns, kind, max_seq_length, name, options, "
         "got columns, kind, max_seq_length, more, name, options."),
        ({"kind": "ranking"}, f"kind is 'ranking', {EXPECTED_KIND}"),
        ({"name": 3}, "name is 3, expected a string."),
        ({"max_seq_length": 0}, f"max_seq_length is 0, {EXPECTED_COUNT}"),
        ({"max_seq_length": True}, f"max_seq_length is True, {EXPECTED_COUNT}"),
        ({"columns": []}, "columns is [], expected an object."),
        ({"options": None}, "options is None, expected an object."),
        ({"kind": ["squad"]}, f"kind is ['squad'], {EXPECTED_KIND}"),
        ({"columns": {"text_columns": "text"}}, f"text_columns is 'text', {EXPECTED_NAMES}"),
        ({"columns": {"text_columns": ["a", 1]}}, f"text_columns is ['a', 1], {EXPECTED_NAMES}"),
        ({"columns": {"text_columns": ["a"] * 3}},
         f"text_columns is ['a', 'a', 'a'], {EXPECTED_NAMES}"),
        ({"columns": {"label_separator": 1}}, "label_separator is 1, expected a "),
        ({"columns": {"id_column": 5}}, "id_column is 5, expected a "),
        ({"columns": {"words_column": "a"}}, "'words_column' is unknown, "
         "expected text_columns, label_column, id_column, label_separator."),
        ({"options": {"option": True}}, "'option' is unknown, expected long_text."),
        (options(doc_stride="abc"), f"doc_stride is 'abc', {EXPECTED_COUNT}"),
        (options(doc_stride=0), f"doc_stride is 0, {EXPECTED_COUNT}"),
        (options(max_query_length=1.5), f"max_query_length is 1.5, {EXPECTED_COUNT}"),
        (options(n_best_size=1e9), "n_best_size is 1000000000.0, expected "),
        (options(n_best_size=10**9), "n_best_size is 1000000000, expected "),
        (options(max_answer_length=True), f"max_answer_length is True, {EXPECTED_COUNT}"),
        (options(max_answer_length=10**99), f"max_answer_length is {10**99}, {EXPECTED_COUNT}"),
        (options(with_null="false"), "with_null is 'false', expected true or false or null."),
    ],
)  # fmt: skip
def test_damaged_file_raises_error_with_path(tmp_path, change, message):
    path = tmp_path / "task.json"
    path.write_text(json.dumps({**to_json(TASK), **change}))
    with pytest.raises(ValueError) as caught:
        read_task_file(str(tmp_path))
    assert str(caught.value).startswith(f"{path}: {message}")
    assert str(caught.value).endswith("ine-tune again.")


def test_files_of_all_task_types_are_read(tmp_path):

    assert read_task_file(tmp_path) is None
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
