"""Hyperparameters of BERT models: ``BertConfig``, presets and JSON files."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, Literal, Self, cast

from bert_tf.io.messages import listed, quote
from bert_tf.io.untrusted import MAX_JSON_BYTES, is_number, parse_json_object

# Names in bert_config.json and in Hugging Face's config.json. "gelu" uses the error function; the
# next three are names of the tanh approximation.
ACTIVATIONS = (
    *("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_approximate"),
    *("relu", "silu", "swish", "tanh", "linear"),
)

# (layers, hidden size). The head size is 64. The intermediate size is 4 times the hidden size.
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

# Settings of Hugging Face's config.json that change the computation, with the values of the
# published BERT models, which are also the defaults.
ONLY_AS_PUBLISHED: dict[str, Any] = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "add_cross_attention": False,
    "right_to_left": False,
}
# Upper bounds for sizes in files, so that an untrusted file cannot exhaust the memory.
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
    """Hyperparameters of a BERT model, by default those of BERT-base uncased.

    The field names are those in ``bert_config.json``.

    Source: Devlin et al. 2019, section 3 and appendix A.2; google-research/bert ``modeling.py``.

    Attributes:
        vocab_size: Number of token ids, V.
        hidden_size: Size of the hidden states, H; a multiple of ``num_attention_heads``.
        num_hidden_layers: Number of Transformer blocks.
        num_attention_heads: Number of attention heads, N; the head size D is H / N.
        intermediate_size: Size of the feed-forward layer.
        hidden_act: Activation of the feed-forward layer and of the masked-LM head, one of
            ``ACTIVATIONS``; ``gelu`` is exact (error function), and ``gelu_new`` is the tanh
            approximation.
        hidden_dropout_prob: Dropout rate after the embeddings and after each sub-layer.
        attention_probs_dropout_prob: Dropout rate of the attention probabilities.
        max_position_embeddings: Maximum sequence length in tokens.
        type_vocab_size: Number of segment types. With 1, both texts of a pair have type 0. With 0,
            the model is DistilBERT (Sanh et al. 2019): no segment types, and ReLU in the pooler.
        initializer_range: Standard deviation of the truncated normal initializer.
        layer_norm_eps: Epsilon of layer normalization.
        is_decoder: Whether attention is causal, so that a token attends to itself and earlier
            tokens. JSON files contain the key only if the value is true.

    Raises:
        ValueError: If a size is not a positive integer, a rate is outside [0, 1),
            ``hidden_size`` is not a multiple of ``num_attention_heads``, or the activation is
            unknown.

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=8000)
    >>> config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    (128, 2, 2)
    >>> BertConfig(hidden_size=100, num_attention_heads=12)
    Traceback (most recent call last):
    ...
    ValueError: hidden_size=100: expected a multiple of num_attention_heads=12.
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
                raise ValueError(f"{field.name}={quote(value)}: expected {expected}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name}={getattr(self, name)}: expected a number in [0, 1).")
        for name in ("initializer_range", "layer_norm_eps"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name}={getattr(self, name)}: expected a positive number.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size}: expected a multiple of "
                f"num_attention_heads={self.num_attention_heads}."
            )
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"hidden_act={quote(self.hidden_act)}: expected one of {', '.join(ACTIVATIONS)}."
            )

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> Self:
        """Returns the config of a published size, with the vocabulary size of uncased models.

        Args:
            name: ``bert-tiny``, ``-mini``, ``-small``, ``-medium``, ``-base``, ``-large``, or one
                of the 24 miniatures, ``bert-L{2,4,6,8,10,12}-H{128,256,512,768}``.
            **overrides: Values of other fields, such as ``vocab_size``.

        Raises:
            ValueError: If the name is not a preset.

        >>> BertConfig.from_preset("bert-L8-H512") == BertConfig.from_preset("bert-medium")
        True
        """
        if name not in PRESETS:
            raise ValueError(
                f"Unknown preset {name!r}: expected one of {', '.join(_NAMED_SIZES)}, or a "
                "miniature bert-L{2,4,6,8,10,12}-H{128,256,512,768}."
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
        """Returns the config of a parsed ``bert_config.json`` or Hugging Face ``config.json``.

        Keys that do not concern the encoder (``architectures``, ``id2label``, ...) are ignored.
        Keys that change the encoder's computation must have the published value.

        Args:
            values: Parsed JSON object.
            source: Name of the file for error messages.

        Raises:
            ValueError: If a size is missing, invalid or too large, or the model is not a BERT
                model.

        >>> BertConfig.from_dict({"vocab_size": 100, "model_type": "roberta"}, "config.json")
        Traceback (most recent call last):
        ...
        ValueError: config.json: model_type='roberta': expected 'bert'. Other models are not \
supported.
        """
        for key, published in ONLY_AS_PUBLISHED.items():
            if values.get(key, published) != published:
                raise ValueError(
                    f"{source}: {key}={quote(values[key])}: expected {published!r}. Other models "
                    "are not supported."
                )
        if "vocab_size" not in values:
            raise ValueError(
                f"{source}: expected the keys of a bert_config.json, such as vocab_size, got "
                f"{listed(sorted(values))}."
            )
        for name, limit in _MAX_VALUES.items():
            size = values.get(name)
            if isinstance(size, int) and size > limit:
                raise ValueError(f"{source}: {name}={quote(size)}: expected at most {limit:,}.")
        names = {field.name for field in dataclasses.fields(cls)}
        try:
            return cls(**{key: value for key, value in values.items() if key in names})
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a ``bert_config.json`` or Hugging Face ``config.json``.

        Raises:
            ValueError: If the file is missing, or is not a BERT config.
        """
        path = os.fspath(path)
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_JSON_BYTES + 1)
        except OSError as error:
            raise ValueError(f"Cannot read {path}: {error.strerror}.") from error
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f"{path}: expected a config of at most {MAX_JSON_BYTES:,} bytes.")
        return cls.from_dict(parse_json_object(content, path), source=path)

    @property
    def is_distilbert(self) -> bool:
        """Whether the model is DistilBERT, without segment types and with ReLU in the pooler."""
        return self.type_vocab_size == 0

    @property
    def summary_token(self) -> Literal["cls", "last"]:
        """The token that attends to all others: the last one in a causal model, else the first."""
        return "last" if self.is_decoder else "cls"

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict for JSON, without Booleans that are false."""
        return {k: value for k, value in dataclasses.asdict(self).items() if value is not False}

    def to_json(self) -> str:
        """Returns the contents of a ``bert_config.json``."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
