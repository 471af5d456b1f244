"""Signatures of an encoder: embeddings, hidden states and TensorFlow Hub endpoints.

The inputs and outputs of signatures are flat, as servers require. The attributes of a loaded export
include functions with the inputs and outputs of a TensorFlow Hub encoder
(https://www.tensorflow.org/hub/common_saved_model_apis/text).
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling.pooling import normalize, pool
from bert_tf.pipelines.packing import pack

from .rows import run_rows, text_rows
from .served import Outputs, Served
from .signatures import (
    ROWS_OF_STRINGS,
    SECOND_TEXTS,
    STRINGS,
    TEXTS,
    Signature,
    Signatures,
    id_signature,
    odd_texts,
    text_signature,
)

_HUB_NAMES = (features.SEQUENCE_OUTPUT, features.POOLED_OUTPUT, features.ENCODER_OUTPUTS)
# Roles of a text, named after the prefix attributes of ``SentenceEmbedding``.
QUERY, DOCUMENT = "query_prefix", "document_prefix"


def signatures(served: Served) -> Signatures:
    """Returns the signatures of a ``BertEncoder``; sentence embedding models add ``similarity``."""
    embedding = text_signature(served, embed, "Returns one vector per text.")
    tokens = id_signature(served, function=encode_tokens, returned="the encoder's hidden states.")
    by_name = {"serving_default": embedding, "tokens": tokens}
    prefixes = served.model.sentence_embedding
    if prefixes is None:
        return by_name
    by_name |= {"embed": embedding, "similarity": _similarity_signature(served)}
    if prefixes.query_prefix != prefixes.document_prefix:
        by_name["embed_documents"] = text_signature(
            served,
            functools.partial(embed, role=DOCUMENT),
            "Returns one vector per document, with the document prefix; `embed` is for queries.",
        )
    return by_name


def _similarity_signature(served: Served) -> Signature:
    texts, odd = TEXTS, odd_texts(served)
    return Signature(
        compare,
        {"text": STRINGS, "others": ROWS_OF_STRINGS},
        (
            {"text": texts, "others": [[text, texts[0]] for text in SECOND_TEXTS]},
            {"text": odd, "others": [[text, texts[1]] for text in odd[::-1]]},
        ),
        "Returns the cosine similarity of each text to `others`: one row of others per text, or "
        "one row for all texts.",
    )


def transformers_outputs(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Returns the encoder's outputs for ids, (B, S) int32, with their names in transformers."""
    outputs = served.encode(inputs)
    names = {features.SEQUENCE_OUTPUT: "last_hidden_state", features.POOLED_OUTPUT: "pooler_output"}
    return {
        name: tf.cast(outputs[key], tf.float32) for key, name in names.items() if key in outputs
    }


# === Texts ===


def embed(served: Served, text: tf.Tensor, role: str = QUERY) -> Outputs:
    """Embeds texts, (B,) string, with the model's prefix for the role.

    Returns:
        ``mean_output`` (the mean over all tokens, including [CLS] and [SEP]) and ``cls_output``,
        shape (B, H); with a pooler, ``pooled_output``, shape (B, H); for sentence embedding models,
        ``sentence_embedding``, shape (B, D); ``truncated``, shape (B,) bool. A causal model returns
        ``last_output`` in place of ``cls_output``, because its [CLS] sees no other token.
    """
    rows, truncated = text_rows(served, _with_prefix(served, text, role))
    vectors = run_rows(served, rows, _vectors)
    return {**vectors, "truncated": truncated}


def _vectors(served: Served, inputs: Outputs) -> Outputs:
    """Returns the vectors for some rows.

    The option ``normalize`` does not apply to ``pooled_output``, because heads expect it unscaled,
    nor to ``sentence_embedding``, which is scaled as in training.
    """
    outputs, mask = served.encode(inputs), inputs[features.INPUT_MASK]
    last = outputs[features.SEQUENCE_OUTPUT]
    answers = {}
    for token in ("mean", served.model.config.summary_token):
        vectors = pool(tf.cast(last, tf.float32), mask, token)
        scaled = normalize(vectors) if served.options.normalize else vectors
        answers[f"{token}_output"] = scaled
    if served.model.sentence_embedding is not None:
        answers["sentence_embedding"] = served.model.embed_states(last, mask)
    if features.POOLED_OUTPUT in outputs:
        answers["pooled_output"] = tf.cast(outputs[features.POOLED_OUTPUT], tf.float32)
    return answers


