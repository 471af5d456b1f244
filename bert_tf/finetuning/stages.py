"""The stages of a fine-tuning: prepare, train and evaluate, write what people look at."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.evaluation.evaluation import Evaluation, Inference
from bert_tf.evaluation.report import write_report
from bert_tf.files import replace_whole
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.pipelines.text_notes import unknown_note
from bert_tf.readers.examples import texts_of
from bert_tf.tasks.kinds import saved_options
from bert_tf.tasks.task import Task, evaluate
from bert_tf.tasks.task_file import TaskFile, to_json

from .data import DataSplits, read_task, table_columns
from .few_shot import few_shot_learner
from .model import StartingModel, build_model, model_spec, open_start
from .run_directory import FineTuningDirectory
from .settings import FineTuningSettings
from .summary import data_lines, label_lines
from .training import Training, describe_collapse

_SAMPLE = 200  # examples whose words tell how many the vocabulary lacks


@dataclasses.dataclass(frozen=True)
class RunInputs:
    """A run's settings and task, and what all runs of a sweep share: tokenised examples, start."""

    settings: FineTuningSettings
    task: Task
    start: StartingModel
    examples: Examples
    strategy: tf.distribute.Strategy
    callbacks: Sequence[Any] = ()


@dataclasses.dataclass(frozen=True)
class TrainingOutcome:
    """The model with the best weights, its evaluations, and the results of the training."""

    inference: Inference
    evaluations: Mapping[str, Evaluation]
    results: dict[str, Any]


def check_inputs(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    moved: Sequence[str],
    start: StartingModel | None = None,
) -> tuple[Task, DataSplits]:
    """Reads the data, and checks that they have not changed since the run started.

    ``moved`` are the flags whose paths differ from those of the first start.
    """
    task, splits = read_task(settings, start.embedding if start else None)
    fingerprints = splits.fingerprints()
    # A resumed run has weights of its own: the checkpoint that it started from may be gone.
    checkpoint = start.checkpoint if start else None
    if checkpoint is None and "init_checkpoint" in moved:
        checkpoint = open_checkpoint(settings.init_checkpoint)
    if checkpoint is not None:
        fingerprints["--init_checkpoint"] = checkpoint.fingerprint()
    directory.check_inputs(fingerprints)
    return task, splits


