"""Properties that all signatures of all models share."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.answering.signatures import id_signature
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
from bert_tf.tasks import signatures as of_classes
from bert_tf.tasks.signatures import (
    ClassSignatures,
    classes_with,
    model_signatures,
    register_signatures,
)

from .conftest import INPUTS, SMALL, features_of, make, serve, trace

EMBEDDINGS = {"mean_output", "cls_output", "pooled_output", "truncated"}
STATES = {"default", "pooled_output", "sequence_output", "encoder_outputs_0"}
FILLED = {"tokens", "token_ids", "scores", "counts", "filled", "truncated"}
CLASSES = {"chosen_labels", "counts", "labels", "probabilities", "truncated"}
ANSWER = {"answer", "byte_start", "byte_end", "score", "answers", "byte_starts", "byte_ends",
          "start", "end", "starts", "ends",
          "scores", "probabilities", "counts", "null_score", "truncated"}  # fmt: skip
ENTITIES = {"entities", "types", "byte_starts", "byte_ends", "scores", "counts", "truncated"}


# TensorFlow Serving's Classify and Regress require signatures with exactly these outputs.
APIS = {"classify": {"classes", "scores"}, "regress": {"outputs"}}


def by_text(outputs, tokens, api):
    texts = dict.fromkeys(("serving_default", "text", "pair"), outputs)
    return {**texts, "tokens": {tokens}, api: APIS[api]}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and the names of its outputs by signature."""

    model_class: type
    arguments: dict
    outputs: dict
    attributes: dict = dataclasses.field(default_factory=dict)
    options: dict = dataclasses.field(default_factory=dict)


THREE = {"num_classes": 3}
BFLOAT16 = {"dtype": "mixed_bfloat16"}
NEXT = {"probability", "truncated"}
FILLING = {"serving_default": FILLED, "embed": EMBEDDINGS, "tokens": STATES, "next_sentence": NEXT}
VECTORS = {"serving_default": EMBEDDINGS, "tokens": STATES}
TAGS = {
    "serving_default": ENTITIES,
    "words": {"tags", "scores", "counts", "truncated"},
    "tokens": {"logits"},
}
SPANS = {"serving_default": ANSWER, "tokens": {"start_logits", "end_logits"}}
CHOICES = {"serving_default": {"choice", "probabilities", "truncated"}, "tokens": {"logits"}}
SEVERAL = {"multi_label": True, "labels": ("ä", "b", "c")}

CASES = {
    "pretrainer": Case(BertPretrainer, {}, FILLING),
    "encoder": Case(BertEncoder, BFLOAT16, VECTORS, options={"normalize": True}),
    "several classes": Case(
        *(BertClassifier, THREE | BFLOAT16, by_text(CLASSES, "logits", "classify"), SEVERAL),
        options={"pair": True},
    ),
    "regressor": Case(BertRegressor, {}, by_text({"value", "truncated"}, "value", "regress")),
    "tagger": Case(BertTokenClassifier, THREE, TAGS, {"labels": ("O", "B-PER", "I-PER")}),
    "span predictor": Case(
        BertSpanPredictor, {}, SPANS, {"thresholds": {"null": 0.0}}, {"n_best_size": 3}
    ),
    "multiple choice": Case(BertMultipleChoice, {}, CHOICES),
}


@functools.cache
def served_case(name):
    """Returns a served model of one block with stub outputs that depend only on the tokens."""
    case = CASES[name]
    model = make(case.model_class, **case.arguments)
    for key, value in case.attributes.items():
        setattr(model, key, value)
    table = np.random.default_rng(1).normal(size=(SMALL.vocab_size, SMALL.hidden_size))
    dtype = "bfloat16" if case.arguments.get("dtype") else "float32"

    def encode(inputs):
        states = tf.gather(tf.constant(table, dtype), inputs["input_word_ids"])
        pooled = tf.tanh(states[..., 0, :] + states[..., 1, :])
        outputs = {"sequence_output": states, "pooled_output": pooled}
        return {**outputs, "encoder_outputs": [states / 2]}

    def call(inputs):
        states, pooled, _ = encode(inputs).values()
        return {
            BertPretrainer: {"next_sentence_logits": pooled[:, :2]},
            BertClassifier: pooled[..., :3],
            BertRegressor: pooled[..., 0],
            BertTokenClassifier: states[..., :3],
            BertSpanPredictor: {"start_logits": states[..., 0], "end_logits": states[..., 1]},
            BertMultipleChoice: pooled[..., 0],
        }[case.model_class]

    guess = functools.partial(tf.matmul, b=tf.constant(table, "float32"), transpose_b=True)
    served = serve(model, call=call, **case.options)
    return dataclasses.replace(served, encode=encode, guess=guess)


