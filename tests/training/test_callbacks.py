"""Callbacks of Keras that monitor a score, or set the learning rate."""

import keras
import pytest

from bert_tf.training.trainer import Callbacks

SCORES = {"accuracy": "max", "loss": "min", "mean_squared_error": "min"}


class Adds(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["val_own"] = float(epoch)


def callbacks_of(*callbacks, scores=SCORES):
    return Callbacks(callbacks, keras.Sequential(), steps_per_epoch=1, epochs=9, scores=scores)


def checkpoint(folder, **options):
    return keras.callbacks.ModelCheckpoint(f"{folder}/a.weights.h5", **options)


@pytest.mark.parametrize(
    ("monitor", "values", "epochs"),
    [
        ("val_accuracy", [0.5, 0.7, 0.6, 0.6, 0.9], 4),  # the best is the second
        ("val_mean_squared_error", [0.9, 0.5, 0.7, 0.6, 0.1], 4),
        ("loss", [3.0, 2.0, 2.5, 2.5, 1.0], 4),
    ],
)
def test_the_direction_of_a_score_is_known(monitor, values, epochs):
    stopping = keras.callbacks.EarlyStopping(monitor=monitor, patience=2)
    callbacks = callbacks_of(stopping)
    callbacks.begin()
    made = 0
    while not callbacks.stops:
        value = values[made]
        callbacks.begin_step(made)
        callbacks.end_step(made, value)
        callbacks.end_epoch(dict.fromkeys(SCORES, value))
        made += 1
    assert made == epochs


@pytest.mark.parametrize(
    ("callback", "sentence"),
    [
        (
            keras.callbacks.EarlyStopping(monitor="val_acc", mode="max"),
            r"^monitor='val_acc' of EarlyStopping: expected one of loss, val_accuracy, val_loss, "
            r"val_mean_squared_error, got an unknown name \(did you mean val_accuracy\?\)\. Pass",
        ),
        (
            checkpoint("a", monitor="val_best", save_best_only=True),
            "^monitor='val_best' of ModelCheckpoint: expected one of",
        ),
        (
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
            "^callbacks contains LearningRateScheduler, but the learning rate follows the schedule",
        ),
        (keras.callbacks.ReduceLROnPlateau(), "^callbacks contains ReduceLROnPlateau"),
    ],
)
def test_callbacks_that_cannot_act_are_rejected(callback, sentence):
    with pytest.raises(ValueError, match=sentence):
        callbacks_of(callback)


def test_without_an_evaluation_only_the_loss_is_known(tmp_path):
    callbacks_of(checkpoint(tmp_path), keras.callbacks.EarlyStopping("loss"), scores={})
    with pytest.raises(ValueError, match="expected one of loss, got an unknown name"):
        callbacks_of(keras.callbacks.EarlyStopping(), scores={})


def test_a_value_that_another_callback_adds_needs_a_mode():
    callbacks_of(Adds(), keras.callbacks.EarlyStopping("val_own", mode="max"))
    with pytest.raises(ValueError, match="^monitor='val_own' of EarlyStopping: its direction is"):
        callbacks_of(Adds(), keras.callbacks.EarlyStopping("val_own"))
    with pytest.raises(ValueError, match="got an unknown name"):
        callbacks_of(keras.callbacks.EarlyStopping("val_own", mode="max"), Adds())
