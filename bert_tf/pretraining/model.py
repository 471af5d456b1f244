"""Model of a pre-training run: initial checkpoint, config and training loop."""

import dataclasses
import random
from collections.abc import Sequence

from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec
from bert_tf.checkpoints.load import open_checkpoint, select
from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
from bert_tf.checkpoints.weights import assign
from bert_tf.config import PRESETS, BertConfig
from bert_tf.io.files import read_json_object
from bert_tf.io.messages import warn
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.keras_hooks import seeds_from
from bert_tf.pipelines import vocabulary
from bert_tf.training import distribution, optimizers, schedules
from bert_tf.training.compilation import should_use_xla
from bert_tf.training.precision import set_precision
from bert_tf.training.run_directory import RunDirectory

from .objective import PretrainingLoop
from .recipes import RECIPES
from .settings import PretrainingSettings, make_phases

_LEARNED_VOCABULARY = 8000


def open_start(
    settings: PretrainingSettings, directory: RunDirectory | None = None
) -> tuple[PretrainingSettings, Checkpoint | None]:
    """Returns the settings, with the initial checkpoint's casing, and the checkpoint, if any.

    A resumed run reads its own checkpoint, because the initial one may have been deleted.
    """
    if not settings.init_checkpoint:
        return settings, None
    is_resumed = directory is not None and directory.has_checkpoint()
    path = directory.path if directory is not None and is_resumed else settings.init_checkpoint
    checkpoint = open_checkpoint(path)
    tokenization = checkpoint.tokenization
    if tokenization is None:
        if not settings.vocab_file or settings.do_lower_case is None:
            raise ValueError(
                f"{path} has no usable tokenizer: {missing_tokenizer_reason(checkpoint.notes)} "
                "Pass --vocab_file and --do_lower_case."
            )
        return settings, checkpoint
    if settings.vocab_file and not is_resumed:
        raise ValueError(f"{path} has its own vocabulary. Remove --vocab_file.")
    lower = tokenization.do_lower_case
    if settings.do_lower_case not in (None, lower):
        raise ValueError(
            f"--do_lower_case={settings.do_lower_case} contradicts {path}, which has "
            f"do_lower_case={lower}. Remove the flag."
        )
    return dataclasses.replace(settings, do_lower_case=lower), checkpoint


def pretrainer_spec(nsp: bool) -> ModelSpec:
    """Returns the specification of the model to train."""
    return ModelSpec(BertPretrainer, {"mlm": True, "nsp": nsp, "pooler": nsp})


def initialize_pretrainer(model: BertPretrainer, checkpoint: Checkpoint) -> list[str]:
    """Loads a checkpoint into a model; returns messages about new and unused weights."""
    tensors, report = select(checkpoint, pretrainer_spec(model.nsp))
    assign(model, tensors)
    warn(report.notes)
    return report.messages(checkpoint.path)


def read_config(settings: PretrainingSettings, start: Checkpoint | None = None) -> BertConfig:
    """Reads the model's config and validates it against the phases.

    The config's ``vocab_size`` is the maximum size of the vocabulary.
    """
    if start is not None:
        config = start.config
    elif settings.bert_config in PRESETS:
        size = settings.vocab_size or _LEARNED_VOCABULARY
        config = BertConfig.from_preset(settings.bert_config, vocab_size=size)
    else:
        values = read_json_object(settings.bert_config)
        config = BertConfig.from_dict(values, settings.bert_config)
        default = RECIPES[settings.recipe].get("vocab_size")  # a recipe's size is for presets
        if settings.vocab_size != default and (settings.vocab_size or 0) > config.vocab_size:
            raise ValueError(
                f"--vocab_size={settings.vocab_size}: expected at most {config.vocab_size:,}, the "
                f"vocab_size of {settings.bert_config}."
            )
    causal = settings.objective == "ltr"
    if config.is_decoder and not causal:
        raise ValueError(
            f"{settings.init_checkpoint or settings.bert_config} is a causal model "
            "(is_decoder), but --objective=mlm trains bidirectional models. Pass "
            "--objective=ltr."
        )
    config = dataclasses.replace(config, is_decoder=causal, **settings.overrides)
    for phase in make_phases(settings):
        if phase.max_seq_length > config.max_position_embeddings:
            hint = "" if settings.init_checkpoint else ", or set it in --config_overrides"
            raise ValueError(
                f"max_seq_length={phase.max_seq_length}: expected at most "
                f"{config.max_position_embeddings}, the model's max_position_embeddings. Lower "
                f"--max_seq_length or the lengths of --phases{hint}."
            )
    return config


def fit_vocabulary(
    settings: PretrainingSettings, config: BertConfig, vocab: Sequence[str]
) -> BertConfig:
    """Returns the config for a vocabulary, whose size sets ``vocab_size`` only for presets."""
    if settings.bert_config in PRESETS:
        return dataclasses.replace(config, vocab_size=len(vocab))
    source = settings.vocab_file or settings.init_checkpoint or "learned from the input"
    vocabulary.check_vocabulary_fits(vocab, config.vocab_size, source)
    return config


def _configure_precision(settings: PretrainingSettings, device_type: str) -> bool:
    """Sets the precision; returns whether to compile the gradients with XLA."""
    jit_compile = should_use_xla(settings.jit_compile, device_type)
    if device_type == "TPU" and settings.jit_compile == "false":
        raise ValueError(
            "--jit_compile=false: a TPU only runs code compiled with XLA. Remove the flag."
        )
    set_precision(settings.precision, device_type, jit_compile)
    return jit_compile and device_type != "TPU"  # a TPU compiles the whole step


def build_loop(
    settings: PretrainingSettings, config: BertConfig, devices: distribution.Distribution
) -> PretrainingLoop:
    """Builds the model, its optimizer and its training loop."""
    parts = devices.strategy.num_replicas_in_sync * settings.gradient_accumulation_steps
    if settings.train_batch_size % parts:
        raise ValueError(
            f"--train_batch_size={settings.train_batch_size}: expected a multiple of {parts}, the "
            "number of replicas times --gradient_accumulation_steps."
        )
    jit_compile = _configure_precision(settings, devices.device_type)
    with seeds_from(random.Random(settings.seed)), devices.strategy.scope():
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
            beta_2=settings.adam_beta_2,
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
