"""What a fine-tuning starts from: a checkpoint's config, vocabulary and weights; what is frozen."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras

from bert_tf.choices import DENSE_ACTIVATIONS
from bert_tf.config import BertConfig
from bert_tf.interchange import model_directory, weights
from bert_tf.interchange.checkpoint import Checkpoint, ModelSpec, Tokenization
from bert_tf.interchange.load import select
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.interchange.tokenizer_files import read_tokenization
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.feature_based import BertFeatureTagger, check_backward, check_variant
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.results.run_directory import FineTuningDirectory
from bert_tf.tasks.task import Task

from . import lora
from .settings import FineTuningSettings

# What a run may change of the checkpoint's config.
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
# The arguments of a model that its start decides, each as it is without being named.
_HEAD = {"pooling": "cls", "dense_size": None, "dense_activation": DENSE_ACTIVATIONS[0]}
# A variable's block, by its path.
_BLOCK = re.compile(r"(?:^|/)layer_(\d+)/")
_EMBEDDINGS = re.compile(r"(?:^|/)embeddings/")


class Start(NamedTuple):
    """What a run starts from; a resumed one has no ``checkpoint``.

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


def open_start(settings: FineTuningSettings, directory: FineTuningDirectory) -> Start:
    """Opens what a run starts from: once it has a state of its own, that, not the checkpoint."""
    if directory.has_state():
        config, described = model_directory.read_description(directory.path)
        tokenization, notes = read_tokenization(directory.path, described.do_lower_case)
        checkpoint, head = None, described.model.arguments
        embedding = described.sentence_embedding
    else:
        checkpoint = open_checkpoint(settings.init_checkpoint)
        if settings.init_layers:
            checkpoint = take_layers(checkpoint, settings.init_layers)
        if settings.backward_checkpoint:
            second = open_checkpoint(settings.backward_checkpoint)
            checkpoint = with_backward(checkpoint, second)
        pooling = settings.pooling or ("cls" if settings.bilstm else checkpoint.pooling)
        head = {"pooling": "mean" if settings.few_shot and pooling == "cls" else pooling}
        config, tokenization, notes = checkpoint.config, checkpoint.tokenization, checkpoint.notes
        config = with_rates(config, settings)
        embedding = None
        if settings.kind.embeds:
            embedding, head = _embedding(settings, checkpoint), _dense(checkpoint)
    if tokenization is None:
        raise ValueError(
            f"--init_checkpoint={settings.init_checkpoint} has no vocabulary ({' '.join(notes)}): "
            "put its vocab.txt into the directory."
        )
    positions = config.max_position_embeddings
    if settings.max_seq_length > positions:
        raise ValueError(
            f"--max_seq_length={settings.max_seq_length} is more than the {positions} positions "
            f"that {settings.init_checkpoint} has embeddings for: give {positions} at most."
        )
    frozen = max([settings.freeze, *(values.get("freeze", 0) for values in settings.tried)])
    if frozen > config.num_hidden_layers:
        raise ValueError(
            f"--freeze={frozen} is more than the {config.num_hidden_layers} blocks of "
            f"{settings.init_checkpoint}."
        )
    is_encoder_alone = (settings.few_shot or settings.kind.embeds) and not head.get("dense_size")
    if is_encoder_alone and frozen == config.num_hidden_layers:
        raise ValueError(
            f"--freeze={frozen} leaves nothing to train: expected {frozen - 1} at most, as no head "
            "is trained."
        )
    if settings.lora_rank > config.hidden_size:
        raise ValueError(
            f"--lora_rank={settings.lora_rank} is more than the {config.hidden_size} rows of a "
            f"matrix of {settings.init_checkpoint}: 8 is usual."
        )
    for variant in settings.variants:
        try:
            check_variant(variant, config.num_hidden_layers)
        except ValueError as error:
            raise ValueError(f"--feature_based={settings.feature_based}: {error}") from error
    tokenizer = BertTokenizer(list(tokenization.vocabulary), tokenization.do_lower_case)
    return Start(config, tokenization, tokenizer, checkpoint, head, embedding)


def _embedding(settings: FineTuningSettings, checkpoint: Checkpoint) -> SentenceEmbedding:
    """What the vector of a text is: as the flags say, else as the checkpoint does."""
    usual = SentenceEmbedding("mean", normalize=True, max_seq_length=settings.max_seq_length)
    asked = {name: getattr(settings, name) for name in ("pooling", "normalize", "max_seq_length")}
    return dataclasses.replace(
        checkpoint.sentence_embedding or usual,
        dims=None,
        **{name: value for name, value in asked.items() if value is not None},
    )


def _dense(checkpoint: Checkpoint) -> dict[str, Any]:
    """The arguments of the layer behind the pooling; {} without one."""
    found = checkpoint.model.arguments
    return {name: found[name] for name in ("dense_size", "dense_activation") if name in found}


def with_rates(config: BertConfig, settings: FineTuningSettings) -> BertConfig:
    """A config with the settings' rates of dropout, where they say any."""
    rates = {name: getattr(settings, name) for name in RATES}
    return dataclasses.replace(
        config, **{name: rate for name, rate in rates.items() if rate is not None}
    )


