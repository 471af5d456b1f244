"""Fine-tuned models are exported as they were trained: whole, at the end, also after a kill."""

import os

import pytest

from bert_tf.finetuning import run as run_module
from bert_tf.finetuning.run import export_options
from bert_tf.finetuning.run_directory import FineTuningDirectory
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.task_file import TaskFile


def text_task(*columns, **options):
    return TaskFile("classification", "mine", 64, {"text_columns": list(columns)}, options)


LENGTHS = {"doc_stride": 100, "max_query_length": 32, "max_answer_length": 12}
QUESTIONS = {**LENGTHS, "n_best_size": 5, "with_null": True}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (None, ExportOptions()),
        (text_task("review"), ExportOptions(64)),
        (text_task("a", "b"), ExportOptions(64, pair=True)),
        (text_task("a", long_text="windows"), ExportOptions(64, long_text="windows")),
        (TaskFile("tagging", "ner", 96, options={"document_context": True}), ExportOptions(96)),
        (TaskFile("squad", "s", 384, {}, QUESTIONS), ExportOptions(384, n_best_size=5, **LENGTHS)),
        (TaskFile("squad", "s", 384), ExportOptions(384)),
    ],
)
def test_a_model_is_served_as_it_was_trained(task, expected):
    assert export_options(task) == expected


def test_what_was_left_is_replaced_by_the_best_weights(finished, tmp_path, monkeypatch):
    left = tmp_path / "export" / "1"
    (left / "variables").mkdir(parents=True)
    (left / "variables" / "variables.index").write_text("half")
    directory = FineTuningDirectory(str(finished))
    directory.export = str(left)
    exports = []

    def export(model, path, **keywords):
        assert not os.path.exists(path)
        exports.append((model, path, keywords))

    monkeypatch.setattr(run_module, "export", export)
    (left / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"export/1 is .* and there is mine\.txt, which no export"):
        run_module.export_best(directory, "sst2")
    assert (left / "mine.txt").read_text() == "mine"
    (left / "mine.txt").unlink()
    run_module.export_best(directory, "sst2")
    ((model, path, keywords),) = exports
    assert (type(model).__name__, model.labels, path) == (
        "BertClassifier", ("neg", "pos"), str(left),
    )  # fmt: skip
    assert keywords == {"options": ExportOptions(max_seq_length=16), "name": "sst2"}
