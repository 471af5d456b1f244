#!/usr/bin/env bash
# A preprocessor of keras-hub 0.32.0 that is called with a pair of texts, as the examples of its classifier show,
# takes the second text for the label: it returns the tokens of the first and the second text as it was. The pair
# is made by an outer tuple whose second part is None.
#
# Guessed: both texts in one row, with segment ids 0 and 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet keras-hub==0.32.0 tensorflow==2.21.0 tensorflow-text==2.21.1 keras==3.15.1
venv/bin/python - <<'PY'
import os

os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras_hub

pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
tokenizer = keras_hub.models.BertTokenizer(vocabulary=pieces)
preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
called = preprocessor((["a"], ["b"]))
paired = preprocessor(((["a"], ["b"]), None))
features, label = called
print(keras_hub.__version__, features["token_ids"].numpy().tolist(), "and the label", label)
paired = paired[0] if isinstance(paired, tuple) else paired
assert features["token_ids"].numpy()[0].tolist() == [2, 5, 3, 0, 0, 0, 0, 0]
assert "b" in str(label)
assert paired["token_ids"].numpy()[0].tolist() == [2, 5, 3, 6, 3, 0, 0, 0]
PY
