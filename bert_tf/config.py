"""The sizes and rates that define a BERT: ``BertConfig``, its presets, and its JSON files."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, Literal, Self, cast

from bert_tf.io.untrusted import MAX_JSON_BYTES, is_number, parse_json_object
from bert_tf.io.wording import listed, quote

# Names as bert_config.json and Hugging Face's config.json spell them. "gelu" is computed by the
# error function, as by Hugging Face and the first months of google-research/bert; the next three
# are names of the tanh approximation.
ACTIVATIONS = (
    *("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_approximate"),
    *("relu", "silu", "swish", "tanh", "linear"),
)

# (layers, hidden size). A head has 64 units; the intermediate size is 4 times the hidden size.
_NAMED_SIZES = {
    "bert-tiny": (2, 128),
    "bert-mini": (4, 256),
    "bert-small": (4, 512),
    "bert-medium": (8, 512),
    "bert-base": (12, 768),
    "bert-large": (24, 1024),
}
# Turc et al. 2019, "Well-Read Students Learn Better", table of the 24 miniatures.
_MINIATURES = {
    f"bert-L{layers}-H{hidden}": (layers, hidden)
    for layers in (2, 4, 6, 8, 10, 12)
    for hidden in (128, 256, 512, 768)
}
PRESETS: dict[str, tuple[int, int]] = {**_NAMED_SIZES, **_MINIATURES}

# Settings of Hugging Face's config.json that change the computation: each with the only value
# that is BERT as published, which is also the value meant where the key is absent.
ONLY_AS_PUBLISHED: dict[str, Any] = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "add_cross_attention": False,
    "right_to_left": False,
}
# What a file may say: sizes beyond these are an error of whoever wrote it, or meant to fill memory.
_MAX_VALUES = {
    "vocab_size": 10**7,
    "hidden_size": 10**5,
    "num_hidden_layers": 1000,
    "intermediate_size": 10**6,
    "max_position_embeddings": 10**6,
    "type_vocab_size": 10**4,
}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and rates of a BERT, with ``bert_config.json``'s names; BERT-base uncased by default.

    Source: Devlin et al. 2019, section 3 and appendix A.2; google-research/bert ``modeling.py``.

    Attributes:
        vocab_size: number of token ids, V.
        hidden_size: width of every layer's output, H; a multiple of ``num_attention_heads``.
        num_hidden_layers: number of Transformer blocks.
        num_attention_heads: attention heads in a block, N; a head's size D is H / N.
        intermediate_size: width of the feed-forward layer.
        hidden_act: activation of the feed-forward layer and of the masked-LM head; ``gelu`` is the
            exact one (error function), ``gelu_new`` the tanh approximation. One of ``ACTIVATIONS``.
        hidden_dropout_prob: dropout rate after the embeddings and after each sub-layer.
        attention_probs_dropout_prob: dropout rate of the attention probabilities.
        max_position_embeddings: the longest sequence, in tokens.
        type_vocab_size: number of segment types; of 1 both texts of a pair are; 0 makes it a
            DistilBERT (Sanh et al. 2019), which has none, and whose pooler, of a classifier alone,
            ends in a ReLU.
        initializer_range: standard deviation of the truncated normal that weights start from.
        layer_norm_eps: added to the variance in layer normalisation.
        is_decoder: whether attention is causal, from left to right: a token sees itself and those
            before it. The files have the key only where it is true, with Hugging Face's name.

    Raises:
        ValueError: a size is not a positive integer, a rate is outside [0, 1), the heads do not
            divide the hidden size, the activation is unknown, or a flag is not true or false.

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=8000)
    >>> config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    (128, 2, 2)
    >>> BertConfig(hidden_size=100, num_attention_heads=12)
    Traceback (most recent call last):
    ...
    ValueError: hidden_size 100 is not a multiple of num_attention_heads 12: every head takes an \
equal share of the hidden size.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    is_decoder: bool = False

    def __post_init__(self) -> None:
        """Checks every field."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            minimum = 0 if field.name == "type_vocab_size" else 1
            is_valid, expected = {
                int: (type(value) is int and value >= minimum, "a positive integer"),
                float: (is_number(value), "a finite number"),
                bool: (isinstance(value, bool), "true or false"),
            }.get(cast(type, field.type), (True, ""))
            if not is_valid:
                raise ValueError(f"{field.name} must be {expected}, got {quote(value)}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"{name} must be at least 0 and less than 1, got {getattr(self, name)}."
                )
        for name in ("initializer_range", "layer_norm_eps"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}: every head takes an equal share of the hidden size."
            )
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"hidden_act {quote(self.hidden_act)} is unknown: expected one of "
                f"{', '.join(ACTIVATIONS)}."
            )

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> Self:
        """The config of a published size, for the released uncased vocabulary unless overridden.

        Args:
            name: ``bert-tiny``, ``-mini``, ``-small``, ``-medium``, ``-base``, ``-large``, or one
                of the 24 miniatures, ``bert-L{2,4,6,8,10,12}-H{128,256,512,768}``.
            **overrides: fields to set otherwise, ``vocab_size`` for example.

        Raises:
            ValueError: the name is not a preset's.

        >>> BertConfig.from_preset("bert-L8-H512") == BertConfig.from_preset("bert-medium")
        True
        """
        if name not in PRESETS:
            raise ValueError(
                f"{name!r} is no preset: expected one of {', '.join(_NAMED_SIZES)}, or a miniature "
                "bert-L{2,4,6,8,10,12}-H{128,256,512,768}."
            )
        layers, hidden = PRESETS[name]
        sizes: dict[str, Any] = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": hidden // 64,
            "intermediate_size": 4 * hidden,
        }
        return cls(**{**sizes, **overrides})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the config") -> Self:
        """The config that a parsed ``bert_config.json`` or Hugging Face ``config.json`` describes.

        Keys that say nothing about the encoder (``architectures``, ``id2label`` ...) are left
        alone; keys that change its computation must have the published value.

        Args:
            values: the parsed JSON object.
            source: what errors name as the place that the values came from.

        Raises:
            ValueError: a size is missing, invalid or larger than any model's, or the file describes
                another model.

        >>> BertConfig.from_dict({"vocab_size": 100, "model_type": "roberta"}, "config.json")
        Traceback (most recent call last):
        ...
        ValueError: config.json: model_type is 'roberta', expected 'bert': only BERT as published \
can be built from it.
        """
        for key, published in ONLY_AS_PUBLISHED.items():
            if values.get(key, published) != published:
                raise ValueError(
                    f"{source}: {key} is {quote(values[key])}, expected {published!r}: only BERT "
                    "as published can be built from it."
                )
        if "vocab_size" not in values:
            raise ValueError(
                f"{source}: no vocab_size: expected the keys of a bert_config.json, got "
                f"{listed(sorted(values))}."
            )
        for name, limit in _MAX_VALUES.items():
            size = values.get(name)
            if isinstance(size, int) and size > limit:
                raise ValueError(
                    f"{source}: {name} is {quote(size)}: expected at most {limit:,}, more than any "
                    "BERT's."
                )
        names = {field.name for field in dataclasses.fields(cls)}
        try:
            return cls(**{key: value for key, value in values.items() if key in names})
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Reads ``bert_config.json``, or Hugging Face's ``config.json``.

        Raises:
            ValueError: the file is missing, is not a JSON object, or is no BERT's config.
        """
        path = os.fspath(path)
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_JSON_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{path}: cannot be read: {error.strerror}.") from error
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f"{path}: expected a config of at most {MAX_JSON_BYTES:,} bytes.")
        return cls.from_dict(parse_json_object(content, path), source=path)

    @property
    def is_distilbert(self) -> bool:
        """True if it is a DistilBERT: no segment types, and a pooler with a ReLU."""
        return self.type_vocab_size == 0

    @property
    def summary_token(self) -> Literal["cls", "last"]:
        """The token that sees all others: the first one, or of a causal model the last one."""
        return "last" if self.is_decoder else "cls"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON, without flags that are false."""
        return {k: value for k, value in dataclasses.asdict(self).items() if value is not False}

    def to_json(self) -> str:
        """The text of a ``bert_config.json``, with a newline at its end."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
