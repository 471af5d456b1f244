"""The signatures of an export: which heads a model is served with, under which names."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertFeatureTagger,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel

from . import limits, samples
from .classification import (
    choose,
    classify,
    classify_examples,
    label_names,
    next_sentence,
    regress,
    regress_examples,
    text_features,
)
from .embeddings import DOCUMENT, call_on_tokens, compare, embed, encode_tokens
from .fill_mask import fill_masks, fills_masks
from .question_answering import answer
from .served import Outputs, Served, Signature
from .tagging import find_entities, tag_words

SERVING_DEFAULT = "serving_default"
INT64_SERVING = "int64_serving"  # transformers' signature of ids that are int64
STRINGS = "strings"  # what serving_default is where it has not transformers' signature

Signatures = dict[str, Signature]

_TAGGERS = (BertTokenClassifier, BertFeatureTagger)
_STRINGS = tf.TensorSpec([None], tf.string)
_ROWS_OF_STRINGS = tf.TensorSpec([None, None], tf.string)


def model_signatures(served: Served) -> Signatures:
    """Signatures of a served model, by name, ``serving_default`` first.

    | model                | serving_default | next to it                                       |
    |----------------------|-----------------|--------------------------------------------------|
    | `BertPretrainer`     | fill-mask       | `embed`, `tokens`, `next_sentence` with its head |
    | `BertEncoder`        | embeddings      | `tokens`; with a sentence embedding `embed` and  |
    |                      |                 | `similarity`                                     |
    | `BertClassifier`,    | `text`, or with | `text`, `pair`, `tokens`, `classify`             |
    | `BertRegressor`      | `pair` `pair`   | the same, with `regress` for `classify`          |
    | `BertTokenClassifier`| entities        | `words`, `tokens`                                |
    | `BertFeatureTagger`  | the same        | the same, with `word_index` in `tokens`          |
    | `BertSpanPredictor`  | answers         | `tokens`                                         |
    | `BertMultipleChoice` | choices         | `tokens`                                         |

    A pre-trained model without the masked-LM head, or a causal one, whose head fills no masks,
    answers embeddings by default. Two names of one function are one ``Signature`` object.
    """
    for model_class, heads in _BY_CLASS.items():
        if isinstance(served.model, model_class):
            if isinstance(served.model, (BertClassifier, *_TAGGERS)):
                label_names(served)
            by_name = heads(served) if callable(heads) else heads
            if served.options.transformers_signature:
                theirs = {SERVING_DEFAULT: _theirs(served)}
                theirs[INT64_SERVING] = _theirs(served, tf.int64)
                by_name = {**theirs, STRINGS: by_name[SERVING_DEFAULT], **by_name, **theirs}
            made = {id(head): head.signature(served) for head in by_name.values()}
            default = by_name[SERVING_DEFAULT]
            made[id(default)] = default.signature(served.quick or served)
            return {name: made[id(head)] for name, head in by_name.items()}
    known = ", ".join(model_class.__name__ for model_class in _BY_CLASS)
    raise ValueError(f"{type(served.model).__name__} cannot be served: expected one of {known}.")


@dataclasses.dataclass(frozen=True, eq=False)
class _Head:
    """A signature before there is a model: ``function`` and ``requests`` take what is served."""

    function: Callable[..., Outputs]
    inputs: Mapping[str, tf.TensorSpec]
    requests: Callable[[Served], samples.Requests]
    summary: str
    # TensorFlow Serving's Classify and Regress take signatures without other outputs.
    reports_invalid_bytes: bool = True

    def signature(self, served: Served) -> Signature:
        """The model's; where it takes strings it has the output ``invalid_utf8`` (B,) bool."""
        function = functools.partial(self.function, served)
        takes_strings = any(spec.dtype == tf.string for spec in self.inputs.values())
        if takes_strings and self.reports_invalid_bytes:
            function = functools.partial(_report_invalid_bytes, function)
        options = served.options
        if options.max_rows is not None or (takes_strings and options.max_bytes is not None):
            function = functools.partial(limits.within, options, function)
        requests = limits.fitting(options, self.requests(served))
        return Signature(function, self.inputs, requests, self.summary)


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


def _on_ids(
    function: Callable[..., Outputs],
    returned: str,
    contract: Mapping[str, features.Feature] = features.ENCODER_FEATURES,
) -> _Head:
    inputs = {
        key: tf.TensorSpec([None] * len(feature.dimensions), feature.dtype)
        for key, feature in contract.items()
    }
    requests = functools.partial(samples.requests_of_ids, contract=contract)
    summary = "Takes ids from the client's own tokenizer, and returns " + returned
    return _Head(function, inputs, requests, summary)


