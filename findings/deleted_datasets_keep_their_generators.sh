#!/usr/bin/env bash
# The function of tf.data.Dataset.from_generator, tf.py_function and tf.numpy_function (TensorFlow 2.21.0) stays alive
# after its dataset is deleted, with all that it refers to: a loop that makes a dataset from a list of 40 MB in each
# turn grows by 40 MB a turn. TensorFlow keeps these functions on the default graph, which nobody uses in eager code.
# keras.utils.clear_session() frees them. The function of a plain map is freed with its dataset.
#
# Guessed: a deleted dataset frees what its generator refers to.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0 keras==3.15.1
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - <<'PY' 2>errors || { cat errors; exit 1; }
import gc
import weakref

import keras
import numpy as np
import tensorflow as tf


class Texts:
    def __init__(self):
        self.lengths = np.ones(5_000_000)


def from_generator(texts):
    numbers = tf.TensorSpec((), tf.float64)
    return tf.data.Dataset.from_generator(lambda: iter([texts.lengths.sum()]), output_signature=numbers)


def mapped(call):
    def make(texts):
        return tf.data.Dataset.range(1).map(
            lambda number: call(lambda value: value + texts.lengths.size, [number], tf.int64)
        )

    return make


def plain(texts):
    return tf.data.Dataset.range(1).map(lambda number: number + texts.lengths.size)


def used(make):
    texts = Texts()
    for _ in make(texts):
        pass
    return weakref.ref(texts)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def count_alive(references):
    gc.collect()
    return sum(reference() is not None for reference in references)


print("tensorflow", tf.__version__)
makers = {
    "from_generator": from_generator,
    "py_function": mapped(tf.py_function),
    "numpy_function": mapped(tf.numpy_function),
    "plain map": plain,
}
alive = {}
for name, make in makers.items():
    used(make)
    before = resident()
    references = [used(make) for _ in range(5)]
    alive[name] = count_alive(references)
    grown = resident() - before
    keras.utils.clear_session()
    left = count_alive(references)
    print(f"{name}: alive {alive[name]} of 5, {grown:.0f} MB; after clear_session {left}")
    assert left == 0
    assert (grown > 150) == (name != "plain map")
assert alive == {"from_generator": 5, "py_function": 5, "numpy_function": 5, "plain map": 0}
PY
