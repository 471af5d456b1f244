#!/usr/bin/env bash
# A SavedModel that is loaded and saved again has no signatures: tf.saved_model.save of TensorFlow 2.21.0 does not
# take them from the loaded object, although its attribute "signatures" contains them, and issues no warning. The
# copy loads and its functions work, but TensorFlow Serving finds nothing to serve. With signatures=loaded.signatures
# the copy has all of them.
#
# Guessed: the copy has the signatures of the original.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - <<'PY'
import tensorflow as tf

module = tf.Module()
module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([], tf.float32)])
module.triple = tf.function(lambda x: 3 * x, input_signature=[tf.TensorSpec([], tf.float32)])
signatures = {"serving_default": module.double, "triple": module.triple}
tf.saved_model.save(module, "first", signatures=signatures)
loaded = tf.saved_model.load("first")
tf.saved_model.save(loaded, "copy")
tf.saved_model.save(loaded, "named", signatures=loaded.signatures)
found = {name: sorted(tf.saved_model.load(name).signatures) for name in ("first", "copy", "named")}
print(tf.__version__, found)
assert found == {"first": [*signatures], "copy": [], "named": [*signatures]}
assert float(tf.saved_model.load("copy").triple(2.0)) == 6.0
PY