def prepare(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    moved: Sequence[str],
    strategy: tf.distribute.Strategy,
    callbacks: Sequence[Any] = (),
) -> RunInputs:
    """Opens the starting model, reads the data, tokenises the training set, and prints notes."""
    start = open_start(settings, directory)
    task, splits = check_inputs(settings, directory, moved, start)
    for note in splits.notes:
        print(note)
    skipped = splits.skipped()
    if skipped:
        with replace_whole(directory.skipped_rows) as file:
            file.write("".join(f"{sentence}\n" for sentence in skipped).encode())
        print(f"All are listed in {directory.skipped_rows}.")
    examples = task.training_examples(start.tokenizer, settings.max_seq_length)
    items = task.training_items()
    sample = items[:: -(-len(items) // _SAMPLE)]
    unknown = unknown_note([text for item in sample for text in texts_of(item)], start.tokenizer)
    for line in filter(None, [*data_lines(task, examples), *label_lines(task), unknown]):
        print(line, flush=True)
    return RunInputs(settings, task, start, examples, strategy, tuple(callbacks))


def train(directory: FineTuningDirectory, inputs: RunInputs) -> TrainingOutcome:
    """Trains what is left, evaluates the best weights on every dev set, and describes the model."""
    settings, task = inputs.settings, inputs.task
    describe(directory, inputs, {})
    with inputs.strategy.scope():
        model, sentences = build_model(settings, task, inputs.start)
    for sentence in sentences:
        print(sentence, flush=True)
    inference = inference_of(inputs, model)
    learner = None
    if settings.option("few_shot"):
        pairs = settings.option("few_shot_pairs")
        learner = few_shot_learner(task, inference, pairs, settings.seed)
    training = Training(
        settings, task, inference, inputs.examples, directory, inputs.callbacks, learner
    )
    training.finish()
    state = training.state
    evaluations = evaluate_all(task, inference)
    deciding = evaluations.get(task.deciding_set or "")
    thresholds = _floats(deciding.thresholds if deciding else task.usual_thresholds)
    # Without a set that decides, the others say whether a run has collapsed.
    judged = [task.deciding_set] if deciding else evaluations
    constant = next((name for name in judged if name and evaluations[name].constant), None)
    describe(directory, inputs, thresholds)
    results = {
        "task": task.name,
        "headline": task.headline,
        "scores": {name: _floats(e.scores) for name, e in evaluations.items()},
        "calibration": {
            name: e.calibrate().to_dict() for name, e in evaluations.items() if e.calibrate
        },
        "classes": {
            name: {label: score.to_dict() for label, score in e.comparison.classes.items()}
            for name, e in evaluations.items()
            if e.comparison.classes
        },
        "rows": {
            "train": len(task.training_items()),
            **{name: len(examples.items) for name, examples in task.sets.items()},
        },
        "thresholds": thresholds,
        "collapsed": describe_collapse(
            state.curve,
            constant=evaluations[constant].constant_means if constant else None,
            set_name=constant,
        ),
        "best": {"step": state.best_step, "epoch": state.best_step / training.steps_per_epoch},
        "steps": state.step,
        "evaluations": state.evaluations,
        "seconds": state.seconds,
        "examples_per_second": state.examples / state.seconds if state.seconds else None,
    }
    return TrainingOutcome(inference, evaluations, results)


def inference_of(
    inputs: RunInputs, model: BertModel, outputs: Mapping[str, Any] | None = None
) -> Inference:
    """A model to be run on the sets; ``outputs`` are what it gave for some of them before."""
    return Inference(
        model,
        inputs.start.tokenizer,
        inputs.settings.max_seq_length,
        inputs.settings.eval_batch_size,
        cache=dict(outputs or {}),
    )


def evaluate_all(task: Task, inference: Inference) -> dict[str, Evaluation]:
    """Evaluates a model on every dev set of the task, by the thresholds that the first decides."""
    deciding = task.deciding_set
    by_set = {} if deciding is None else {deciding: evaluate(task, inference, deciding)}
    thresholds = by_set[deciding].thresholds if deciding is not None else {}
    for name in task.dev_sets:
        if name != deciding:
            by_set[name] = evaluate(task, inference, name, thresholds)
    return {name: by_set[name] for name in task.dev_sets}


def _floats(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items()}


def describe(
    directory: FineTuningDirectory, inputs: RunInputs, thresholds: Mapping[str, float]
) -> None:
    """Writes the description of the model that ``bert_tf.load`` and ``bert_tf.predict`` read."""
    task, start = inputs.task, inputs.start
    length, columns = inputs.settings.max_seq_length, table_columns(inputs.settings)
    task_file = TaskFile(
        task.kind, task.name, length, columns, saved_options(type(task), task.options)
    )
    described = Checkpoint(
        path=directory.path,
        format="bert_tf",
        config=start.config,
        model=model_spec(task, start),
        tokenization=start.tokenization,
        labels=task.labels,
        multi_label=task.multi_label,
        thresholds=thresholds,
        task=to_json(task_file),
        sentence_embedding=start.embedding,
    )
    model_directory.write_description(described, directory.path)


def write_outputs(
    directory: FineTuningDirectory, inputs: RunInputs, outcome: TrainingOutcome
) -> dict[str, list[str]]:
    """Writes predictions and a report of every set; returns the paths of the files, by set."""
    task = inputs.task
    files: dict[str, list[str]] = {}
    for name in (*task.dev_sets, *task.test_sets):
        folder = os.path.join(directory.path, name)
        tf.io.gfile.makedirs(folder)
        files[name] = task.write_predictions(
            outcome.inference, name, folder, outcome.results["thresholds"]
        )
        if name in outcome.evaluations:
            evaluation, title = outcome.evaluations[name], f"{task.name}, {name}"
            collapsed = outcome.results["collapsed"]
            files[name] += write_report(folder, evaluation, task.labels, title, collapsed)
        if outcome.inference.cache is not None:
            outcome.inference.cache.pop(name, None)
    return files
