"""What the model card of a run says: its data, its settings, its results."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.paths import HUB_SCHEME
from bert_tf.tasks.task import TEST

from .settings import MAY_DIFFER, PATHS, FineTuningSettings, flag_defaults

# The settings that every card has; others are there where they are not the default.
_SHOWN = (
    *("max_seq_length", "train_batch_size", "learning_rate", "num_train_epochs"),
    *("warmup_proportion", "optimizer", "precision", "metric", "seed"),
)


def run_card(settings: FineTuningSettings, results: Mapping[str, Any], path: str) -> str:
    """The model card of a run, with only the names of files: paths may say who the user is."""
    start, published = settings.init_checkpoint, f"GLUE {settings.glue}" if settings.glue else None
    is_of_hub = start.startswith(HUB_SCHEME)
    start = start.split("@")[0] if is_of_hub else os.path.basename(start.rstrip("/"))
    paths = {"train": published or settings.train_file, TEST: published or settings.test_file}
    other = published or settings.dev_file or settings.train_file
    files = {name: os.path.basename(str(paths.get(name) or other)) for name in results["rows"]}
    # Of a sweep the results say which of its configurations was the best.
    chosen, defaults = settings.to_dict() | {"metric": results["headline"]}, flag_defaults()
    rows = {
        name: results.get(name, value)
        for name, value in chosen.items()
        if name in _SHOWN or (value != defaults[name] and name not in (*PATHS, *MAY_DIFFER))
    }
    if settings.max_steps:
        del rows["num_train_epochs"]
    name = os.path.basename(os.path.abspath(settings.model_dir))
    checkpoint, version = open_checkpoint(path), bert_tf.__version__
    told = ""
    with contextlib.suppress(ValueError, ImportError):  # the start may be gone by now
        source = open_checkpoint(settings.init_checkpoint)
        told = model_card.differences(source.notes, source.path)
    return model_card.run_card(checkpoint, name, version, start, files, rows, results, told)
