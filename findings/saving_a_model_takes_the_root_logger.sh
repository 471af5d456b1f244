#!/usr/bin/env bash
# tf.saved_model.save changes the logging of the process: in TensorFlow 2.21.0 the first call adds a handler to the
# root logger and sets the level of the logger "absl" from NOTSET to WARNING. logging.basicConfig, which does nothing
# if the root logger has a handler, then has no effect: a program that configures its logging after a save loses its
# own INFO messages, without a warning.
#
# Guessed: saving a model does not change the configuration of logging.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - <<'PY'
import logging

import tensorflow as tf

module = tf.Module()
module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([], tf.float32)])
root, absl = logging.getLogger(), logging.getLogger("absl")
before = (len(root.handlers), absl.level)
tf.saved_model.save(module, "model", signatures=module.double)
after = (len(root.handlers), absl.level)
logging.basicConfig(level=logging.INFO)
print(tf.__version__, "handlers and level of absl:", before, after, "level of root:", root.level)
assert before == (0, logging.NOTSET)
assert after == (1, logging.WARNING)
assert root.level == logging.WARNING  # basicConfig had no effect
PY
