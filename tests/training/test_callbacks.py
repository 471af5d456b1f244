"""Keras callbacks that monitor a score or set the learning rate."""

import keras
import pytest

from bert_tf.training.trainer import Callbacks

SCORES = {"accuracy": "max", "loss": "min", "mean_squared_error": "min"}


class AddsValue(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["val_own"] = float(epoch)


def make_callbacks(*callbacks, scores=SCORES):
    return Callbacks(callbacks, keras.Sequential(), steps_per_epoch=1, epochs=9, scores=scores)


def checkpoint(folder, **options):
    return keras.callbacks.ModelCheckpoint(f"{folder}/a.weights.h5", **options)


@pytest.mark.parametrize(
    ("monitor", "values", "epochs"),
    [
        ("val_accuracy", [0.5, 0.7, 0.6, 0.6, 0.9], 4),  # the second is the best
        ("val_mean_squared_error", [0.9, 0.5, 0.7, 0.6, 0.1], 4),
        ("loss", [3.0, 2.0, 2.5, 2.5, 1.0], 4),
    ],
)
def test_auto_mode_uses_direction_of_score(monitor, values, epochs):
    stopping = keras.callbacks.EarlyStopping(monitor=monitor, patience=2)
    callbacks = make_callbacks(stopping)
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
    ("callback", "message"),
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
            "^callbacks contains LearningRateScheduler, but the learning rate follows the run's",
        ),
        (keras.callbacks.ReduceLROnPlateau(), "^callbacks contains ReduceLROnPlateau"),
    ],
)
def test_unusable_callbacks_raise_error(callback, message):
    with pytest.raises(ValueError, match=message):
        make_callbacks(callback)


def test_without_evaluation_only_loss_is_monitored(tmp_path):
    make_callbacks(checkpoint(tmp_path), keras.callbacks.EarlyStopping("loss"), scores={})
    with pytest.raises(ValueError, match="expected one of loss, got an unknown name"):
        make_callbacks(keras.callbacks.EarlyStopping(), scores={})


def test_value_added_by_callback_needs_mode():
    make_callbacks(AddsValue(), keras.callbacks.EarlyStopping("val_own", mode="max"))
    with pytest.raises(ValueError, match="^monitor='val_own' of EarlyStopping: cannot infer"):
        make_callbacks(AddsValue(), keras.callbacks.EarlyStopping("val_own"))
    with pytest.raises(ValueError, match="got an unknown name"):
        make_callbacks(keras.callbacks.EarlyStopping("val_own", mode="max"), AddsValue())
