"""Steps that are not finite: found in the compiled loop, and named with their data."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.training.loop import BadStepError

from .conftest import make_loop, random_batch, small_model, starting_over


@functools.cache
def _loop():
    """A loop that is traced once, whose rate ruins the weights, and what puts it back."""
    loop = make_loop(small_model(dropout=0.5), peak=1e30)
    return loop, starting_over(loop)


def _train(loop, batches):
    dataset = tf.data.Dataset.from_tensor_slices(
        {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}
    )
    return loop.train(loop.distribute(dataset), len(batches))


def test_a_bad_step_is_named_with_its_data():
    loop, again = _loop()
    again()
    loop.optimizer.iterations.assign(20)  # beyond its twenty steps the rate is 0
    batches = [random_batch(seed) for seed in range(5)]
    batches[3][features.MASKED_LM_WEIGHTS][-1] = np.nan
    with pytest.raises(BadStepError) as raised:
        _train(loop, batches)
    assert str(raised.value).startswith(
        "The loss or its gradient became infinite or not a number at step 23 (loss nan, "
    )
    assert str(raised.value).endswith(
        "), on the batch that ends with row 7 of pool 3 in epoch 0: lower the learning rate or "
        "lengthen the warm-up, and go on from the checkpoint before."
    )
    assert raised.value.bad.cursors == ((0, 3, 7),)


def test_weights_beyond_use_are_a_bad_step():
    """The steps' own losses are numbers: the last update ruined what the next would be made of."""
    loop, again = _loop()
    again()
    with pytest.raises(BadStepError, match="norm of the weights became infinite or not a number a"):
        _train(loop, [random_batch(0), random_batch(1)])  # the first step's rate is 0
