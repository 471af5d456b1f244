"""Trains on one device and on two or four logical CPU devices, and writes the results to a file.

TensorFlow splits the CPU before anything is computed or not at all, so this runs as a process of
its own: ``python -m tests.training.two_replicas RESULTS.npz CHECKPOINTS RUN...``.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import attention, distribution, optimizers, saved_states, schedules
from tests.anew import split_cpu
from tests.training.conftest import SEQUENCE, VOCABULARY, batches_dataset, random_batch, small_model

STEPS = 4
MANY_STEPS = 20
CLIP_NORM = 0.5


def bert(vocabulary: int = VOCABULARY) -> keras.Model:
    """One layer of BERT without dropout, the same weights every time."""
    keras.utils.set_random_seed(3)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=max(SEQUENCE, 16), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.5,
    )  # fmt: skip
    return BertPretrainer(config)


def make_loop(strategy, build, *, dropout_seed=1, sgd=False, **options) -> PretrainingLoop:
    keras.utils.clear_session()
    with strategy.scope():
        model = build()
        if sgd:
            optimizer = keras.optimizers.SGD(1e-2)
            optimizer.build(model.trainable_variables)
        else:
            optimizer = optimizers.create_optimizer(
                "adam", schedules.WarmupLinearDecay(1e-4, 1, 100), model.trainable_variables
            )
    return PretrainingLoop(
        model, optimizer, strategy, seed=dropout_seed, clip_norm=CLIP_NORM, **options
    )


def _train(loop, name):
    steps = MANY_STEPS if name.startswith("long") else STEPS
    dataset = batches_dataset(steps, first=MANY_STEPS if name.startswith("after") else 0)
    return loop.make(loop.distribute(dataset), steps)


def _record(results, name, loop, outcome):
    for variable_name, variable in loop.state().items():
        results[f"{name}:{variable_name}"] = variable.numpy()
    numbers = [outcome.gradient_norm, outcome.learning_rate, *outcome.losses, *outcome.sums]
    results[f"{name}:outcome"] = np.array(numbers)
    results[f"{name}:cursor"] = np.array(outcome.cursors)


def _replica_losses(strategy, steps):
    """(steps, 2): each replica's own loss sum on *equal* rows, so only its mask can change it."""
    loop = make_loop(strategy, lambda: small_model(dropout=0.5))
    batch = {
        key: tf.constant(value) for key, value in random_batch(0).items() if key != features.CURSOR
    }
    one = tf.constant(1.0)

    @tf.function
    def run(step):
        def replica():
            context = tf.distribute.get_replica_context()
            replica_id = tf.convert_to_tensor(context.replica_id_in_sync_group)
            return loop.replica_step.sum_gradients(batch, step, replica_id, [one, one])[1][0]

        return strategy.experimental_local_results(strategy.run(replica))

    return np.array([[float(x) for x in run(tf.constant(step, tf.int64))] for step in steps])


def recomputed_bert() -> keras.Model:
    """The same model, whose blocks are computed again for the backward pass."""
    model = bert()
    model.encoder.recomputes_blocks = True
    return model


RUNS = {
    # Adam hardly sees a gradient of twice the size, plain descent does.
    "sgd/one": (1, small_model, {"sgd": True}),
    "sgd/two": (2, small_model, {"sgd": True, "gradient_accumulation_steps": 2}),
    "bert/one": (1, bert, {}),
    "bert/two": (2, bert, {}),
    "remat/two": (2, recomputed_bert, {"gradient_accumulation_steps": 2}),
    "groups/two": (2, bert, {"gradient_accumulation_steps": 2}),
    "long/one": (1, bert, {}),
    "long/four": (4, bert, {"gradient_accumulation_steps": 2}),
    # They go on with the checkpoint of four.
    "after/one": (1, bert, {}),
    "after/two": (2, bert, {}),
}
SAVED = ("bert/two", "long/four")


def _restore(results, name, loop, directory):
    """Restores a checkpoint, of which it records every copy."""
    saved_states.restore_latest(directory, loop.state())
    for variable_name, variable in loop.state().items():
        values = loop.strategy.experimental_local_results(variable.value)
        results[f"{name}/restored:{variable_name}"] = np.stack([v.numpy() for v in values])


def main(results_path: str, checkpoint_directory: str, *names: str) -> None:
    """Makes the named runs, and one of each other comparison of two replicas."""
    # A process has one group of replicas that reduce together.
    replicas = max(RUNS[name][0] for name in names)
    split_cpu(replicas)
    mirrored = distribution.choose_strategy("mirrored").strategy
    strategies = {1: tf.distribute.get_strategy(), replicas: mirrored}
    results = {f"replicas/{replicas}": np.array(mirrored.num_replicas_in_sync)}
    for name in names:
        count, build, options = RUNS[name]
        # Attention at once, or a text at a time.
        attention._MOST_SCORES = 1 if name.startswith("groups") else 1 << 22
        loop = make_loop(strategies[count], build, **options)
        if name.startswith("after"):
            _restore(results, name, loop, f"{checkpoint_directory}/long/four")
        _record(results, name, loop, _train(loop, name))
        if name.startswith("sgd"):
            results[f"{name}/evaluation"] = np.array(loop.evaluate(batches_dataset(2, first=50)))
        if name in SAVED:
            folder = f"{checkpoint_directory}/{name}"
            saved_states.save(folder, loop.step, loop.state(), {})
            _restore(results, name, make_loop(strategies[count], bert), folder)
        if name == "long/one":
            _record(results, "after/none", loop, _train(loop, "after"))
    if replicas == 2:
        results["replica_losses"] = _replica_losses(mirrored, [0, 1, 0])
    np.savez(results_path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