def _task_on_ids(
    name: str = "logits", contract: Mapping[str, features.Feature] = features.ENCODER_FEATURES
) -> _Head:
    function = functools.partial(call_on_tokens, name=name)
    return _on_ids(function, "the model's outputs.", contract)


# === Signatures that SavedModels of transformers' TFBert classes had, for their clients ===


_THEIR_NAMES = {
    features.INPUT_WORD_IDS: "input_ids",
    features.INPUT_MASK: "attention_mask",
    features.INPUT_TYPE_IDS: "token_type_ids",
}
_THEIR_STATES = {
    features.SEQUENCE_OUTPUT: "last_hidden_state",
    features.POOLED_OUTPUT: "pooler_output",
}


def _their_inputs(served: Served, dtype: tf.DType = tf.int32) -> dict[str, tf.TensorSpec]:
    """(B, S) integers each, of choices (B, K, S); a DistilBERT has no ``token_type_ids``."""
    shape = [None] * (3 if isinstance(served.model, BertMultipleChoice) else 2)
    names = [*_THEIR_NAMES.values()][: 2 if served.model.config.is_distilbert else 3]
    return {name: tf.TensorSpec(shape, dtype) for name in names}


def _their_answer(served: Served, **given: tf.Tensor) -> Outputs:
    """Runs the model on ids, (B, S) or (B, K, S): float32 outputs by transformers' names."""
    given = {name: tf.cast(rows, tf.int32) for name, rows in given.items()}
    ids = given["input_ids"]
    rows = {key: given.get(name, tf.zeros_like(ids)) for key, name in _THEIR_NAMES.items()}
    model = served.model
    if isinstance(model, BertPretrainer) and model.mlm:
        places = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        rows[features.MASKED_LM_POSITIONS] = places
    outputs = served.call(rows)
    if isinstance(model, BertPretrainer):
        both = ("prediction_logits", "seq_relationship_logits")
        names = dict(
            zip((features.MASKED_LM_LOGITS, features.NEXT_SENTENCE_LOGITS), both, strict=True)
        )
        found = {names[key] if len(outputs) > 1 else "logits": v for key, v in outputs.items()}
    elif isinstance(outputs, Mapping):
        known = {**_THEIR_STATES, **dict.fromkeys((features.START_LOGITS, features.END_LOGITS))}
        found = {known[key] or key: outputs[key] for key in known if key in outputs}
    else:
        found = {"logits": outputs[:, None] if isinstance(model, BertRegressor) else outputs}
    return {name: tf.cast(value, tf.float32) for name, value in found.items()}


def _their_requests(served: Served) -> samples.Requests:
    """Requests of ids, by their names."""
    choices = isinstance(served.model, BertMultipleChoice)
    contract = features.CHOICE_FEATURES if choices else features.ENCODER_FEATURES
    names = _their_inputs(served)

    def by_their_names(request: Mapping[str, Any]) -> dict[str, Any]:
        return {
            _THEIR_NAMES[key]: rows for key, rows in request.items() if _THEIR_NAMES[key] in names
        }

    return tuple(map(by_their_names, samples.requests_of_ids(served, contract)))


def _theirs(served: Served, dtype: tf.DType = tf.int32) -> _Head:
    summary = (
        "Takes the ids of a BERT tokenizer, and returns what transformers' TFBert classes did."
    )
    return _Head(_their_answer, _their_inputs(served, dtype), _their_requests, summary)


# === The library's own ===

_TEXT = {"text": _STRINGS}
_STATES = _on_ids(encode_tokens, "the encoder's hidden states.")
_LOGITS = _task_on_ids()
_EMBEDDING = _Head(embed, _TEXT, samples.requests_of_texts, "Embeds texts, one vector each.")
_EMBEDDING_DOCUMENTS = _Head(
    functools.partial(embed, role=DOCUMENT),
    _TEXT,
    samples.requests_of_texts,
    "Embeds texts that are to be found, behind the prefix of documents; `embed` is for queries.",
)
_COMPARING = _Head(
    compare,
    {**_TEXT, "others": _ROWS_OF_STRINGS},
    samples.requests_of_similar,
    "Compares texts with others, by cosines: a row of others for each text, or one row for all.",
)
_FILLING = _Head(
    fill_masks,
    _TEXT,
    samples.requests_of_masks,
    "Guesses what each literal [MASK] in a text stands for; no other signature gives [MASK] a "
    "meaning.",
)
_FOLLOWING = _Head(
    next_sentence,
    {"first": _STRINGS, "second": _STRINGS},
    functools.partial(samples.requests_of_texts, first="first", second="second"),
    "Judges whether the second text follows the first in some document.",
)
_ENTITIES = _Head(find_entities, _TEXT, samples.requests_of_texts, "Finds the entities in a text.")
_WORDS = _Head(
    tag_words,
    {"words": _ROWS_OF_STRINGS},
    samples.requests_of_words,
    'Tags each word of a text that is already split; "" is no word.',
)
_ANSWERS = _Head(
    answer,
    {"question": _STRINGS, "context": _STRINGS},
    samples.requests_of_questions,
    "Answers a question by a span of its context, which may be of any length: bytes "
    "`byte_start` to `byte_end` of it, characters `start` to `end` as Python counts them (code "
    "points), the first one's place from 0 and the place after the last.",
)
_CHOICES = _Head(
    choose,
    {"context": _STRINGS, "choices": _ROWS_OF_STRINGS},
    samples.requests_of_choices,
    'Finds which of several texts fits a context; "" is none of them.',
)


