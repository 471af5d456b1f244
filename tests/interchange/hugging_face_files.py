"""Hugging Face directories written by hand: their names are spelled out here."""

import json

import numpy as np

from bert_tf.interchange.checkpoint import StoredTensor
from bert_tf.interchange.safetensors import write_file

H, F, V, P, T, LAYERS = 8, 12, 20, 12, 2, 2
CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": V,
    "hidden_size": H,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": F,
    "max_position_embeddings": P,
    "type_vocab_size": T,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
_ENCODER = {
    "embeddings.word_embeddings.weight": (V, H),
    "embeddings.position_embeddings.weight": (P, H),
    "embeddings.token_type_embeddings.weight": (T, H),
    "embeddings.LayerNorm.weight": (H,),
    "embeddings.LayerNorm.bias": (H,),
}
_LAYER = {
    "attention.self.query.weight": (H, H),
    "attention.self.query.bias": (H,),
    "attention.self.key.weight": (H, H),
    "attention.self.key.bias": (H,),
    "attention.self.value.weight": (H, H),
    "attention.self.value.bias": (H,),
    "attention.output.dense.weight": (H, H),
    "attention.output.dense.bias": (H,),
    "attention.output.LayerNorm.weight": (H,),
    "attention.output.LayerNorm.bias": (H,),
    "intermediate.dense.weight": (F, H),
    "intermediate.dense.bias": (F,),
    "output.dense.weight": (H, F),
    "output.dense.bias": (H,),
    "output.LayerNorm.weight": (H,),
    "output.LayerNorm.bias": (H,),
}
POOLER = {"pooler.dense.weight": (H, H), "pooler.dense.bias": (H,)}
MASKED_LM = {
    "cls.predictions.bias": (V,),
    "cls.predictions.transform.dense.weight": (H, H),
    "cls.predictions.transform.dense.bias": (H,),
    "cls.predictions.transform.LayerNorm.weight": (H,),
    "cls.predictions.transform.LayerNorm.bias": (H,),
}
NEXT_SENTENCE = {"cls.seq_relationship.weight": (2, H), "cls.seq_relationship.bias": (2,)}
ENCODER = _ENCODER | {
    f"encoder.layer.{layer}.{name}": shape
    for layer in range(LAYERS)
    for name, shape in _LAYER.items()
}


def classifier(classes):
    return {"classifier.weight": (classes, H), "classifier.bias": (classes,)}


def span():
    return {"qa_outputs.weight": (2, H), "qa_outputs.bias": (2,)}


def random_tensors(shapes, seed=0, dtype="float32"):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def with_prefix(tensors):
    """With ``bert.`` in front of the encoder's names, as in every class but BertModel."""
    heads = ("cls.", "classifier.", "qa_outputs.")
    return {
        name if name.startswith(heads) else f"bert.{name}": array for name, array in tensors.items()
    }


def write_directory(path, tensors, config=None, **changes):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({**(config or CONFIG), **changes}))
    write_weights(path / "model.safetensors", tensors)
    return str(path)


def write_weights(path, tensors):
    entries = [
        StoredTensor((name,), array.shape, array.dtype.name, lambda array=array: array)
        for name, array in tensors.items()
    ]
    write_file(str(path), entries, {"format": "pt"})
