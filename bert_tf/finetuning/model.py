"""Model of a fine-tuning run: initial weights, default schedule and construction."""

import contextlib
import dataclasses
import functools
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_tf.checkpoints import model_card, model_directory, weights
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization
from bert_tf.checkpoints.load import open_checkpoint, select
from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
from bert_tf.choices import DENSE_ACTIVATIONS
from bert_tf.config import BertConfig
from bert_tf.io.messages import warn
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.feature_based import check_variant
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.task import Task
from bert_tf.training.run_directory import FineTuningDirectory

from .settings import DEFAULT_SCHEDULE, SCHEDULE_BY_HIDDEN_SIZE, FineTuningSettings

# Model arguments that are copied from the initial model, with their default values.
_HEAD = {"pooling": "cls", "dense_size": None, "dense_activation": DENSE_ACTIVATIONS[0]}


class InitialModel(NamedTuple):
    """Model that a run starts from, with ``checkpoint=None`` if the run resumes.

    ``head`` contains constructor arguments: ``pooling``, for heads with one input vector per text,
    and the dense layer of an embedding model. ``embedding`` defines how texts are embedded.
    """

    config: BertConfig
    tokenization: Tokenization
    tokenizer: BertTokenizer
    checkpoint: Checkpoint | None
    head: Mapping[str, Any] = MappingProxyType({})
    embedding: SentenceEmbedding | None = None


class RunSource:
    """Source of a run's model: the run itself if it has progress, else ``--init_checkpoint``.

    Each checkpoint is opened once, on first access. A run with progress does not require
    ``--init_checkpoint``, which may have been deleted.
    """

    def __init__(self, init_checkpoint: str, directory: FineTuningDirectory) -> None:
        self._init_checkpoint, self._directory = init_checkpoint, directory

    @functools.cached_property
    def is_run(self) -> bool:
        """Whether the source is the run itself."""
        return self._directory.has_state() or self._directory.is_finished()

    @functools.cached_property
    def _initial(self) -> Checkpoint:
        return open_checkpoint(self._init_checkpoint)

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The run's description, without weights, if there is one; else the initial checkpoint."""
        if self.is_run:
            return model_directory.read_description(self._directory.path)
        return self._initial

    @property
    def differences(self) -> str:
        """Model card section on the differences between ``--init_checkpoint`` and its source."""
        with contextlib.suppress(ValueError, ImportError):  # The checkpoint may have been deleted.
            return model_card.differences(self._initial.notes, self._initial.path)
        return ""

    def fingerprint(self, moved: Sequence[str]) -> dict[str, str]:
        """Returns the initial checkpoint's fingerprint as {flag: fingerprint}, {} if not needed.

        ``moved`` contains the flags whose paths have changed since the run started.
        """
        if self.is_run and "init_checkpoint" not in moved:
            return {}
        return {"--init_checkpoint": self._initial.fingerprint()}


def with_default_schedule(
    settings: FineTuningSettings, source: RunSource
) -> tuple[FineTuningSettings, str]:
    """Sets the default learning rate and number of epochs for the hidden size.

    Also returns a message about the defaults, or "".
    """
    names = ("learning_rate", "num_train_epochs")
    if settings.sweep or all(getattr(settings, name) for name in names):
        return settings, ""
    units = source.checkpoint.config.hidden_size
    default = next(
        (row for limit, *row in SCHEDULE_BY_HIDDEN_SIZE if units <= limit), DEFAULT_SCHEDULE
    )
    taken: dict[str, Any] = {
        name: value
        for name, value in zip(names, default, strict=True)
        if getattr(settings, name) is None
    }
    flags = [f"--{name}={value:g}" for name, value in taken.items()]
    if settings.max_steps and "num_train_epochs" in taken:
        del flags[-1]
    message = f"Defaults for hidden_size={units}: {' '.join(flags)}." if flags else ""
    return dataclasses.replace(settings, **taken), message


def initial_model(
    settings: FineTuningSettings, checkpoint: Checkpoint, *, resumes: bool = False
) -> InitialModel:
    """Creates the initial model; in a run that ``resumes``, ``checkpoint`` is its description."""
    _check_pooling(settings)
    tokenization = checkpoint.tokenization
    if tokenization is None:
        raise ValueError(
            f"--init_checkpoint={settings.init_checkpoint} has no tokenizer: "
            f"{missing_tokenizer_reason(checkpoint.notes)}"
        )
    if not resumes:
        tokenization = tokenization.with_special_tokens(settings.special_tokens_in_texts)
    tokenizer = tokenization.to_tokenizer()
    if resumes:  # The weights are restored later.
        head, embedding = checkpoint.model.arguments, checkpoint.sentence_embedding
        start = InitialModel(checkpoint.config, tokenization, tokenizer, None, head, embedding)
    else:
        config, head, embedding = _apply_flags(settings, checkpoint)
        start = InitialModel(config, tokenization, tokenizer, checkpoint, head, embedding)
    _check_start(settings, start)
    return start


def _check_pooling(settings: FineTuningSettings) -> None:
    """Rejects ``--pooling`` for heads that have one output per token."""
    kind = settings.kind
    if settings.pooling and not (
        kind.embeds or "pooling" in MODEL_CLASSES[kind.model].argument_checks
    ):
        raise ValueError(
            f"--pooling={settings.pooling} is not supported for {settings.glue or settings.task}, "
            "because its model has one output per token. Remove --pooling."
        )


