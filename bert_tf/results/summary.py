"""What a fine-tuning prints: the data, a line for each evaluation, the scores, what comes next."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bert_tf.metrics.calibration import FEW
from bert_tf.metrics.formulas import LOWER_IS_BETTER
from bert_tf.modeling.base import TEMPERATURE
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.tasks.kinds import PAPERS_F1
from bert_tf.tasks.task import Task
from bert_tf.training.progress import duration
from bert_tf.untrusted import listed, one_line, quote

from .run_directory import FineTuningDirectory

# A score is a fraction of 1, except for SQuAD's official ones, which count to 100 (one of these two
# is always among them), and for losses and errors, which have units of their own.
_AMONG_PERCENTAGES = frozenset({"exact", "exact_match"})


def score(name: str, value: float, names: Collection[str]) -> str:
    """A score for people, among the names of all metrics that are reported with it.

    A fraction has three decimals, what counts to 100 has two; errors are in the labels' units.

    >>> score("f1", 0.86744, ["f1"]), score("f1", 0.8, ["exact", "f1"])
    ('0.867', '0.80')
    >>> score("mean_absolute_error", 0.00012, ["mean_absolute_error"])
    '0.00012'
    """
    if name in LOWER_IS_BETTER:
        return f"{value:.4g}"
    return f"{value:.3f}" if _AMONG_PERCENTAGES.isdisjoint(names) else f"{value:.2f}"


_SWEPT = ("train_batch_size", "learning_rate", "num_train_epochs")


def scores_line(
    headline: str,
    scores: Mapping[str, float],
    intervals: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> str:
    """Scores in one line, the one that decides first, with their intervals where there are any.

    >>> scores_line("f1", {"accuracy": 0.5, "f1": 0.25}, {"f1": [0.2, 0.3]})
    'f1 0.250 (95%: 0.200 to 0.300), accuracy 0.500'
    """
    shown = []
    for name in sorted(scores, key=lambda name: name != headline):
        ends = " to ".join(score(name, end, scores) for end in intervals.get(name, ()))
        between = f" (95%: {ends})" if ends else ""
        shown.append(f"{one_line(name)} {score(name, scores[name], scores)}{between}")
    return ", ".join(shown)


def calibration_lines(calibration: Mapping[str, Mapping[str, Any]]) -> list[str]:
    r"""What the temperature does on each set where it helps, by the loss and by the bins' error.

    >>> raw, better = ({"expected_calibration_error": e, "loss": e} for e in (0.5, 0.25))
    >>> found = {"temperature": 1.7, "decisions": 900, "raw": raw, "calibrated": better}
    >>> print(*calibration_lines({"dev": found})[0].split("; "), sep="\n")
    temperature 1.7: on dev the probabilities are off by 0.250 on average, without it by 0.500
    the loss is 0.250, without it 0.500
    >>> calibration_lines({"dev": {**found, "raw": {**raw, "expected_calibration_error": 0.2}}})
    []
    """
    lines = []
    for name, found in calibration.items():
        (off, raw), (loss, raw_loss) = (
            [found[side][figure] for side in ("calibrated", "raw")]
            for figure in ("expected_calibration_error", "loss")
        )
        if off >= raw or loss >= raw_loss:
            continue
        few = f"; {found['decisions']:,} decisions are few to tell" * (found["decisions"] < FEW)
        lines.append(
            f"temperature {found['temperature']:.3g}: on {one_line(name)} the probabilities are "
            f"off by {off:.3f} on average, without it by {raw:.3f}; the loss is {loss:.3f}, "
            f"without it {raw_loss:.3f}{few}"
        )
    return lines


_REJECT_BELOW = (0.5, 0.7, 0.9)


def rejection_line(name: str, bins: Sequence[Mapping[str, float]]) -> str:
    """What ``predict --reject_below`` would answer of a set, by the bins of its calibration.

    >>> shares = ((0.45, 0.5), (0.75, 0.8), (0.95, 1.0))
    >>> rejection_line("dev", [{"confidence": c, "decisions": 50, "share": s} for c, s in shares])
    'on dev, predict --reject_below=0.5 answers 67% (90% right), 0.7 67% (90%), 0.9 33% (100%)'
    """
    total, parts = sum(one["decisions"] for one in bins), dict[float, str]()
    for least in _REJECT_BELOW:
        kept = [one for one in bins if one["confidence"] >= least]
        answered = sum(one["decisions"] for one in kept)
        right = sum(one["decisions"] * one["share"] for one in kept) / (answered or 1)
        parts[least] = f"{answered / total:.0%} ({right:.0%})"
    first, *others = _REJECT_BELOW
    rest = "".join(f", {least:g} {parts[least]}" for least in others)
    said = parts[first].replace(")", " right)")
    return f"on {one_line(name)}, predict --reject_below={first:g} answers {said}{rest}"


_CLASS_COLUMNS = ("precision", "recall", "f1")
_MOST_CLASSES = 20


def class_lines(classes: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table of the classes' scores for the screen, the worst F1 first, 20 at most.

    >>> score = {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "true": 3, "predicted": 6}
    >>> for line in class_lines({"spam": score}):
    ...     print(line)
              precision  recall     f1   true  predicted
    spam          0.500   1.000  0.667      3          6
    """
    ranked = sorted(classes, key=lambda name: classes[name]["f1"])[:_MOST_CLASSES]
    names = {name: one_line(name) for name in ranked}
    width = max([8, *map(len, names.values())])
    lines = [f"{'':<{width}}  precision  recall     f1   true  predicted"]
    for name in ranked:
        precision, recall, f1 = (classes[name][column] for column in _CLASS_COLUMNS)
        lines.append(
            f"{names[name]:<{width}}  {precision:>9.3f}  {recall:>6.3f}  {f1:>5.3f}  "
            f"{classes[name]['true']:>5,}  {classes[name]['predicted']:>9,}"
        )
    if len(classes) > len(ranked):
        lines.append(f"and {len(classes) - len(ranked):,} more classes, in results.json")
    return lines


