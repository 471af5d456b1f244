#!/usr/bin/env bash
# A config.json of a BERT that says position_embedding_type relative_key, or has pruned_heads, is computed with
# absolute positions and all heads by transformers 5.24.0, without a word: releases of transformers 4 computed
# both, so that a directory from then gives other states now.
#
# Guessed: an error, or a warning, as the two are not computed any more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 transformers==5.24.0
venv/bin/python - <<'PY'
import json
import logging
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
transformers.logging.get_logger().addHandler(handler)
torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
transformers.BertModel(config).save_pretrained("bert")
ids = torch.tensor([[2, 5, 6, 3]])


def states(**changes):
    values = json.load(open("bert/config.json")) | changes
    os.makedirs("other", exist_ok=True)
    json.dump(values, open("other/config.json", "w"))
    open("other/model.safetensors", "wb").write(open("bert/model.safetensors", "rb").read())
    return transformers.AutoModel.from_pretrained("other").eval()(ids).last_hidden_state


usual = states()
equal = {
    "position_embedding_type": torch.equal(usual, states(position_embedding_type="relative_key")),
    "pruned_heads": torch.equal(usual, states(pruned_heads={"0": [0]})),
}
print(transformers.__version__, "states are as without the key:", equal, "warnings:", said)
assert equal == {"position_embedding_type": True, "pruned_heads": True} and not said
PY
