"""Which of an encoder's layers a feature-based model reads: the variants of the paper's table 7."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import features

# By variant, how many blocks an encoder needs to have at least, as table 7 has them in its order.
_LEAST_BLOCKS = {
    "embeddings": 0,
    "second_to_last": 2,
    "last": 1,
    "weighted_sum_last_four": 4,
    "concat_last_four": 4,
    "weighted_sum_all": 1,
}
VARIANTS = tuple(_LEAST_BLOCKS)
# Those that nothing has to be trained for.
UNLEARNED_VARIANTS = tuple(name for name in VARIANTS if not name.startswith("weighted_sum"))


def check_variant(variant: str, num_blocks: int | None = None) -> None:
    """Checks a variant's name, and that an encoder has the blocks that it reads.

    Args:
        variant: one of ``VARIANTS``.
        num_blocks: the encoder's ``num_hidden_layers``; not looked at where it is ``None``.

    Raises:
        ValueError: there is no such variant, or the encoder has too few blocks.

    >>> check_variant("concat_last_four", 2)
    Traceback (most recent call last):
    ...
    ValueError: The variant concat_last_four reads 4 blocks, and the encoder has 2: choose another.
    """
    if variant not in _LEAST_BLOCKS:
        raise ValueError(f"variant is {variant!r}, expected one of {', '.join(VARIANTS)}.")
    least = _LEAST_BLOCKS[variant]
    if num_blocks is not None and num_blocks < least:
        raise ValueError(
            f"The variant {variant} reads {least} blocks, and the encoder has {num_blocks}: choose "
            "another."
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMixture(keras.layers.Layer):
    """One vector a token out of the hidden states of all of an encoder's layers.

    Source: Devlin et al. 2019, section 5.3 and table 7, whose six rows are the variants:

    * ``embeddings``: what enters the first block.
    * ``second_to_last``, ``last``: a block's states.
    * ``weighted_sum_last_four``, ``weighted_sum_all``: a sum over blocks, with learned weights.
    * ``concat_last_four``: the states of four blocks side by side, the lowest first.

    The paper does not say how the sums are weighted. Here they are as Peters et al. 2018 (ELMo),
    equation 1, which the paper compares with: a learned scale times the softmax of a learned number
    for each block. It begins with the mean.

    Args:
        variant: one of ``VARIANTS``.
        **kwargs: ``name``, ``dtype`` and ``trainable``, as for every Keras layer.

    Attributes:
        logits: (blocks,) float32, whose softmax weights the blocks, the lowest first; sums alone
            have it.
        scale: a float32 scalar; sums alone have it.

    Raises:
        ValueError: there is no such variant, or, when the layer is built, the encoder has fewer
            blocks than it reads.

    >>> states = [ops.full((1, 2, 3), float(block)) for block in range(4)]
    >>> outputs = {"embedding_output": states[0], "encoder_outputs": states}
    >>> ops.convert_to_numpy(LayerMixture("weighted_sum_all")(outputs))[0, 0]
    array([1.5, 1.5, 1.5], dtype=float32)
    >>> tuple(LayerMixture("concat_last_four")(outputs).shape)
    (1, 2, 12)
    """

    def __init__(self, variant: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.variant = variant

    def build(self, shapes: Mapping[str, Any]) -> None:
        """Makes the weights of a sum."""
        blocks = len(shapes[features.ENCODER_OUTPUTS])
        check_variant(self.variant, blocks)
        if self.variant in UNLEARNED_VARIANTS:
            return
        summed = blocks if self.variant == "weighted_sum_all" else 4
        # In float32 whatever the policy: a step is smaller than bfloat16 can tell from none.
        self.logits = self.add_weight(
            name="logits", shape=(summed,), initializer="zeros", dtype="float32", autocast=False
        )
        self.scale = self.add_weight(
            name="scale", shape=(), initializer="ones", dtype="float32", autocast=False
        )

    def call(self, outputs: Mapping[str, Any]) -> Any:
        """Mixes the layers.

        Args:
            outputs: an encoder's; ``embedding_output`` and ``encoder_outputs`` are read, each
                (B, S, H).

        Returns:
            (B, S, H) in the compute dtype; (B, S, 4H) of ``concat_last_four``.
        """
        blocks = outputs[features.ENCODER_OUTPUTS]
        if self.variant == "embeddings":
            return ops.cast(outputs[features.EMBEDDING_OUTPUT], self.compute_dtype)
        if self.variant == "last":
            return ops.cast(blocks[-1], self.compute_dtype)
        if self.variant == "second_to_last":
            return ops.cast(blocks[-2], self.compute_dtype)
        if self.variant == "concat_last_four":
            return ops.cast(ops.concatenate(blocks[-4:], axis=-1), self.compute_dtype)
        count = self.logits.shape[0]
        weights = ops.cast(self.scale * ops.softmax(self.logits), self.compute_dtype)
        # One block after the other: stacked, they would take the memory of all of them again.
        mixed = weights[0] * ops.cast(blocks[-count], self.compute_dtype)
        for index in range(1, count):
            mixed = mixed + weights[index] * ops.cast(blocks[index - count], self.compute_dtype)
        return mixed

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "variant": self.variant}
