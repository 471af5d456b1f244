#!/usr/bin/env bash
# TensorFlow 2.21.0 on a CPU of two cores: of a network of small matrix products (27 rows, the sizes of a BERT of 384
# units) a second thread within an operation (intra_op_parallelism_threads=2) takes off a tenth or a fifth of the time, and two
# threads between operations (inter_op_parallelism_threads=2) nearly half, if it is written as two chains of operations,
# each with half of the columns.
#
# Guessed: a second thread within an operation nearly halves the time of products, and to part them by hand is worth
# little, as it is the same work in more operations. But a thread within an operation is woken for each product, and one
# between operations once for two of them and what lies between.
#
# Seen on an Intel Xeon with AMX, milliseconds: one thread 18.5, two within an operation 17.0, two chains 11.4; before, 18.8, 15.2, 10.2.
# Fails if chains no longer help, or no more than threads within operations do.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0 numpy==2.2.6

cat >network.py <<'EOF'
"""Prints the median time in milliseconds of a network in so many chains, by threads within and between operations."""
import statistics
import sys
import time

import numpy as np
import tensorflow as tf

within, between, chains = map(int, sys.argv[1:])
v1, numbers = tf.compat.v1, np.random.default_rng(0)
with tf.Graph().as_default() as graph:
    rows = v1.placeholder(tf.float32, [27, 384])
    variables = []

    def matrix(*shape):
        value = numbers.normal(0, 0.05, shape).astype("f")
        start = tf.constant_initializer(value)
        variables.append(v1.get_variable(f"v{len(variables)}", shape, initializer=start, use_resource=True))
        return variables[-1]

    x = rows
    for _ in range(16):
        parts = [tf.nn.relu(tf.matmul(x, matrix(384, 1536 // chains))) for _ in range(chains)]
        x = tf.tanh(tf.add_n([tf.matmul(part, matrix(1536 // chains, 384)) for part in parts]))
    config = v1.ConfigProto(
        intra_op_parallelism_threads=within, inter_op_parallelism_threads=between, use_per_session_threads=True
    )
    with v1.Session(config=config) as session:
        session.run([one.initializer for one in variables])
        call, batch, times = session.make_callable(x, [rows]), numbers.normal(size=(27, 384)).astype("f"), []
        for _ in range(220):
            begin = time.perf_counter()
            call(batch)
            times.append(time.perf_counter() - begin)
print(statistics.median(times[20:]) * 1000)
EOF

time_of() { TF_CPP_MIN_LOG_LEVEL=3 taskset -c 0,1 venv/bin/python network.py "$@" 2>/dev/null; }
for _ in 1 2 3; do
  echo "$(time_of 1 1 1) $(time_of 2 1 1) $(time_of 1 2 2)"
done >times
venv/bin/python - <<'EOF'
import statistics

rounds = [list(map(float, line.split())) for line in open("times")]
one, within, chains = (statistics.median(column) for column in zip(*rounds))
print(f"one thread {one:.1f}, two within an operation {within:.1f}, two chains {chains:.1f}")
assert chains < 0.75 * one, "two chains help no more"
assert chains < 0.9 * within, "a second thread within operations helps as much now"
EOF
