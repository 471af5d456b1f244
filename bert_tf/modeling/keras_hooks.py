"""Functions that use private names of Keras and check that the installed version has them.

If the Keras version is incompatible, they raise an error instead of computing wrong values.
"""

import contextlib
import contextvars
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import optree


def incompatible_keras(problem: str) -> ImportError:
    """Returns the error for an incompatible version of Keras; ``problem`` is a verb phrase."""
    return ImportError(
        f"Keras {keras.__version__} {problem}. Install a version that bert_tf supports."
    )


def without_reduction(
    optimizer: keras.optimizers.Optimizer,
) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """Permanently disables the sum of gradients over replicas in ``optimizer.apply``.

    Keras sums the gradients in ``apply``. If they are already summed, for clipping, a second sum
    would multiply them by the number of replicas.

    Returns:
        A replacement for ``optimizer.apply`` that raises ``ImportError`` if Keras does not call
        the disabled hook.
    """
    if not callable(getattr(optimizer, "_all_reduce_sum_gradients", None)):
        raise incompatible_keras("has no optimizer._all_reduce_sum_gradients")
    calls: list[Any] = []

    def skip_reduction(grads_and_vars: Any) -> Any:
        calls.append(None)
        return list(grads_and_vars)

    optimizer._all_reduce_sum_gradients = skip_reduction

    def apply(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        calls.clear()
        optimizer.apply(gradients, variables)
        if not calls:
            raise incompatible_keras("does not call optimizer._all_reduce_sum_gradients")

    return apply


def variable_index(optimizer: keras.optimizers.Optimizer, variable: Any) -> int:
    """Returns the index of a variable in the optimizer's list of variables."""
    index: int = optimizer._get_variable_index(variable)
    return index


def is_decayed(optimizer: keras.optimizers.Optimizer, variable: Any) -> bool:
    """Returns whether weight decay applies to a variable."""
    # In Keras 3.16, ``_use_weight_decay`` requires a built optimizer.
    if callable(excludes := getattr(optimizer, "_is_excluded_from_weight_decay", None)):
        return not excludes(variable)
    if callable(decays := getattr(optimizer, "_use_weight_decay", None)):
        return bool(decays(variable))
    raise incompatible_keras("has no optimizer._use_weight_decay")


def check_decays_by_hook() -> None:
    """Checks that Keras applies weight decay in ``_apply_weight_decay``, a method to override."""
    if not callable(getattr(keras.optimizers.Optimizer, "_apply_weight_decay", None)):
        raise incompatible_keras("has no optimizer._apply_weight_decay")


def check_variable_indices(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> None:
    """Checks that ``variable_index`` numbers a new optimizer's variables in the given order.

    With a different order, the optimizer would apply the moments of one variable to another.
    """
    try:
        indices = [variable_index(optimizer, variable) for variable in variables]
    except AttributeError as error:
        raise incompatible_keras("has no optimizer._get_variable_index") from error
    if indices != list(range(len(indices))):
        raise incompatible_keras("changes the order of an optimizer's variables")


def remove_seed_generators(layer: keras.Layer) -> None:
    """Removes a layer's unused seed generators, so that they are not part of the model's state."""
    getattr(layer, "_seed_generators", []).clear()
    if len(layer.variables) != len(layer.weights):
        raise incompatible_keras("does not store the seeds of a layer in layer._seed_generators")


def replace_variable(
    layer: keras.Layer, name: str, shape: tuple[int, ...], initializer: Any
) -> keras.Variable:
    """Replaces a built layer's variable with a new one at the same path; returns the new one."""
    old = getattr(layer, name)
    if not callable(getattr(layer, "_untrack_variable", None)):
        raise incompatible_keras("has no layer._untrack_variable")
    layer._untrack_variable(old)
    was_locked = layer._tracker.locked
    layer._tracker.unlock()
    with contextlib.ExitStack() as scopes:
        for scope in old.path.split("/")[:-1]:
            scopes.enter_context(keras.name_scope(scope))
        new = layer.add_weight(name=name, shape=shape, initializer=initializer, autocast=False)
    setattr(layer, name, new)
    if was_locked:
        layer._tracker.lock()
    if new.path != old.path or not any(new is variable for variable in layer.weights):
        raise incompatible_keras("does not store the variables of a layer in its tracker")
    return new


def pass_training_argument(layer: keras.Layer) -> None:
    """Makes Keras pass ``training`` to a ``call`` that has ``**kwargs``, as Keras 2 did."""
    kinds = {parameter.kind for parameter in inspect.signature(layer.call).parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        return
    if not isinstance(getattr(layer, "_call_has_context_arg", None), dict):
        raise incompatible_keras("has no layer._call_has_context_arg")
    layer._call_has_training_arg = layer._call_has_context_arg["training"] = True


@contextlib.contextmanager
def _cleared(attribute: str) -> Iterator[None]:
    """Clears one of Keras' thread-local global attributes within the context."""
    from keras.src.backend.common import global_state

    before = global_state.get_global_attribute(attribute)
    global_state.set_global_attribute(attribute, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(attribute, before)


@contextlib.contextmanager
def isolated_call_context(layer: keras.Layer) -> Iterator[None]:
    """Within the context, hides the surrounding layer's call context from a layer.

    Keras shares one context between a call and all nested calls, so that passing
    ``training=False`` to one layer of a model would also affect all layers after it.
    """
    with _cleared("current_call_ctx"):
        if getattr(layer._get_call_context(), "entry_layer", None) is not layer:
            raise incompatible_keras("does not store the context of calls in current_call_ctx")
        yield


def fresh_names() -> contextlib.AbstractContextManager[None]:
    """Within the context, names new layers as in a new process; then restores the counters."""
    return _cleared("object_name_uids")


# Generator that draws seeds for this thread's layers; ``None`` for Python's global generator.
_seeds: contextvars.ContextVar[Any] = contextvars.ContextVar("_seeds", default=None)


class _PythonRandom:
    """Replacement for the module ``random`` in Keras."""

    @staticmethod
    def randint(low: int, high: int) -> int:
        """Draws an integer from the generator that ``seeds_from`` sets."""
        drawn: int = (_seeds.get() or random).randint(low, high)
        return drawn


@contextlib.contextmanager
def seeds_from(generator: Any = None) -> Iterator[None]:
    """Draws the seeds of this thread's new layers from a generator.

    Args:
        generator: A ``random.Random``. With ``random.Random(seed)``, weights are the same as after
            ``keras.utils.set_random_seed(seed)``, which seeds the whole process. By default a
            copy of Python's generator, so that the program's own random numbers do not change.
    """
    from keras.src.random import seed_generator

    if getattr(seed_generator, "python_random", None) not in (random, _PythonRandom):
        raise incompatible_keras("does not draw seeds from seed_generator.python_random")
    seed_generator.python_random = _PythonRandom
    if generator is None:
        generator = random.Random()
        generator.setstate(random.getstate())
    token = _seeds.set(generator)
    try:
        yield
    finally:
        _seeds.reset(token)


def register_dict_like(mapping_class: Any) -> None:
    """Makes Keras accept mappings of a class as inputs, like a dict."""
    register: Any = optree.register_pytree_node
    register(
        mapping_class,
        lambda mapping: (list(mapping.values()), tuple(mapping)),
        lambda names, values: dict(zip(names, values, strict=True)),
        namespace="keras",
    )


def register_slice_operation() -> None:
    """Registers the slice operation, which Keras' HDF5 files store only by name."""
    try:  # the class is imported, because creating a slice would change the names of later layers
        from keras.src.ops.numpy import GetItem
    except ImportError as error:
        raise incompatible_keras("has no keras.src.ops.numpy.GetItem") from error
    keras.saving.get_custom_objects()["GetItem"] = GetItem


def track_loss(model: keras.Model, loss: Any, weight: Any) -> None:
    """Adds the loss of a batch to the mean that ``fit`` and ``evaluate`` report."""
    if not callable(getattr(getattr(model, "_loss_tracker", None), "update_state", None)):
        raise incompatible_keras("has no model._loss_tracker")
    model._loss_tracker.update_state(loss, sample_weight=weight)


def compile_from_config(model: Any, config: dict[str, Any]) -> None:
    """Compiles a model from a saved config; needed because ``compile`` is overridden."""
    model.compile(**keras.saving.deserialize_keras_object(config))
    if model.built:
        model.optimizer.build(model.trainable_variables)  # Keras loads the optimizer's state next
