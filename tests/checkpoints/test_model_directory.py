"""This library's directories: the names are the variables', the newest intact checkpoint counts."""

import keras

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.weights import build_model
from bert_tf.training import saved_states
from tests.checkpoints import small_checkpoints as small


def test_what_a_training_saved(tmp_path):
    model = build_model(small.CONFIG, small.MODELS["classifier"])
    described = Checkpoint(
        *(str(tmp_path), "bert_tf", small.CONFIG, small.MODELS["classifier"]),
        tokenization=small.UNCASED,
        labels=("a", "b", "c"),
    )
    model_directory.write_description(described, str(tmp_path))
    for step in (1, 2):
        model.classifier.bias.assign([step, 0, 0])
        more = dict.fromkeys(("opt/moment", "model/bert_classifier/old"), keras.Variable([0.0]))
        _save(tmp_path, step, model, more)
    checkpoint = model_directory.read_checkpoint(str(tmp_path))
    assert checkpoint.tensors["classifier/bias"].read().tolist() == [2, 0, 0]
    assert checkpoint.unused == ("model/bert_classifier/old",)  # an optimizer's slots are no news
    assert (checkpoint.labels, checkpoint.tokenization) == (("a", "b", "c"), small.UNCASED)
    assert checkpoint.config == small.CONFIG and checkpoint.model == small.MODELS["classifier"]
    small.assert_bit_equal(small.fused(small.read_all(checkpoint)), small.variables_of(model))
    # A damaged checkpoint is passed over, and reported.
    data = tmp_path / "checkpoints/step-00000002/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    checkpoint = model_directory.read_checkpoint(str(tmp_path))
    assert checkpoint.tensors["classifier/bias"].read().tolist() == [1, 0, 0]
    (note,) = checkpoint.notes
    assert note.startswith("Skipped the checkpoint ") and "step-00000002" in note


def _save(folder, step, model, more=None):
    """Saves a model's variables as a training does."""
    variables = {f"model/{variable.path}": variable for variable in model.weights}
    saved_states.save(str(folder / "checkpoints"), step, {**variables, **(more or {})}, {})
