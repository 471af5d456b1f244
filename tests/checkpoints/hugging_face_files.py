"""Hugging Face directories with literal tensor names."""

import json

import numpy as np

from bert_tf.checkpoints.tensor_files import open_safetensors, write_safetensors
from tests.checkpoints.small_checkpoints import stored

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


def _dense(name, outputs, inputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _normalization(name):
    return {f"{name}.LayerNorm.weight": (H,), f"{name}.LayerNorm.bias": (H,)}


_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": (V, H),
    "embeddings.position_embeddings.weight": (P, H),
    "embeddings.token_type_embeddings.weight": (T, H),
    **_normalization("embeddings"),
}
_LAYER = {
    **_dense("attention.self.query", H, H),
    **_dense("attention.self.key", H, H),
    **_dense("attention.self.value", H, H),
    **_dense("attention.output.dense", H, H),
    **_normalization("attention.output"),
    **_dense("intermediate.dense", F, H),
    **_dense("output.dense", H, F),
    **_normalization("output"),
}
POOLER = _dense("pooler.dense", H, H)
MASKED_LM = {
    "cls.predictions.bias": (V,),
    **_dense("cls.predictions.transform.dense", H, H),
    **_normalization("cls.predictions.transform"),
}
NEXT_SENTENCE = _dense("cls.seq_relationship", 2, H)
ENCODER = _EMBEDDINGS | {
    f"encoder.layer.{layer}.{name}": shape
    for layer in range(LAYERS)
    for name, shape in _LAYER.items()
}


def classifier(classes):
    return _dense("classifier", classes, H)


def span():
    return _dense("qa_outputs", 2, H)


def random_tensors(shapes, seed=0, dtype="float32"):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def with_prefix(tensors):
    """Adds the prefix ``bert.`` to the encoder's names, as in all classes except BertModel."""
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
    write_safetensors(str(path), [stored(name, array) for name, array in tensors.items()])


def read_weights(path):
    return {name: tensor.read() for name, tensor in open_safetensors(str(path)).items()}


def write_shards(path, tensors, shards=3):
    """Writes several weight files and their index."""
    files = [f"model-0000{number}-of-0000{shards}.safetensors" for number in range(1, shards + 1)]
    weight_map = {name: files[number % shards] for number, name in enumerate(sorted(tensors))}
    for file in files:
        write_weights(
            path / file, {n: array for n, array in tensors.items() if weight_map[n] == file}
        )
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