def compare(served: Served, text: tf.Tensor, others: tf.Tensor) -> Outputs:
    """Compares queries, (B,) string, with documents.

    Args:
        served: Served model.
        text: Queries, shape (B,) string.
        others: Documents, (B, M) string with one row per query, or (1, M) with one row for all
            queries. A matrix, because servers with batching concatenate the vectors of requests.

    Returns:
        ``similarity``, shape (B, M) float32, and ``truncated``, shape (B,) bool.
    """
    check = tf.debugging.Assert(
        tf.reduce_any(tf.equal(tf.shape(others)[0], [1, tf.size(text)])),
        ["Expected one row of others per text, or one row for all texts."],
    )
    with tf.control_dependencies([check]):
        count = tf.shape(others)
    vectors, truncated = sentence_vectors(served, text)
    flat, cut = sentence_vectors(served, tf.reshape(others, [-1]), DOCUMENT)
    matrices = tf.reshape(flat, [count[0], count[1], flat.shape[-1]])
    cut = tf.reduce_any(tf.reshape(cut, count), 1)
    return {
        "similarity": tf.reduce_sum(vectors[:, None] * matrices, 2),
        "truncated": tf.logical_or(truncated, cut),
    }


def sentence_vectors(
    served: Served, texts: tf.Tensor, role: str = QUERY
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns unit vectors of texts, (B, D) float32, and ``truncated``, (B,) bool."""
    rows, truncated = text_rows(served, _with_prefix(served, texts, role))

    def vectors(served: Served, inputs: Outputs) -> tf.Tensor:
        states = served.encode(inputs)[features.SEQUENCE_OUTPUT]
        return normalize(served.model.embed_states(states, inputs[features.INPUT_MASK]))

    return run_rows(served, rows, vectors), truncated


def _with_prefix(served: Served, texts: tf.Tensor, role: str) -> tf.Tensor:
    """Prepends the model's prefix for a role to texts, (B,) string."""
    prefix = getattr(served.model.sentence_embedding, role, "")
    return tf.strings.join([prefix, texts]) if prefix else texts


# === Token ids ===


def encode_tokens(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Runs the encoder on ids, (B, S) int32, and returns ``hub_outputs`` as a flat dictionary.

    The keys of the blocks' outputs are ``encoder_outputs_0`` and so on, from the lowest block up.
    """
    flat = hub_outputs(served.encode(inputs), inputs, served.model.config)
    for number, block in enumerate(flat.pop(features.ENCODER_OUTPUTS)):
        flat[f"{features.ENCODER_OUTPUTS}_{number}"] = block
    return flat


def hub_outputs(
    outputs: Mapping[str, Any], inputs: Mapping[str, tf.Tensor], config: BertConfig
) -> dict[str, Any]:
    """Returns the outputs of a ``BertEncoder`` in float32, with TensorFlow Hub's names.

    Returns:
        ``sequence_output``, shape (B, S, H); ``pooled_output``, shape (B, H); ``default``, shape
        (B, H), the pooled output or, without a pooler, the hidden state that a pooler would take as
        input; ``encoder_outputs``, a list of the blocks' outputs, shape (B, S, H) each.
    """
    by_name = {
        key: tf.nest.map_structure(lambda value: tf.cast(value, tf.float32), outputs[key])
        for key in _HUB_NAMES
        if key in outputs
    }
    states = by_name[features.SEQUENCE_OUTPUT]
    default = pool(states, inputs[features.INPUT_MASK], config.summary_token)
    return {"default": by_name.get(features.POOLED_OUTPUT, default), **by_name}


# === TensorFlow Hub's endpoints ===


_Encode = Callable[[Mapping[str, tf.Tensor]], Any]
_IDS = {
    key: tf.TensorSpec([None, None], feature.dtype, name=key)
    for key, feature in features.ENCODER_FEATURES.items()
}


def endpoints(served: Served) -> dict[str, Any]:
    """Returns the functions that a loaded export has as attributes.

    The functions map ids or texts to ``hub_outputs``; those for texts add ``input_mask``. Functions
    whose names end in ``_training`` apply dropout. All of these functions share the variables, so
    training with one changes the outputs of the others. ``serving_default`` (in bfloat16, every
    signature) reads copies of weights that are created when the export is loaded.
    """
    encoder = served.model.encoder
    inference: _Encode = served.encode
    if served.model.compute_dtype != "float32":
        inference = _traced(lambda inputs: encoder(inputs, training=False))
    training = _traced(lambda inputs: encoder(inputs, training=True))
    return {**_endpoints(served, inference), **_endpoints(served, training, "_training")}


def _traced(encode: _Encode) -> _Encode:
    return tf.function(encode, input_signature=[_IDS], autograph=False)


def _endpoints(served: Served, encode: _Encode, suffix: str = "") -> dict[str, Any]:
    def on_ids(inputs: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        return hub_outputs(encode(inputs), inputs, served.model.config)

    def on_texts(text: tf.Tensor) -> dict[str, Any]:
        rows, _ = text_rows(served, text)
        # The maximum of an empty tensor is the smallest integer.
        width = tf.maximum(tf.reduce_max(rows.lengths), 2)
        inputs = pack(rows.ids, rows.segments, width, served.tokenizer)
        return {**on_ids(inputs), features.INPUT_MASK: inputs[features.INPUT_MASK]}

    strings = tf.TensorSpec([None], tf.string, name="text")
    return {
        f"encoder{suffix}": _traced(on_ids),
        f"text_encoder{suffix}": tf.function(on_texts, input_signature=[strings], autograph=False),
    }
