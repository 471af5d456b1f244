"""Summary of the data before training; results, files and model card after training."""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.evaluation.calibration import FEW
from bert_tf.evaluation.metrics import score_text
from bert_tf.evaluation.report import write_report
from bert_tf.features import TEMPERATURE
from bert_tf.io.messages import listed, markdown_code, one_line, quote
from bert_tf.io.paths import HUB_SCHEME
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.pipelines.vocabulary_warnings import unknown_note
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.examples import label_of, texts_of
from bert_tf.tasks.task import TEST, Task, label_counts
from bert_tf.training.progress import print_progress
from bert_tf.training.run_directory import FineTuningDirectory

from .settings import MAY_CHANGE, FineTuningSettings, flag_defaults
from .training import TrainingOutcome, scores_line

_SAMPLE = 200  # number of examples for estimating the rate of unknown words
# Settings that a sweep varies, and the columns of the sweep's table.
VARIED = ("train_batch_size", "learning_rate", "num_train_epochs")
_COLUMNS = ("batch", "rate", "epochs", "runs", "mean", "std", "best", "best seed", "collapsed")
# Settings that every model card lists; others are listed if they differ from the default.
_ALWAYS_LISTED = (
    *("max_seq_length", "train_batch_size", "learning_rate", "num_train_epochs"),
    *("warmup_proportion", "optimizer", "precision", "metric", "seed"),
)


