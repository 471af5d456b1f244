"""Trains on one device and on two logical CPU devices, and writes both results to a file.

TensorFlow splits the CPU before anything is computed or not at all, so this runs as a process of its
own: ``python -m tests.training.two_replicas RESULTS.npz CHECKPOINTS``.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.training import checkpoints, distribution, optimizers, schedules
from bert_tf.training.loop import PretrainingLoop
from tests.training.conftest import SEQUENCE, VOCABULARY, batches_dataset, random_batch, small_model

STEPS = 4
CLIP_NORM = 0.5


def _bert() -> keras.Model:
    keras.utils.set_random_seed(3)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=SEQUENCE, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.5,
    )  # fmt: skip
    return BertPretrainer(config)


def _loop(strategy, build, *, dropout_seed=1, sgd=False, **options) -> PretrainingLoop:
    keras.utils.clear_session()
    with strategy.scope():
        model = build()
        if sgd:
            optimizer = keras.optimizers.SGD(1e-2)
            optimizer.build(model.trainable_variables)
        else:
            optimizer = optimizers.create_optimizer(
                "adam", schedules.WarmupLinearDecay(1e-3, 1, 10), model.trainable_variables
            )
    return PretrainingLoop(
        model, optimizer, strategy, seed=dropout_seed, clip_norm=CLIP_NORM, **options
    )


def _train(loop):
    return loop.train(loop.distribute(batches_dataset(STEPS)), STEPS)


def _record(results, name, loop, outcome):
    for variable_name, variable in loop.state().items():
        results[f"{name}:{variable_name}"] = variable.numpy()
    *numbers, cursor = outcome
    results[f"{name}:outcome"] = np.array(numbers)
    results[f"{name}:cursor"] = np.array(cursor)


def _replica_losses(strategy, steps):
    """(steps, 2): each replica's own loss sum on *equal* rows, so only its mask can change it."""
    loop = _loop(strategy, lambda: small_model(dropout=0.5))
    batch = {
        key: tf.constant(value) for key, value in random_batch(0).items() if key != features.CURSOR
    }
    one = tf.constant(1.0)

    @tf.function
    def run(step):
        def replica():
            context = tf.distribute.get_replica_context()
            replica_id = tf.convert_to_tensor(context.replica_id_in_sync_group)
            return loop._sum_gradients(batch, step, replica_id, one, one)[1][0]

        return strategy.experimental_local_results(strategy.run(replica))

    return np.array([[float(x) for x in run(tf.constant(step, tf.int64))] for step in steps])


def main(results_path: str, checkpoint_directory: str) -> None:
    """Runs every comparison once."""
    mirrored = distribution.choose_strategy("mirrored", logical_cpus=2).strategy
    one = tf.distribute.get_strategy()
    results = {"replicas": np.array(mirrored.num_replicas_in_sync)}

    for name, strategy, build, options in [
        ("small/one", one, small_model, {}),
        ("small/two", mirrored, small_model, {}),
        ("small/two+xla+micro", mirrored, small_model,
         {"jit_compile": True, "gradient_accumulation_steps": 2}),
        ("sgd/one", one, small_model, {"sgd": True}),
        ("sgd/two", mirrored, small_model, {"sgd": True}),
        ("bert/one", one, _bert, {}),
        ("bert/two", mirrored, _bert, {}),
    ]:  # fmt: skip
        loop = _loop(strategy, build, **options)
        _record(results, name, loop, _train(loop))
        if name == "small/two":
            results["evaluation/two"] = np.array(loop.evaluate(batches_dataset(2, first=50)))
            checkpoints.save(checkpoint_directory, loop.step, loop.state(), {})
            # Back into two replicas, over other weights.
            copy = _loop(mirrored, lambda: small_model(seed=9))
            checkpoints.restore_latest(checkpoint_directory, copy.state())
            results["evaluation/restored"] = np.array(copy.evaluate(batches_dataset(2, first=50)))
        if name == "small/one":
            results["evaluation/one"] = np.array(loop.evaluate(batches_dataset(2, first=50)))

    results["replica_losses"] = _replica_losses(mirrored, [0, 1, 0])
    np.savez(results_path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
