"""The batches of an evaluation and their element spec."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.evaluation import evaluation
from bert_tf.pipelines.tokenized_examples import Examples


@pytest.mark.parametrize("size", [4, 8], ids=["derived", "of a dataset"])
def test_spec_allows_every_width(size):
    """If a dimension equals the first width, a batch does not show which of the two varies."""

    def make_batch(indices, width):
        return {"index": indices, "ids": tf.zeros([tf.size(indices), size, width], tf.int32)}

    examples = Examples(np.int32([3, 8, 5, 2, 7]), 16, make_batch)
    batches, spec = evaluation._batches(examples, 2, 1)
    found = [*batches]
    assert spec["ids"].shape.as_list() == [None, size, None]
    assert [batch["ids"].shape[2] for batch in found] == [8, 5, 2]
    assert [batch["index"].numpy().tolist() for batch in found] == [[1, 4], [2, 0], [3]]
    assert all(spec["ids"].is_compatible_with(batch["ids"]) for batch in found)
