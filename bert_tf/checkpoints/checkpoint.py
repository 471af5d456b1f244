"""``Checkpoint``, which every format's reader returns and every format's writer takes.

A reader opens a path no further than names, shapes and configuration; the tensors are read one by
one when they are wanted, so that a conversion never holds a model. Tensors go by the library's own
names, which are the variables' paths below the model's name, with the fused attention kernel taken
apart into query, key and value:

| name                                                         | shape              |
|--------------------------------------------------------------|--------------------|
| embeddings/{word,position,token_type}_embeddings             | (V or P or T, H)   |
| layer_I/attention/{query,key,value,output}/{kernel,bias}     | (H, H), (H,)       |
| layer_I/{intermediate,output}/{kernel,bias}                  | (H, F), (F, H)     |
| layer_I/{attention,output}_layer_norm/{gamma,beta}           | (H,)               |
| embeddings/layer_norm/{gamma,beta}                           | (H,)               |
| pooler/dense/{kernel,bias}, masked_lm/dense/{kernel,bias}    | (H, H), (H,)       |
| masked_lm/layer_norm/{gamma,beta}, masked_lm/output_bias     | (H,), (V,)         |
| next_sentence/dense/{kernel,bias}, span/{kernel,bias}        | (H, 2), (2,)       |
| {classifier,token_classifier}/{kernel,bias}                  | (H, C), (C,)       |
| {regressor,choice}/{kernel,bias}                             | (H, 1), (1,)       |
| sentence_dense/{kernel,bias}, of a ``BertEncoder``            | (H, D), (D,)       |
| mixture/{logits,scale}, of a ``BertFeatureTagger``            | (L,), ()           |
| bilstm_I/{forward,backward}_lstm/lstm_cell/{kernel,bias}     | (X, 4U), (4U,)     |
| bilstm_I/{forward,backward}_lstm/lstm_cell/recurrent_kernel  | (U, 4U)            |
| tags/{kernel,bias}                                           | (2U, C), (C,)      |

Letters: V vocabulary, P positions, T segment types, H hidden, F feed-forward, C classes, L hidden
states of a token, D numbers of a sentence's vector, U units of an LSTM, X its inputs.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.choices import HEAD_POOLINGS, POOLINGS
from bert_tf.config import BertConfig
from bert_tf.io.untrusted import is_number
from bert_tf.io.wording import listed, one_line, quote
from bert_tf.modeling import MODEL_CLASSES, BertEncoder, BertPretrainer
from bert_tf.modeling.base import BertModel, SentenceEmbedding, is_count, optional
from bert_tf.pipelines.text_rules import AS_GOOGLE, TextRules
from bert_tf.pipelines.wordpiece import BertTokenizer

from .config_keys import IS_OBJECT, IS_SWITCH, Check, check_value


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, in this library's layout once it is read: kernels are (inputs, outputs).

    Each ``read`` reads it again, or raises ``ValueError`` where the file cannot be read.
    """

    name: str  # of the source
    shape: tuple[int, ...]  # as it will be read
    dtype: str  # as stored, NumPy's or ml_dtypes' name
    read: Callable[[], np.ndarray]

    def transform(
        self, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]
    ) -> "StoredTensor":
        """The tensor of another shape that a change makes of this one, once it is read."""
        return dataclasses.replace(self, shape=shape, read=lambda: change(self.read()))