@functools.cache
def answers_of(name):
    """Maps names to signatures, the tensors of their samples, and their eager answers."""
    found, answered = {}, {}
    for key, signature in model_signatures(served_case(name)).items():
        if id(signature) in answered:  # an alias
            found[key] = answered[id(signature)]
            continue
        samples = [
            {k: tf.constant(column, signature.inputs[k].dtype) for k, column in sample.items()}
            for sample in signature.samples
        ]
        answers = [ask_signature(signature.function, sample) for sample in samples]
        found[key] = answered[id(signature)] = signature, samples, answers
    return found


def answers_without_aliases(name):
    """Returns ``answers_of`` without aliases."""
    found = answers_of(name)
    return {key: found[key] for key in {id(one[0]): key for key, one in found.items()}.values()}


def ask_signature(function, inputs):
    return {key: value.numpy() for key, value in function(**inputs).items()}


@pytest.mark.parametrize("name", CASES)
def test_signature_names_inputs_and_outputs(name):
    found = answers_of(name)
    assert next(iter(found)) == "serving_default"
    expected = {
        key: outputs if key in ("tokens", *APIS) else outputs | {"invalid_utf8"}
        for key, outputs in CASES[name].outputs.items()
    }
    assert {key: set(answers[0]) for key, (_, _, answers) in found.items()} == expected
    for signature, samples, answers in found.values():
        assert all(spec.shape[0] is None for spec in signature.inputs.values())
        assert signature.summary.endswith(".") and "\n" not in signature.summary
        assert all(set(sample) == set(signature.inputs) for sample in samples)
        assert not any(output.endswith("_bytes") for output in answers[0])


@pytest.mark.parametrize("name", CASES)
def test_answers_have_one_row_per_input_and_portable_types(name):
    for key, (_, samples, answers) in answers_of(name).items():
        assert len(samples) == 2
        for inputs, answer in zip(samples, answers, strict=True):
            assert len({len(value) for value in [*inputs.values(), *answer.values()]}) == 1, key
            for output, value in answer.items():
                assert value.dtype in ("O", "int32", "int64", "float32", "bool"), (key, output)
                if value.dtype == object:
                    for text in value.reshape(-1):
                        text.decode("utf-8")
                elif value.dtype.kind == "f":
                    assert np.isfinite(value).all(), (key, output)


@pytest.mark.parametrize("name", CASES)
def test_samples_cover_odd_text_and_invalid_utf8_is_reported(name):
    for key, (_, samples, answers) in answers_of(name).items():
        if key == "tokens":
            assert all(value.dtype == tf.int32 for sample in samples for value in sample.values())
            continue
        if key in APIS:  # serialized tf.Examples
            continue
        columns = [
            np.concatenate([value.numpy().reshape(len(value), -1) for value in sample.values()], 1)
            for sample in samples
        ]
        for rows, answer in zip(columns, answers, strict=True):
            assert answer["invalid_utf8"].tolist() == [any(map(is_invalid, row)) for row in rows]
        plain_texts, odd = (rows.reshape(-1) for rows in columns)
        assert all(text.isascii() for text in plain_texts)
        assert b"" in odd and any(map(is_invalid, odd))
        # Tagging uses windows over the complete text.
        assert answers[1]["truncated"].any() == (name != "tagger")
        assert any(not text.isascii() and not is_invalid(text) for text in odd)


