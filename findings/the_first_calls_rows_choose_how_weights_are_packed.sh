#!/usr/bin/env bash
# oneDNN packs a constant matrix of weights once, in the form that the first call's number of rows wants, and a
# call that wants another form packs it anew, each time. TensorFlow 2.21.0 on a processor with AVX-512 (Intel Xeon
# with AMX): after a first call of 3 rows each call of 24 packs a kernel of 384 x 1,536 again, which takes about as
# long as the product of those rows; after a first call of 24 rows none does, and calls of 3 pack instead. So the
# request that warms a model up decides how fast all others are: it should be as long as most of them.
#
# Guessed: each form is kept, or the first form serves all numbers of rows.
set -euo pipefail
if ! grep -q avx512f /proc/cpuinfo; then
  echo "This processor has no AVX-512: oneDNN takes other forms there."
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
cat >packed.py <<'PY'
import sys

import numpy as np
import tensorflow as tf

columns = np.arange(1536, dtype=np.float32)
with tf.Graph().as_default() as graph:
    rows = tf.compat.v1.placeholder(tf.float32, [None, 384])
    kernel = tf.constant(np.ones((384, 1536), np.float32) * columns)
    product = tf.nn.bias_add(tf.matmul(rows, kernel), tf.constant(columns))
with tf.compat.v1.Session(graph=graph) as session:
    for count in map(int, sys.argv[1:]):
        print("rows", count, flush=True)
        session.run(product, {rows: np.ones((count, 384), np.float32)})
PY
packed() { # the number of times that the kernel is packed, at each call of so many rows
  ONEDNN_VERBOSE=1 venv/bin/python packed.py "$@" 2>errors |
    awk '/^rows/ {if (NR > 1 && begun) printf "%d ", count; begun = 1; count = 0} /exec,cpu,reorder/ {count++} END {print count}'
}
short_first=$(packed 3 24 24 24)
long_first=$(packed 24 24 3 3 24)
venv/bin/python -c "import tensorflow; print('tensorflow', tensorflow.__version__)" 2>errors
echo "rows 3 24 24 24: packed $short_first"
echo "rows 24 24 3 3 24: packed $long_first"
test "$short_first" = "1 1 1 1"
test "$long_first" = "1 0 1 1 0"
