"""Signatures of the encoder: embeddings, its own outputs, TensorFlow Hub's endpoints.

Next to the signatures, which are flat and for servers, a loaded export has functions as attributes
that take and return what a Hub encoder does
(https://www.tensorflow.org/hub/common_saved_model_apis/text):

    loaded = tf.saved_model.load(path)  # keep it: it holds the variables
    states = loaded.encoder(dict(input_word_ids=..., input_mask=..., input_type_ids=...))

``keras.layers.TFSMLayer(path, call_endpoint="encoder", call_training_endpoint="encoder_training")``
is a layer that can be trained further; ``text_encoder`` and ``text_encoder_training`` take strings.
Keras names its variables with a colon, which no name in a graph may have: an optimizer with slots
of its own (Adam) is built before ``fit`` traces, by ``optimizer.build(model.trainable_variables)``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling.layers import normalize, pool
from bert_tf.pipelines.packing import pack_from_table

from .rows import on_rows, text_rows
from .served import Outputs, Served

ENCODER = "encoder"
TEXT_ENCODER = "text_encoder"
TRAINING = "_training"  # behind an endpoint's name
# Purposes of a text, which are the prefixes of ``SentenceEmbedding``.
QUERY, DOCUMENT = "query_prefix", "document_prefix"


# === Texts ===


def embed(served: Served, text: tf.Tensor, role: str = QUERY) -> Outputs:
    """Embeds texts, (B,) string, behind the model's prefix of the role.

    Returns ``mean_output``, over [CLS] and [SEP] too, ``cls_output`` and ``pooled_output`` (B, H);
    of models of sentence embeddings ``sentence_embedding`` (B, D); ``truncated`` (B,). A causal
    model, whose [CLS] sees no other token, has ``last`` in place of ``cls``.
    """
    rows, truncated = text_rows(served, _with_prefix(served, text, role))
    vectors = on_rows(rows, lambda inputs: _vectors(served, served.encode(inputs), inputs))
    return {**vectors, "truncated": truncated}


def _vectors(served: Served, outputs: Mapping[str, Any], inputs: Outputs) -> Outputs:
    """The vectors of some rows, from the encoder's outputs.

    ``normalize`` leaves ``pooled_output`` as it is, which a head was trained to read, and
    ``sentence_embedding``, which is scaled as it was in training.
    """

    def pooled(states: tf.Tensor, pooling: str) -> tf.Tensor:
        vectors = pool(tf.cast(states, tf.float32), inputs[features.INPUT_MASK], pooling)
        return normalize(vectors) if served.options.normalize else vectors

    last = outputs[features.SEQUENCE_OUTPUT]
    poolings = ("mean", served.model.config.summary_token)
    answers = {f"{pooling}_output": pooled(last, pooling) for pooling in poolings}
    if served.vectors is not None:
        answers["sentence_embedding"] = served.vectors(last, inputs[features.INPUT_MASK])
    if features.POOLED_OUTPUT in outputs:
        answers["pooled_output"] = tf.cast(outputs[features.POOLED_OUTPUT], tf.float32)
    return answers


def compare(served: Served, text: tf.Tensor, others: tf.Tensor) -> Outputs:
    """Compares texts (B,), queries, with others, documents: ``similarity`` (B, M), ``truncated``.

    ``others`` are (B, M), each text's own, or (1, M), the same for all: a matrix, so that a server
    never joins the lists of two requests into one.
    """
    check = tf.debugging.Assert(
        tf.reduce_any(tf.equal(tf.shape(others)[0], [1, tf.size(text)])),
        ["Expected a row of others for each text of the request, or one row for all."],
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
    """Texts, (B,) string, to their directions, (B, D) float32 of length 1; which were cut, (B,)."""
    rows, truncated = text_rows(served, _with_prefix(served, texts, role))

    def vectors(inputs: Outputs) -> tf.Tensor:
        states = served.encode(inputs)[features.SEQUENCE_OUTPUT]
        return normalize(served.vectors(states, inputs[features.INPUT_MASK]))

    return on_rows(rows, vectors), truncated


def _with_prefix(served: Served, texts: tf.Tensor, role: str) -> tf.Tensor:
    """Texts, (B,) string, behind what the model was trained to read before a query or document."""
    prefix = getattr(served.model.sentence_embedding, role, "")
    return tf.strings.join([prefix, texts]) if prefix else texts


# === Ids, for clients with a tokenizer of their own ===


def encode_tokens(
    served: Served, input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
) -> Outputs:
    """Runs the encoder on ids, (B, S) int32; ``flat_outputs`` has what it gives."""
    outputs = served.encode(_by_key(input_word_ids, input_mask, input_type_ids))
    return flat_outputs(outputs, input_mask, served.model.config)


def flat_outputs(outputs: Mapping[str, Any], mask: tf.Tensor, config: BertConfig) -> Outputs:
    """The outputs of a ``BertEncoder`` in float32 by the names of TensorFlow Hub's flat signatures.

    ``sequence_output`` (B, S, H); ``pooled_output`` (B, H); ``default`` (B, H), the pooled output
    or what a pooler would read; ``encoder_outputs_0`` (B, S, H) and so on, the lowest block first.
    """
    states = tf.cast(outputs[features.SEQUENCE_OUTPUT], tf.float32)
    flat = {"default": pool(states, mask, config.summary_token), "sequence_output": states}
    if features.POOLED_OUTPUT in outputs:
        pooled = tf.cast(outputs[features.POOLED_OUTPUT], tf.float32)
        flat |= {"default": pooled, "pooled_output": pooled}
    for number, block in enumerate(outputs[features.ENCODER_OUTPUTS]):
        flat[block_name(number)] = tf.cast(block, tf.float32)
    return flat


def block_name(number: int) -> str:
    """The name of a block's states, the lowest number 0."""
    return f"{features.ENCODER_OUTPUTS}_{number}"


