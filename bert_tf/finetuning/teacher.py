"""The teacher of a distillation: which model may be one, and what it says of the training set.

Letters: N examples, O outputs of the teacher for an example: the classes, or 1.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.files import read_json
from bert_tf.interchange.checkpoint import Checkpoint
from bert_tf.interchange.load import load
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.results.run_directory import FineTuningDirectory, is_unfinished
from bert_tf.results.summary import scores_line
from bert_tf.tasks.distillation import taught
from bert_tf.tasks.inference import Inference
from bert_tf.tasks.task import UNLABELLED, Task
from bert_tf.tasks.task_file import TaskFile, task_of
from bert_tf.training import checkpoints
from bert_tf.untrusted import listed

from .data import Sets
from .model import forget_models
from .resolution import table_columns
from .settings import FineTuningSettings

FLAG = "--teacher"
_TRAIN = "train"
_OUTPUTS, _OF = "outputs", "of"


def open_teacher(settings: FineTuningSettings, task: Task) -> tuple[Checkpoint, TaskFile]:
    """Opens ``--teacher`` and checks that it was fine-tuned for the task and its classes."""
    path = str(settings.teacher)
    teacher = open_checkpoint(path)
    its = task_of(teacher)
    if its is None or teacher.tokenization is None:
        what = "task.json" if its is None else "vocabulary"
        raise ValueError(
            f"{FLAG}={path} has no {what}: name the directory that python -m bert_tf.finetune left."
        )
    if is_unfinished(teacher.path):
        raise ValueError(
            f"{FLAG}={path} is of a run that has not finished: finish it by the command that began "
            "it."
        )
    if its.kind != settings.kind.name or not task.trains(teacher.model.model_class):
        raise ValueError(
            f"{FLAG}={path} was trained for {its.kind}: expected {settings.kind.name}, as "
            f"--task={settings.task}."
        )
    if {*teacher.labels} != {*task.labels}:
        raise ValueError(
            f"{FLAG}={path} knows the {task.classes} {listed(teacher.labels)}: expected those of "
            f"the training set, {listed(task.labels)}."
        )
    ours, theirs = (
        len(columns.get("text_columns", ())) for columns in (table_columns(settings), its.columns)
    )
    if ours and theirs and ours != theirs:
        raise ValueError(
            f"{FLAG}={path} reads {theirs} text column(s): expected {ours}, as the student does."
        )
    return teacher, its


def distil(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    task: Task,
    sets: Sets,
    examples: Examples,
    strategy: tf.distribute.Strategy,
) -> Examples:
    """Gives the training examples what the teacher says of them, which the task's loss reads.

    What it said is kept until the run has finished, so that a resumed run learns the same numbers.
    """
    outputs = _kept(directory, len(examples), task.num_outputs)
    if outputs is None:
        outputs = _ask(settings, directory, task, sets, strategy)
        _keep(directory, outputs)
    return taught(examples, outputs, len(sets.train.items))


def _ask(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    task: Task,
    sets: Sets,
    strategy: tf.distribute.Strategy,
) -> np.ndarray:
    """The teacher's outputs on the training set and what has no labels: (N, O) float32."""
    teacher, its = open_teacher(settings, task)
    if directory.has_progress():
        directory.compare_inputs({FLAG: teacher.fingerprint()})
    train = dataclasses.replace(sets.train, items=[*sets.train.items, *task.unlabelled])
    print(f"{settings.teacher} answers the {len(train.items):,} training examples.", flush=True)
    with strategy.scope():
        model = load(teacher)
    inference = Inference(
        model, model.preprocessor.tokenizer, its.max_seq_length, settings.eval_batch_size
    )
    asked_sets = {_TRAIN: train, **sets.dev}
    asked = type(task)(task.name, None, {}, asked_sets, labels=teacher.labels, **its.options)
    if task.deciding_set is not None:
        scores = asked.evaluate(inference, task.deciding_set, teacher.thresholds).scores
        line = scores_line(asked.headline, {name: float(s) for name, s in scores.items()})
        print(f"The teacher on {task.deciding_set}: {line}", flush=True)
    outputs = asked.outputs(inference, _TRAIN).reshape(len(train.items), -1)
    if task.labels:
        outputs = outputs[:, [teacher.labels.index(label) for label in task.labels]]
    # The student's variables are to be named as without a teacher.
    forget_models()
    answers: np.ndarray = outputs.astype(np.float32)
    return answers


# === What is kept of it ===


def _whose(directory: FineTuningDirectory) -> dict[str, str]:
    inputs = read_json(directory.inputs)
    return {name: inputs[name] for name in (FLAG, _TRAIN, UNLABELLED) if name in inputs}


def _kept(directory: FineTuningDirectory, rows: int, columns: int) -> np.ndarray | None:
    found = checkpoints.find_latest(directory.teacher)
    if found is None or found.extra.get(_OF) != _whose(directory):
        return None
    variable = keras.Variable(np.zeros([rows, columns], np.float32))
    checkpoints.restore_latest(directory.teacher, {_OUTPUTS: variable})
    outputs: np.ndarray = variable.numpy()
    return outputs


def _keep(directory: FineTuningDirectory, outputs: np.ndarray) -> None:
    checkpoints.delete_all(directory.teacher)
    values = {_OUTPUTS: tf.constant(outputs)}
    checkpoints.save_values(directory.teacher, 0, values, {_OF: _whose(directory)}, keep=1)
