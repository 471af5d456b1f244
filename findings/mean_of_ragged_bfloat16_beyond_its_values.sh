#!/usr/bin/env bash
# The mean of a row of a ragged tensor in bfloat16 can be greater than every number of the row. TensorFlow 2.21.0
# on a CPU gives 4 for the mean of 300 ones and 300 threes: tf.math.unsorted_segment_mean, which tf.reduce_mean of
# a RaggedTensor calls, adds up the numbers and counts them in bfloat16, and the count stops at 256, the sum at
# 1024, each where the type's steps become too wide for what is added. tf.reduce_mean of the same numbers as a
# dense tensor gives 2.
#
# Guessed: both give 2, or the ragged one is rounded to 1.99 or 2.02.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
venv/bin/python - <<'PY'
import tensorflow as tf

values = tf.cast(tf.concat([tf.ones([300]), 3 * tf.ones([300])], 0), tf.bfloat16)
ragged = tf.RaggedTensor.from_row_lengths(values, [600])
found = {
    "dense": float(tf.reduce_mean(values)),
    "ragged": float(tf.reduce_mean(ragged, 1)[0]),
    "ragged sum": float(tf.reduce_sum(ragged, 1)[0]),
    "segments": float(tf.math.unsorted_segment_mean(values, tf.zeros(600, tf.int32), 1)[0]),
}
print(tf.__version__, found)
assert found == {"dense": 2.0, "ragged": 4.0, "ragged sum": 1024.0, "segments": 4.0}
PY
