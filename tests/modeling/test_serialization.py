"""Serialization of all layers and models."""

import dataclasses
import inspect
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import (
    MODEL_CLASSES,
    BertClassifier,
    BertEncoder,
    BertFeatureTagger,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
    keras_hooks,
)
from bert_tf.modeling.encoder import BertEmbeddings
from bert_tf.modeling.layers import Dropout, LayerNorm
from bert_tf.modeling.transformer import SelfAttention, TransformerBlock
from bert_tf.pipelines.preprocessor import BertPreprocessor
from tests.modeling.conftest import TINY, make_batch, randomize

# One block is enough, because all are saved in the same way.
ONE_BLOCK = dataclasses.replace(TINY, num_hidden_layers=1)
TAGGER = {"num_classes": 3, "variant": "last", "lstm_units": 4, "dropout": 0.25}
MODELS = [
    (
        BertPretrainer,
        {"nsp": False, "pooler": False, "mlm_activation": "relu", "mlm_layer_norm_eps": 0.5},
    ),
    (BertClassifier, {"num_classes": 4, "dropout": 0.0, "pooling": "mean"}),
    (BertRegressor, {"dropout": 0.3}),
    (BertTokenClassifier, {"num_classes": 5, "dropout": 0.3, "pooler": True}),
    (BertMultipleChoice, {"dropout": 0.3}),
    (BertSpanPredictor, {"pooler": True}),
    (BertFeatureTagger, TAGGER),
]


@pytest.mark.parametrize(
    ("make", "argument", "attribute"),
    [
        (Dropout, 0.25, "rate"),
        (LayerNorm, 1e-3, "epsilon"),
        *((layer, TINY, "config") for layer in (BertEmbeddings, SelfAttention, TransformerBlock)),
    ],
)
def test_layer_config(make, argument, attribute):
    again = make.from_config(make(argument, name="mine").get_config())
    assert (getattr(again, attribute), again.name) == (argument, "mine")


def answers(model):
    batch = {**make_batch(), features.WORD_INDEX: np.tile(np.int32([-1, 0, 1, -1, 2, -1]), (2, 1))}
    if isinstance(model, BertMultipleChoice):
        batch = {key: value[:, None] for key, value in batch.items()}
    return keras.tree.flatten(model({key: batch[key] for key in model.input}))


@pytest.mark.parametrize(("make", "arguments"), MODELS)
def test_saved_and_loaded(make, arguments, tmp_path):
    model = randomize(make(ONE_BLOCK, **arguments, name="mine", dtype="mixed_bfloat16"))
    # The state of a frozen model.
    model.trainable = make is not BertRegressor
    assert arguments.items() <= model.get_config().items()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert type(loaded) is make and loaded.get_config() == model.get_config()
    assert (loaded.config, loaded.name, loaded.trainable) == (ONE_BLOCK, "mine", model.trainable)
    assert loaded.encoder.blocks[0].compute_dtype == "bfloat16"
    for ours, theirs in zip(answers(model), answers(loaded), strict=True):
        np.testing.assert_array_equal(theirs, ours)
    for kind in ("weights", "trainable_weights"):
        assert [v.path for v in getattr(loaded, kind)] == [v.path for v in getattr(model, kind)]


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_all_kernels_are_quantized():
    model = randomize(BertClassifier(ONE_BLOCK, num_classes=2))
    before = model(make_batch())
    model.quantize("int8")
    kernels = {w.path: w.dtype for w in model.weights if w.path.endswith("kernel")}
    assert len(kernels) == 6 and set(kernels.values()) == {"int8"}
    np.testing.assert_allclose(model(make_batch()), before, atol=0.1)


def test_registering_slices_creates_no_layer():
    keras.utils.clear_session()
    keras_hooks.register_slice_operation()
    assert keras.Input((1,)).name == "keras_tensor"  # as in a new process


VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat"]


def test_preprocessor_and_labels_are_not_layers(tmp_path):
    model = randomize(BertClassifier(ONE_BLOCK, num_classes=2))
    assert (model.preprocessor, model.labels, model.multi_label) == (None, (), False)
    before = model.get_config(), [v.path for v in model.variables], list(model.layers)
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=8)
    model.preprocessor = preprocessor
    model.labels = ("no", "yes")
    model.multi_label = True
    assert model.preprocessor is preprocessor and type(model.labels) is tuple
    assert (model.get_config(), [v.path for v in model.variables], list(model.layers)) == before
    model.save(tmp_path / "after.keras")
    names = []
    with zipfile.ZipFile(tmp_path / "after.keras") as archive:
        assert len(archive.namelist()) == 3
        with archive.open("model.weights.h5") as file, h5py.File(file) as weights:
            weights.visit(names.append)
    assert len(names) > 10 and not any("preprocessor" in name for name in names)
    loaded = keras.saving.load_model(tmp_path / "after.keras", safe_mode=True)
    assert (loaded.preprocessor, loaded.labels, loaded.multi_label) == (None, (), False)
    batch = model.preprocessor(["a cat", "sat"])
    np.testing.assert_array_equal(loaded(batch), model(batch))


@pytest.mark.slow
def test_keras_file_with_preprocessor(tmp_path):
    model = randomize(BertClassifier(TINY, num_classes=2))
    model.preprocessor = BertPreprocessor(VOCAB, max_seq_length=8)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert hasattr(loaded, "classifier") and not hasattr(loaded, "preprocessor")


def test_unknown_argument_is_rejected():
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_clases'"):
        BertEncoder(TINY, num_clases=3)


@pytest.mark.parametrize("model_class", MODEL_CLASSES.values())
def test_argument_checks_match_constructors(model_class):
    parameters = inspect.signature(model_class.__init__).parameters
    shared = {"self", "config", "name", "dtype", "kwargs"}
    assert model_class.argument_checks.keys() == parameters.keys() - shared
    for argument, is_good in model_class.argument_checks.items():
        default = parameters[argument].default
        assert is_good(3 if default is inspect.Parameter.empty else default), argument
        assert not is_good("x") and not is_good([1])
    # The default of the pooler is declared twice, here and in the signature.
    if "pooler" in parameters:
        default = parameters["pooler"].default
        assert default is None or default == model_class.pooler_by_default
