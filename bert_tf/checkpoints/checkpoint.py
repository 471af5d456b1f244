"""``Checkpoint``: the result of every format's reader and the input of every format's writer.

Opening a checkpoint reads only names, shapes and the config; each tensor is read on access. Tensor
names are variable paths without the model's name. The fused attention kernel is split into query,
key and value:

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
| sentence_dense/{kernel,bias}, in a ``BertEncoder``            | (H, D), (D,)       |
| mixture/{logits,scale}, in a ``BertFeatureTagger``            | (L,), ()           |
| bilstm_I/{forward,backward}_lstm/lstm_cell/{kernel,bias}     | (X, 4U), (4U,)     |
| bilstm_I/{forward,backward}_lstm/lstm_cell/recurrent_kernel  | (U, 4U)            |
| tags/{kernel,bias}                                           | (2U, C), (C,)      |

V: vocabulary size; P: number of positions; T: number of segment types; H: hidden size; F:
intermediate size; C: number of classes; L: number of hidden states per token; D: size of a sentence
embedding; U: number of LSTM units; X: number of LSTM inputs.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.choices import HEAD_POOLINGS, POOLINGS
from bert_tf.config import BertConfig
from bert_tf.io.messages import listed, one_line, quote
from bert_tf.io.untrusted import is_number
from bert_tf.modeling import MODEL_CLASSES, BertEncoder, BertPretrainer
from bert_tf.modeling.base import BertModel, is_count, optional
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.text_rules import AS_GOOGLE, TextRules
from bert_tf.pipelines.wordpiece import BertTokenizer

from .config_keys import IS_LIST, IS_OBJECT, IS_SWITCH, Check, check_value


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Tensor in a file.

    Attributes:
        name: Name in the file.
        shape: Shape of the array that ``read`` returns.
        dtype: Name of the stored dtype in NumPy or ml_dtypes.
        read: Reads the tensor from the file on every call. Raises ``ValueError`` if the file
            cannot be read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]

    def transform(
        self, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]
    ) -> "StoredTensor":
        """Returns a tensor with a new shape; ``read`` then also applies ``change``."""
        return dataclasses.replace(self, shape=shape, read=lambda: change(self.read()))


@dataclasses.dataclass(frozen=True)
class Tokenization:
    """Tokenizer settings of a checkpoint."""

    vocabulary: tuple[str, ...]  # the tokens by id
    do_lower_case: bool
    # Excluded from ``repr``, which fingerprints include, so that older fingerprints stay valid.
    rules: TextRules = dataclasses.field(default=AS_GOOGLE, repr=False)

    @classmethod
    def from_tokenizer(cls, tokenizer: BertTokenizer) -> "Tokenization":
        """Returns the settings of a tokenizer in memory."""
        return cls(tuple(tokenizer.vocab), tokenizer.do_lower_case, tokenizer.rules)

    def to_tokenizer(self) -> BertTokenizer:
        """Creates the tokenizer."""
        return BertTokenizer(self.vocabulary, self.do_lower_case, self.rules)

    def with_special_tokens(self, found: bool | None) -> "Tokenization":
        """Sets whether special tokens in texts are recognized or split; ``None`` has no effect."""
        rules = self.rules.with_special_tokens(self.vocabulary, found)
        return dataclasses.replace(self, rules=rules)


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """Class of a checkpoint's model, and constructor arguments except config, name and dtype."""

    model_class: type[BertModel]
    arguments: Mapping[str, Any]

    @property
    def class_name(self) -> str:
        """Name of the class."""
        return self.model_class.__name__

    @property
    def has_pooler(self) -> bool:
        """Whether the model's encoder has a pooler."""
        return self.model_class.has_pooler(self.arguments)

    @property
    def pooling(self) -> str:
        """Pooling of the head's input; ``cls``, the default, includes the pooler."""
        return str(self.arguments.get("pooling", "cls"))

    @property
    def has_portable_format(self) -> bool:
        """Whether the formats of other libraries can represent the model."""
        return self.model_class.has_portable_format and self.pooling == "cls"

    def pools_last_token(self, config: BertConfig) -> bool:
        """Whether the pooler reads the last token, instead of the first as in other libraries."""
        return config.summary_token == "last" and self.has_pooler

    def head_shapes(self, config: BertConfig) -> dict[str, tuple[int, ...]]:
        """Returns the shapes, by name, of the weights outside the encoder."""
        return self.model_class.head_shapes(config, self.arguments)