@dataclasses.dataclass(frozen=True)
class Tokenization:
    """Tokenizer of a source: the pieces by id, whether it is uncased, and its other rules."""

    vocabulary: tuple[str, ...]
    do_lower_case: bool
    # Not part of what fingerprints are made of, which are older.
    rules: TextRules = dataclasses.field(default=AS_GOOGLE, repr=False)

    @classmethod
    def from_tokenizer(cls, tokenizer: BertTokenizer) -> "Tokenization":
        """That of a tokenizer in memory."""
        return cls(tuple(tokenizer.vocab), tokenizer.do_lower_case, tokenizer.rules)

    def to_tokenizer(self) -> BertTokenizer:
        """The tokenizer."""
        return BertTokenizer(self.vocabulary, self.do_lower_case, self.rules)

    def with_special_tokens(self, found: bool | None) -> "Tokenization":
        """The tokenizer that finds special tokens in texts, or parts them; ``None``: as it is."""
        rules = self.rules.with_special_tokens(self.vocabulary, found)
        return dataclasses.replace(self, rules=rules)


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A checkpoint's model: the class, and its arguments besides config, name, dtype."""

    model_class: type[BertModel]
    arguments: Mapping[str, Any]

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.model_class.__name__

    @property
    def has_pooler(self) -> bool:
        """True if the model's encoder has a pooler."""
        return self.model_class.has_pooler(self.arguments)

    @property
    def pooling(self) -> str:
        """Pooling that the head reads; by default ``cls``, by way of the pooler."""
        return str(self.arguments.get("pooling", "cls"))

    @property
    def has_portable_format(self) -> bool:
        """True if other libraries' formats have a place for the model."""
        return self.model_class.has_portable_format and self.pooling == "cls"

    def pools_last_token(self, config: BertConfig) -> bool:
        """True if a pooler reads the last token, where other libraries' reads the first."""
        return config.summary_token == "last" and self.has_pooler

    def head_shapes(self, config: BertConfig) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights outside the encoder."""
        return self.model_class.head_shapes(config, self.arguments)


def unused_names(stored: Iterable[str], tensors: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """The names in a file that no weight comes from, sorted."""
    return tuple(sorted(set(stored) - {tensor.name for tensor in tensors.values()}))


def make_spec(model_class: type[BertModel], **known: Any) -> ModelSpec:
    """A model of a class, with those arguments that the class takes and that are not ``None``."""
    checks = model_class.argument_checks
    arguments = {key: value for key, value in known.items() if key in checks and value is not None}
    return ModelSpec(model_class, arguments)


def make_pretrained_spec(
    names: Collection[str],
    prefixes: tuple[str, str, str] = ("masked_lm/", "next_sentence/", "pooler/"),
) -> ModelSpec:
    """The pretrainer with the heads that names of weights are of; where there is none, the encoder.

    ``prefixes`` are what the names of masked LM, of next sentence and of the pooler begin with.
    """
    masked_lm, next_sentence, pooler = (
        any(name.startswith(prefix) for name in names) for prefix in prefixes
    )
    if not (masked_lm or next_sentence):
        return ModelSpec(BertEncoder, {"pooler": pooler})
    heads = {"mlm": masked_lm, "nsp": next_sentence, "pooler": pooler or next_sentence}
    return ModelSpec(BertPretrainer, heads)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Contents of a path."""

    path: str  # the directory or file that was opened
    format: str  # a name of ``checkpoint_formats.FORMATS``
    config: BertConfig
    model: ModelSpec  # the model that the source's heads name
    # The weights, by the library's names.
    tensors: Mapping[str, StoredTensor] = dataclasses.field(default_factory=dict)
    # Names of stored tensors that are no weight of the model: optimizer slots, position ids.
    unused: tuple[str, ...] = ()
    tokenization: Tokenization | None = None  # where the source has a vocabulary
    labels: tuple[str, ...] = ()  # the classes' names in the order of their ids
    multi_label: bool = False  # whether several classes may hold at once
    # Decided in fine-tuning, by name, such as ``null``, that of no answer.
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    task: Mapping[str, Any] | None = None  # what fine-tuning's ``task.json`` says, unread
    # As the attributes of ``BertModel`` of these names.
    activation: str = ""
    problem_type: str | None = ""
    max_seq_length: int | None = None
    # How texts become vectors, of a directory of sentence-transformers, and what it makes of the
    # model's states that this library does not compute: a sentence without its end.
    sentence_embedding: SentenceEmbedding | None = None
    unsupported_modules: str = ""
    unread_head_note: str = (
        ""  # where a file beside it has a head that is never read: a sentence on it
    )
    # To be told: what is done otherwise than the source says, or was assumed where it is silent.
    notes: tuple[str, ...] = ()

    @property
    def pooling(self) -> str:
        """Pooling for the head of a new task, from this model's head or its sentence embedding."""
        pooling, embedding = self.model.pooling, self.sentence_embedding
        if embedding is not None and "pooling" not in self.model.model_class.argument_checks:
            pooling = embedding.pooling
        return pooling if pooling in HEAD_POOLINGS else "cls"

    def fingerprint(self) -> str:
        """Hexadecimal digits that stand for the model, its vocabulary and every weight."""
        model = (self.model.class_name, sorted(self.model.arguments.items()), self.labels)
        digest = hashlib.sha256(repr((self.config.to_dict(), model, self.tokenization)).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            digest.update(tensor.read().tobytes())
        return digest.hexdigest()[:32]


# === The JSON object of a model ===

SIGMOID = "sigmoid"
_FORMAT_VERSION = 1
_MAX_LENGTH = 10**6  # tokens of a text; no BERT has as many positions


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """The JSON object of a checkpoint's model."""
    tokenization, embedding = checkpoint.tokenization, checkpoint.sentence_embedding
    values: dict[str, Any] = {
        "format_version": _FORMAT_VERSION,
        "class_name": checkpoint.model.class_name,
        "arguments": dict(checkpoint.model.arguments),
        "labels": list(checkpoint.labels),
        "multi_label": checkpoint.multi_label,
        "do_lower_case": None if tokenization is None else tokenization.do_lower_case,
    }
    if tokenization is not None and (rules := tokenization.rules.to_json()):
        values["text_rules"] = rules
    for name, default in _OMITTED.items():
        if (value := getattr(checkpoint, name)) != default:
            values[name] = value
    if embedding is not None:
        values["sentence_embedding"] = dataclasses.asdict(embedding)
    return values


def _are_thresholds(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(is_number, value.values()))


_IS_LENGTH: Check = (
    lambda value: type(value) is int and 0 < value <= _MAX_LENGTH,
    "a positive whole number, of a million at most",
)
_IS_TEXT: Check = (
    lambda value: isinstance(value, str) and len(value) <= _MAX_LENGTH,
    "a text of a million characters at most",
)
_CHECKS: dict[str, Check] = {
    "format_version": (
        lambda value: value == _FORMAT_VERSION,
        f"{_FORMAT_VERSION}: it was written by another version of this library",
    ),
    "labels": (lambda value: isinstance(value, list), "a list of names"),
    "multi_label": IS_SWITCH,
    "do_lower_case": (lambda value: isinstance(value, bool | None), "true, false or null"),
    "thresholds": (_are_thresholds, "an object of numbers by name"),
    "activation": (lambda value: value in ("", SIGMOID), f'"" or "{SIGMOID}"'),
    "problem_type": (optional(_IS_TEXT[0]), "a text or null"),
    "max_seq_length": (optional(_IS_LENGTH[0]), f"{_IS_LENGTH[1]}, or null"),
}
_EMBEDDING_CHECKS: dict[str, Check] = {
    "pooling": (lambda value: value in POOLINGS[1:], f"one of {', '.join(POOLINGS[1:])}"),
    "normalize": IS_SWITCH,
    "max_seq_length": _IS_LENGTH,
    "query_prefix": _IS_TEXT,
    "document_prefix": _IS_TEXT,
    "dims": (optional(is_count), "a positive number or null"),
    "rescale": IS_SWITCH,
}
# Values that a description omits.
_OMITTED: dict[str, Any] = {
    "thresholds": {},
    "activation": "",
    "problem_type": "",
    "max_seq_length": None,
}
_DEFAULTS: dict[str, Any] = {"labels": [], "multi_label": False, "do_lower_case": None, **_OMITTED}
DESCRIPTION_KEYS = {*_CHECKS, "class_name", "arguments", "sentence_embedding", "text_rules"}


def parse_description(values: Any, source: str) -> tuple[dict[str, Any], bool | None]:
    """Reads the JSON object of a model that is in ``source``, every value checked.

    Returned: the fields of a ``Checkpoint``, and the casing, ``None`` without a tokenizer.
    """
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{source}: expected an object that describes a model, got {quote(values)}."
        )
    values = {**_DEFAULTS, **values}
    for key, check in _CHECKS.items():
        check_value(values.get(key), check, f"{source}: {key}")
    model = check_model(values.get("class_name"), values.get("arguments"), source)
    labels, classes = values["labels"], model.arguments.get("num_classes")
    fits: Check = (lambda names: len(names) in (0, classes), f"a list of {classes or 'no'} names")
    check_value(labels, fits, f"{source}: labels")
    fields = {
        "model": model,
        "labels": check_labels(labels, source),
        "multi_label": values["multi_label"],
        "thresholds": {str(key): float(value) for key, value in values["thresholds"].items()},
        **{name: values[name] for name in ("activation", "problem_type", "max_seq_length")},
        "sentence_embedding": check_sentence_embedding(values.get("sentence_embedding"), source),
    }
    return fields, values["do_lower_case"]


