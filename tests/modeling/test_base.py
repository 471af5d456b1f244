import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier, BertEncoder
from bert_tf.pipelines.preprocessor import BertPreprocessor
from tests.modeling.conftest import TINY, randomise

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat"]


def test_preprocessor_and_labels_are_no_part_of_the_model(tmp_path):
    model = randomise(BertClassifier(TINY, num_classes=2))
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
def test_a_saved_model_with_a_preprocessor_beside_it(tmp_path):
    model = randomise(BertClassifier(TINY, num_classes=2))
    model.preprocessor = BertPreprocessor(VOCAB, max_seq_length=8)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert hasattr(loaded, "classifier") and not hasattr(loaded, "preprocessor")


def test_a_misspelled_argument_is_not_passed_over():
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_clases'"):
        BertEncoder(TINY, num_clases=3)