def take_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """A checkpoint of some blocks of another, in the order given, which count from 0 again."""
    blocks = checkpoint.config.num_hidden_layers
    if layers[-1] >= blocks:
        raise ValueError(
            f"--init_layers={','.join(map(str, layers))}: expected numbers from 0 to {blocks - 1}, "
            f"as {checkpoint.path} has {blocks} blocks."
        )
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        layer = _BLOCK.match(name)
        if layer is None:
            tensors[name] = tensor
        elif int(layer[1]) in layers:
            tensors[f"layer_{layers.index(int(layer[1]))}/{name[layer.end() :]}"] = tensor
    config = dataclasses.replace(checkpoint.config, num_hidden_layers=len(layers))
    return dataclasses.replace(checkpoint, config=config, tensors=tensors)


def with_backward(checkpoint: Checkpoint, second: Checkpoint) -> Checkpoint:
    """A checkpoint with another one's encoder besides, for ``BertFeatureTagger(backward=True)``."""
    try:
        check_backward(checkpoint.config, second.config)
    except ValueError as error:
        raise ValueError(
            f"--backward_checkpoint={second.path} beside {checkpoint.path}: {error}"
        ) from error
    if second.tokenization != checkpoint.tokenization:
        raise ValueError(
            f"--backward_checkpoint={second.path} has another vocabulary or casing than "
            f"{checkpoint.path}: pre-train both with the same --vocab_file."
        )
    (name,) = BertFeatureTagger.further_encoders({"backward": True})
    beside = {
        f"{name}/{each}": tensor
        for each, tensor in second.tensors.items()
        if weights.is_in_encoder(each)
    }
    return dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **beside})


def forget_models() -> None:
    """Frees the graphs of models that are done with, and lets the next have their names.

    Keras would forget the dtype policy as well.
    """
    policy = keras.config.dtype_policy()
    keras.backend.clear_session()
    keras.config.set_dtype_policy(policy)


def model_spec(task: Task, start: Start) -> ModelSpec:
    """The model that a task trains from a start, as a directory describes it."""
    known = task.model_class.argument_checks
    head = {
        name: value
        for name, usual in _HEAD.items()
        if name in known and (value := start.head.get(name, usual)) != usual
    }
    return ModelSpec(task.model_class, {**task.model_arguments, **head})


def build_model(
    settings: FineTuningSettings, task: Task, start: Start
) -> tuple[BertModel, list[str]]:
    """Makes the task's model with the start's weights; what the seed draws is drawn here.

    The checkpoint's head is reused only when its kind, its labels and what it reads match.
    Except for weights nothing of the checkpoint's model is reused (a pooler that the task does not
    use, a head's own dropout): the directory describes the task's model, and a resumed run makes it
    from there. Also returns sentences on what is new in the model or was not used.
    """
    keras.utils.set_random_seed(settings.seed)
    spec, found = model_spec(task, start), start.checkpoint
    if found is None:
        model = weights.build_model(start.config, spec)
        sentences: list[str] = []
    else:
        own = found.model
        is_new = own.model_class is not spec.model_class or found.labels != task.labels
        for name, usual in (("bilstm", False), *_HEAD.items()):
            is_new |= own.arguments.get(name, usual) != spec.arguments.get(name, usual)
        # Before anything is built: what does not fit may claim any size.
        tensors, report = select(found, spec, new_head=is_new)
        model = weights.build_model(start.config, spec)
        weights.assign(model, tensors)
        if not any(name.startswith("regressor/") for name in report.new):
            task.target_scale.unfold(model)
        sentences = [*report.sentences(found.path), *_what_is_read(settings, spec, found)]
    model.sentence_embedding = start.embedding
    _freeze(model, settings.freeze)
    if settings.lora_rank:
        lora.add_factors(model, settings.lora_rank)
        sentences = [*sentences, lora.describe(model)]
    return model, sentences


def _what_is_read(settings: FineTuningSettings, spec: ModelSpec, found: Checkpoint) -> list[str]:
    """What the head reads of a text, where that may be something else than the pooler on [CLS]."""
    pooling = spec.arguments.get("pooling", "cls")
    pools = "pooling" in spec.model_class.argument_checks and not spec.arguments.get("bilstm")
    if not pools or (pooling, found.pooling) == ("cls", "cls"):
        return []
    read = "[CLS] through the pooler" if pooling == "cls" else f"the {pooling} over a text's tokens"
    why = "as --pooling says"
    if settings.pooling is None:
        why = f"as {found.path} does; --pooling=cls reads [CLS] through the pooler"
        why = "as --few_shot does" if settings.few_shot else why
    return [f"The head reads {read}, {why}."]


def rate_shares(variables: Iterable[Any], num_blocks: int, decay: float) -> dict[str, float]:
    """By the path of each variable, what its rate is of the head's; {} where all are alike.

    Each block has ``decay`` of the rate of the block above, the highest one of the head's; the
    embeddings are below the lowest. Source: Howard and Ruder 2018, "Universal Language Model
    Fine-tuning", section 3.2, their "discriminative fine-tuning".
    """
    if decay == 1:
        return {}
    shares = {}
    for variable in variables:
        block = _BLOCK.search(variable.path)
        below = num_blocks - int(block[1]) if block else 0
        if _EMBEDDINGS.search(variable.path):
            below = num_blocks + 1
        shares[variable.path] = decay**below
    return shares


def _freeze(model: Any, blocks: int) -> None:
    """Leaves the embeddings and the lowest blocks as they are; 0 blocks: nothing is left so."""
    if blocks:
        model.encoder.embeddings.trainable = False
        for block in model.encoder.blocks[:blocks]:
            block.trainable = False
