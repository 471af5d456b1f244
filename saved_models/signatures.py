"""The signatures of an export: which heads a model is served with, under which names."""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import (
    MODEL_CLASSES,
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel

from . import samples
from .classification import choose, classify, label_names, next_sentence, regress
from .embeddings import call_on_tokens, check_layers, embed, encode_tokens
from .fill_mask import fill_masks
from .question_answering import answer
from .served import Outputs, Served, Signature
from .tagging import find_entities, tag_words

SERVING_DEFAULT = "serving_default"

Signatures = dict[str, Signature]

_STRINGS = tf.TensorSpec([None], tf.string)
_ROWS_OF_STRINGS = tf.TensorSpec([None, None], tf.string)
_IDS_SUMMARY = "Takes the ids of a tokenizer of the client's own, and returns "


def model_signatures(served: Served) -> Signatures:
    """What a server answers with a model, by name, ``serving_default`` first.

    | model                | serving_default | next to it                                       |
    |----------------------|-----------------|--------------------------------------------------|
    | `BertPretrainer`     | fill-mask       | `embed`, `tokens`, `next_sentence` with its head |
    | `BertEncoder`        | embeddings      | `tokens`                                         |
    | `BertClassifier`,    | `text`, or with | `text`, `pair`, `tokens`                         |
    | `BertRegressor`      | `pair` `pair`   |                                                  |
    | `BertTokenClassifier`| entities        | `words`, `tokens`                                |
    | `BertSpanPredictor`  | answers         | `tokens`                                         |
    | `BertMultipleChoice` | choices         | `tokens`                                         |

    A pre-trained model without the masked-LM head answers embeddings by default. Two names of one
    function are one ``Signature`` object.

    Raises:
        ValueError: the model is none of these, an option names a layer that it lacks, or the name
            of a class is no text.
    """
    for model_class, (make_signatures, _) in _BY_CLASS.items():
        if isinstance(served.model, model_class):
            return _reporting_invalid_bytes(make_signatures(served))
    known = ", ".join(model_class.__name__ for model_class in _BY_CLASS)
    raise ValueError(f"{type(served.model).__name__} cannot be served: expected one of {known}.")


def classes_with_option(option: str) -> list[type[BertModel]]:
    """The classes to whose models an option means something; [] where it does to every model's."""
    return [
        model_class
        for model_class in MODEL_CLASSES.values()
        if model_class in _BY_CLASS and option in _BY_CLASS[model_class][1]
    ]


def _reporting_invalid_bytes(signatures: Signatures) -> Signatures:
    """The signatures, those that take strings with the output ``invalid_utf8`` (B,) bool."""
    found: dict[int, Signature] = {}
    for signature in signatures.values():
        takes_strings = any(spec.dtype == tf.string for spec in signature.inputs.values())
        function = functools.partial(_report_invalid_bytes, signature.function)
        found[id(signature)] = (
            dataclasses.replace(signature, function=function) if takes_strings else signature
        )
    return {name: found[id(signature)] for name, signature in signatures.items()}


def _report_invalid_bytes(function: Callable[..., Outputs], **inputs: tf.Tensor) -> Outputs:
    outputs = function(**inputs)
    # Behind the function, which refuses columns of different lengths.
    with tf.control_dependencies(list(outputs.values())):
        rows = []
        for values in inputs.values():
            kept = tf.strings.unicode_transcode(values, "UTF-8", "UTF-8", errors="ignore")
            lost = kept != values
            rows.append(tf.reduce_any(lost, 1) if values.shape.rank == 2 else lost)
        return {**outputs, "invalid_utf8": functools.reduce(tf.logical_or, rows)}


def _of_pretrainer(served: Served) -> Signatures:
    found = _of_encoder(served)
    if served.model.mlm:
        filling = Signature(
            functools.partial(fill_masks, served),
            {"text": _STRINGS},
            samples.requests_of_masks(served),
            "Guesses what each literal [MASK] in a text stands for; no other signature gives "
            "[MASK] a meaning.",
        )
        found = {
            SERVING_DEFAULT: filling,
            "embed": found[SERVING_DEFAULT],
            "tokens": found["tokens"],
        }
    if served.model.nsp:
        found["next_sentence"] = Signature(
            functools.partial(next_sentence, served),
            {"first": _STRINGS, "second": _STRINGS},
            samples.requests_of_texts(served, "first", "second"),
            "Judges whether the second text follows the first in some document.",
        )
    return found


def _of_encoder(served: Served) -> Signatures:
    check_layers(served)
    embedding = Signature(
        functools.partial(embed, served),
        {"text": _STRINGS},
        samples.requests_of_texts(served),
        "Embeds texts, a vector each.",
    )
    return {
        SERVING_DEFAULT: embedding,
        "tokens": _on_ids(
            functools.partial(encode_tokens, served), served, "the encoder's hidden states."
        ),
    }


def _of_classifier(served: Served) -> Signatures:
    label_names(served)
    classes = "the classes that hold" if served.model.multi_label else "the class"
    return _of_texts_or_pairs(classify, served, classes, "logits")


def _of_regressor(served: Served) -> Signatures:
    return _of_texts_or_pairs(regress, served, "the number", "value")


def _of_texts_or_pairs(
    head: Callable[..., Outputs], served: Served, found: str, raw_output: str
) -> Signatures:
    function = functools.partial(head, served)
    text = Signature(
        function,
        {"text": _STRINGS},
        samples.requests_of_texts(served),
        f"Finds {found} of a text.",
    )
    pair = Signature(
        function,
        {"text": _STRINGS, "text_pair": _STRINGS},
        samples.requests_of_texts(served, "text", "text_pair"),
        f"Finds {found} of a pair of texts.",
    )
    return {
        SERVING_DEFAULT: pair if served.options.pair else text,
        "text": text,
        "pair": pair,
        "tokens": _logits(served, raw_output),
    }


def _of_token_classifier(served: Served) -> Signatures:
    label_names(served)
    entities = Signature(
        functools.partial(find_entities, served),
        {"text": _STRINGS},
        samples.requests_of_texts(served),
        "Finds the entities in a text.",
    )
    words = Signature(
        functools.partial(tag_words, served),
        {"words": _ROWS_OF_STRINGS},
        samples.requests_of_words(served),
        'Tags each word of a text that is split already; "" is no word.',
    )
    return {SERVING_DEFAULT: entities, "words": words, "tokens": _logits(served, "logits")}


def _of_span_predictor(served: Served) -> Signatures:
    answering = Signature(
        functools.partial(answer, served),
        {"question": _STRINGS, "context": _STRINGS},
        samples.requests_of_questions(served),
        "Answers a question by a span of its context, which may be of any length.",
    )
    return {SERVING_DEFAULT: answering, "tokens": _logits(served, "logits")}


def _of_multiple_choice(served: Served) -> Signatures:
    choosing = Signature(
        functools.partial(choose, served),
        {"context": _STRINGS, "choices": _ROWS_OF_STRINGS},
        samples.requests_of_choices(served),
        "Finds which of several texts fits a context.",
    )
    return {SERVING_DEFAULT: choosing, "tokens": _logits(served, "logits", choices=True)}


def _logits(served: Served, name: str, choices: bool = False) -> Signature:
    function = functools.partial(call_on_tokens, served, name)
    return _on_ids(function, served, "what the model makes of them.", choices)


def _on_ids(
    function: Callable[..., Outputs], served: Served, returned: str, choices: bool = False
) -> Signature:
    contract = features.CHOICE_FEATURES if choices else features.ENCODER_FEATURES
    return Signature(
        function,
        {
            key: tf.TensorSpec([None] * len(feature.dimensions), feature.dtype)
            for key, feature in contract.items()
        },
        samples.requests_of_ids(served, choices),
        _IDS_SUMMARY + returned,
    )


_EMBEDDING_OPTIONS = ("layers", "normalize")
_SPAN_OPTIONS = ("doc_stride", "max_query_length", "n_best", "max_answer_length")
# By the class of a model: who makes its signatures, and the options of ``ExportOptions`` that mean
# something to it and not to every model.
_BY_CLASS: dict[type[BertModel], tuple[Callable[[Served], Signatures], tuple[str, ...]]] = {
    BertPretrainer: (_of_pretrainer, ("top_k", *_EMBEDDING_OPTIONS)),
    BertClassifier: (_of_classifier, ("pair",)),
    BertRegressor: (_of_regressor, ("pair",)),
    BertTokenClassifier: (_of_token_classifier, ()),
    BertSpanPredictor: (_of_span_predictor, _SPAN_OPTIONS),
    BertMultipleChoice: (_of_multiple_choice, ()),
    BertEncoder: (_of_encoder, _EMBEDDING_OPTIONS),
}
