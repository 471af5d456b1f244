"""Two processes equal one device that reads their concatenated shards, batch by batch.

Each runs ``python -m tests.training.test_two_workers TASK ADDRESSES RESULTS.npz``.
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
ROWS = 8  # per worker
_WORDS = [f"w{n}" for n in range(20)]
VOCABULARY = [*SPECIAL_TOKENS, *_WORDS]


def _corpus():
    rng = np.random.default_rng(5)
    return from_documents(
        [[" ".join(rng.choice(_WORDS, 5)) for _ in range(rng.integers(2, 6))] for _ in range(80)]
    )


def batches(shard_index, num_shards, batch_size=ROWS):
    """Returns the batches of a shard, from several shuffle pools."""
    return pretraining_dataset(
        _corpus(), BertTokenizer(VOCABULARY), batch_size=batch_size, max_seq_length=16, seed=3,
        blocks_per_pool=1, shard_index=shard_index, num_shards=num_shards, num_parallel_calls=1,
    )  # fmt: skip


def train(strategy, dataset):
    """Returns the training's outcome, and the state by name."""
    loop = make_loop(strategy, lambda: bert(len(VOCABULARY)), gradient_accumulation_steps=2)
    result = loop.make(loop.distribute(dataset), STEPS)
    state = {name: variable.numpy() for name, variable in loop.state().items()}
    # Every worker produces all batches of the evaluation.
    evaluation = loop.evaluate(lambda context: batches(0, 1, 16), 3)
    return {
        "cursors": np.array(result.cursors),
        "norm": np.array(result.gradient_norm),
        "evaluation": np.array(evaluation),
        **state,
    }


def main(task: str, addresses: str, results_path: str) -> None:
    """Trains, and exchanges two values with the other worker."""
    cluster = find_cluster(addresses.split(","), int(task))
    devices = distribution.choose_strategy(cluster=cluster)
    assert devices.strategy.num_replicas_in_sync == 2
    gathered = devices.workers.gather([float(task), 7.5])

    def host_batches(context):
        return batches(context.input_pipeline_id, context.num_input_pipelines)

    results = train(devices.strategy, host_batches)
    devices.workers.wait()
    np.savez(results_path, gathered=gathered, **results)


def free_addresses(count):
    """Returns local addresses that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def start_python(*arguments):
    """Starts Python in a separate process whose output and errors are captured."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *map(str, arguments)], text=True, **pipes)


def _run(folder):
    """Returns the results of both workers."""
    addresses = ",".join(free_addresses(2))
    module = ("-m", "tests.training.test_two_workers")
    paths = [folder / f"{task}.npz" for task in range(2)]
    started = [start_python(*module, task, addresses, path) for task, path in enumerate(paths)]
    errors = [process.communicate(timeout=300)[1][-3000:] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    results = []
    for path in paths:
        with np.load(path) as file:
            results.append(dict(file))
    return results


@pytest.fixture(scope="module")
def one_device():
    """Trains one device on both shards; the examples of worker 1 follow those of worker 0."""
    shards = (batches(0, 2), batches(1, 2))
    joined = tf.data.Dataset.zip(shards).map(
        lambda one, two: {key: tf.concat([one[key], two[key]], 0) for key in one}
    )
    return train(tf.distribute.get_strategy(), joined)


pytestmark = pytest.mark.slow  # starts processes of two workers


def test_two_workers_equal_one_device(tmp_path, one_device):
    chief, other = _run(tmp_path)
    assert chief["gathered"].tolist() == other["gathered"].tolist() == [[0.0, 7.5], [1.0, 7.5]]
    assert chief["norm"] > CLIP_NORM, "the norm must exceed the clipping threshold"
    np.testing.assert_allclose(chief["evaluation"], one_device["evaluation"], rtol=1e-4)
    rows = EvaluationResult._fields.index("next_sentence_rows")
    assert chief["evaluation"][rows] == one_device["evaluation"][rows] == 48, "each example once"
    for name, value in one_device.items():
        if name.startswith(("model/", "optimizer/")):
            np.testing.assert_allclose(chief[name], value, rtol=0, atol=1e-6, err_msg=name)
    # One device sees the last example of the last shard; the workers see those of both shards.
    assert chief["cursors"][1].tolist() == one_device["cursors"][0].tolist()
    assert chief["cursors"].tolist() == [_last_cursor(0), _last_cursor(1)]
    for name, value in chief.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def _last_cursor(shard):
    *_, last = batches(shard, 2).take(STEPS).as_numpy_iterator()
    return last["cursor"][-1].tolist()


if __name__ == "__main__":
    main(*sys.argv[1:])
