"""The private names of Keras that the library relies on: each in one function, checked where used.

A Keras that renames a hook, or no longer goes through it, is an error here. Elsewhere it would be
wrong numbers in silence.
"""

import contextlib
import contextvars
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import optree


def incompatible_keras(what: str) -> ImportError:
    """The error that Keras is not as the library relies on; ``what`` follows its version."""
    return ImportError(
        f"Keras {keras.__version__} {what}: install the version that this library requires."
    )


def without_reduction(
    optimizer: keras.optimizers.Optimizer,
) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """Switches off an optimizer's own sum of the gradients over the replicas, for good.

    Keras sums them within ``apply``. For gradients that are summed already, to be clipped, a second
    sum would multiply them by the number of replicas. What is returned takes the place of
    ``optimizer.apply``, and fails where ``apply`` did not come by the hook.
    """
    if not callable(getattr(optimizer, "_all_reduce_sum_gradients", None)):
        raise incompatible_keras("has no optimizer._all_reduce_sum_gradients")
    calls: list[Any] = []

    def pass_on(grads_and_vars: Any) -> Any:
        calls.append(None)
        return list(grads_and_vars)

    optimizer._all_reduce_sum_gradients = pass_on

    def apply(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        calls.clear()
        optimizer.apply(gradients, variables)
        if not calls:
            raise incompatible_keras("does not call optimizer._all_reduce_sum_gradients")

    return apply


def variable_index(optimizer: keras.optimizers.Optimizer, variable: Any) -> int:
    """The place of a variable among those that the optimizer was built for."""
    index: int = optimizer._get_variable_index(variable)
    return index


def is_decayed(optimizer: keras.optimizers.Optimizer, variable: Any) -> bool:
    """True if a variable is not among those that ``exclude_from_weight_decay`` was given."""
    # From Keras 3.16 on, where ``_use_weight_decay`` is for optimizers that are built.
    if callable(excludes := getattr(optimizer, "_is_excluded_from_weight_decay", None)):
        return not excludes(variable)
    if callable(decays := getattr(optimizer, "_use_weight_decay", None)):
        return bool(decays(variable))
    raise incompatible_keras("has no optimizer._use_weight_decay")


def check_decays_by_hook() -> None:
    """Checks that Keras decays by ``_apply_weight_decay``, which an optimizer may leave empty."""
    if not callable(getattr(keras.optimizers.Optimizer, "_apply_weight_decay", None)):
        raise incompatible_keras("has no optimizer._apply_weight_decay")


def check_variable_indices(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> None:
    """Checks that ``variable_index`` numbers a new optimizer's variables in the given order.

    With other numbers the variables would be updated by each other's moments.
    """
    try:
        indices = [variable_index(optimizer, variable) for variable in variables]
    except AttributeError as error:
        raise incompatible_keras("has no optimizer._get_variable_index") from error
    if indices != list(range(len(indices))):
        raise incompatible_keras("changes the order of an optimizer's variables")


def remove_seed_generators(layer: keras.Layer) -> None:
    """Takes its seed generators from a layer that never draws: they would be state of the model."""
    getattr(layer, "_seed_generators", []).clear()
    if len(layer.variables) != len(layer.weights):
        raise incompatible_keras("does not store the seeds of a layer in layer._seed_generators")


def replace_variable(
    layer: keras.Layer, name: str, shape: tuple[int, ...], initializer: Any
) -> keras.Variable:
    """Replaces a built layer's variable by a new one of the same path; returns the new one."""
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
        raise incompatible_keras("keeps the variables of a layer elsewhere than in its tracker")
    return new


def pass_training_argument(layer: keras.Layer) -> None:
    """Gives ``training`` to a ``call`` that takes any keyword, as Keras 2 did."""
    kinds = {parameter.kind for parameter in inspect.signature(layer.call).parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        return
    if not isinstance(getattr(layer, "_call_has_context_arg", None), dict):
        raise incompatible_keras("has no layer._call_has_context_arg")
    layer._call_has_training_arg = layer._call_has_context_arg["training"] = True


@contextlib.contextmanager
def isolated_call_context(layer: keras.Layer) -> Iterator[None]:
    """A context in which a layer is called as if by itself, and not by the layer that calls it.

    Keras has one context for a call and all calls within: ``training=False``, which one of a
    model's layers is given, would be that of all layers that follow.
    """
    from keras.src.backend.common import global_state

    outer = global_state.get_global_attribute("current_call_ctx")
    global_state.set_global_attribute("current_call_ctx", None)
    try:
        if getattr(layer._get_call_context(), "entry_layer", None) is not layer:
            raise incompatible_keras("does not store the context of calls in current_call_ctx")
        yield
    finally:
        global_state.set_global_attribute("current_call_ctx", outer)


# The source of the seeds of one thread's layers; ``None`` is Python's global generator.
_seeds: contextvars.ContextVar[Any] = contextvars.ContextVar("_seeds", default=None)


class _PythonRandom:
    """The function of the module ``random`` that Keras calls."""

    @staticmethod
    def randint(low: int, high: int) -> int:
        """Draws from the generator of ``seeds_from``."""
        drawn: int = (_seeds.get() or random).randint(low, high)
        return drawn


@contextlib.contextmanager
def seeds_from(generator: Any = None) -> Iterator[None]:
    """Draws the seeds of this thread's new layers from a generator.

    Args:
        generator: ``random.Random(seed)`` gives the weights that ``keras.utils.set_random_seed``
            would, which seeds the whole process. By default a copy of Python's generator, so that
            the program's own draws are not affected.
    """
    from keras.src.random import seed_generator

    if getattr(seed_generator, "python_random", None) not in (random, _PythonRandom):
        raise incompatible_keras("draws seeds elsewhere than from seed_generator.python_random")
    seed_generator.python_random = _PythonRandom
    if generator is None:
        generator = random.Random()
        generator.setstate(random.getstate())
    token = _seeds.set(generator)
    try:
        yield
    finally:
        _seeds.reset(token)


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """Names new layers as in a new process; continues this thread's numbers afterwards."""
    from keras.src.backend.common import global_state

    before = global_state.get_global_attribute("object_name_uids")
    global_state.set_global_attribute("object_name_uids", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("object_name_uids", before)


def register_dict_like(kind: Any) -> None:
    """Lets Keras take mappings of a class as inputs of any model or layer, as it takes a dict."""
    register: Any = optree.register_pytree_node
    register(
        kind,
        lambda mapping: (list(mapping.values()), tuple(mapping)),
        lambda names, values: dict(zip(names, values, strict=True)),
        namespace="keras",
    )


def register_slice_operation() -> None:
    """Lets Keras find a slice's operation by its name, which is all that its HDF5 files say."""
    try:  # the class itself: a slice made here would shift the names of the user's own layers
        from keras.src.ops.numpy import GetItem
    except ImportError as error:
        raise incompatible_keras("has no keras.src.ops.numpy.GetItem") from error
    keras.saving.get_custom_objects()["GetItem"] = GetItem


def track_loss(model: keras.Model, loss: Any, weight: Any) -> None:
    """Adds a batch's loss to the mean that ``fit`` and ``evaluate`` show."""
    if not callable(getattr(getattr(model, "_loss_tracker", None), "update_state", None)):
        raise incompatible_keras("has no model._loss_tracker")
    model._loss_tracker.update_state(loss, sample_weight=weight)


def compile_from_config(model: Any, config: dict[str, Any]) -> None:
    """Compiles as a file says, which Keras leaves out where ``compile`` is a class' own."""
    model.compile(**keras.saving.deserialize_keras_object(config))
    if model.built:
        model.optimizer.build(model.trainable_variables)  # its state is read next