def _apply_flags(
    settings: FineTuningSettings, checkpoint: Checkpoint
) -> tuple[BertConfig, Mapping[str, Any], SentenceEmbedding | None]:
    """Returns the config, the head's arguments and the embedding, as changed by the flags."""
    config, rate = checkpoint.config, settings.hidden_dropout_prob
    if rate is not None:
        config = dataclasses.replace(
            config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
        )
    if settings.kind.embeds:
        arguments, names = checkpoint.model.arguments, ("dense_size", "dense_activation")
        dense = {name: arguments[name] for name in names if name in arguments}
        return config, dense, _embedding(settings, checkpoint)
    pooling = settings.pooling or checkpoint.pooling
    pooling = "mean" if settings.option("few_shot") and pooling == "cls" else pooling
    return config, {"pooling": pooling}, None


def _check_start(settings: FineTuningSettings, start: InitialModel) -> None:
    """Checks that the model has enough positions and blocks for the flags."""
    positions, blocks = start.config.max_position_embeddings, start.config.num_hidden_layers
    if settings.max_seq_length > positions:
        raise ValueError(
            f"--max_seq_length={settings.max_seq_length}: expected at most {positions}, the number "
            f"of positions of {settings.init_checkpoint}. Pass --max_seq_length={positions}."
        )
    frozen = settings.freeze
    if frozen > blocks:
        raise ValueError(
            f"--freeze={frozen}: expected at most {blocks}, the number of blocks of "
            f"{settings.init_checkpoint}."
        )
    has_no_head = (settings.option("few_shot") or settings.kind.embeds) and not start.head.get(
        "dense_size"
    )
    if has_no_head and frozen == blocks:
        raise ValueError(
            f"--freeze={frozen}: expected at most {frozen - 1}, because only blocks are trained."
        )
    for variant in settings.variants:
        try:
            check_variant(variant, blocks)
        except ValueError as error:
            raise ValueError(
                f"--feature_based={settings.option('feature_based')}: {error}"
            ) from error


def _embedding(settings: FineTuningSettings, checkpoint: Checkpoint) -> SentenceEmbedding:
    """Returns the definition of the embedding, from the flags or the checkpoint."""
    default = SentenceEmbedding("mean", normalize=True, max_seq_length=settings.max_seq_length)
    changes: dict[str, Any] = {
        "pooling": settings.pooling,
        "normalize": settings.option("normalize"),
        "max_seq_length": settings.max_seq_length,
    }
    return dataclasses.replace(
        checkpoint.sentence_embedding or default,
        dims=None,
        **{name: value for name, value in changes.items() if value is not None},
    )


def model_spec(task: Task, start: InitialModel) -> ModelSpec:
    """Returns the specification of the model that the task trains."""
    known = MODEL_CLASSES[task.model].argument_checks
    head = {
        name: value
        for name, default in _HEAD.items()
        if name in known and (value := start.head.get(name, default)) != default
    }
    return ModelSpec(MODEL_CLASSES[task.model], {**task.model_arguments, **head})


def build_model(
    settings: FineTuningSettings, task: Task, start: InitialModel
) -> tuple[BertModel, list[str]]:
    """Builds the task's model with the initial weights, or random weights from the seed.

    Reuses the checkpoint's head only if its class, labels and input match. The task defines
    everything except weights, so a resumed run builds the same model. Also returns messages about
    new and unused weights.
    """
    spec, checkpoint = model_spec(task, start), start.checkpoint
    tensors: Mapping[str, StoredTensor] = {}
    messages: list[str] = []
    keeps_regressor = False
    if checkpoint is not None:
        source = checkpoint.model
        is_new = source.model_class is not spec.model_class or checkpoint.labels != task.labels
        for name, default in _HEAD.items():
            is_new |= source.arguments.get(name, default) != spec.arguments.get(name, default)
        # Check before building, because an invalid checkpoint may require any amount of memory.
        tensors, report = select(checkpoint, spec, new_head=is_new)
        messages = report.messages(checkpoint.path) + _pooling_notes(settings, spec, checkpoint)
        keeps_regressor = not any(name.startswith("regressor/") for name in report.new)
        warn(report.notes)
    model = weights.build_model(start.config, spec, generator=random.Random(settings.seed))
    weights.assign(model, tensors)
    if keeps_regressor:
        task.target_scale.unfold(model)
    model.sentence_embedding = start.embedding
    if settings.freeze:
        for layer in (model.encoder.embeddings, *model.encoder.blocks[: settings.freeze]):
            layer.trainable = False
    return model, messages


def _pooling_notes(
    settings: FineTuningSettings, spec: ModelSpec, checkpoint: Checkpoint
) -> list[str]:
    """Returns a list with a note on the pooling; it is empty for the default pooling, [CLS]."""
    pooling, pools = spec.pooling, "pooling" in spec.model_class.argument_checks
    if not pools or (pooling, checkpoint.pooling) == ("cls", "cls"):
        return []
    source = "--pooling"
    if settings.pooling is None:
        source = f"as in {checkpoint.path}; use --pooling=cls for [CLS]"
        source = "default of --few_shot" if settings.option("few_shot") else source
    return [f"Pooling: {pooling} ({source})."]
