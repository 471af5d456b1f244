"""What users of the TensorFlow classes have on disk from Keras 2, against what it computed there.

``make_keras2_data.py`` says what each of the files is.
"""

import pathlib

import numpy as np
import pytest

import bert_tf.transformers as successor

FILES = pathlib.Path(__file__).parent / "keras2"
SIZES = {
    **{"vocab_size": 26, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 12, "max_position_embeddings": 16},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
#: By the file: the class that reads it, and the outputs that are recorded.
ENCODER = ("TFBertModel", ("last_hidden_state", "pooler_output"))
READ = {
    "functional/weights.h5": ENCODER,
    "functional/checkpoint/ckpt-1": ENCODER,
    "functional/checkpoint": ENCODER,
    "functional/tf_weights/weights": ENCODER,
    "functional/saved_model": ENCODER,
    "main_layer/model.h5": ENCODER,
    "subclassed/ranker.h5": ENCODER,
    "classifier/tf_model.h5": ("TFBertForSequenceClassification", ("logits",)),
    "classifier": ("TFBertForSequenceClassification", ("logits",)),
}


def config(**changed):
    return successor.BertConfig(**{**SIZES, **changed}, num_labels=3)


def recorded(file):
    with np.load(FILES / file.split("/")[0] / "outputs.npz") as arrays:
        return dict(arrays)


def batch_of(arrays, file):
    """The batch; the model with the main layer was given no types of tokens."""
    names = ["input_ids", "attention_mask"]
    return {n: arrays[n] for n in (*names, *["token_type_ids"] * ("main" not in file))}


@pytest.mark.parametrize("file", READ)
def test_load_weights_computes_what_the_model_on_disk_did(file):
    name, outputs = READ[file]
    model = getattr(successor, name)(config())
    model.load_weights(FILES / file)
    arrays = recorded(file)
    found = model(batch_of(arrays, file))
    compared = [output for output in outputs if output in arrays]
    assert compared
    for output in compared:
        np.testing.assert_allclose(found[output], arrays[output], rtol=0, atol=1e-5)
