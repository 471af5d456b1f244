"""How long a step takes on this machine: the faster precision, the steps that time is left for."""

import dataclasses
import math
import statistics
import time

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import PRECISIONS
from bert_tf.config import BertConfig
from bert_tf.training import distribution

from .data import predictions_per_row
from .model import build_loop
from .settings import Phase, PretrainingSettings, phases_of

_TIMED_ROWS = 8
_TIMED_STEPS = 3
_TIMED_SECONDS = 2.0  # of steps at least, where they are short
_QUICK = 5.0  # seconds


def step_seconds(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
) -> float:
    """Times some steps of the real model on random ids: the whole batch where that is quick.

    Otherwise a few of its rows, scaled to the batch. There are never more at once than in a run.
    """
    replicas = devices.strategy.num_replicas_in_sync
    rows, parts = phase.rows(settings), settings.gradient_accumulation_steps
    few = replicas * max(1, min(rows // (replicas * parts), _TIMED_ROWS))
    at_once = dataclasses.replace(settings, gradient_accumulation_steps=1)
    seconds = _rows_seconds(at_once, config, devices, phase, few) * rows / few
    if few < rows and seconds < _QUICK:
        return _rows_seconds(settings, config, devices, phase, rows)
    return seconds


def _rows_seconds(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
    rows: int,
) -> float:
    timed = dataclasses.replace(settings, train_batch_size=rows)
    loop = build_loop(timed, config, devices)
    batch = _random_batch(
        config, rows, phase.max_seq_length, predictions_per_row(settings, phase.max_seq_length)
    )
    iterator = loop.distribute(tf.data.Dataset.from_tensors(batch).repeat())
    loop.train(iterator, 1)
    seconds: list[float] = []
    while len(seconds) < _TIMED_STEPS or sum(seconds) < _TIMED_SECONDS:
        began = time.perf_counter()
        loop.train(iterator, 1)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def choose_precision(
    settings: PretrainingSettings, config: BertConfig, devices: distribution.Distribution
) -> PretrainingSettings:
    """Settings with one of ``PRECISIONS``: where they say auto, the faster one, which is printed.

    A TPU multiplies in bfloat16 whatever it is told, so nothing is measured for one.
    """
    if settings.precision != "auto":
        return settings
    if devices.device_type == "TPU":
        return dataclasses.replace(settings, precision="bfloat16")
    alone, share = devices, settings.train_batch_size
    if devices.hosts > 1:
        # Workers have not all come this far, and what they add to a step is the same for both.
        alone = distribution.choose_strategy("one_device")
        share = max(1, share // devices.strategy.num_replicas_in_sync)
    phase = phases_of(settings)[0]
    seconds = {}
    for precision in PRECISIONS:
        timed = dataclasses.replace(settings, precision=precision, train_batch_size=share)
        seconds[precision] = step_seconds(timed, config, alone, phase)
    fastest = min(PRECISIONS, key=seconds.__getitem__)
    measured = ", ".join(f"{value:.3g} s a step in {name}" for name, value in seconds.items())
    print(f"Precision: {fastest} ({measured}).", flush=True)
    return dataclasses.replace(settings, precision=fastest)


# What a run does besides its steps: traces them, reads the corpus, evaluates, saves, exports.
_SHARE_OF_STEPS = 0.95


def choose_steps(
    settings: PretrainingSettings, config: BertConfig, devices: distribution.Distribution
) -> PretrainingSettings:
    """Settings with as many steps as ``max_hours`` has time for, which is printed.

    The tenth of them are the warm-up. Nothing changes where ``max_hours`` is 0.
    """
    if not settings.max_hours:
        return settings
    if devices.hosts > 1:
        raise ValueError(
            f"--max_hours={settings.max_hours:g}: the steps of {devices.hosts} workers cannot be "
            "timed by one of them: time some steps of a run, and give their number with "
            "--num_train_steps; --stop_after_minutes is a limit by the clock."
        )
    # Shares of the steps, whatever their number is.
    phases = phases_of(settings)
    seconds = math.fsum(
        step_seconds(settings, config, devices, phase)
        * (phase.last_step - phase.first_step)
        / settings.num_train_steps
        for phase in phases
    )
    steps = max(1, int(3600 * settings.max_hours * _SHARE_OF_STEPS / seconds))
    print(
        f"Schedule: {steps:,} steps, as one takes {seconds:.3g} s and --max_hours="
        f"{settings.max_hours:g} leaves {_SHARE_OF_STEPS:.0%} of the time for them.",
        flush=True,
    )
    return dataclasses.replace(settings, num_train_steps=steps, num_warmup_steps=steps // 10)


def _random_batch(
    config: BertConfig, rows: int, length: int, predictions: int
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, config.vocab_size, (rows, length), np.int32)
    # Round and round, where there are more predictions than places.
    places = np.arange(predictions, dtype=np.int32) % (length - 1) + 1
    positions = np.tile(places, (rows, 1))
    return {
        features.INPUT_WORD_IDS: ids,
        features.INPUT_MASK: np.ones_like(ids),
        features.INPUT_TYPE_IDS: np.zeros_like(ids),
        features.MASKED_LM_POSITIONS: positions,
        features.MASKED_LM_IDS: np.take_along_axis(ids, positions, axis=1),
        features.MASKED_LM_WEIGHTS: np.ones(positions.shape, np.float32),
        features.NEXT_SENTENCE_LABELS: np.zeros((rows,), np.int32),
        features.CURSOR: np.zeros((rows, 3), np.int32),
    }
