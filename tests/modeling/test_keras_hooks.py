"""Private names of Keras behave as expected; an incompatible version raises an error."""

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


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(loss="mse")
    return model


# Uses of each private name.
USES = {
    "_all_reduce_sum_gradients": lambda model, sgd: keras_hooks.without_reduction(sgd),
    "_use_weight_decay": lambda model, sgd: keras_hooks.is_decayed(sgd, model.weights[0]),
    "_apply_weight_decay": lambda model, sgd: create_optimizer("adam", 1e-4, model.weights),
    "_get_variable_index": lambda model, sgd: create_optimizer("adam", 1e-4, model.weights),
    "_untrack_variable": lambda model, sgd: keras_hooks.replace_variable(
        model.layers[0], "bias", (3,), "zeros"
    ),
    "_loss_tracker": lambda model, sgd: keras_hooks.track_loss(model, 1.0, 1),
}


@pytest.mark.parametrize("name", USES)
def test_missing_private_name_is_an_error(name, model, optimizer, monkeypatch):
    USES[name](model, optimizer)
    names = {name}
    if name == "_use_weight_decay":
        names.add("_is_excluded_from_weight_decay")  # from Keras 3.16 on
    for owner in (keras.optimizers.SGD, keras.layers.Dense, keras.Model):
        for base in owner.__mro__:
            for each in names & vars(base).keys():
                monkeypatch.delattr(base, each)
    model.__dict__.pop(name, None)
    message = rf"has no \w+\.{name}\. Install a version that bert_tf supports"
    with pytest.raises(ImportError, match=message):
        USES[name](model, keras.optimizers.SGD(0.1))


def test_bypassed_reduction_is_an_error(optimizer, weight, monkeypatch):
    """This applies to the first call and to later ones."""
    apply = keras_hooks.without_reduction(optimizer)
    apply([tf.constant([1.0])], [weight])
    monkeypatch.setattr(optimizer, "_backend_update_step", lambda *arguments: None)
    with pytest.raises(ImportError, match=r"does not call optimizer\._all_reduce_sum_gradients"):
        apply([tf.constant([1.0])], [weight])


def test_changed_variable_order_is_an_error(weight, monkeypatch):
    monkeypatch.setattr(keras.optimizers.Optimizer, "_get_variable_index", lambda *_: 0)
    with pytest.raises(ImportError, match="changes the order of an optimizer.s variables"):
        create_optimizer("adam", 1e-4, [weight, keras.Variable([2.0], name="other")])


class Renamed(keras.layers.LSTMCell):
    """Stores its seeds under a different name, as an incompatible Keras could."""

    @property
    def variables(self):
        return [*super().variables, self.seed_generator.state]


def test_isolated_call_context(monkeypatch):
    seen = []

    class Inner(keras.layers.Layer):
        def call(self, x, training=None):
            seen.append(training)
            return x

    class Outer(keras.layers.Layer):
        def call(self, x, training=None):
            with keras_hooks.isolated_call_context(inner):
                inner(x, training=False)
            return inner(x)

    inner = Inner()
    Outer()(tf.zeros([1]), training=True)
    assert seen == [False, True]
    monkeypatch.setattr(Inner, "_get_call_context", lambda self: None)
    with (
        pytest.raises(
            ImportError, match=r"current_call_ctx\. Install a version that bert_tf supports"
        ),
        keras_hooks.isolated_call_context(inner),
    ):
        pass


def test_seed_generators_are_removed():
    cell = keras.layers.LSTMCell(2)
    assert len(cell.variables) == 1
    keras_hooks.remove_seed_generators(cell)
    assert cell.variables == []
    message = r"in layer\._seed_generators\. Install a version that bert_tf supports"
    with pytest.raises(ImportError, match=message):
        keras_hooks.remove_seed_generators(Renamed(2))


def test_replaced_variable_has_same_path():
    with keras.name_scope("outer"):
        layer = keras.layers.Dense(2, name="inner")
        layer.build((None, 3))
    path = layer.bias.path
    new = keras_hooks.replace_variable(layer, "bias", (1,), keras.initializers.Ones())
    assert layer.bias is new and new.path == path
    assert [tuple(weight.shape) for weight in layer.trainable_weights] == [(3, 2), (1,)]
    np.testing.assert_allclose(layer(np.zeros((1, 3))).numpy(), [[1.0, 1.0]])
