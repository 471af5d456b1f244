#!/usr/bin/env bash
# Of a weight that two shards hold transformers 5.24.0 takes the one of the shard it reads last, whatever
# model.safetensors.index.json says: the index names the first shard for a weight, a copy with other numbers
# stands in the second, and the copy is loaded without a word.
#
# Guessed: the index decides, as it maps each weight to its file; or an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 transformers==5.24.0
venv/bin/python - <<'PY'
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import json

import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
transformers.BertModel(config).save_pretrained("bert")

weights = load_file("bert/model.safetensors")
os.remove("bert/model.safetensors")
name, last = "pooler.dense.bias", "model-00002-of-00002.safetensors"
files = {key: "model-00001-of-00002.safetensors" for key in weights} | {"pooler.dense.weight": last}
for file in {*files.values()}:
    own = {key: value for key, value in weights.items() if files[key] == file}
    if file == last:
        own[name] = torch.full_like(weights[name], 7.0)
    save_file(own, f"bert/{file}", metadata={"format": "pt"})
json.dump({"metadata": {}, "weight_map": files}, open("bert/model.safetensors.index.json", "w"))
taken = transformers.AutoModel.from_pretrained("bert").state_dict()[name]
print(transformers.__version__, "the index says", files[name], "and the value is of", last, taken[:2])
assert torch.equal(taken, torch.full_like(taken, 7.0))
PY