def is_invalid(text):
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_batch_has_the_answers_of_its_parts(name):
    for key, (signature, samples, answers) in answers_without_aliases(name).items():
        for part in (slice(1, 3), slice(0, 0)):
            given = {name: value[part] for name, value in samples[1].items()}
            answer = ask_signature(signature.function, given)
            expected = {name: value[part] for name, value in answers[1].items()}
            assert_same(answer, expected, key)
        if key != "tokens" and len(samples[0]) > 1:
            first, second = samples[0].items()
            for sizes in ((2, 1), (1, 2), (0, 1)):
                columns = {k: v[:size] for (k, v), size in zip((first, second), sizes, strict=True)}
                message = "the same number of rows in both inputs of the request"
                with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                    signature.function(**columns)


# The graphs of other heads are tested with their exports.
@pytest.mark.parametrize(
    "name",
    [
        *("tagger", "span predictor"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("regressor", "multiple choice")),
    ],
)
def test_graph_answers_equal_eager_ones(name):
    for key, (signature, samples, answers) in answers_without_aliases(name).items():
        function = trace(signature.function, signature.inputs)
        for output, value in function.structured_outputs.items():
            assert isinstance(value, tf.Tensor), "TensorFlow Serving supports only dense tensors"
            assert value.shape[0] is None, (key, output)
            assert value.dtype in (tf.string, tf.int32, tf.int64, tf.float32, tf.bool)
        assert_same(ask_signature(function, samples[1]), answers[1], key)
        empty = ask_signature(function, {name: value[:0] for name, value in samples[0].items()})
        assert all(len(value) == 0 for value in empty.values())


def assert_same(received, expected, signature_name):
    """Compares answers, except for padding to longer rows of a batch."""
    assert set(received) == set(expected), signature_name
    for output, value in received.items():
        wanted = expected[output]
        assert value.dtype == wanted.dtype and len(value) == len(wanted), (signature_name, output)
        if value.shape != wanted.shape:
            rest = wanted[:, value.shape[1] :].reshape(-1).tolist()
            assert signature_name == "tokens" or all(padding in (b"", -1, 0) for padding in rest)
            wanted = wanted[:, : value.shape[1]]
        if value.dtype.kind == "f":
            np.testing.assert_allclose(
                value, wanted, atol=1e-5, err_msg=f"{signature_name} {output}"
            )
        else:
            np.testing.assert_array_equal(value, wanted, err_msg=f"{signature_name} {output}")


def test_pretrainer_signatures_depend_on_its_heads():
    for heads, names in (
        ({"nsp": False}, ["serving_default", "embed", "tokens"]),
        ({"mlm": False}, ["serving_default", "tokens", "next_sentence"]),
    ):
        found = model_signatures(serve(make(BertPretrainer, **heads)))
        assert list(found) == names
        start = "Predicts" if "nsp" in heads else "Returns one vector"
        assert found["serving_default"].summary.startswith(start)


def test_serving_default_is_text_or_pair():
    for model_class, arguments in ((BertClassifier, THREE), (BertRegressor, {})):
        for pair, inputs in ((False, ["text"]), (True, ["text", "text_pair"])):
            signatures = model_signatures(serve(make(model_class, **arguments), pair=pair))
            assert signatures["serving_default"] is signatures["pair" if pair else "text"]
            assert list(signatures["serving_default"].inputs) == inputs


def test_custom_model_class_can_be_registered(monkeypatch):
    class Ranker(BertRegressor):
        """A custom class."""

    model = Ranker(SMALL)
    assert "regress" in model_signatures(serve(model))  # inherited from its base class
    custom_signatures = ClassSignatures(
        lambda served, task: {"serving_default": id_signature(served)}, ("normalize",)
    )
    monkeypatch.setattr(of_classes, "_CLASSES", dict(of_classes._CLASSES))
    register_signatures(Ranker, custom_signatures)
    with pytest.raises(ValueError, match="^Ranker is already registered"):
        register_signatures(Ranker, custom_signatures)
    (signature,) = model_signatures(serve(model)).values()
    assert set(signature.function(**features_of([2, 5, 3]))) == {"logits"}
    assert classes_with("normalize") == [BertEncoder, BertPretrainer, Ranker]


