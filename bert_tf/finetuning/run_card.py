"""Model card of a run: data, settings and results."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.io.messages import markdown_code, one_line
from bert_tf.io.paths import HUB_SCHEME
from bert_tf.tasks.task import TEST

from .settings import MAY_CHANGE, FineTuningSettings, flag_defaults

# Settings that every card contains; others are listed if they differ from the default.
_ALWAYS_LISTED = (
    *("max_seq_length", "train_batch_size", "learning_rate", "num_train_epochs"),
    *("warmup_proportion", "optimizer", "precision", "metric", "seed"),
)


def run_card(settings: FineTuningSettings, results: Mapping[str, Any], path: str) -> str:
    """Returns the model card; it contains file names, but not paths, which may be private."""
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
        differences=_differences(settings.init_checkpoint),
        use=model_card.use(checkpoint),
    )


def _hub_results(
    scores: Mapping[str, Mapping[str, float | None]], files: Mapping[str, str], pipeline_tag: str
) -> list[dict[str, Any]]:
    """Returns the scores in the format of model hubs."""
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
    """Returns the table of the scores, with the main metric of each set first."""
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


def _differences(start: str) -> str:
    """Returns the section on differences between the initial checkpoint and its source."""
    with contextlib.suppress(ValueError, ImportError):  # It may have been deleted.
        source = open_checkpoint(start)
        return model_card.differences(source.notes, source.path)
    return ""
