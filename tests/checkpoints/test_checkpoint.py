"""The JSON that says which model a checkpoint is: written, read, and read from a stranger."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, describe, parse_description
from bert_tf.modeling import BertClassifier
from tests.checkpoints import small_checkpoints as small

EVERY = {**small.MODELS, **small.OURS_ALONE}


def test_a_fingerprint_is_of_the_model_its_vocabulary_and_every_weight():
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


def test_literal():
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
    "values, sentence",
    [
        ([1], r"^there: expected an object that describes a model, got \[1\]\.$"),
        (_values(format_version=2), "format_version is 2, expected 1: it was written by another "
         "version of this library"),
        (_values(class_name="Lambda"), "class_name is 'Lambda', expected one of BertEncoder, "
         "BertPretrainer, BertClassifier, BertRegressor, BertTokenClassifier, "
         "BertFeatureTagger, BertSpanPredictor, BertMultipleChoice"),
        (_values(arguments=None), r"arguments is None, expected an object\.$"),
        (_values(arguments={}), r"BertClassifier needs num_classes among its arguments"),
        (_values(arguments={"num_classes": 2, "mlm": True}), r"cannot be made with mlm=True"),
        (_values(arguments={"num_classes": 2, "dropout": 1}), r"cannot be made with dropout=1"),
        (_values(arguments={"x" * 10**5: 1}), r"cannot be made with x{58}\.{3}x{59}=1\.$"),
        (_values(labels=["a"]), r"labels is \['a'\], expected a list of 2 names"),
        (_values(thresholds={"null": float("nan")}), "thresholds is {'null': nan}, expected an "
         "object of numbers by name"),
        (_values(multi_label="false"), r"multi_label is 'false', expected true or false\.$"),
        (_values(do_lower_case="false"), r"do_lower_case is 'false', expected true, false or null"),
        (_values(labels=["a", ["b"]]), r"the label \['b'\] is not a text\.$"),
        (_values(labels=["1", 1]), "two classes have one name among 1, 1: name each"),
        (_values(arguments={"num_classes": 10**9}), r"cannot be made with num_classes=1000000000"),
        (_values(arguments={"num_classes": 2, "dropout": float("nan")}), r"made with dropout=nan"),
        (_tagger(lstm_units=10**9), r"cannot be made with lstm_units=1000000000"),
        (_values(class_name="BertRegressor", arguments={}, labels=["a"]), r"a list of no names"),
    ],
)  # fmt: skip
def test_refused(values, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        parse_description(values, "there")
    assert str(caught.value).startswith("there: ") and len(str(caught.value)) < 300