def check_sentence_embedding(values: Any, source: str) -> SentenceEmbedding | None:
    """A sentence embedding as a stranger's file gives it, checked; ``None`` where it gives none."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        values = {"rescale": True, **values}
    if not isinstance(values, Mapping) or values.keys() != _EMBEDDING_CHECKS.keys():
        raise ValueError(
            f"{source}: sentence_embedding is {quote(values)}, expected an object with "
            f"{', '.join(_EMBEDDING_CHECKS)}."
        )
    for key, check in _EMBEDDING_CHECKS.items():
        check_value(values[key], check, f"{source}: {key}")
    return SentenceEmbedding(**values)


def check_labels(labels: Iterable[Any], source: str) -> tuple[str, ...]:
    """The names of classes, as a stranger's file gives them: texts, or numbers as text."""
    names = tuple(labels)
    for name in names:
        if not isinstance(name, str | int | float):
            raise ValueError(f"{source}: the label {quote(name)} is not a text.")
    if len({*map(str, names)}) < len(names):
        raise ValueError(f"{source}: two classes have one name among {listed(names)}: name each.")
    return tuple(map(str, names))


def check_model(name: Any, arguments: Any, source: str) -> ModelSpec:
    """A model's class and arguments, as a stranger's file gives them, checked."""
    is_class: Check = ([*MODEL_CLASSES].__contains__, f"one of {', '.join(MODEL_CLASSES)}")
    check_value(name, is_class, f"{source}: class_name")
    check_value(arguments, IS_OBJECT, f"{source}: arguments")
    checks = MODEL_CLASSES[name].argument_checks
    for key, value in arguments.items():
        if key not in checks or not checks[key](value):
            argument = f"{one_line(key)}={quote(value)}"
            raise ValueError(f"{source}: {name} cannot be made with {argument}.")
    if "num_classes" in checks and "num_classes" not in arguments:
        raise ValueError(f"{source}: {name} needs num_classes among its arguments.")
    return ModelSpec(MODEL_CLASSES[name], arguments)
