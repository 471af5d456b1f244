"""The stages of a fine-tuning: prepare, train and evaluate, write what people look at."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.evaluation.evaluation import Evaluation, Inference
from bert_tf.evaluation.report import write_report
from bert_tf.evaluation.scores import json_scores
from bert_tf.files import replace_whole
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.tasks.kinds import saved_options
from bert_tf.tasks.task import Task, evaluate
from bert_tf.tasks.task_file import TaskFile, to_json
from bert_tf.training.progress import print_progress

from .data import read_task
from .few_shot import few_shot_learner
from .model import Origin, StartingModel, build_model, inference_of, model_spec, starting_model
from .run_directory import FineTuningDirectory
from .settings import FineTuningSettings
from .summary import lines_before
from .training import FineTuningTrainer, describe_collapse


@dataclasses.dataclass(frozen=True)
class FineTuningInputs:
    """A run's settings and task, and what all runs of a sweep share: tokenised examples, start.

    ``columns`` are the arguments by which the kind read its tables, {} for files of another form.
    """

    settings: FineTuningSettings
    task: Task
    columns: Mapping[str, Any]
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


def prepare(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    origin: Origin,
    moved: Sequence[str],
    strategy: tf.distribute.Strategy,
    callbacks: Sequence[Any] = (),
) -> FineTuningInputs:
    """Opens the start, reads the data, tokenises the training set, and prints notes.

    ``moved`` are the flags that name another place than when the run started.
    """
    start = starting_model(settings, origin.checkpoint, goes_on=origin.is_run)
    task, splits = read_task(settings, start.embedding)
    directory.check_inputs({**splits.fingerprints(), **origin.fingerprint(moved)})
    for note in splits.notes:
        print_progress(note)
    if splits.skipped:
        with replace_whole(directory.skipped_rows) as file:
            file.write("".join(f"{sentence}\n" for sentence in splits.skipped).encode())
        print_progress(f"All are listed in {directory.skipped_rows}.")
    examples = task.training_examples(start.tokenizer, settings.max_seq_length)
    print_progress(*lines_before(task, examples, start.tokenizer), sep="\n", flush=True)
    return FineTuningInputs(
        settings, task, splits.columns, start, examples, strategy, tuple(callbacks)
    )


def train(directory: FineTuningDirectory, inputs: FineTuningInputs) -> TrainingOutcome:
    """Trains what is left, evaluates the best weights on every dev set, and describes the model."""
    settings, task = inputs.settings, inputs.task
    describe(directory, inputs, {})
    with inputs.strategy.scope():
        model, sentences = build_model(settings, task, inputs.start)
    for sentence in sentences:
        print_progress(sentence, flush=True)
    inference = inference_of(settings, inputs.start.tokenizer, model)
    learner = None
    if settings.option("few_shot"):
        pairs = settings.option("few_shot_pairs")
        learner = few_shot_learner(task, inference, pairs, settings.seed)
    training = FineTuningTrainer(
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
        "scores": {name: json_scores(e.scores) for name, e in evaluations.items()},
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


def evaluate_all(task: Task, inference: Inference) -> dict[str, Evaluation]:
    """Evaluates a model on every dev set of the task, by the thresholds that the first decides."""
    by_set: dict[str, Evaluation] = {}
    thresholds: Mapping[str, float] | None = None if task.deciding_set else {}
    for name in sorted(task.dev_sets, key=lambda name: name != task.deciding_set):
        by_set[name] = evaluate(task, inference, name, thresholds)
        thresholds = by_set[name].thresholds if thresholds is None else thresholds
    return {name: by_set[name] for name in task.dev_sets}


def _floats(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items()}


def describe(
    directory: FineTuningDirectory, inputs: FineTuningInputs, thresholds: Mapping[str, float]
) -> None:
    """Writes the description of the model that ``bert_tf.load`` and ``bert_tf.predict`` read."""
    task, start = inputs.task, inputs.start
    options, length = saved_options(type(task), task.options), inputs.settings.max_seq_length
    task_file = TaskFile(task.kind, task.name, length, inputs.columns, options)
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
    directory: FineTuningDirectory, inputs: FineTuningInputs, outcome: TrainingOutcome
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
