#!/usr/bin/env bash
# ConfigProto's executor_type SINGLE_THREADED_EXECUTOR changes which kernels compute. In TensorFlow 2.21.0 on a CPU
# with AVX-512 a session with it runs products in bfloat16 within a tf.cond by Eigen, without oneDNN; products outside
# of a branch, and both in a session by default, run by oneDNN, which says what it runs (ONEDNN_VERBOSE=1). A BERT
# whose encoder stands in a branch took 14 ms a sentence so, and 5 in a session by default.
#
# Guessed: it changes in which thread an operation runs, and no more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
cat >ask.py <<'PY'
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
executor, place = sys.argv[1:]
with tf.Graph().as_default():
    matrix = v1.get_variable("matrix", [256, 256], tf.bfloat16, v1.ones_initializer())
    x = v1.placeholder(tf.bfloat16, [None, 256])

    @tf.function(autograph=False)
    def layer(x, matrix):
        def two():
            return tf.matmul(tf.matmul(x, matrix), matrix)

        return tf.cond(tf.shape(x)[0] > 1, two, lambda: x) if place == "branch" else two()

    y = layer(x, matrix)
    options = v1.ConfigProto()
    options.experimental.executor_type = "" if executor == "default" else executor
    session = v1.Session(config=options)
    session.run(v1.global_variables_initializer())
    session.run(y, {x: np.ones([32, 256], x.dtype.as_numpy_dtype)})
PY
export TF_ENABLE_ONEDNN_OPTS=1 ONEDNN_VERBOSE=1
for executor in default SINGLE_THREADED_EXECUTOR; do
  for place in straight branch; do
    products=$(venv/bin/python ask.py "$executor" "$place" 2>/dev/null | grep -c 'exec,cpu,\(matmul\|inner_product\)' || true)
    echo "$executor, $place: $products products by oneDNN"
  done
done | tee found
diff found - <<'EXPECTED'
default, straight: 2 products by oneDNN
default, branch: 2 products by oneDNN
SINGLE_THREADED_EXECUTOR, straight: 2 products by oneDNN
SINGLE_THREADED_EXECUTOR, branch: 0 products by oneDNN
EXPECTED
