"""Each private name of Keras does what is relied on; a Keras of which it does not is an error."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import keras_hooks
from bert_tf.training.optimizers import create_optimizer


@pytest.fixture
def weight():
    return keras.Variable([1.0], name="weight")


@pytest.fixture
def optimizer(weight):
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([weight])
    return optimizer


def owner_of(name):
    return next(owner for owner in keras.optimizers.SGD.__mro__ if name in vars(owner))


def test_gradients_are_applied_as_they_are(optimizer, weight):
    keras_hooks.without_reduction(optimizer)([tf.constant([1.0])], [weight])
    np.testing.assert_allclose(weight.numpy(), [0.9])


def test_a_renamed_reduction_is_told(optimizer, monkeypatch):
    name = "_all_reduce_sum_gradients"
    monkeypatch.delattr(owner_of(name), name)
    with pytest.raises(ImportError, match=r"has no optimizer\._all_reduce_sum_gradients: install"):
        keras_hooks.without_reduction(optimizer)


def test_a_renamed_decay_is_told(optimizer, weight, monkeypatch):
    assert keras_hooks.is_decayed(optimizer, weight)
    monkeypatch.delattr(owner_of("_use_weight_decay"), "_use_weight_decay")
    with pytest.raises(ImportError, match=r"has no optimizer\._use_weight_decay: install"):
        keras_hooks.is_decayed(optimizer, weight)


def test_a_renamed_hook_of_the_decay_is_told(weight, monkeypatch):
    for owner in keras.optimizers.Optimizer.__mro__:
        if "_apply_weight_decay" in vars(owner):
            monkeypatch.delattr(owner, "_apply_weight_decay")
    with pytest.raises(ImportError, match=r"has no optimizer\._apply_weight_decay: install"):
        create_optimizer("adam", 1e-4, [weight])


def test_a_reduction_that_is_passed_by_is_told(optimizer, weight, monkeypatch):
    """Whether Keras goes another way at once, or the step is traced a second time."""
    apply = keras_hooks.without_reduction(optimizer)
    apply([tf.constant([1.0])], [weight])
    monkeypatch.setattr(optimizer, "_backend_update_step", lambda *arguments: None)
    with pytest.raises(ImportError, match=r"without optimizer\._all_reduce_sum_gradients"):
        apply([tf.constant([1.0])], [weight])


@pytest.mark.parametrize(
    ("change", "message"),
    [(None, r"has no optimizer\._get_variable_index"), (lambda *_: 0, "in another order than")],
)
def test_other_numbers_of_variables_are_told(weight, monkeypatch, change, message):
    owner = owner_of("_get_variable_index")
    if change is None:
        monkeypatch.delattr(owner, "_get_variable_index")
    else:
        monkeypatch.setattr(owner, "_get_variable_index", change)
    other = keras.Variable([2.0], name="other")
    with pytest.raises(ImportError, match=message):
        create_optimizer("adam", 1e-4, [weight, other])


class Renamed(keras.layers.LSTMCell):
    """Keeps its seeds under another name, as another Keras might."""

    @property
    def variables(self):
        return [*super().variables, self.seed_generator.state]


def test_a_cell_has_no_seeds_left():
    cell = keras.layers.LSTMCell(2)
    assert len(cell.variables) == 1
    keras_hooks.drop_seeds(cell)
    assert cell.variables == []
    with pytest.raises(ImportError, match=r"elsewhere than in layer\._seed_generators: install"):
        keras_hooks.drop_seeds(Renamed(2))


def test_a_variable_of_another_shape_takes_a_name_and_a_path():
    with keras.name_scope("outer"):
        layer = keras.layers.Dense(2, name="inner")
        layer.build((None, 3))
    path = layer.bias.path
    new = keras_hooks.replace_variable(layer, "bias", (1,), keras.initializers.Ones())
    assert layer.bias is new and new.path == path
    assert [tuple(weight.shape) for weight in layer.trainable_weights] == [(3, 2), (1,)]
    np.testing.assert_allclose(layer(np.zeros((1, 3))).numpy(), [[1.0, 1.0]])


@pytest.mark.parametrize(
    ("name", "act"),
    [
        (
            "_untrack_variable",
            lambda layer, model: keras_hooks.replace_variable(layer, "bias", (3,), "zeros"),
        ),
        ("_loss_tracker", lambda layer, model: keras_hooks.track_loss(model, 1.0, 1)),
    ],
)
def test_a_renamed_tracker_is_told(monkeypatch, name, act):
    layer = keras.layers.Dense(2)
    model = keras.Sequential([keras.Input((3,)), layer])
    model.compile(loss="mse")
    keras_hooks.track_loss(model, 2.0, 3)
    for owner in (keras.Layer, keras.Model):
        for base in owner.__mro__:
            if name in vars(base):
                monkeypatch.delattr(base, name)
    model.__dict__.pop(name, None)
    with pytest.raises(ImportError, match=f"has no .*{name}: install"):
        act(layer, model)
