"""Two processes equal one device that is fed their shards joined, batch by batch."""

import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.objective import EvaluationResult

from . import two_workers
from .two_replicas import CLIP_NORM


def free_addresses(count):
    """Addresses of this machine that nothing listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def _run(folder):
    """The results of both workers."""
    addresses = ",".join(free_addresses(2))
    module = [sys.executable, "-m", "tests.training.two_workers"]
    paths = [str(folder / f"{task}.npz") for task in range(2)]
    started = [
        subprocess.Popen(
            [*module, str(task), addresses, path],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task, path in enumerate(paths)
    ]
    said = [process.communicate(timeout=300)[1][-3000:] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    results = []
    for path in paths:
        with np.load(path) as file:
            results.append(dict(file))
    return results


@pytest.fixture(scope="module")
def one_device():
    """What one device makes of both shards, a worker's rows behind the other's."""
    shards = (two_workers.batches(0, 2), two_workers.batches(1, 2))
    joined = tf.data.Dataset.zip(shards).map(
        lambda one, two: {key: tf.concat([one[key], two[key]], 0) for key in one}
    )
    return two_workers.train(tf.distribute.get_strategy(), joined)


pytestmark = pytest.mark.slow  # processes of two workers


def test_two_workers_equal_one_device(tmp_path, one_device):
    chief, other = _run(tmp_path)
    assert chief["told"].tolist() == other["told"].tolist() == [[0.0, 7.5], [1.0, 7.5]]
    assert chief["norm"] > CLIP_NORM, "the norm has to be above the clipping"
    np.testing.assert_allclose(chief["evaluation"], one_device["evaluation"], rtol=1e-4)
    rows = EvaluationResult._fields.index("next_sentence_rows")
    assert chief["evaluation"][rows] == one_device["evaluation"][rows] == 48, "each row once"
    for name, value in one_device.items():
        if name.startswith(("model/", "optimizer/")):
            np.testing.assert_allclose(chief[name], value, rtol=0, atol=1e-6, err_msg=name)
    # One device sees the last row of the last shard; the workers know both shards' last rows.
    assert chief["cursors"][1].tolist() == one_device["cursors"][0].tolist()
    assert chief["cursors"].tolist() == [_last_cursor(0), _last_cursor(1)]
    for name, value in chief.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def _last_cursor(shard):
    *_, last = two_workers.batches(shard, 2).take(two_workers.STEPS).as_numpy_iterator()
    return last["cursor"][-1].tolist()
