"""The model of a pre-training: what it starts from, its sizes and their cost, the loop round it."""

import dataclasses
import os
import statistics
import time
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec
from bert_tf.checkpoints.load import open_checkpoint, select
from bert_tf.checkpoints.weights import assign
from bert_tf.config import PRESETS, BertConfig
from bert_tf.files import read_json_object
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines import vocabulary
from bert_tf.training import distribution, optimizers, schedules
from bert_tf.training.compilation import asks_for_xla
from bert_tf.training.progress import duration
from bert_tf.training.run_directory import RunDirectory

from .data import predictions_per_row
from .objective import PretrainingLoop
from .phases import Phase
from .recipes import EQUAL_TOKENS, RECIPES
from .settings import PretrainingSettings, phases_of

_LEARNED_VOCABULARY = 8000
# float32 bytes a parameter takes while it trains: the weight, its gradient, Adam's two moments.
_TRAINING_BYTES_PER_PARAMETER = 16
_TIMED_ROWS = 8
_TIMED_STEPS = 3
_QUICK = 5.0  # seconds


def open_start(
    settings: PretrainingSettings, directory: RunDirectory | None = None
) -> tuple[PretrainingSettings, Checkpoint | None]:
    """Opens the checkpoint that a run starts from, if any: the settings, in its casing, and it.

    Once the run has a checkpoint of its own, the one that it started from may be gone.
    """
    if not settings.init_checkpoint:
        return settings, None
    under_way = directory is not None and directory.has_checkpoint()
    path = directory.path if directory is not None and under_way else settings.init_checkpoint
    checkpoint = open_checkpoint(path)
    tokenization = checkpoint.tokenization
    if tokenization is None:
        if not settings.vocab_file or settings.do_lower_case is None:
            raise ValueError(
                f"{path} has no vocabulary to go on with ({' '.join(checkpoint.notes)}): give it "
                "by --vocab_file, and its casing by --do_lower_case."
            )
        return settings, checkpoint
    if settings.vocab_file and not under_way:
        raise ValueError(f"{path} has a vocabulary of its own: leave --vocab_file out.")
    lower = tokenization.do_lower_case
    if settings.do_lower_case not in (None, lower):
        raise ValueError(
            f"--do_lower_case={settings.do_lower_case} contradicts {path}, whose do_lower_case is "
            f"{lower}: leave the flag out."
        )
    return dataclasses.replace(settings, do_lower_case=lower), checkpoint


def pretrainer_spec(nsp: bool) -> ModelSpec:
    """The model that a run trains."""
    return ModelSpec(BertPretrainer, {"mlm": True, "nsp": nsp, "pooler": nsp})


def initialise_pretrainer(model: BertPretrainer, checkpoint: Checkpoint) -> list[str]:
    """Gives a model a checkpoint's weights; returns sentences on what was new or not used."""
    tensors, report = select(checkpoint, pretrainer_spec(model.nsp))
    assign(model, tensors)
    return report.sentences(checkpoint.path)


def read_config(settings: PretrainingSettings, start: Checkpoint | None = None) -> BertConfig:
    """The config that ``--bert_config`` names, or a checkpoint's, checked against the phases.

    Its ``vocab_size`` is the most pieces that it has room for.
    """
    if start is not None:
        config = start.config
    elif settings.bert_config in PRESETS:
        size = settings.vocab_size or _LEARNED_VOCABULARY
        config = BertConfig.from_preset(settings.bert_config, vocab_size=size)
    else:
        values = read_json_object(settings.bert_config)
        config = BertConfig.from_dict(values, settings.bert_config)
        usual = RECIPES[settings.recipe].get("vocab_size")  # which is for presets
        if settings.vocab_size != usual and (settings.vocab_size or 0) > config.vocab_size:
            raise ValueError(
                f"--vocab_size={settings.vocab_size} is more than the {config.vocab_size:,} pieces "
                f"that {settings.bert_config} has room for: give as many or fewer."
            )
    causal = settings.objective == "ltr"
    if config.is_decoder and not causal:
        raise ValueError(
            f"{settings.init_checkpoint or settings.bert_config} is causal (is_decoder): it "
            "predicts from the left alone, and --objective=mlm from both sides: give "
            "--objective=ltr."
        )
    config = dataclasses.replace(config, is_decoder=causal, **settings.overrides)
    for phase in phases_of(settings):
        if phase.max_seq_length > config.max_position_embeddings:
            more = ", or set this one among --config_overrides" * (not settings.init_checkpoint)
            raise ValueError(
                f"Rows of {phase.max_seq_length} tokens are longer than the model's "
                f"{config.max_position_embeddings} positions (max_position_embeddings): lower "
                f"--max_seq_length or the lengths of --phases{more}."
            )
    return config


def fit_vocabulary(
    settings: PretrainingSettings, config: BertConfig, vocab: Sequence[str]
) -> BertConfig:
    """The config for a vocabulary: a preset takes its size, others keep their own."""
    if settings.bert_config in PRESETS:
        return dataclasses.replace(config, vocab_size=len(vocab))
    source = settings.vocab_file or settings.init_checkpoint or "learned from the input"
    vocabulary.check_vocabulary_fits(vocab, config.vocab_size, source)
    return config


def _set_arithmetic(settings: PretrainingSettings, device_type: str) -> bool:
    """Sets the precision of a device's models; returns whether XLA is to compile the gradients."""
    jit_compile = asks_for_xla(settings.jit_compile, device_type)
    if device_type == "TPU" and settings.jit_compile == "false":
        raise ValueError(
            "--jit_compile=false: a TPU runs only what XLA has compiled; leave the flag out."
        )
    distribution.set_precision(settings.precision, device_type, jit_compile)
    return jit_compile and device_type != "TPU"  # where it compiles the whole step by itself


