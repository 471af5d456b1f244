"""Two processes equal one device that is fed their shards joined, batch by batch.

Each is ``python -m tests.training.test_two_workers TASK ADDRESSES RESULTS.npz``.
"""

import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.corpora.sources import from_documents
from bert_tf.pipelines.pretraining.dataset import pretraining_dataset
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.pretraining.objective import EvaluationResult
from bert_tf.training import distribution
from bert_tf.training.cluster import find_cluster

from .conftest import bert
from .test_two_replicas import CLIP_NORM, make_loop

STEPS = 20
ROWS = 8  # of a worker
_WORDS = [f"w{n}" for n in range(20)]
VOCABULARY = [*SPECIAL_TOKENS, *_WORDS]


def _corpus():
    rng = np.random.default_rng(5)
    return from_documents(
        [[" ".join(rng.choice(_WORDS, 5)) for _ in range(rng.integers(2, 6))] for _ in range(80)]
    )


def batches(shard_index, num_shards, batch_size=ROWS):
    """The batches of a shard, of several pools."""
    return pretraining_dataset(
        _corpus(), BertTokenizer(VOCABULARY), batch_size=batch_size, max_seq_length=16, seed=3,
        blocks_per_pool=1, shard_index=shard_index, num_shards=num_shards, num_parallel_calls=1,
    )  # fmt: skip


def train(strategy, dataset):
    """The training's outcome, and the state by name."""
    loop = make_loop(strategy, lambda: bert(len(VOCABULARY)), gradient_accumulation_steps=2)
    result = loop.make(loop.distribute(dataset), STEPS)
    state = {name: variable.numpy() for name, variable in loop.state().items()}
    # Every worker makes all of the evaluation's batches.
    evaluation = loop.evaluate(lambda context: batches(0, 1, 16), 3)
    return {
        "cursors": np.array(result.cursors),
        "norm": np.array(result.gradient_norm),
        "evaluation": np.array(evaluation),
        **state,
    }


def main(task: str, addresses: str, results_path: str) -> None:
    """Trains, and agrees on two numbers."""
    cluster = find_cluster(addresses.split(","), int(task))
    devices = distribution.choose_strategy(cluster=cluster)
    assert devices.strategy.num_replicas_in_sync == 2
    told = devices.workers.gather([float(task), 7.5])

    def of_host(context):
        return batches(context.input_pipeline_id, context.num_input_pipelines)

    results = train(devices.strategy, of_host)
    devices.workers.wait()
    np.savez(results_path, told=told, **results)


def free_addresses(count):
    """Addresses of this machine that nothing listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def start_python(*arguments):
    """Starts Python in a process of its own, whose output and errors are read by its end."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *map(str, arguments)], text=True, **pipes)


def _run(folder):
    """The results of both workers."""
    addresses = ",".join(free_addresses(2))
    module = ("-m", "tests.training.test_two_workers")
    paths = [folder / f"{task}.npz" for task in range(2)]
    started = [start_python(*module, task, addresses, path) for task, path in enumerate(paths)]
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
    shards = (batches(0, 2), batches(1, 2))
    joined = tf.data.Dataset.zip(shards).map(
        lambda one, two: {key: tf.concat([one[key], two[key]], 0) for key in one}
    )
    return train(tf.distribute.get_strategy(), joined)


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
    *_, last = batches(shard, 2).take(STEPS).as_numpy_iterator()
    return last["cursor"][-1].tolist()


if __name__ == "__main__":
    main(*sys.argv[1:])