def unused_names(stored: Iterable[str], tensors: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """Returns the names in ``stored`` that do not belong to ``tensors``, sorted."""
    return tuple(sorted(set(stored) - {tensor.name for tensor in tensors.values()}))


def make_spec(model_class: type[BertModel], **arguments: Any) -> ModelSpec:
    """Creates a spec; omits arguments that are ``None`` or that the class does not have."""
    names = model_class.argument_checks
    arguments = {k: value for k, value in arguments.items() if k in names and value is not None}
    return ModelSpec(model_class, arguments)


def make_pretrained_spec(
    names: Collection[str],
    prefixes: tuple[str, str, str] = ("masked_lm/", "next_sentence/", "pooler/"),
) -> ModelSpec:
    """Returns the spec for the heads in ``names``: a pretrainer, or an encoder if there are none.

    ``prefixes`` are the name prefixes of the masked-LM head, the next-sentence head and the pooler.
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
    """Checkpoint of any format, without tensor values.

    Attributes:
        path: Directory or file that was opened.
        format: Name of a format in ``checkpoint_formats.FORMATS``.
        config: Config of the encoder.
        model: Class and arguments of the model, derived from the source's heads.
        tensors: Weights by name.
        unused: Names of stored tensors that are not weights of the model, such as optimizer slots.
        tokenization: Tokenizer settings, or ``None`` without a supported tokenizer.
        labels: Class names in the order of the class ids.
        multi_label: Whether a text can have several classes.
        thresholds: Thresholds from fine-tuning by name, such as ``null`` (no answer).
        task: Contents of ``task.json`` from fine-tuning, not validated.
        activation: See ``BertModel``.
        problem_type: See ``BertModel``.
        max_seq_length: See ``BertModel``.
        sentence_embedding: Pooling and prompts of a sentence-transformers directory.
        unsupported_modules: Description of unsupported modules in a sentence-transformers
            directory, without a final period.
        unread_head_note: Warning about a setfit classifier, which bert_tf does not read.
        notes: Warnings about settings that bert_tf handles differently, and about assumptions.
    """

    path: str
    format: str
    config: BertConfig
    model: ModelSpec
    tensors: Mapping[str, StoredTensor] = dataclasses.field(default_factory=dict)
    unused: tuple[str, ...] = ()
    tokenization: Tokenization | None = None
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    activation: str = ""
    problem_type: str | None = ""
    max_seq_length: int | None = None
    sentence_embedding: SentenceEmbedding | None = None
    unsupported_modules: str = ""
    unread_head_note: str = ""
    notes: tuple[str, ...] = ()

    @property
    def pooling(self) -> str:
        """Pooling for a new head, taken from the model's head or the sentence embedding."""
        pooling, embedding = self.model.pooling, self.sentence_embedding
        if embedding is not None and "pooling" not in self.model.model_class.argument_checks:
            pooling = embedding.pooling
        return pooling if pooling in HEAD_POOLINGS else "cls"

    def fingerprint(self) -> str:
        """Returns a hexadecimal hash of the model, its vocabulary and all weights."""
        model = (self.model.class_name, sorted(self.model.arguments.items()), self.labels)
        digest = hashlib.sha256(repr((self.config.to_dict(), model, self.tokenization)).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            digest.update(tensor.read().tobytes())
        return digest.hexdigest()[:32]


# === JSON description of a model ===

SIGMOID = "sigmoid"
_FORMAT_VERSION = 1
_MAX_LENGTH = 10**6  # maximum number of tokens per text, and of characters per string


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the JSON object that describes a checkpoint's model."""
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
    "a positive integer, at most 1,000,000",
)
_IS_TEXT: Check = (
    lambda value: isinstance(value, str) and len(value) <= _MAX_LENGTH,
    "a string of at most 1,000,000 characters",
)
_CHECKS: dict[str, Check] = {
    "format_version": (
        lambda value: value == _FORMAT_VERSION,
        f"{_FORMAT_VERSION}, the format of this version of bert_tf",
    ),
    "labels": (IS_LIST[0], "a list of strings"),
    "multi_label": IS_SWITCH,
    "do_lower_case": (lambda value: isinstance(value, bool | None), "true, false or null"),
    "thresholds": (_are_thresholds, "an object that maps names to numbers"),
    "activation": (lambda value: value in ("", SIGMOID), f'"" or "{SIGMOID}"'),
    "problem_type": (optional(_IS_TEXT[0]), "a string or null"),
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
    """Parses and validates the JSON description of a model; ``source`` is its name in errors.

    Returns:
        The fields of a ``Checkpoint``, and ``do_lower_case`` (``None`` without a tokenizer).
    """
    check_value(values, (IS_OBJECT[0], "a model description"), source)
    values = {**_DEFAULTS, **values}
    for key, check in _CHECKS.items():
        check_value(values.get(key), check, f"{source}: {key}")
    model = check_model(values.get("class_name"), values.get("arguments"), source)
    labels, classes = values["labels"], model.arguments.get("num_classes")
    fits: Check = (lambda names: len(names) in (0, classes), f"a list of {classes or 0} names")
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
    """Validates a sentence embedding from an untrusted file; ``None`` is returned unchanged."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        values = {"rescale": True, **values}
    is_embedding: Check = (
        lambda value: isinstance(value, Mapping) and value.keys() == _EMBEDDING_CHECKS.keys(),
        f"an object with {', '.join(_EMBEDDING_CHECKS)}",
    )
    check_value(values, is_embedding, f"{source}: sentence_embedding")
    for key, check in _EMBEDDING_CHECKS.items():
        check_value(values[key], check, f"{source}: {key}")
    return SentenceEmbedding(**values)


def check_labels(labels: Iterable[Any], source: str) -> tuple[str, ...]:
    """Validates the class names from an untrusted file and converts numbers to strings."""
    names = tuple(labels)
    for name in names:
        if not isinstance(name, str | int | float):
            raise ValueError(f"{source}: labels: expected strings, got {quote(name)}.")
    if len({*map(str, names)}) < len(names):
        raise ValueError(f"{source}: labels: expected unique names, got {listed(names)}.")
    return tuple(map(str, names))


def check_model(name: Any, arguments: Any, source: str) -> ModelSpec:
    """Validates a model's class and arguments from an untrusted file."""
    is_class: Check = ([*MODEL_CLASSES].__contains__, f"one of {', '.join(MODEL_CLASSES)}")
    check_value(name, is_class, f"{source}: class_name")
    check_value(arguments, IS_OBJECT, f"{source}: arguments")
    checks = MODEL_CLASSES[name].argument_checks
    for key, value in arguments.items():
        if key not in checks or not checks[key](value):
            argument = f"{one_line(key)}={quote(value)}"
            raise ValueError(f"{source}: {argument} is not a valid argument of {name}.")
    if "num_classes" in checks and "num_classes" not in arguments:
        raise ValueError(f"{source}: arguments of {name}: expected num_classes.")
    return ModelSpec(MODEL_CLASSES[name], arguments)
