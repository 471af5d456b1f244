#!/usr/bin/env bash
# TensorFlow 2.21.0: the memory of a NumPy array that tf.train.load_checkpoint(...).get_tensor(name) returns is not given
# back when the array is deleted. The reader lets TensorFlow's CPU allocator allocate it, and with oneDNN (the default on x86
# processors with AVX-512 VNNI) that allocator keeps what it once had: after reading and deleting 256 MiB, the process is 256
# MiB larger. Only TensorFlow's later tensors can use this memory; NumPy's arrays need their own. A process that reads a
# model's largest matrix, converts it and assigns it therefore stays larger than its weights. With
# TF_ENABLE_ONEDNN_OPTS=0 or TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1, the memory is given back.
#
# Guessed: the array is NumPy's, so its memory is given back like that of any array of this size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
cat >write.py <<'PY'
import tensorflow as tf

tf.train.Checkpoint(weight=tf.Variable(tf.ones([64, 1 << 20]))).write("saved")
PY
cat >measure.py <<'PY'
import gc

import numpy as np
import tensorflow as tf


def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def kept(create):
    """Returns the MiB that an array takes, and those that it takes after it has been deleted."""
    before = resident()
    array = create()
    used = resident() - before
    del array
    gc.collect()
    return used, resident() - before


reader = tf.train.load_checkpoint("saved")
read = kept(lambda: reader.get_tensor("weight/.ATTRIBUTES/VARIABLE_VALUE"))
made = kept(lambda: np.ones([64, 1 << 20], np.float32))
tensor = kept(lambda: tf.ones([64, 1 << 20]))
print(*(f"{value:.0f}" for value in (*read, *made, *tensor)))
PY
export TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=1
venv/bin/python write.py
venv/bin/python measure.py | tee with.txt
TF_ENABLE_ONEDNN_OPTS=0 venv/bin/python measure.py | tee without.txt
venv/bin/python - <<'PY'
def values(path):
    return [*map(float, open(path).read().split())]


read, read_kept, made, made_kept, tensor, _ = values("with.txt")
print(f"with oneDNN: read {read:.0f}, kept {read_kept:.0f} MiB; a new array {made:.0f}, kept {made_kept:.0f}; "
      f"a tensor afterwards {tensor:.0f}")
assert read_kept > 240 and made > 240 and made_kept < 16 and tensor < 16
read, read_kept, *_ = values("without.txt")
print(f"without: read {read:.0f}, kept {read_kept:.0f} MiB")
assert read > 240 and read_kept < 16
PY