def _of_pretrainer(served: Served) -> dict[str, _Head]:
    found = {SERVING_DEFAULT: _EMBEDDING}
    if fills_masks(served.model):
        found = {SERVING_DEFAULT: _FILLING, "embed": _EMBEDDING}
    found["tokens"] = _STATES
    return {**found, "next_sentence": _FOLLOWING} if served.model.nsp else found


def _of_encoder(served: Served) -> dict[str, _Head]:
    found = {SERVING_DEFAULT: _EMBEDDING, "tokens": _STATES}
    embedding = served.model.sentence_embedding
    if embedding is None:
        return found
    found |= {"embed": _EMBEDDING, "similarity": _COMPARING}
    if embedding.query_prefix != embedding.document_prefix:
        found["embed_documents"] = _EMBEDDING_DOCUMENTS
    return found


def _of_texts_or_pairs(
    function: Callable[..., Outputs], raw_output: str, served: Served
) -> dict[str, _Head]:
    found = "the classes that hold" if served.model.multi_label else "the class"
    found = "the number" if function is regress else found
    text = _Head(function, _TEXT, samples.requests_of_texts, f"Finds {found} of a text.")
    pair = _Head(
        function,
        {**_TEXT, "text_pair": _STRINGS},
        functools.partial(samples.requests_of_texts, second="text_pair"),
        f"Finds {found} of a pair of texts.",
    )
    default = pair if served.options.pair else text
    tokens = _task_on_ids(raw_output)
    api, on_examples = _APIS[function]
    names = text_features(served)
    examples = _Head(
        on_examples,
        {"inputs": _STRINGS},
        functools.partial(samples.requests_of_examples, names=names),
        f"For TensorFlow Serving's {api.capitalize()}: finds {found} of serialized tf.Examples "
        f"with the feature{'s' if len(names) > 1 else ''} {' and '.join(names)}.",
        reports_invalid_bytes=False,
    )
    by_name = {SERVING_DEFAULT: default, "text": text, "pair": pair, "tokens": tokens}
    return {**by_name, api: examples}


# The interfaces of TensorFlow Serving besides Predict, by what they ask of a model.
_APIS = {classify: ("classify", classify_examples), regress: ("regress", regress_examples)}


# By the class of a model its heads, by name.
_BY_CLASS: dict[type[BertModel], dict[str, _Head] | Callable[[Served], dict[str, _Head]]] = {
    BertPretrainer: _of_pretrainer,
    BertClassifier: functools.partial(_of_texts_or_pairs, classify, "logits"),
    BertRegressor: functools.partial(_of_texts_or_pairs, regress, "value"),
    BertTokenClassifier: {SERVING_DEFAULT: _ENTITIES, "words": _WORDS, "tokens": _LOGITS},
    BertFeatureTagger: {
        **{SERVING_DEFAULT: _ENTITIES, "words": _WORDS},
        "tokens": _task_on_ids(contract=features.TAGGING_FEATURES),
    },
    BertSpanPredictor: {SERVING_DEFAULT: _ANSWERS, "tokens": _LOGITS},
    BertMultipleChoice: {
        SERVING_DEFAULT: _CHOICES,
        "tokens": _task_on_ids(contract=features.CHOICE_FEATURES),
    },
    BertEncoder: _of_encoder,
}
#: The options of ``ExportOptions`` that mean something to models of some classes alone.
MEANT_FOR: dict[str, tuple[type[BertModel], ...]] = {
    "pair": (BertClassifier, BertRegressor),
    "normalize": (BertEncoder, BertPretrainer),
    # transformers had no class of a BertFeatureTagger.
    "transformers_signature": tuple(one for one in _BY_CLASS if one is not BertFeatureTagger),
}
