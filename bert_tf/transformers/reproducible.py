"""Seeds of all random numbers."""

import keras
import tensorflow as tf


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seeds Python's, NumPy's and TensorFlow's random numbers."""
    keras.utils.set_random_seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def enable_full_determinism(seed: int, warn_only: bool = False) -> None:
    """As ``set_seed``, with operations that repeat bit for bit."""
    set_seed(seed, deterministic=True)
