#!/usr/bin/env bash
# A checkpoint whose names begin with module. (DataParallel) or _orig_mod. (torch.compile) loads into transformers
# 5.24.0 with every weight random: there is a table of missing and unexpected names as a warning, no error, and
# the next load has other weights.
#
# Guessed: the prefix is taken off, or the load fails, since no weight fits.
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


def loads(prefix):
    wrapped = {prefix + key: value for key, value in weights.items()}
    save_file(wrapped, "bert/model.safetensors", metadata={"format": "pt"})
    models = [transformers.AutoModel.from_pretrained("bert").state_dict() for _ in range(2)]
    name = "embeddings.word_embeddings.weight"
    return [torch.equal(model[name], weights[name]) for model in models], torch.equal(
        models[0][name], models[1][name]
    )


found = {prefix: loads(prefix) for prefix in ("", "module.", "_orig_mod.")}
print(transformers.__version__, "as stored, and equal in two loads:", found)
assert found[""] == ([True, True], True)
assert found["module."] == found["_orig_mod."] == ([False, False], False)
PY