def build_loop(
    settings: PretrainingSettings, config: BertConfig, devices: distribution.Distribution
) -> PretrainingLoop:
    """Builds the model, its optimizer and the loop round them, on the devices."""
    parts = devices.strategy.num_replicas_in_sync * settings.gradient_accumulation_steps
    if settings.train_batch_size % parts:
        raise ValueError(
            f"--train_batch_size={settings.train_batch_size} is not a multiple of {parts}, the "
            "replicas times --gradient_accumulation_steps."
        )
    jit_compile = _set_arithmetic(settings, devices.device_type)
    # Keras draws initial weights from process-wide state: the only use of it in a run.
    keras.utils.set_random_seed(settings.seed)
    with devices.strategy.scope():
        model = BertPretrainer(config, nsp=settings.nsp)
        model.encoder.recomputes_blocks = settings.remat
        schedule = schedules.WarmupLinearDecay(
            settings.learning_rate, settings.num_warmup_steps, settings.num_train_steps
        )
        optimizer = optimizers.create_optimizer(
            settings.optimizer,
            schedule,
            model.trainable_variables,
            weight_decay=settings.weight_decay,
            beta_2=0.98 if settings.recipe in EQUAL_TOKENS else 0.999,
        )
    return PretrainingLoop(
        model,
        optimizer,
        devices.strategy,
        seed=settings.seed,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        jit_compile=jit_compile,
        device_type=devices.device_type,
        measures_waits=not settings.deterministic,
    )


# === Cost ===


def parameter_count(config: BertConfig, nsp: bool = True) -> int:
    """Trainable weights of a ``BertPretrainer``: encoder, masked-LM head, NSP head.

    The pooler is there for NSP's head alone: without NSP neither is counted.
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
    """About what a step takes on each device.

    Beside weights, gradients and moments a micro-batch keeps for the backward pass, in each layer,
    about 12 arrays as wide as the hidden size (inputs of products, of normalisations, dropout's
    masks), 3 as wide as the feed-forward layer, 3 of a head's S x S probabilities; and the logits.
    """
    length, hidden = phase.max_seq_length, config.hidden_size
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    layer = length * (12 * hidden + 3 * config.intermediate_size + 3 * heads * length)
    # With remat one layer's at a time, and the inputs of all.
    stored = layer + layers * length * hidden if settings.remat else layers * layer
    stored += 3 * predictions_per_row(settings, phase) * config.vocab_size
    rows = -(-phase.rows // (replicas * settings.gradient_accumulation_steps))
    # On a CPU only the products are bfloat16, and what is kept between them is not.
    each = 4 if distribution.dtype_policy(settings.precision, device) == "float32" else 2
    weights = parameter_count(config, settings.nsp) * _TRAINING_BYTES_PER_PARAMETER
    return weights + rows * stored * each


def report_cost(settings: PretrainingSettings) -> None:
    """Prints parameters, memory, tokens and time of a step; nothing of corpus and evaluations."""
    devices = distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
    settings, start = open_start(settings)
    config = read_config(settings, start)
    if settings.vocab_file:
        vocab = vocabulary.load_vocabulary(settings.vocab_file)
        config = fit_vocabulary(settings, config, vocab)
    replicas, device = devices.strategy.num_replicas_in_sync, devices.device_type
    parameters = parameter_count(config, settings.nsp)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    print(f"Devices: {devices.description}.\nParameters: {parameters:,}.")
    total = 0.0
    for phase in phases_of(settings):
        rows, steps = phase.rows, phase.last_step - phase.first_step
        tokens = rows * phase.max_seq_length
        memory = memory_bytes(settings, config, phase, replicas, device)
        print(
            f"Length {phase.max_seq_length}, steps {phase.first_step:,} to {phase.last_step:,}: "
            f"{rows} rows and {tokens:,} tokens a step; about {memory / 2**30:,.1f} GiB of memory "
            "on each device."
        )
        if device == "CPU" and memory > machine:
            print(
                f"  that is more than this machine's {machine / 2**30:.0f} GiB: raise "
                "--gradient_accumulation_steps" + ("." if settings.remat else ", or give --remat.")
            )
        if device == "CPU" and parameters * 20 > machine:
            print(
                f"  not timed: this machine's {machine / 2**30:.0f} GiB do not hold the model "
                "while it trains."
            )
            return
        seconds = _step_seconds(settings, config, devices, phase)
        total += seconds * steps
        print(
            f"  about {seconds:.3g} s a step ({tokens / seconds:,.0f} tokens/s), "
            f"{duration(seconds * steps)} for {steps:,} steps.",
            flush=True,
        )
    print(f"Estimated time: {duration(total)}. Nothing was written.")


def _step_seconds(
    settings: PretrainingSettings,
    config: BertConfig,
    devices: distribution.Distribution,
    phase: Phase,
) -> float:
    """Times some steps on random ids: the whole batch where that is quick, else a few rows, scaled.

    There are never more at once than in a run.
    """
    replicas = devices.strategy.num_replicas_in_sync
    rows, parts = phase.rows, settings.gradient_accumulation_steps
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
    predictions = predictions_per_row(settings, phase)
    batch = _random_batch(config, rows, phase.max_seq_length, predictions)
    iterator = loop.distribute(tf.data.Dataset.from_tensors(batch).repeat())
    loop.make(iterator, 1)
    seconds: list[float] = []
    for _ in range(_TIMED_STEPS):
        began = time.perf_counter()
        loop.make(iterator, 1)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


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
