"""The signatures of an export: the heads' functions, traced for batches of any size."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from . import heads

# [CLS] A [SEP] B [SEP], with a token in each segment.
SHORTEST_SEQUENCE = 5


def check_max_seq_length(max_seq_length: int, max_position_embeddings: int) -> None:
    """Checks that rows have room for a pair, and are no longer than the model's positions.

    Raises:
        ValueError: they are not.

    >>> check_max_seq_length(1024, 512)
    Traceback (most recent call last):
    ...
    ValueError: max_seq_length is 1024: expected 5 to 512, the model's max_position_embeddings.
    """
    if not SHORTEST_SEQUENCE <= max_seq_length <= max_position_embeddings:
        raise ValueError(
            f"max_seq_length is {max_seq_length}: expected {SHORTEST_SEQUENCE} to "
            f"{max_position_embeddings}, the model's max_position_embeddings."
        )


def signature(function: Callable[..., heads.Outputs], inputs: Mapping[str, tf.TensorSpec]) -> Any:
    """Traces a function of ``heads``, its other arguments bound, as a signature.

    Args:
        function: takes the inputs by name, and returns the outputs by name.
        inputs: shape and dtype of each input.

    Returns:
        A concrete function that takes the inputs by name, for ``tf.saved_model.save``.
    """
    specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()
    }
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def pretraining_signatures(
    model: BertPretrainer, tokenizer: BertTokenizer, *, max_seq_length: int, top_k: int = 5
) -> dict[str, Any]:
    """The signatures of a pre-trained model: of fill-mask, embeddings, next sentence, tokens.

    Args:
        model: a pre-trained model, its variables those that the signatures will read.
        tokenizer: the one it was trained with.
        max_seq_length: the most tokens of a row.
        top_k: the guesses for each mask.

    Returns:
        Concrete functions: ``serving_default`` (``heads.fill_masks``), ``embed``, ``tokens``, and
        ``next_sentence`` where the model has that head.

    Raises:
        ValueError: the model has no masked-LM head, the vocabulary is larger than the model's, or
            ``max_seq_length`` or ``top_k`` is out of its range.
    """
    if not model.mlm:
        raise ValueError(
            f"{model.name} has no masked-LM head to fill masks with: expected a BertPretrainer "
            "that was made with mlm=True."
        )
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    check_max_seq_length(max_seq_length, model.config.max_position_embeddings)
    if top_k < 1:
        raise ValueError(f"top_k is {top_k}: expected 1 or more guesses for each mask.")
    strings = tf.TensorSpec([None], tf.string)
    ids = tf.TensorSpec([None, None], tf.int32)
    tokenizer = _traced_once(tokenizer)
    found = {
        "serving_default": signature(
            lambda text: heads.fill_masks(
                model, tokenizer, text, max_seq_length=max_seq_length, top_k=top_k
            ),
            {"text": strings},
        ),
        "embed": signature(
            lambda text: heads.embed(model.encoder, tokenizer, text, max_seq_length=max_seq_length),
            {"text": strings},
        ),
        "tokens": signature(
            lambda **inputs: heads.encode_tokens(model.encoder, **inputs),
            dict.fromkeys(features.ENCODER_FEATURES, ids),
        ),
    }
    if model.nsp:
        found["next_sentence"] = signature(
            lambda first, second: heads.next_sentence(
                model, tokenizer, first, second, max_seq_length=max_seq_length
            ),
            {"first": strings, "second": strings},
        )
    return found


def _traced_once(tokenizer: BertTokenizer) -> BertTokenizer:
    """A tokenizer whose graph is traced, and written, once for all signatures that call it."""
    traced = copy.copy(tokenizer)
    strings = tf.TensorSpec([None], tf.string)
    traced.__dict__["tokenize"] = tf.function(tokenizer.tokenize, [strings], autograph=False)
    return traced
