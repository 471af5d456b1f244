"""The card of a fine-tuned model: what its run knows of the data, the scores and the limits."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import bert_tf
from bert_tf.interchange.checkpoint import Checkpoint
from bert_tf.interchange.model_card import about, description, use
from bert_tf.paths import HUB_SCHEME
from bert_tf.reports import cards
from bert_tf.results.summary import score
from bert_tf.tasks.task import TEST
from bert_tf.untrusted import markdown_code, one_line

from .settings import MAY_DIFFER, PATHS, FineTuningSettings, flag_defaults

_MOST_CLASSES = 200
# What every card has; other settings are there where they are not the default.
_SETTINGS = (
    *("max_seq_length", "train_batch_size", "learning_rate", "num_train_epochs"),
    *("warmup_proportion", "optimizer", "precision", "metric", "seed"),
)
_CLASS_COLUMNS = ("precision", "recall", "f1", "true", "predicted")


def model_card(
    settings: FineTuningSettings, checkpoint: Checkpoint, results: Mapping[str, Any]
) -> str:
    """The text, Markdown with a YAML header, of a run's settings, kept model and results."""
    name = os.path.basename(os.path.abspath(settings.model_dir))
    sets = ["train", *results["scores"], *([TEST] if settings.test_file else ())]
    files = _files(settings, list(dict.fromkeys([*results.get("rows", {}), *sets])))
    start = _start(settings)
    return cards.card(
        one_line(name),
        _opening(checkpoint, start, files),
        description(checkpoint),
        cards.section("Data", *_data(settings, results, files)),
        cards.section("Scores", *_scores(results)),
        *_class_tables(results),
        cards.section("Settings", _settings(settings, results)),
        cards.section("Limits", cards.bullets(_limits(settings, checkpoint, results))),
        use(checkpoint),
        header=_header(settings, checkpoint, results, name, files),
    )


# === The header ===


def _header(
    settings: FineTuningSettings,
    checkpoint: Checkpoint,
    results: Mapping[str, Any],
    name: str,
    files: Mapping[str, str],
) -> dict[str, Any]:
    known, start = about(checkpoint), _start(settings)
    evaluated = [
        {
            "task": {"type": known["pipeline_tag"]},
            "dataset": {"name": files[set_name], "type": files[set_name], "split": set_name},
            "metrics": metrics,
        }
        for set_name, scores in results["scores"].items()
        if (
            metrics := [
                {"type": metric, "value": value}
                for metric, value in scores.items()
                if math.isfinite(value)
            ]
        )
    ]
    names = (name for scores in results["scores"].values() for name in scores)
    named = [name for name in files if name in ("train", *results["scores"])]
    return {
        "base_model": start.removeprefix(HUB_SCHEME) if start.startswith(HUB_SCHEME) else "",
        "datasets": list(dict.fromkeys(files[name] for name in named)),
        "metrics": list(dict.fromkeys(names)),
        **known,
        "model-index": [{"name": name, "results": evaluated}] if evaluated else (),
    }


def _files(settings: FineTuningSettings, sets: Sequence[str]) -> dict[str, str]:
    """By set, the name of the file or of the published data; folders may say who the user is."""
    published = f"GLUE {settings.glue}" if settings.glue else None
    named = {"train": published or settings.train_file, TEST: published or settings.test_file}
    other = published or settings.dev_file or settings.train_file
    return {name: os.path.basename(str(named.get(name) or other)) for name in sets}


def _start(settings: FineTuningSettings) -> str:
    """What the training started from: an address of the hub without its revision, or a name."""
    start = settings.init_checkpoint
    if start.startswith(HUB_SCHEME):
        return start.split("@")[0]
    return os.path.basename(start.rstrip("/"))


# === The text ===


def _opening(checkpoint: Checkpoint, start: str, files: Mapping[str, str]) -> str:
    return (
        f"A {checkpoint.model.class_name}, fine-tuned by `bert_tf` {bert_tf.__version__} from "
        f"{markdown_code(start)} on {markdown_code(files['train'])}."
    )


