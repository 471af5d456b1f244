"""Trains as one of two workers, and writes what comes of it to a file.

A process of its own: ``python -m tests.training.two_workers TASK ADDRESSES RESULTS.npz``.
"""

import sys

import numpy as np

from bert_tf.pipelines.pretraining import pretraining_dataset
from bert_tf.pipelines.sources import from_documents
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training import distribution
from bert_tf.training.distribution import find_cluster

from .two_replicas import bert, make_loop

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


if __name__ == "__main__":
    main(*sys.argv[1:])
