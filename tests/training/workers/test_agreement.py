"""What workers agree on, and a worker that is lost."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.cli import command
from bert_tf.training.workers import agreement
from bert_tf.training.workers.cluster import Cluster


def test_workers_that_differ():
    mine = agreement.Workers(None, Cluster(("a:1", "b:1"), 0))
    mine.gather = lambda values: np.array([values, [4]], float)
    mine.check_same(4, "newest checkpoint")
    with pytest.raises(ValueError, match=r"workers differ in the newest checkpoint .\[3.0, 4.0\]"):
        mine.check_same(3, "newest checkpoint")


def test_a_lost_worker_is_told_in_the_sentence_that_a_command_ends_with():
    of_two = agreement.Workers(cluster=Cluster(("a:1", "b:1"), 0))
    with pytest.raises(
        agreement.LostWorkerError, match="^Another of the 2 workers ended or cannot be reached"
    ) as error:
        with of_two.connected():
            raise tf.errors.UnavailableError(None, None, "gone")
    # Which knows it without importing TensorFlow.
    assert command._is_user_error(error.value) and error.type.__name__ == "LostWorkerError"