def data_lines(task: Task, examples: Examples) -> list[str]:
    """What is printed of the data before the training."""
    labels = f", labels {listed(task.labels)}" if task.labels else ""
    evaluated = ", ".join(task.dev_sets) or "nothing"
    predicted = f"; predicted: {', '.join(task.test_sets)}" if task.test_sets else ""
    count, *sentences = task.training_lines(examples)
    return [
        f"Task: {task.name}, {count} to train on{labels}; evaluated on: {evaluated}{predicted}.",
        *sentences,
    ]


def label_lines(task: Task) -> list[str]:
    """What is printed of the labels: counts, what the commonest one scores, where some lack."""
    counts = task.label_counts(None)
    if not counts:
        return []
    total = sum(counts.values())
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    share = "" if task.multi_label else f" of {total:,}"
    lines = [
        "In the training set: "
        + listed(f"{one_line(label)} {counts[label]:,}" for label in ranked)
        + f"{share}."
    ]
    if task.deciding_set is None:
        return lines
    name = task.deciding_set
    there = task.label_counts(name)
    if not task.multi_label and there:
        baseline = there.get(ranked[0], 0) / sum(there.values())
        lines.append(
            f"To beat: always saying {quote(ranked[0])}, the most frequent, has an accuracy of "
            f"{baseline:.3f} on {name}."
        )
    help = "a --dev_file with all labels, a larger --dev_fraction or another --seed helps"
    unjudged = [label for label in counts if not there.get(label)]
    if unjudged and there:
        lines.append(
            f"Only the training set has {listed(map(quote, unjudged))}: {name} cannot show how "
            f"well that is learned; {help}."
        )
    unlearned = [label for label in there if not counts.get(label)]
    if unlearned:
        lines.append(
            f"Only {name} has {listed(map(quote, unlearned))}: the training set has no examples to "
            f"learn that from; {help}."
        )
    return lines


# === A run's results ===


