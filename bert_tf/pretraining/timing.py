"""How long a step takes on this machine, and in which precision it is faster."""

import dataclasses
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


def step_seconds(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
) -> float:
    """Times some steps of the real model on a few rows of random ids, scaled to the batch."""
    replicas = devices.strategy.num_replicas_in_sync
    rows = replicas * min(phase.rows(settings) // replicas, _TIMED_ROWS)
    timed = dataclasses.replace(settings, gradient_accumulation_steps=1, train_batch_size=rows)
    loop = build_loop(timed, config, devices)
    batch = _random_batch(
        config, rows, phase.max_seq_length, predictions_per_row(settings, phase.max_seq_length)
    )
    iterator = loop.distribute(tf.data.Dataset.from_tensors(batch).repeat())
    loop.train(iterator, 1)
    seconds = []
    for _ in range(_TIMED_STEPS):
        began = time.perf_counter()
        loop.train(iterator, 1)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * phase.rows(settings) / rows


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
    # Workers have not all come this far, and what they add to a step is the same for both.
    alone = distribution.choose_strategy("one_device") if devices.hosts > 1 else devices
    phase = phases_of(settings)[0]
    seconds = {}
    for precision in PRECISIONS:
        timed = dataclasses.replace(settings, precision=precision)
        seconds[precision] = step_seconds(timed, config, alone, phase)
    fastest = min(PRECISIONS, key=seconds.__getitem__)
    measured = ", ".join(f"{value:.3g} s a step in {name}" for name, value in seconds.items())
    print(f"Precision: {fastest} ({measured}).", flush=True)
    return dataclasses.replace(settings, precision=fastest)


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
