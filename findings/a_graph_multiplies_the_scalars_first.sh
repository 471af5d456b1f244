#!/usr/bin/env bash
# TensorFlow 2.21.0 computes vector * 0.01 * rate in another order inside tf.function: its graph optimizer moves the
# constant, and the result is vector * (0.01 * rate). A third of 4,096 products differ in the last bit from the same
# Python code outside tf.function. An update such as weight -= weight * decay * rate therefore has other bits in eager
# mode, and a kernel that computes it exactly as written cannot replace it in a run that must resume with equal bits.
# With the optimizer's arithmetic optimization switched off, the bits are equal.
#
# Guessed: floating-point products are computed in the order of the code, because they are not associative.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - <<'PY'
import numpy as np
import tensorflow as tf

vector = tf.constant(np.random.default_rng(0).normal(size=4096).astype("float32"))
rate = tf.constant(np.float32(0.00123))


@tf.autograph.experimental.do_not_convert
def scale(vector, rate):
    return vector * 0.01 * rate


def differing(one, other):
    return round(float((one.numpy() != other.numpy()).mean()), 2)


eager = scale(vector, rate)
graph = tf.function(scale)(vector, rate)
tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
unchanged = tf.function(lambda vector, rate: scale(vector, rate), autograph=False)(vector, rate)
found = {
    "graph and eager": differing(graph, eager),
    "graph and vector * (0.01 * rate)": differing(graph, vector * (tf.constant(0.01) * rate)),
    "without arithmetic optimization and eager": differing(unchanged, eager),
}
print(tf.__version__, found)
assert found == {
    "graph and eager": 0.34,
    "graph and vector * (0.01 * rate)": 0.0,
    "without arithmetic optimization and eager": 0.0,
}, found
PY