def show(results: Mapping[str, Any], directory: FineTuningDirectory) -> None:
    """Prints the results of a finished fine-tuning, and the commands that come next."""
    if "configurations" in results:
        print(sweep_table(results))
        if _has_layers(results):
            print(f"\n{layer_table(results)}")
        if results.get("folds"):
            print(f"\n{fold_line(results)}")
        print(f"\nBest: {results['best_run']}, kept in {directory.path}")
    best = results["best"]
    trained = f"{results['steps']:,} steps"
    if results["examples_per_second"]:
        speed = f"{results['examples_per_second']:,.1f} examples/s"
        # Of each process' steps but its first, which compiles the graph.
        trained += f", {duration(results['seconds'])} after the first, {speed}"
    print(f"Trained {trained}; the weights of epoch {best['epoch']:.3g} are kept.")
    intervals, classes = results["intervals"], results["classes"]
    for name, scores in results["scores"].items():
        line = scores_line(results["headline"], scores, intervals.get(name, {}))
        print(f"  {name:<16}{line}")
        for line in class_lines(classes[name]) if name in classes else ():
            print(f"    {line}")
    for name, value in results["thresholds"].items():
        if name != TEMPERATURE:
            print(f"  threshold {name}: {value:g}, used for the scores and the predictions")
    calibration = results.get("calibration", {})
    for line in calibration_lines(calibration):
        print(f"  {line}")
    for name, found in calibration.items():
        # Of one class for each row; a tag or a label that may hold is not rejected.
        if (
            found["decisions"] == results.get("rows", {}).get(name)
            and len(classes.get(name, ())) > 1
        ):
            print(f"  {rejection_line(name, found['calibrated']['bins'])}")
    if results["collapsed"]:
        print(
            f"COLLAPSED: {results['collapsed']}. Try another --seed (--restarts=5 tries five), a "
            "lower --learning_rate, or more --num_train_epochs."
        )
    if results.get("undertrained"):
        print(
            f"Trained too little: {results['undertrained']}. More --num_train_epochs or a higher "
            "--learning_rate most probably help."
        )
    if directory.is_temporary:
        return
    for name, paths in results["files"].items():
        print(f"\n{name}:")
        for path in paths:
            print(f"  {path}")
    logs = directory.runs if "configurations" in results else directory.logs
    print(f"\nResults: {directory.results}")
    exported = results.get("export")
    if exported:
        print(f"SavedModel: {exported}")
    print(f"\nWhat comes next:\n  python -m bert_tf.predict --model={directory.path} --input=FILE")
    if exported:
        print(f"  python -m bert_tf.verify {exported}")
    print(
        f"  tensorboard --logdir {logs}\n"
        f'  python -c "import bert_tf; model = bert_tf.load({directory.path!r})"'
    )


# === A sweep's table ===

_COLUMNS = ("batch", "rate", "epochs", "runs", "mean", "std", "best", "best seed", "collapsed")


