"""Dropout that shares one seed generator, at half the usual number of random bits."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

LEVELS = 1 << 16  # what sixteen random bits distinguish

# Which elements of a shape are kept, bool of that shape: each is dropped if the sixteen bits that
# it draws from the generator are one of the lowest so many levels.
Draw = Callable[[Sequence[Any], int, keras.random.SeedGenerator], Any]


def draw_in_pairs(shape: Sequence[Any], dropped: int, generator: Any) -> Any:
    """Two elements a word, for a CPU: a device that tiles arrays pads them sixty-four times."""
    count = 1
    for size in shape:
        count = count * size
    # (ceil(count / 2), 1) words of 32 bits -> (ceil(count / 2), 2) uniform int16
    words = keras.random.randint(
        ((count + 1) // 2, 1), -(2**31), 2**31 - 1, "int32", seed=generator
    )
    draws = ops.reshape(ops.view(words, "int16"), (-1,))
    if not isinstance(count, int) or count % 2:
        draws = draws[:count]
    return ops.reshape(draws >= dropped - LEVELS // 2, shape)


class MaskSeeds(keras.random.SeedGenerator):
    """The seeds of a model's dropout masks, and how the masks are drawn from them.

    Attributes:
        draw: as on a CPU, unless a training knows a better way for its device.
    """

    draw: Draw = staticmethod(draw_in_pairs)


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Sets elements to 0 at a given rate in [0, 1) and scales the others, in training only.

    Unlike ``keras.layers.Dropout`` it can share its seeds with other layers, and it draws sixteen
    random bits an element where Keras draws thirty-two: drawing is most of dropout's cost on a CPU.
    The rate is rounded to a multiple of 1/65536, and the scale is that of the rounded rate.
    """

    def __init__(self, rate: float, seed_generator: MaskSeeds | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"The dropout rate must be at least 0 and less than 1, got {rate}.")
        self.supports_masking = True
        self.rate = rate
        self.seed_generator = seed_generator or MaskSeeds(name="dropout_seed")
        self.built = True

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        """Drops elements of a float tensor of any shape; outside training, returns it as it is."""
        if not training or self.dropped == 0:
            return inputs
        kept = self.seed_generator.draw(ops.shape(inputs), self.dropped, self.seed_generator)
        scale = ops.cast(self.scale, inputs.dtype)
        # One product in each direction: what multiplies holds the scale already.
        return inputs * ops.where(kept, scale, ops.zeros_like(scale))

    @property
    def dropped(self) -> int:
        """Number of the levels that drop an element."""
        return min(round(self.rate * LEVELS), LEVELS - 1)

    @property
    def scale(self) -> float:
        """Factor of the elements that are kept."""
        return LEVELS / (LEVELS - self.dropped)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The rate; the seed generator is the model's to give."""
        return {**super().get_config(), "rate": self.rate}


def seed_variables(model: keras.Model) -> list[Any]:
    """The state variables of the model's seed generators, in the order of its layers.

    Each of the library's models has exactly one, of shape (2,). Dropout is a pure function of its
    value, so a training loop needs no random state of its own::

        seeds = [(variable, seed) for variable in seed_variables(model)]
        with keras.StatelessScope(state_mapping=seeds):
            outputs = model(batch, training=True)

    Each dropout of a call adds 1 to the second number. Seeds of other steps and replicas must
    therefore differ in the first number (or be hashed), not merely count up the second one. The
    value has the variable's dtype: int64 under TensorFlow, uint32 under JAX.
    """
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]
