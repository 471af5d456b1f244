"""Model of a fine-tuning: what it starts from, as it is built, and as it is run on the sets."""

import dataclasses
import functools
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_tf.checkpoints import model_directory, weights
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization
from bert_tf.checkpoints.load import open_checkpoint, select
from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
from bert_tf.choices import DENSE_ACTIVATIONS
from bert_tf.config import BertConfig
from bert_tf.evaluation.evaluation import Inference
from bert_tf.io.wording import warn
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.base import BertModel, SentenceEmbedding
from bert_tf.modeling.feature_based import check_variant
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.task import Task
from bert_tf.training.run_directory import FineTuningDirectory

from .settings import DEFAULT_SCHEDULE, SCHEDULE_BY_HIDDEN_SIZE, FineTuningSettings

# The arguments of a model that its start decides, each as it is without being named.
_HEAD = {"pooling": "cls", "dense_size": None, "dense_activation": DENSE_ACTIVATIONS[0]}


class InitialModel(NamedTuple):
    """Model that a run starts from; a resumed run has no ``checkpoint``.

    ``head`` are the arguments of the model's constructor that the start decides: what the head
    reads of a text, ``pooling``, where the task's reads one vector, and the layer behind that of a
    model of embeddings. Of such a model ``embedding`` says what a text's vector is.
    """

    config: BertConfig
    tokenization: Tokenization
    tokenizer: BertTokenizer
    checkpoint: Checkpoint | None
    head: Mapping[str, Any] = MappingProxyType({})
    embedding: SentenceEmbedding | None = None


class RunSource:
    """What a run goes on from: itself, where it has begun, or what ``--init_checkpoint`` names.

    Either is opened once, where it is first asked for. A run that has begun has weights of its own:
    what it started from may be gone.
    """

    def __init__(self, init_checkpoint: str, directory: FineTuningDirectory) -> None:
        self._init_checkpoint, self._directory = init_checkpoint, directory

    @functools.cached_property
    def is_run(self) -> bool:
        """True if it is the run itself."""
        return self._directory.has_state() or self._directory.is_finished()

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The run's description, without weights, or the checkpoint."""
        if self.is_run:
            return model_directory.read_description(self._directory.path)
        return open_checkpoint(self._init_checkpoint)

    def fingerprint(self, moved: Sequence[str]) -> dict[str, str]:
        """The fingerprint of what the run starts from, by its flag; {} where nothing asks for it.

        ``moved`` are the flags that name another place than at first, and are to name the same.
        """
        flag = "init_checkpoint"
        if self.is_run and flag not in moved:
            return {}
        start = open_checkpoint(self._init_checkpoint) if self.is_run else self.checkpoint
        return {f"--{flag}": start.fingerprint()}


def with_default_schedule(
    settings: FineTuningSettings, source: RunSource
) -> tuple[FineTuningSettings, str]:
    """Fills in the learning rate and the epochs that are not given, by the hidden size.

    Also a sentence on what was taken, "" where nothing was.
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
    message = f"By default for {units:,} units: {' '.join(flags)}." if flags else ""
    return dataclasses.replace(settings, **taken), message


def initial_model(
    settings: FineTuningSettings, checkpoint: Checkpoint, *, resumes: bool = False
) -> InitialModel:
    """The start of a run; where it ``resumes``, the ``checkpoint`` is its own description."""
    _check_pooling(settings)
    tokenization = _require_tokenization(settings, checkpoint)
    if not resumes:
        tokenization = tokenization.with_special_tokens(settings.special_tokens_in_texts)
    tokenizer = tokenization.to_tokenizer()
    if resumes:  # its weights come later
        head, embedding = checkpoint.model.arguments, checkpoint.sentence_embedding
        start = InitialModel(checkpoint.config, tokenization, tokenizer, None, head, embedding)
    else:
        config, head, embedding = _apply_flags(settings, checkpoint)
        start = InitialModel(config, tokenization, tokenizer, checkpoint, head, embedding)
    _check_start(settings, start)
    return start


def _check_pooling(settings: FineTuningSettings) -> None:
    """Refuses ``--pooling`` where the kind's head reads each token."""
    kind = settings.kind
    if settings.pooling and not (
        kind.embeds or "pooling" in MODEL_CLASSES[kind.model].argument_checks
    ):
        raise ValueError(
            f"--pooling={settings.pooling}: the head of {settings.glue or settings.task} reads "
            "each token: leave it out."
        )


def _require_tokenization(settings: FineTuningSettings, checkpoint: Checkpoint) -> Tokenization:
    if checkpoint.tokenization is None:
        raise ValueError(
            f"--init_checkpoint={settings.init_checkpoint} cannot read text: "
            f"{missing_tokenizer_reason(checkpoint.notes)}"
        )
    return checkpoint.tokenization


