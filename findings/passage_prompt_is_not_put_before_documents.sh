#!/usr/bin/env bash
# A prompt called passage is not put before documents by encode_document of sentence-transformers 6.2.0, whose
# documentation lists document, passage and corpus in that order: every model has an empty prompt called document,
# so that the first name is always found. With a prompt called document the same text has another vector.
#
# Guessed: the passage prompt is used, as the model has no prompt for documents of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 transformers==5.24.0 sentence-transformers==6.2.0
venv/bin/python - <<'PY'
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import sentence_transformers
import transformers
from sentence_transformers import SentenceTransformer

pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "text", "hello", "world"]
tokenizer = transformers.BertTokenizer(vocab={piece: at for at, piece in enumerate(pieces)})
tokenizer.save_pretrained("bert")
config = transformers.BertConfig(
    vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
transformers.BertModel(config).save_pretrained("bert")
vectors = {}
for name in ("document", "passage"):
    model = SentenceTransformer("bert", prompts={name: "text "}, device="cpu")
    vectors[name] = model.encode_document("hello world")
    vectors["plain"] = model.encode("hello world")
same = {name: bool(np.allclose(vectors[name], vectors["plain"])) for name in ("document", "passage")}
print(sentence_transformers.__version__, "equal to the text without a prompt:", same)
assert same == {"document": False, "passage": True}
PY