def call_on_tokens(served: Served, name: str, **inputs: tf.Tensor) -> Outputs:
    """Runs a task's model on its features, (B, S) or (B, K, S) int32: its outputs in float32."""
    outputs = served.call(inputs)
    by_name = outputs if isinstance(outputs, Mapping) else {name: outputs}
    return {key: tf.cast(value, tf.float32) for key, value in by_name.items()}


def _by_key(*ids: tf.Tensor) -> Outputs:
    return dict(zip(features.ENCODER_FEATURES, ids, strict=True))


# === TensorFlow Hub's endpoints ===


def endpoints(served: Served) -> dict[str, Any]:
    """The functions that a loaded export has as attributes: ids or texts to ``flat_outputs``.

    There the blocks are a list, ``encoder_outputs``, and ``text_encoder`` adds ``input_mask``. The
    endpoints for training have dropout. All read the variables, so that each sees what another has
    trained; signatures that compute in bfloat16 read a copy, made when the export is loaded.
    """
    encoder = served.model.encoder
    inference: _Encode = served.encode
    if served.options.precision != "float32":
        inference = _traced(lambda inputs: encoder(inputs, training=False))
    training = _traced(lambda inputs: encoder(inputs, training=True))
    return {**_endpoints(served, inference), **_endpoints(served, training, TRAINING)}


_Encode = Callable[[Mapping[str, tf.Tensor]], Any]
_IDS = {
    key: tf.TensorSpec([None, None], feature.dtype, name=key)
    for key, feature in features.ENCODER_FEATURES.items()
}


def _traced(encode: _Encode) -> _Encode:
    return tf.function(encode, input_signature=[_IDS], autograph=False)


def _endpoints(served: Served, encode: _Encode, suffix: str = "") -> dict[str, Any]:
    config = served.model.config

    def on_ids(inputs: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        outputs = encode(inputs)
        found: dict[str, Any] = flat_outputs(outputs, inputs[features.INPUT_MASK], config)
        blocks = range(len(outputs[features.ENCODER_OUTPUTS]))
        found[features.ENCODER_OUTPUTS] = [found.pop(block_name(number)) for number in blocks]
        return found

    def on_texts(text: tf.Tensor) -> dict[str, Any]:
        rows, _ = text_rows(served, text)
        # The maximum over no rows is the least integer.
        inputs = pack_from_table(
            rows.table, rows.segments, tf.maximum(tf.reduce_max(rows.lengths), 2)
        )
        return {**on_ids(inputs), features.INPUT_MASK: inputs[features.INPUT_MASK]}

    strings = tf.TensorSpec([None], tf.string, name="text")
    return {
        ENCODER + suffix: tf.function(on_ids, input_signature=[_IDS], autograph=False),
        TEXT_ENCODER + suffix: tf.function(on_texts, input_signature=[strings], autograph=False),
    }
