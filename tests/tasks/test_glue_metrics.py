"""Each GLUE task reports its own metrics."""

import pytest

from bert_tf.tasks.glue_metrics import GLUE_METRICS, glue_scores
from bert_tf.tasks.glue_tasks import GLUE_TASKS

TASKS = {
    "CoLA": "matthews_correlation*",
    "SST-2": "accuracy*",
    "MRPC": "accuracy f1*",
    "STS-B": "pearson spearman*",
    "QQP": "accuracy f1*",
    "MNLI": "accuracy*",
    "QNLI": "accuracy*",
    "RTE": "accuracy*",
    "WNLI": "accuracy*",
    "AX": "matthews_correlation*",
}


def test_the_table():
    found = {
        task: " ".join(f"{name}*" if name == metrics.headline else name for name in metrics.names)
        for task, metrics in GLUE_METRICS.items()
    }
    assert found == TASKS
    assert list(GLUE_METRICS) == list(GLUE_TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_scored(task):
    # 2 TP, 1 FP, 1 FN, 2 TN: accuracy and F1 4 / 6, both correlations of 0 and 1 are (4 - 1) / 9.
    scores = glue_scores(task, [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0])
    expected = {"accuracy": 2 / 3, "f1": 2 / 3}
    assert scores == {
        name: pytest.approx(expected.get(name, 1 / 3)) for name in GLUE_METRICS[task].names
    }


def test_the_two_metrics_of_a_task_differ():
    assert glue_scores("QQP", [1, 1, 1, 0], [1, 1, 0, 1]) == {
        "accuracy": 0.5,
        "f1": pytest.approx(2 / 3),
    }
    scores = glue_scores("STS-B", [0.0, 1.0, 2.0, 5.0], [0.1, 0.3, 0.2, 9.0])
    assert scores["spearman"] == pytest.approx(0.8) and scores["pearson"] > 0.9


def test_another_task():
    with pytest.raises(ValueError) as caught:
        glue_scores("SST2", [1], [1])
    assert str(caught.value) == (
        "GLUE's tasks are CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, got 'SST2'."
    )
