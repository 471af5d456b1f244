"""Estimates the cost of a pre-training run: parameters, memory and time (``--dry_run``)."""

import dataclasses
import os
import statistics
import time

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.training import distribution
from bert_tf.training.compilation import Compilation, should_use_xla
from bert_tf.training.precision import dtype_policy
from bert_tf.training.progress import duration, print_progress

from .data import predictions_per_row
from .model import build_loop, fit_vocabulary, open_start, read_config
from .settings import Phase, PretrainingSettings, make_phases

# Bytes per parameter in training, all float32: the weight, its gradient, and Adam's two moments.
_TRAINING_BYTES_PER_PARAMETER = 16
# Activations that a layer saves for the backward pass, as multiples of the hidden size, the
# feed-forward size and the S x S attention matrix per head, and the number of saved arrays as large
# as the logits. XLA recomputes the activation function and, on TPU, the attention weights.
_SAVED_ACTIVATIONS = (12, 3, 3, 3)
_XLA_SAVED_ACTIVATIONS = {"GPU": (8, 1, 2.5, 2), "TPU": (8, 1, 0, 1)}
_TIMED_ROWS = 8
_TIMED_STEPS = 3
_MAX_SCALED_SECONDS = 5.0


def parameter_count(config: BertConfig, nsp: bool = True) -> int:
    """Returns the number of trainable weights of a ``BertPretrainer``.

    Without next-sentence prediction, the model has no pooler.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    norm = 2 * hidden
    positions = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    embeddings = positions * hidden + norm
    attention = 4 * (hidden * hidden + hidden) + norm
    feed_forward = hidden * inner + inner + inner * hidden + hidden + norm
    masked_lm = hidden * hidden + hidden + norm + config.vocab_size
    pooler_and_next_sentence = hidden * hidden + hidden + 2 * hidden + 2 if nsp else 0
    blocks = config.num_hidden_layers * (attention + feed_forward)
    return embeddings + blocks + masked_lm + pooler_and_next_sentence


def memory_bytes(
    settings: PretrainingSettings, config: BertConfig, phase: Phase, replicas: int, device: str
) -> int:
    """Estimates the memory that one step requires, in bytes per device.

    Includes weights, gradients, optimizer moments, and the activations of one micro-batch.
    """
    compilation = Compilation(device, should_use_xla(settings.jit_compile, device))
    saved = _XLA_SAVED_ACTIVATIONS[device] if compilation.fuses_kernels else _SAVED_ACTIVATIONS
    wide, inner, square, logits = saved
    length, hidden = phase.max_seq_length, config.hidden_size
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    layer = length * (wide * hidden + inner * config.intermediate_size + square * heads * length)
    # With remat, a step stores the activations of one layer at a time and the inputs of all layers.
    stored = layer + layers * length * hidden if settings.remat else layers * layer
    stored += logits * predictions_per_row(settings, phase) * config.vocab_size
    rows = -(-phase.rows // (replicas * settings.gradient_accumulation_steps))
    # On CPU only the matrix products are bfloat16; the saved activations are float32.
    value_size = 4 if dtype_policy(settings.precision, device) == "float32" else 2
    weights = parameter_count(config, settings.nsp) * _TRAINING_BYTES_PER_PARAMETER
    return weights + round(rows * stored * value_size)


def report_cost(settings: PretrainingSettings) -> None:
    """Prints the number of parameters, and memory, tokens and time per step, for training only."""
    devices = distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
    settings, start = open_start(settings)
    config = read_config(settings, start)
    if settings.vocab_file:
        vocab = load_vocabulary(settings.vocab_file)
        config = fit_vocabulary(settings, config, vocab)
    replicas, device = devices.strategy.num_replicas_in_sync, devices.device_type
    parameters = parameter_count(config, settings.nsp)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    print_progress(f"Devices: {devices.description}.\nParameters: {parameters:,}.")
    total = 0.0
    for phase in make_phases(settings):
        rows, steps = phase.rows, phase.last_step - phase.first_step
        tokens = rows * phase.max_seq_length
        memory = memory_bytes(settings, config, phase, replicas, device)
        print_progress(
            f"Length {phase.max_seq_length}, steps {phase.first_step:,} to {phase.last_step:,}: "
            f"{rows} rows and {tokens:,} tokens per step, about {memory / 2**30:,.1f} GiB of "
            "memory per device."
        )
        if device == "CPU" and memory > machine:
            print_progress(
                f"  This exceeds the machine's {machine / 2**30:.0f} GiB. Increase "
                "--gradient_accumulation_steps" + ("." if settings.remat else " or pass --remat.")
            )
        if device == "CPU" and parameters * 20 > machine:
            print_progress(
                f"  Not timed: training the model requires more than the machine's "
                f"{machine / 2**30:.0f} GiB."
            )
            return
        seconds = _estimate_step(settings, config, devices, phase)
        total += seconds * steps
        print_progress(
            f"  about {seconds:.3g} s per step ({tokens / seconds:,.0f} tokens/s), "
            f"{duration(seconds * steps)} for {steps:,} steps.",
            flush=True,
        )
    print_progress(f"Estimated time: {duration(total)}. Nothing was written.")


def _estimate_step(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
) -> float:
    """Estimates the number of seconds per step, by timing a few steps on random ids.

    Times a small batch and scales the result. If this estimate is short, times the full batch.
    """
    replicas = devices.strategy.num_replicas_in_sync
    rows, parts = phase.rows, settings.gradient_accumulation_steps
    few = replicas * max(1, min(rows // (replicas * parts), _TIMED_ROWS))
    unsplit = dataclasses.replace(settings, gradient_accumulation_steps=1)
    seconds = _measure_step(unsplit, config, devices, phase, few) * rows / few
    if few < rows and seconds < _MAX_SCALED_SECONDS:
        return _measure_step(settings, config, devices, phase, rows)
    return seconds


def _measure_step(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
    rows: int,
) -> float:
    timed = dataclasses.replace(settings, train_batch_size=rows)
    loop = build_loop(timed, config, devices)
    predictions = predictions_per_row(settings, phase)
    batch = _random_batch(config, rows, phase.max_seq_length, predictions)
    iterator = loop.distribute(tf.data.Dataset.from_tensors(batch).repeat())
    loop.make(iterator, 1)
    seconds: list[float] = []
    for _ in range(_TIMED_STEPS):
        start = time.perf_counter()
        loop.make(iterator, 1)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _random_batch(
    config: BertConfig, rows: int, length: int, predictions: int
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, config.vocab_size, (rows, length), np.int32)
    # Positions repeat if there are more predictions than tokens.
    row_positions = np.arange(predictions, dtype=np.int32) % (length - 1) + 1
    positions = np.tile(row_positions, (rows, 1))
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