def test_unsupported_model_raises_error(model):
    other = dataclasses.replace(serve(model), model=tf.keras.Sequential())
    message = (
        "Sequential cannot be served: expected one of BertEncoder, BertPretrainer, "
        "BertClassifier, BertRegressor, BertTokenClassifier, BertFeatureTagger, "
        "BertSpanPredictor, BertMultipleChoice"
    )
    with pytest.raises(ValueError, match=message):
        model_signatures(other)


# === ``serving_default`` with the names of transformers' SavedModels ===

IDS, MASK, TYPES = (value.numpy() for value in INPUTS.values())
# Names of the signature's outputs, and of the model's outputs.
LOGITS = {"logits": None}
TRANSFORMERS = [
    (BertClassifier, {"num_classes": 3}, LOGITS),
    (BertRegressor, {}, LOGITS),
    (BertTokenClassifier, {"num_classes": 3}, LOGITS),
    (BertMultipleChoice, {}, LOGITS),
    (BertSpanPredictor, {}, {"start_logits": "start_logits", "end_logits": "end_logits"}),
    (BertEncoder, {}, {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}),
    (BertEncoder, {"pooler": False}, {"last_hidden_state": "sequence_output"}),
    (BertPretrainer, {"nsp": False}, {"logits": "masked_lm_logits"}),
    (BertPretrainer, {"mlm": False}, {"logits": "next_sentence_logits"}),
    (
        BertPretrainer,
        {},
        {
            "prediction_logits": "masked_lm_logits",
            "seq_relationship_logits": "next_sentence_logits",
        },
    ),
]


@pytest.mark.parametrize(("model_class", "arguments", "names"), TRANSFORMERS)
def test_transformers_signature_equals_the_model(model_class, arguments, names):
    model = make(model_class, **arguments)
    signatures = model_signatures(serve(model, transformers_signature=True))
    default_signatures = model_signatures(serve(model))
    assert set(signatures) == {*default_signatures, "strings", "int64_serving"}
    assert signatures["strings"].inputs == default_signatures["serving_default"].inputs
    signature = signatures["serving_default"]
    rows = [IDS, MASK, TYPES]
    if model_class is BertMultipleChoice:
        rows = [np.stack([row, row[::-1]]) for row in rows]
    given = dict(zip(("input_ids", "attention_mask", "token_type_ids"), rows, strict=True))
    found = signature.function(**{name: tf.constant(row) for name, row in given.items()})
    features = dict(zip(("input_word_ids", "input_mask", "input_type_ids"), rows, strict=True))
    if getattr(model, "mlm", False):
        features["masked_lm_positions"] = np.array([range(5)] * 2, "int32")
    outputs = model(features)
    assert set(found) == set(names)
    for name, model_name in names.items():
        expected = np.asarray(outputs if model_name is None else outputs[model_name])
        if model_class is BertRegressor:
            expected = expected[:, None]
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=0, atol=3e-5)
    wide = signatures["int64_serving"]
    again = wide.function(**{name: tf.constant(row, tf.int64) for name, row in given.items()})
    for name, values in found.items():
        np.testing.assert_allclose(again[name].numpy(), values.numpy(), rtol=0, atol=3e-5)
    assert {spec.dtype for spec in wide.inputs.values()} == {tf.int64}
    # The samples of both signatures have the same inputs.
    for request in (*signature.samples, *wide.samples):
        assert request.keys() == signature.inputs.keys() == wide.inputs.keys() == given.keys()


def test_transformers_signature_without_token_types():
    model = make(BertClassifier, dataclasses.replace(SMALL, type_vocab_size=0), num_classes=2)
    signature = model_signatures(serve(model, transformers_signature=True))["serving_default"]
    assert list(signature.inputs) == ["input_ids", "attention_mask"]
    found = signature.function(input_ids=tf.constant(IDS), attention_mask=tf.constant(MASK))
    rows = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": TYPES}
    np.testing.assert_allclose(found["logits"].numpy(), model(rows).numpy(), rtol=0, atol=3e-5)
    assert BertFeatureTagger not in classes_with("transformers_signature")
