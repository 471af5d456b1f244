#!/usr/bin/env bash
# A pair whose second text is empty has other ids alone than in a batch of one: tokenizer("a", "") of transformers
# 5.24.0 has one [SEP], tokenizer(["a"], [""]) two, since a second text that is falsy is taken for none where the
# first is no list.
#
# Guessed: the same ids, with two [SEP].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet transformers==5.24.0
venv/bin/python - <<'PY'
import transformers

pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
tokenizer = transformers.BertTokenizer(vocab={piece: at for at, piece in enumerate(pieces)})
alone, batch = tokenizer("a", "").input_ids, tokenizer(["a"], [""]).input_ids
print(transformers.__version__, "alone:", alone, "batch:", batch)
assert alone == [2, 5, 3]
assert batch == [[2, 5, 3, 3]]
PY