def training_summary(task: Task, examples: Examples, tokenizer: BertTokenizer) -> list[str]:
    """Returns lines about the splits, their labels and unknown words."""
    notes = label_summary(task)
    labels = f", labels {listed(task.labels)}" if task.labels else ""
    evaluated = ", ".join(task.dev_sets) or "nothing"
    predicted = f"; predicted: {', '.join(task.test_sets)}" if task.test_sets else ""
    count, *messages = task.training_summary(examples)
    items = task.training_items()
    sample = items[:: -(-len(items) // _SAMPLE)]
    unknown = unknown_note([text for item in sample for text in texts_of(item)], tokenizer)
    return [
        f"Task: {task.name}, {count} for training{labels}; evaluated on: {evaluated}{predicted}.",
        *messages,
        *notes,
        *filter(None, [unknown]),
    ]


def label_summary(task: Task) -> list[str]:
    """Returns lines on label counts, the accuracy of the most common label and missing labels."""
    name = task.deciding_set
    counts, dev_counts = label_counts(task, None), label_counts(task, name)
    if not counts:
        return _constant_label_notes(task)
    total = sum(counts.values())
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    suffix = "" if task.multi_label else f" of {total:,}"
    lines = [
        "Training set: "
        + listed(f"{one_line(label)} {counts[label]:,}" for label in ranked)
        + f"{suffix}."
    ]
    if name is None:
        return lines
    if not task.multi_label and dev_counts:
        baseline = dev_counts.get(ranked[0], 0) / sum(dev_counts.values())
        lines.append(
            f"Baseline: always predicting {quote(ranked[0])}, the most common label, has an "
            f"accuracy of {baseline:.3f} on {name}."
        )
    remedy = "Use a --dev_file with all labels, a larger --dev_fraction or another --seed."
    unscored = [label for label in counts if not dev_counts.get(label)]
    if unscored and dev_counts:
        lines.append(
            f"{name} has no examples of {listed(map(quote, unscored))}, so these labels are not "
            f"evaluated. {remedy}"
        )
    unlearned = [label for label in dev_counts if not counts.get(label)]
    if unlearned:
        lines.append(
            f"The training set has no examples of {listed(map(quote, unlearned))}, although "
            f"{name} does. {remedy}"
        )
    return lines


def _constant_label_notes(task: Task) -> list[str]:
    """Returns notes on dev sets whose labels are all equal, so correlations are undefined."""
    numbers = {name: {label_of(item) for item in task.sets[name].items} for name in task.dev_sets}
    return [
        f"Every label of {name} is {labels.pop():.6g}, so correlations and r2 are undefined. "
        "Use data with different labels."
        for name, labels in numbers.items()
        if len(labels) == 1 and all(isinstance(label, float) for label in labels)
    ]


def write_outputs(outcome: TrainingOutcome, directory: FineTuningDirectory) -> dict[str, list[str]]:
    """Writes predictions and reports; returns the paths of the files by split."""
    task, results = outcome.task, outcome.results
    files: dict[str, list[str]] = {}
    for name in (*task.dev_sets, *task.test_sets):
        folder = directory.join(name)
        tf.io.gfile.makedirs(folder)
        files[name] = task.write_predictions(outcome.inference, name, folder, results["thresholds"])
        if evaluation := outcome.evaluations.get(name):
            title, collapsed = f"{task.name}, {name}", results["collapsed"]
            files[name] += write_report(folder, evaluation, task.labels, title, collapsed)
        if outcome.inference.cache is not None:
            outcome.inference.cache.pop(name, None)
    return files


def show(results: Mapping[str, Any], directory: FineTuningDirectory) -> None:
    """Prints the results of a finished fine-tuning run and the commands to run next."""
    if "configurations" in results:
        print_progress(sweep_table(results))
        print_progress(f"\nBest run: {results['best_run']}, saved in {directory.path}")
    best = results["best"]
    trained = f"{results['steps']:,} steps"
    if results["examples_per_second"]:
        # The speed excludes evaluations and each process's first step, which compiles the graph.
        trained += f" at {results['examples_per_second']:,.1f} examples/s"
    print_progress(f"Trained {trained}. Saved the weights of epoch {best['epoch']:.3g}.")
    for name, scores in results["scores"].items():
        print_progress(f"  {name:<16}{scores_line(results['headline'], scores)}")
    for name, value in results["thresholds"].items():
        if name != TEMPERATURE:
            print_progress(f"  threshold {name}: {value:g}, used for scores and predictions")
    for line in calibration_lines(results.get("calibration", {})):
        print_progress(f"  {line}")
    if results["collapsed"]:
        print_progress(
            f"COLLAPSED: {results['collapsed']}. Try another --seed (or --restarts=5), a lower "
            "--learning_rate or more --num_train_epochs."
        )
    if directory.is_temporary:
        return
    for name, paths in results["files"].items():
        print_progress(f"\n{name}:")
        for path in paths:
            print_progress(f"  {path}")
    logs = directory.runs if "configurations" in results else directory.logs
    print_progress(f"\nResults: {directory.results}")
    exported = results.get("export")
    if exported:
        print_progress(f"SavedModel: {exported}")
    print_progress(
        f"\nNext steps:\n  python -m bert_tf.predict --model={directory.path} --input=FILE"
    )
    if exported:
        print_progress(f"  python -m bert_tf.verify {exported}")
    print_progress(
        f"  tensorboard --logdir {logs}\n"
        f'  python -c "import bert_tf; model = bert_tf.load({directory.path!r})"'
    )
    if exported:
        print_progress(f"Try it in a browser: python -m bert_tf.serve --model={directory.path}")


def calibration_lines(calibration: Mapping[str, Mapping[str, Any]]) -> list[str]:
    r"""Returns a line for each split whose calibration the temperature improves.

    >>> raw, better = ({"expected_calibration_error": e, "loss": e} for e in (0.5, 0.25))
    >>> values = {"temperature": 1.7, "decisions": 900, "raw": raw, "calibrated": better}
    >>> print_progress(*calibration_lines({"dev": values}))
    temperature 1.7: calibration error 0.250 on dev (0.500 without), loss 0.250 (0.500 without)
    >>> calibration_lines({"dev": {**values, "raw": {**raw, "expected_calibration_error": 0.2}}})
    []
    """
    lines = []
    for name, values in calibration.items():
        raw, scaled = values["raw"], values["calibrated"]
        if any(scaled[figure] >= raw[figure] for figure in raw):
            continue
        error = "expected_calibration_error"
        is_few = values["decisions"] < FEW
        few = f"; uncertain: based on only {values['decisions']:,} decisions" if is_few else ""
        lines.append(
            f"temperature {values['temperature']:.3g}: calibration error {scaled[error]:.3f} on "
            f"{one_line(name)} ({raw[error]:.3f} without), loss {scaled['loss']:.3f} "
            f"({raw['loss']:.3f} without){few}"
        )
    return lines


# === The table of a sweep ===


def table_rows(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the table of a sweep: the header, then a row per configuration, the best first."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    headline = results["headline"]
    for entry in results["configurations"]:
        scores = {
            name: "-" if entry[name] is None else score_text(headline, entry[name], entry["means"])
            for name in ("mean", "std", "best")
        }
        seed = "-" if entry["best_seed"] is None else entry["best_seed"]
        size, rate, epochs = (entry[name] for name in VARIED)
        cells = (size, f"{rate:g}", epochs, entry["runs"], *scores.values(), seed)
        rows.append((*map(str, cells), str(entry["collapsed"])))
    if not any(entry.get("feature_based") for entry in results["configurations"]):
        return rows
    layers = ("layers", *(entry["feature_based"] for entry in results["configurations"]))
    return [(name, *row) for name, row in zip(layers, rows, strict=True)]


def sweep_table(results: Mapping[str, Any]) -> str:
    """Formats the table of a sweep and the list of collapsed runs."""
    rows = table_rows(results)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{results['headline']} on {results['dev_set']}:"]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {'  '.join(cells)}")
    collapsed = [run for run in results["runs"] if run["collapsed"]]
    if collapsed:
        lines.append("Collapsed:")
        lines += [f"  {run['name']}: {run['collapsed']}" for run in collapsed]
    return "\n".join(lines)


# === The model card ===


def run_card(
    settings: FineTuningSettings, results: Mapping[str, Any], path: str, differences: str
) -> str:
    """Returns the model card; it contains file names, but not paths, which may be private.

    ``differences`` is the section on differences between the initial checkpoint and its source.
    """
    checkpoint, start = open_checkpoint(path), settings.init_checkpoint
    is_from_hub = start.startswith(HUB_SCHEME)
    start = start.split("@")[0] if is_from_hub else os.path.basename(start.rstrip("/"))
    published = f"GLUE {settings.glue}" if settings.glue else None
    paths = {"train": published or settings.train_file, TEST: published or settings.test_file}
    other = published or settings.dev_file or settings.train_file
    files = {name: os.path.basename(str(paths.get(name) or other)) for name in results["rows"]}
    name = os.path.basename(os.path.abspath(settings.model_dir))
    scores, pipeline_tag = results["scores"], model_card.pipeline_tag(checkpoint)
    deciding = next((set_name for set_name in scores if set_name != TEST), None)
    uses = dict.fromkeys(scores, "evaluation")
    uses |= {"train": "training", deciding: "evaluation, and selection of the weights"}
    data = [
        (name, markdown_code(file), f"{results['rows'][name]:,}", uses.get(name, "prediction"))
        for name, file in files.items()
    ]
    index = {"name": name, "results": _hub_results(scores, files, pipeline_tag)}
    return model_card.fill(
        "run.md",
        base_model=is_from_hub and model_card.header_value(start.removeprefix(HUB_SCHEME)),
        pipeline_tag=pipeline_tag,
        model_index=scores and model_card.header_value([index]),
        title=one_line(name),
        model_class=checkpoint.model.class_name,
        version=bert_tf.__version__,
        start=markdown_code(start),
        train=markdown_code(files["train"]),
        facts=model_card.bullets(model_card.facts(checkpoint)),
        data=model_card.table(("set", "from", "examples", "use"), data),
        scores=_scores_table(results),
        settings=model_card.table(("setting", "value"), _setting_rows(settings, results)),
        collapsed=results["collapsed"],
        too_good=deciding and "Scores on the set that selected the weights are optimistic.",
        always_answers=checkpoint.labels
        and not checkpoint.multi_label
        and "It always predicts one of its classes, even if none applies.",
        differences=differences,
        use=model_card.use(checkpoint),
    )


def _hub_results(
    scores: Mapping[str, Mapping[str, float | None]], files: Mapping[str, str], pipeline_tag: str
) -> list[dict[str, Any]]:
    """Returns the scores in the model index format of the Hugging Face Hub."""
    return [
        {
            "task": {"type": pipeline_tag},
            "dataset": {"name": files[set_name], "type": files[set_name], "split": set_name},
            "metrics": [
                {"type": key, "value": value}
                for key, value in metrics.items()
                if value is not None and math.isfinite(value)
            ],
        }
        for set_name, metrics in scores.items()
    ]


def _scores_table(results: Mapping[str, Any]) -> str:
    """Returns the table of the scores, with the main metric of each split first."""
    rows = [
        (set_name, markdown_code(metric), "undefined" if value is None else f"{value:.4g}")
        for set_name, scores in results["scores"].items()
        for metric, value in sorted(scores.items(), key=lambda item: item[0] != results["headline"])
    ]
    return model_card.table(("set", "score", "value"), rows) if rows else "None."


def _setting_rows(
    settings: FineTuningSettings, results: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yields the settings of the best run, and the thresholds."""
    chosen, defaults = settings.to_dict() | {"metric": results["headline"]}, flag_defaults()
    may_change = set().union(*MAY_CHANGE.values())
    for name, value in chosen.items():
        is_other = value != defaults[name] and name not in may_change
        if name == "num_train_epochs" and settings.max_steps:
            continue
        if name in _ALWAYS_LISTED or is_other:
            yield f"`{name}`", markdown_code(str(results.get(name, value)))
    for name, value in results["thresholds"].items():
        yield f"threshold {markdown_code(name)}", f"{value:g}"