def table_rows(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table of a sweep, its header first: a row for each configuration, the best first."""
    others = results.get("grid", [])
    rows: list[tuple[str, ...]] = [(*_COLUMNS[:3], *others, *_COLUMNS[3:])]
    headline = results["headline"]
    for entry in results["configurations"]:
        shown = {
            name: "-" if entry[name] is None else score(headline, entry[name], entry["means"])
            for name in ("mean", "std", "best")
        }
        seed = "-" if entry["best_seed"] is None else entry["best_seed"]
        size, rate, epochs = (entry[name] for name in _SWEPT)
        own = (entry[name] for name in others)
        cells = (size, f"{rate:g}", epochs, *own, entry["runs"], *shown.values(), seed)
        rows.append((*map(str, cells), str(entry["collapsed"])))
    if not _has_layers(results):
        return rows
    layers = ("layers", *(entry["feature_based"] for entry in results["configurations"]))
    return [(name, *row) for name, row in zip(layers, rows, strict=True)]


def fold_line(results: Mapping[str, Any]) -> str:
    """The best configuration's scores over its folds, the one that decides first.

    >>> swept = {"train_batch_size": 8, "learning_rate": 1e-5, "num_train_epochs": 3}
    >>> means = {"means": {"loss": 0.5, "f1": 0.8}, "deviations": {"loss": 0.01, "f1": None}}
    >>> fold_line({"headline": "f1", "folds": 5, "configurations": [swept | means], **swept})
    'Over 5 folds, mean and standard deviation: f1 0.800, loss 0.5 ± 0.01'
    >>> fold_line({"headline": "f1", "folds": 5, "configurations": [
    ...     swept | {"scored": 4, "means": {"f1": 0.8}, "deviations": {"f1": 0.1}}], **swept})
    'Over 4 of 5 folds, mean and standard deviation: f1 0.800 ± 0.100'
    """
    headline, names = results["headline"], (*_SWEPT, *results.get("grid", ()))
    entry = next(
        entry
        for entry in results["configurations"]
        if all(entry[name] == results[name] for name in names)
    )
    means, deviations = entry["means"], entry["deviations"]
    shown = []
    for name in sorted(means, key=lambda name: name != headline):
        spread = deviations[name]
        shown.append(f"{one_line(name)} {score(name, means[name], means)}")
        shown[-1] += "" if spread is None else f" ± {score(name, spread, means)}"
    folds = results["folds"]
    scored = entry.get("scored", folds)  # fewer where runs diverged, more with other seeds
    over = f"{scored} of {folds}" if scored < folds else f"{folds}"
    if scored > folds:
        over = f"{scored} runs on {folds}"
    return f"Over {over} folds, mean and standard deviation: {', '.join(shown)}"


def sweep_table(results: Mapping[str, Any]) -> str:
    """The table for people, and the collapsed runs by name."""
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


# === The table of --feature_based ===

_NONE = "-"
_NOTE = (
    "Here: on frozen features, in percent, with the deviation over several seeds. The paper's: "
    "BERT-base, cased, on CoNLL-2003's English, the mean of five."
)


def _has_layers(results: Mapping[str, Any]) -> bool:
    """Whether results are of ``--feature_based``."""
    return any(entry.get("feature_based") for entry in results.get("configurations", ()))


def layer_table(results: Mapping[str, Any]) -> str:
    """The paper's table 7 in Markdown, with a sweep's scores next to it, and a sentence on both.

    >>> entry = {"feature_based": "last", "mean": 0.9437, "std": None, "runs": 1}
    >>> table = layer_table({"headline": "f1", "dev_set": "dev", "configurations": [entry]})
    >>> for line in table.splitlines()[:5]:
    ...     print(line)
    | layers                 | f1 on dev | the paper's F1 |
    |:-----------------------|----------:|---------------:|
    | embeddings             |         - |           91.0 |
    | second_to_last         |         - |           95.6 |
    | last                   |      94.4 |           94.9 |
    """
    ours = {entry["feature_based"]: _percent(entry) for entry in results["configurations"]}
    rows = [
        ("layers", f"{results['headline']} on {results['dev_set']}", "the paper's F1"),
        *((name, ours.get(name, _NONE), f"{paper:.1f}") for name, paper in PAPERS_F1.items()),
    ]
    first, *others = (max(len(row[column]) for row in rows) for column in range(len(rows[0])))
    lines = [
        f"| {name:<{first}} | "
        + " | ".join(f"{cell:>{width}}" for cell, width in zip(cells, others, strict=True))
        + " |"
        for name, *cells in rows
    ]
    rule = f"|:{'-' * (first + 1)}|" + "".join(f"{'-' * (width + 1)}:|" for width in others)
    return "\n".join([lines[0], rule, *lines[1:], "", _NOTE])


def _percent(entry: Mapping[str, Any]) -> str:
    """The mean in percent, with the deviation where there are several runs."""
    if entry["mean"] is None:
        return _NONE
    spread = "" if entry["std"] is None else f" ± {100 * entry['std']:.1f}"
    return f"{100 * entry['mean']:.1f}{spread}"
