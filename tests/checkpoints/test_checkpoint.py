"""Fingerprints and JSON descriptions of checkpoints."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, describe, parse_description
from bert_tf.modeling import BertClassifier
from tests.checkpoints import small_checkpoints as small


def test_fingerprint_depends_on_model_vocabulary_and_weights():
    checkpoint = small.make_checkpoint(
        small.MODELS["classifier"], tokenization=small.CASED, labels=("a", "b", "c")
    )
    config = dataclasses.replace(small.CONFIG, hidden_act="relu")
    spec = ModelSpec(BertClassifier, {"num_classes": 3, "dropout": 0.5})
    last = small.stored("x", np.float32([1, 2, 3]))
    others = [
        dataclasses.replace(checkpoint, **changes)
        for changes in (
            *({"config": config}, {"model": spec}, {"labels": ("a", "c", "b")}),
            *(
                {"tokenization": small.UNCASED},
                {"tensors": checkpoint.tensors | {"classifier/bias": last}},
            ),
        )
    ]
    assert len({one.fingerprint() for one in (checkpoint, *others)}) == 1 + len(others)
    elsewhere = dataclasses.replace(checkpoint, path="elsewhere", notes=("note",))
    assert elsewhere.fingerprint() == checkpoint.fingerprint()


def test_description_equals_literal():
    spec = ModelSpec(BertClassifier, {"num_classes": 2})
    assert describe(Checkpoint("", "", small.CONFIG, spec, labels=("n", "y"))) == {
        "format_version": 1,
        "class_name": "BertClassifier",
        "arguments": {"num_classes": 2},
        "labels": ["n", "y"],
        "multi_label": False,
        "do_lower_case": None,
    }


def _values(**changes):
    good = {"format_version": 1, "class_name": "BertClassifier", "arguments": {"num_classes": 2}}
    return {**good, **changes}


def _tagger(**arguments):
    return _values(class_name="BertFeatureTagger", arguments={"num_classes": 2, **arguments})


@pytest.mark.parametrize(
    "values, message",
    [
        ([1], r"^there: expected a model description, got \[1\]\.$"),
        (_values(format_version=2), "format_version: expected 1, the format of this version of "
         "bert_tf, got 2"),
        (_values(class_name="Lambda"), "class_name: expected one of BertEncoder, "
         "BertPretrainer, BertClassifier, BertRegressor, BertTokenClassifier, "
         "BertFeatureTagger, BertSpanPredictor, BertMultipleChoice, got 'Lambda'"),
        (_values(arguments=None), r"arguments: expected an object, got None\.$"),
        (_values(arguments={}), "arguments of BertClassifier: expected num_classes"),
        (_values(arguments={"num_classes": 2, "mlm": True}), "mlm=True is not a valid argument"),
        (_values(arguments={"num_classes": 2, "dropout": 1}), "dropout=1 is not a valid argument"),
        (_values(arguments={"x" * 10**5: 1}), r": x{58}\.{3}x{59}=1 is not a valid argument of"),
        (_values(labels=["a"]), r"labels: expected a list of 2 names, got \['a'\]"),
        (_values(thresholds={"null": float("nan")}), "thresholds: expected an object that maps "
         "names to numbers, got {'null': nan}"),
        (_values(multi_label="false"), r"multi_label: expected true or false, got 'false'\.$"),
        (_values(do_lower_case="false"), "do_lower_case: expected true, false or null, got 'fal"),
        (_values(labels=["a", ["b"]]), r"labels: expected strings, got \['b'\]\.$"),
        (_values(labels=["1", 1]), "labels: expected unique names, got 1, 1"),
        (_values(arguments={"num_classes": 10**9}), "num_classes=1000000000 is not a valid"),
        (_values(arguments={"num_classes": 2, "dropout": float("nan")}), "dropout=nan is not a "),
        (_tagger(lstm_units=10**9), "lstm_units=1000000000 is not a valid argument"),
        (_values(class_name="BertRegressor", arguments={}, labels=["a"]), "a list of 0 names"),
    ],
)  # fmt: skip
def test_invalid_description_raises_error(values, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_description(values, "there")
    assert str(caught.value).startswith("there: ") and len(str(caught.value)) < 300