def _apply_flags(
    settings: FineTuningSettings, checkpoint: Checkpoint
) -> tuple[BertConfig, Mapping[str, Any], SentenceEmbedding | None]:
    """What the flags make of a checkpoint: its config, what the head reads, a text's vector."""
    config, rate = checkpoint.config, settings.hidden_dropout_prob
    if rate is not None:
        config = dataclasses.replace(
            config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
        )
    if settings.kind.embeds:
        return config, _dense_arguments(checkpoint), _embedding(settings, checkpoint)
    pooling = settings.pooling or checkpoint.pooling
    pooling = "mean" if settings.option("few_shot") and pooling == "cls" else pooling
    return config, {"pooling": pooling}, None


def _check_start(settings: FineTuningSettings, start: InitialModel) -> None:
    """Refuses rows, frozen blocks and layers of features that the model does not have."""
    positions, blocks = start.config.max_position_embeddings, start.config.num_hidden_layers
    if settings.max_seq_length > positions:
        raise ValueError(
            f"--max_seq_length={settings.max_seq_length} is more than the {positions} positions "
            f"that {settings.init_checkpoint} has embeddings for: give {positions} at most."
        )
    frozen = settings.freeze
    if frozen > blocks:
        raise ValueError(
            f"--freeze={frozen} is more than the {blocks} blocks of {settings.init_checkpoint}."
        )
    has_no_head = (settings.option("few_shot") or settings.kind.embeds) and not start.head.get(
        "dense_size"
    )
    if has_no_head and frozen == blocks:
        raise ValueError(
            f"--freeze={frozen} leaves nothing to train: expected {frozen - 1} at most, as no head "
            "is trained."
        )
    for variant in settings.variants:
        try:
            check_variant(variant, blocks)
        except ValueError as error:
            raise ValueError(
                f"--feature_based={settings.option('feature_based')}: {error}"
            ) from error


def _embedding(settings: FineTuningSettings, checkpoint: Checkpoint) -> SentenceEmbedding:
    """Definition of a text's vector: that of the flags, else that of the checkpoint."""
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


def _dense_arguments(checkpoint: Checkpoint) -> dict[str, Any]:
    """The arguments of the layer behind the pooling; {} without one."""
    arguments = checkpoint.model.arguments
    names = ("dense_size", "dense_activation")
    return {name: arguments[name] for name in names if name in arguments}


def model_spec(task: Task, start: InitialModel) -> ModelSpec:
    """The model that a task trains from a start, as a directory describes it."""
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
    """Makes the task's model with the start's weights; what the seed draws is drawn here.

    The checkpoint's head is reused only when its kind, its labels and what it reads match.
    Except for weights nothing of the checkpoint's model is reused (a pooler that the task does not
    use, a head's own dropout): the directory describes the task's model, and a resumed run makes it
    from there. Also returns sentences on what is new in the model or was not used.
    """
    spec, checkpoint = model_spec(task, start), start.checkpoint
    tensors: Mapping[str, StoredTensor] = {}
    messages: list[str] = []
    keeps_regressor = False
    if checkpoint is not None:
        own = checkpoint.model
        is_new = own.model_class is not spec.model_class or checkpoint.labels != task.labels
        for name, default in _HEAD.items():
            is_new |= own.arguments.get(name, default) != spec.arguments.get(name, default)
        # Before anything is built: what does not fit may claim any size.
        tensors, report = select(checkpoint, spec, new_head=is_new)
        messages = report.messages(checkpoint.path) + _reading(settings, spec, checkpoint)
        keeps_regressor = not any(name.startswith("regressor/") for name in report.new)
        warn(report.notes)
    model = weights.build_model(start.config, spec, generator=random.Random(settings.seed))
    weights.assign(model, tensors)
    if keeps_regressor:
        task.target_scale.unfold(model)
    model.sentence_embedding = start.embedding
    _freeze(model, settings.freeze)
    return model, messages


def _reading(settings: FineTuningSettings, spec: ModelSpec, checkpoint: Checkpoint) -> list[str]:
    """Lines on the pooling that a head reads: none for a head that reads [CLS] as usual."""
    pooling, pools = spec.pooling, "pooling" in spec.model_class.argument_checks
    if not pools or (pooling, checkpoint.pooling) == ("cls", "cls"):
        return []
    read = "[CLS] through the pooler" if pooling == "cls" else f"the {pooling} over a text's tokens"
    why = "as --pooling says"
    if settings.pooling is None:
        why = f"as {checkpoint.path} does; --pooling=cls reads [CLS] through the pooler"
        why = "as --few_shot does" if settings.option("few_shot") else why
    return [f"The head reads {read}, {why}."]


def _freeze(model: Any, blocks: int) -> None:
    """Leaves the embeddings and the lowest blocks as they are; 0 blocks: all are trained."""
    if blocks:
        model.encoder.embeddings.trainable = False
        for block in model.encoder.blocks[:blocks]:
            block.trainable = False


def make_inference(
    settings: FineTuningSettings,
    tokenizer: BertTokenizer,
    model: BertModel,
    outputs: Mapping[str, Any] | None = None,
) -> Inference:
    """A model to be run on the sets; ``outputs`` are what it gave for some of them before."""
    length, batch_size = settings.max_seq_length, settings.eval_batch_size
    return Inference(model, tokenizer, length, batch_size, cache=dict(outputs or {}))
