"""Exports of tiny models of each class, created once for all tests that run exports."""

import os
import pathlib
import random
import time
from typing import Any

import pytest

from bert_tf import (
    BertClassifier,
    BertEncoder,
    BertFeatureTagger,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
    saved_models,
)
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.wordpiece import BertTokenizer

from .conftest import CONFIG, VOCAB

_CLASSES = (BertClassifier, {"num_classes": 3})
# By name: model class, its arguments and the export options.
HEADS: dict[str, tuple[type[BertModel], dict[str, Any], dict[str, Any]]] = {
    "encoder": (BertEncoder, {}, {"normalize": True}),
    "pretrainer": (BertPretrainer, {}, {}),
    "classifier": (*_CLASSES, {"pair": True}),
    "multi_label": (*_CLASSES, {}),
    "regressor": (BertRegressor, {}, {"pair": True}),
    "token_classifier": (BertTokenClassifier, {"num_classes": 5}, {}),
    "feature_tagger": (
        BertFeatureTagger,
        {"num_classes": 5, "variant": "weighted_sum_all", "lstm_units": 4},
        {},
    ),
    "span_predictor": (
        BertSpanPredictor,
        {},
        {"doc_stride": 4, "max_query_length": 4, "n_best_size": 3, "max_answer_length": 4},
    ),
    "multiple_choice": (BertMultipleChoice, {}, {}),
    "bfloat16": (*_CLASSES, {"precision": "bfloat16"}),
}
_TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# Attributes that ``bert_tf.load`` would set from the files next to the weights.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "multi_label": {"multi_label": True, "thresholds": {"probability": 0.3}},
    "token_classifier": {"labels": _TAGS},
    "feature_tagger": {"labels": _TAGS},
}
# Rounding in bfloat16 depends on the processor and the version of TensorFlow.
TOLERANCES = {"bfloat16": 0.1}


def heads(*in_ci: str) -> list[Any]:
    """Returns the names of ``HEADS`` as parameters; those not in ``in_ci`` are exhaustive."""
    assert set(in_ci) <= HEADS.keys(), in_ci
    return [
        name if name in in_ci else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in HEADS
    ]


def make_head(name: str) -> BertModel:
    """Returns a model of ``HEADS``, which is the same in every process."""
    model_class, arguments, _ = HEADS[name]
    random.seed(3)
    model = model_class(CONFIG, **arguments)
    for attribute, value in _ATTRIBUTES.get(name, {}).items():
        setattr(model, attribute, value)
    return model


def exported(name: str, tmp_path_factory: Any) -> str:
    """Returns the directory of an export, which the first process that needs it creates."""
    root: pathlib.Path = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # shared by the processes
    folder = root / "head_exports" / name
    failed = folder / "failed"
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        # Exports are written atomically.
        while not (folder / "1").exists():
            if failed.exists():
                raise ValueError(f"The process that exported {name} failed.") from None
            time.sleep(0.5)
        return str(folder / "1")
    try:
        options = saved_models.ExportOptions(max_seq_length=16, **HEADS[name][2])
        given = {"tokenizer": BertTokenizer(VOCAB), "options": options, "name": name}
        return saved_models.export(make_head(name), str(folder / "1"), **given).path
    except BaseException:
        failed.touch()
        raise