def _deciding(results: Mapping[str, Any]) -> str | None:
    return next((name for name in results["scores"] if name != TEST), None)


def _data(
    settings: FineTuningSettings, results: Mapping[str, Any], files: Mapping[str, str]
) -> Iterator[str]:
    rows = []
    sizes = results["rows"]
    for name, file in files.items():
        if name == "train":
            role = "trained on"
        elif name == _deciding(results):
            role = "scored; its scores decided which weights were kept"
        else:
            role = "scored; nothing was decided on it" if name in results["scores"] else "predicted"
        rows.append((name, cards.cell(file), f"{sizes[name]:,}" if name in sizes else "", role))
    yield cards.table(("set", "from", "examples", "use"), rows)
    if not (settings.glue or settings.dev_file) and "dev" in files:
        yield (
            f"`dev` is {settings.dev_fraction:g} of {markdown_code(files['train'])}, held out "
            f"of the training by the seed {settings.seed}; equal texts are on one side only."
        )


def _scores(results: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for name, scores in results["scores"].items():
        for metric in sorted(scores, key=lambda metric: metric != results["headline"]):
            rows.append((name, cards.cell(metric), score(metric, scores[metric], scores)))
    if not rows:
        yield "Nothing was evaluated: there was no set to evaluate on."
        return
    yield cards.table(("set", "score", "value"), rows)
    deciding = _deciding(results)
    if deciding is not None:
        runs = len(results.get("runs", ()))
        kept = f"the best of {runs:,} runs, after" if runs > 1 else "those of"
        yield (
            f"The kept weights are {kept} epoch {results['best']['epoch']:.3g}, chosen by "
            f"{markdown_code(results['headline'])} on `{deciding}`, which makes the scores on "
            f"`{deciding}` a little too good."
        )


def _class_tables(results: Mapping[str, Any]) -> Iterator[str]:
    for name, classes in results.get("classes", {}).items():
        ranked = sorted(classes, key=lambda label: classes[label]["f1"])[:_MOST_CLASSES]
        rows = [
            (
                cards.cell(label),
                *(f"{classes[label][column]:.3f}" for column in _CLASS_COLUMNS[:3]),
                *(f"{classes[label][column]:,}" for column in _CLASS_COLUMNS[3:]),
            )
            for label in ranked
        ]
        left = len(classes) - len(ranked)
        yield cards.section(
            f"Classes of `{name}`",
            cards.table(("class", *_CLASS_COLUMNS), rows),
            f"And {left:,} more, which are better." if left else "",
            level=3,
        )


def _settings(settings: FineTuningSettings, results: Mapping[str, Any]) -> str:
    # Of a sweep the results say which of its configurations was the best.
    chosen, defaults = settings.to_dict(), flag_defaults()
    others = [
        name
        for name, value in chosen.items()
        if value != defaults[name] and name not in (*_SETTINGS, *PATHS, *MAY_DIFFER)
    ]
    values = {name: results.get(name, chosen[name]) for name in (*_SETTINGS, *others)}
    values["metric"] = results["headline"]
    if settings.max_steps:
        del values["num_train_epochs"]
    rows = [
        (f"`{name}`", cards.cell(str(value))) for name, value in values.items() if value is not None
    ]
    rows += [
        (f"threshold {cards.cell(name)}", f"{value:g}")
        for name, value in results["thresholds"].items()
    ]
    return cards.table(("setting", "value"), rows)


def _limits(
    settings: FineTuningSettings, checkpoint: Checkpoint, results: Mapping[str, Any]
) -> Iterator[str]:
    if results["collapsed"]:
        yield f"The training collapsed: {results['collapsed']}."
    yield (
        "Nothing was measured on other texts than those of the sets above: of another source, "
        "subject or time."
    )
    yield (
        f"A row has at most {settings.max_seq_length:,} tokens, [CLS] and [SEP] among them: of "
        "what is longer, the model sees that much at once."
    )
    yield "Which languages its vocabulary and its training serve is not recorded."
    if checkpoint.labels and not checkpoint.multi_label:
        yield "It always answers one of its classes, also where none of them fits."
