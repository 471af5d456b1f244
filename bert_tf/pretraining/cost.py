"""``--dry_run``: what a pre-training would take, without writing anything."""

import dataclasses
import os
import statistics
import time

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.pipelines import vocabulary
from bert_tf.training import distribution
from bert_tf.training.estimates import StepEstimate, estimate_step
from bert_tf.training.phases import Phase, parse_phases
from bert_tf.training.progress import duration

from .batches import predictions_per_row
from .model import build_loop, fit_vocabulary, read_config
from .settings import PretrainingSettings
from .start import open_start

_TIMED_ROWS = 8
_TIMED_STEPS = 3


def report_cost(settings: PretrainingSettings) -> None:
    """Prints parameters, memory, FLOPs and tokens per step, and an estimate of the time.

    The time is measured: some steps of the real model on a few rows of random ids, scaled to the
    batch. It leaves out reading the corpus, evaluations and checkpoints.

    Raises:
        ValueError: a flag, the vocabulary or the config does not fit.
    """
    devices = distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
    settings, start = open_start(settings)
    config = read_config(settings, start)
    if settings.vocab_file:
        vocab = vocabulary.load_vocabulary(settings.vocab_file)
        config = fit_vocabulary(settings, config, vocab)
    phases = parse_phases(settings.phases, settings.num_train_steps)
    replicas = devices.strategy.num_replicas_in_sync
    print(f"Devices: {devices.description}.")
    low_precision = settings.precision == "bfloat16" and devices.device_type != "CPU"
    total = 0.0
    for number, phase in enumerate(phases):
        estimate = estimate_step(
            config,
            batch_size=settings.train_batch_size,
            max_seq_length=phase.max_seq_length,
            max_predictions_per_seq=predictions_per_row(settings, phase.max_seq_length),
            replicas=replicas,
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            nsp=settings.nsp,
            # On a CPU only the products are bfloat16, and what is kept between them is not.
            bytes_per_activation=2 if low_precision else 4,
        )
        if number == 0:
            print(f"Parameters: {estimate.parameters:,}.")
        print(
            f"Length {phase.max_seq_length}, steps {phase.first_step:,} to {phase.last_step:,}: "
            f"{settings.train_batch_size} rows, {estimate.tokens:,} tokens and "
            f"{estimate.flops / 1e12:,.2f} TFLOP a step; about "
            f"{estimate.memory_bytes / 2**30:,.1f} GiB of memory on each device."
        )
        if devices.device_type == "CPU" and estimate.memory_bytes > _machine_memory():
            print(
                f"  that is more than this machine's {_machine_memory() / 2**30:.0f} GiB: raise "
                "--gradient_accumulation_steps."
            )
        seconds = _step_seconds(settings, config, devices, phase, estimate)
        if seconds is None:
            return
        steps = phase.last_step - phase.first_step
        total += seconds * steps
        print(
            f"  about {seconds:.3g} s a step ({estimate.tokens / seconds:,.0f} tokens/s, "
            f"{estimate.flops / seconds / 1e9:,.0f} GFLOP/s), "
            f"{duration(seconds * steps)} for {steps:,} steps.",
            flush=True,
        )
    print(f"Estimated time: {duration(total)}. Nothing was written.")


def _step_seconds(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
    estimate: StepEstimate,
) -> float | None:
    """Times some steps on few rows; None, saying so, where the memory would not hold them."""
    if devices.device_type == "CPU" and estimate.parameters * 20 > _machine_memory():
        print(
            f"  not timed: this machine's {_machine_memory() / 2**30:.0f} GiB do not hold the "
            "model while it trains."
        )
        return None
    replicas = devices.strategy.num_replicas_in_sync
    rows = replicas * min(settings.train_batch_size // replicas, _TIMED_ROWS)
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
    return statistics.median(seconds) * settings.train_batch_size / rows


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
