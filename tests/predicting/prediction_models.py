"""Models with random weights, and predictions with them."""

import dataclasses
import functools
import json
import os
import pathlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.checkpoints.weights import build_model
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.predicting import predictor, run
from bert_tf.predicting.settings import PredictionSettings
from bert_tf.tasks.task_file import TaskFile
from tests.finetuning import small_runs
from tests.finetuning.small_runs import TINY, VOCAB

CONFIG = dataclasses.replace(TINY, intermediate_size=16, initializer_range=0.8)
LABELS = ("neg", "neutral", "pos")
TEXTS = ["good film", "the plot was so bad", "fine", "a poor plot and a bad film", "is", "so so so"]
CLASSES = {"num_classes": 3}


_built = {}


def _build_once(config, spec):
    """Builds a model with random weights once; later calls reset the weights."""
    key = (config, spec.model_class, *sorted(spec.arguments.items()))
    if key not in _built:
        model = build_model(config, spec)
        _built[key] = model, model.get_weights()
    model, weights = _built[key]
    model.set_weights(weights)
    return model


def write_model(*given, **more):
    with mock.patch.object(small_runs, "build_model", _build_once):
        return small_runs.write_model(*given, config=CONFIG, **more)


def text_task(task_type):
    columns = {"text_columns": ["text"], "label_column": "label", "id_column": "n"}
    return TaskFile(task_type, "own", 16, columns)


def write_classifier(folder):
    """Writes a classifier with three labels; returns the model."""
    task = text_task("classification")
    return write_model(folder, "BertClassifier", CLASSES, task, labels=LABELS)


def write_texts(folder):
    """Writes a table of all texts, with decreasing ids from 7."""
    path = folder / "texts.tsv"
    path.write_text("n\ttext\n" + "".join(f"{7 - n}\t{text}\n" for n, text in enumerate(TEXTS)))
    return path


load = predictor.load
_loaded = {}


def _load_once(checkpoint):
    """Loads and traces the model of a directory once for all tasks."""
    key = checkpoint.path
    if os.path.isdir(key):
        paths = (path for path in sorted(pathlib.Path(key).rglob("*")) if path.is_file())
        key = tuple(path.read_bytes() for path in paths if path.name != "task.json")
    if key not in _loaded:
        _loaded[key] = load(checkpoint)
    _loaded[key].task = checkpoint.task
    return _loaded[key]


def loaded(folder):
    """Returns the model that all predictors of a directory share."""
    return _load_once(open_checkpoint(str(folder)))


def models_loaded_once():
    return mock.patch.object(predictor, "load", _load_once)


def predict(folder, source, output=None, **options):
    """Predicts like the command, but loads each model only once."""
    given = PredictionSettings(str(folder), str(source), output and str(output), **options)
    with models_loaded_once():
        return run.predict_file(given, run.open_predictor(str(folder), given))


@functools.cache
def preprocessor_of(length):
    return BertPreprocessor(VOCAB, max_seq_length=length)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def probabilities_of(model, texts, length):
    """Computes probabilities one text at a time, padded to ``length``."""
    preprocessor = preprocessor_of(length)
    rows = [tf.nn.softmax(model(preprocessor([text]), training=False))[0] for text in texts]
    return np.array(rows)


def approx(value):
    """Returns a value that compares equal up to six digits per float."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-5, abs=1e-6)
    if isinstance(value, dict):
        return {key: approx(item) for key, item in value.items()}
    return [approx(item) for item in value] if isinstance(value, list | tuple) else value
