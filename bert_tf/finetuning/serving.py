"""A fine-tuned model's export: how its task is served, and the SavedModel in its directory."""

import bert_tf
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.saved_models.served import ExportOptions

from .run_directory import FineTuningDirectory
from .task_file import TaskFile, read_task_file

# Options of an export by what the task calls them.
_QUESTION_OPTIONS = {
    "doc_stride": "doc_stride",
    "max_query_length": "max_query_length",
    "n_best_size": "n_best",
    "max_answer_length": "max_answer_length",
}


def export_options(task: TaskFile | None) -> ExportOptions:
    """How a model is served as it was trained.

    Args:
        task: what its directory says; ``None`` where it says nothing.

    >>> columns = {"text_columns": ["premise", "hypothesis"], "label_column": None}
    >>> options = export_options(TaskFile("classification", "RTE", 128, columns))
    >>> options.pair, options.max_seq_length
    (True, 128)
    """
    if task is None:
        return ExportOptions()
    questions = {
        name: task.options[key] for key, name in _QUESTION_OPTIONS.items() if key in task.options
    }
    return ExportOptions(
        max_seq_length=task.max_seq_length,
        pair=len(task.columns.get("text_columns", ())) == 2,
        **questions,
    )


def export_best(directory: FineTuningDirectory, name: str) -> None:
    """Exports what a run's directory describes, its best weights, into the directory itself.

    An export that a killed run left there, on an object store perhaps half of one, is removed.

    Args:
        directory: the run's; it holds no results yet.
        name: what a server is to call the model.

    Raises:
        ValueError: as ``saved_models.export``, or something else is where the export is to be.
    """
    remove_export(directory.export)
    model = bert_tf.load(directory.path)
    task = read_task_file(directory.path)
    export(model, directory.export, options=export_options(task), name=name)
