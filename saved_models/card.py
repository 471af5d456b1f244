"""The model card of an export: its ``README.md``, for whoever finds the directory."""

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.modeling.base import BertModel
from bert_tf.reports import cards

from . import limits, serving_files
from .comparison import Differences, describe
from .embeddings import ENCODER, TRAINING
from .samples import Sample
from .served import Served, Signature

_TRUNCATED = (
    "Where the output `truncated` is true, text that did not fit into a row has lost its end (of a "
    "pair, the longer one), and the answer is about what was left. Bytes that are not UTF-8 are "
    "left out; the output `invalid_utf8` is then true."
)
_LOADED = """\
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load("path/of/this/version")
answer = model.signatures["serving_default"]({arguments})
print({{name: value.numpy() for name, value in answer.items()}})"""
_DOCKER = (
    "docker run -p 8500:8500 -p 8501:8501 -v DIR:/models/{name} -e MODEL_NAME={name} "
    "tensorflow/serving"
)
_BESIDE = (
    f"`{serving_files.WARM_UP}`: the server asks these before it takes the version into service.",
    f"`{serving_files.BATCHING}`: how requests are joined into batches; read its comments.",
    f"`{serving_files.MODEL_CONFIG}`: for a server of several models.",
    "`assets.extra/samples/`: of each signature, requests with their answers, as REST's JSON and "
    "as gRPC's `PredictRequest` and `PredictResponse`. `python -m bert_tf.verify DIR` asks them "
    "again.",
    "`assets.extra/vocab.txt`, `assets.extra/bert_config.json`: the tokenizer's pieces (it is in "
    "the graph, and does not read them) and the model's sizes.",
)


def model_card(
    name: str,
    served: Served,
    signatures: Mapping[str, Signature],
    traced: Mapping[str, Any],
    endpoints: Collection[str],
    samples: Sequence[Sample],
    oldest_serving: str,
    differences: Differences,
) -> str:
    """The text, Markdown, with the first row of ``serving_default``'s first sample as its example.

    ``traced`` are the signatures' concrete functions, for the outputs' shapes; ``endpoints`` the
    names of ``embeddings.endpoints``.
    """
    example = next(sample for sample in samples if sample.signature == "serving_default")
    request = json.dumps(example.rest_request(rows=1), ensure_ascii=False)
    address = f"http://localhost:8501/v1/models/{name}:predict"
    return cards.card(
        name,
        f"A {type(served.model).__name__}. {signatures['serving_default'].summary}",
        cards.bullets(_facts(served, oldest_serving, differences)),
        _TRUNCATED,
        cards.section(
            "In Python",
            "Loading needs `tensorflow`, and `tensorflow_text`, which is imported only for its "
            "operations:",
            cards.code(_LOADED.format(arguments=_arguments(example)), "python"),
            "`model.encoder` takes a dict of `input_word_ids`, `input_mask` and `input_type_ids`, "
            "`model.text_encoder` strings; they return the encoder's outputs by TensorFlow Hub's "
            "names. In Keras,",
            *_layer(endpoints),
        ),
        cards.section(
            "In TensorFlow Serving",
            "DIR is the directory above this version's:",
            cards.code(_DOCKER.format(name=name)),
            "Append `--enable_batching --enable_per_model_batching_parameters` for many clients at "
            "once. Then ask it:",
            cards.code(f"curl {address} -d {shlex.quote(request)}"),
            cards.bullets(_BESIDE),
        ),
        cards.section(
            "Signatures",
            "B is the batch, of any size; ? a size that depends on the request. Rows that are "
            'shorter than others of their batch are padded with "", -1 or 0, and a count says '
            "where that begins.",
            *(
                _signature(key, signature, traced[key].structured_outputs)
                for key, signature in signatures.items()
            ),
        ),
    )


def parameters(model: BertModel) -> str:
    """What a card says of a model's size."""
    config = model.config
    return (
        f"{model.count_params():,} parameters: {config.num_hidden_layers} layers, hidden size "
        f"{config.hidden_size}, {config.num_attention_heads} attention heads."
    )


def prefixes(model: BertModel) -> str:
    """What a card says of the texts before a query and a document; "" where there are none."""
    embedding = model.sentence_embedding
    found = () if embedding is None else (embedding.query_prefix, embedding.document_prefix)
    return f"The prefixes of queries and of documents: {cards.names(found)}." if any(found) else ""


def _facts(served: Served, oldest_serving: str, differences: Differences) -> Iterator[str]:
    model, options = served.model, served.options
    yield parameters(model)
    yield cards.vocabulary(served.tokenizer.vocab_size, served.tokenizer.do_lower_case)
    yield f"Computes in {options.precision}; its weights are stored as {options.weights}."
    lines = [
        f"\n  - `{output}` of `{what}`: {describe(difference)}"
        for what, by_output in differences.items()
        for output, difference in by_output.items()
    ]
    if lines:
        yield f"Its samples' answers differ from float32's:{''.join(lines)}"
    yield f"Rows have at most {served.max_seq_length} tokens, [CLS] and [SEP] among them."
    yield limits.sentence(options)
    if model.labels:
        several = ", any number of which may hold at once" if model.multi_label else ""
        yield f"Classes: {cards.names(model.labels)}{several}."
    if pooled := cards.pooling(getattr(model, "pooling", "cls")):
        yield pooled
    elif (embedding := model.sentence_embedding) is not None:
        scaled = ", scaled to length 1" if embedding.normalize else ""
        cut = f", cut to {embedding.dims} numbers" if embedding.dims else ""
        yield (
            "`sentence_embedding` is the vector that the model was trained to give: pooling by "
            f"{embedding.pooling}{cut}{scaled}."
        )
        yield prefixes(model)
    yield f"Runs in TensorFlow Serving {oldest_serving} and later."


def _layer(endpoints: Collection[str]) -> tuple[str, str]:
    """The export as a layer of Keras: its call, and what can be done with it."""
    called, what = f'call_endpoint="{ENCODER}"', "that is frozen"
    if ENCODER + TRAINING in endpoints:
        called += f', call_training_endpoint="{ENCODER + TRAINING}"'
        what = (
            "that can be trained further, with Adam after "
            "`model.optimizer.build(model.trainable_variables)`"
        )
    call = f'keras.layers.TFSMLayer("path/of/this/version", {called})'
    return cards.code(call, "python"), f"is a layer {what}."


def _arguments(sample: Sample) -> str:
    """A call's arguments in Python, of a sample's first row."""
    parts = []
    for name, value in sample.inputs.items():
        row = value[:1].tolist()
        text = row[0].decode(errors="replace") if isinstance(row[0], bytes) else row[0]
        parts.append(f"{name}=tf.constant([{text!r}])")
    return ", ".join(parts)


def _signature(name: str, signature: Signature, outputs: Mapping[str, tf.TensorSpec]) -> str:
    lines = []
    for title, specs in (("Inputs", signature.inputs), ("Outputs", outputs)):
        described = ", ".join(
            f"`{key}` {_shape(spec.shape)} {spec.dtype.name}" for key, spec in specs.items()
        )
        lines.append(f"{title}: {described}")
    return cards.section(f"`{name}`", signature.summary, cards.bullets(lines), level=3)


def _shape(shape: tf.TensorShape) -> str:
    """A shape for people: the batch by its letter, other open sizes by a question mark."""
    sizes = ["B", *("?" if size is None else str(size) for size in shape.as_list()[1:])]
    return f"({', '.join(sizes)})" if len(sizes) > 1 else "(B,)"
