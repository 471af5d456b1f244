"""``tf_model.h5``, the weights of transformers' TFBert classes, by the names of its PyTorch ones.

A dataset's path is the Keras layer that owns it, the model's name, the scopes within, and ``:0``:

    bert/tf_bert_for_masked_lm/bert/encoder/layer_._0/attention/self/query/kernel:0
    mlm___cls/tf_bert_for_masked_lm/mlm___cls/predictions/bias:0

The masked-LM head owns the embedding tables too, so the file has them twice. Kernels are (inputs,
outputs). Transformers 5 has neither these classes nor a reader of the file.
"""

import dataclasses
import re

import numpy as np

from bert_tf.untrusted import quote

from . import hdf5_files
from .checkpoint import StoredTensor

# The last of the scopes that stand for a module of the model: whoever built it inside a model of
# their own has more of them in front.
_HEADS = r"classifier|pre_classifier|qa_outputs|vocab_transform|vocab_layer_norm|vocab_projector"
_PLACE = re.compile(rf"(?:.*/)?(?:(bert|distilbert)|[^/]*___(cls)|({_HEADS}))/(.+):0")
_LAYER = re.compile(r"\blayer_\._(\d+)\b")
_LEAVES = {"kernel": "weight", "embeddings": "weight"}


def open_file(path: str) -> dict[str, StoredTensor]:
    """Every tensor by its name in a PyTorch file and in that layout; none is read yet.

    The copies of a tensor are, and must be equal. What is no weight of a BERT goes by its path.
    """
    tensors: dict[str, StoredTensor] = {}
    for stored_name, entry in hdf5_files.open_file(path).items():
        name, tensor = _as_in_pytorch(stored_name, entry)
        first = tensors.get(name)
        if first is None:
            tensors[name] = tensor
        elif first.shape == tensor.shape and np.array_equal(first.read(), tensor.read()):
            tensors[name] = dataclasses.replace(first, names=(*first.names, *tensor.names))
        else:
            raise ValueError(
                f"{path}: {quote(first.name)} and {quote(stored_name)} mean the same weight and "
                "differ: expected one, or copies of it; save the model again."
            )
    return tensors


def _as_in_pytorch(stored_name: str, entry: StoredTensor) -> tuple[str, StoredTensor]:
    place = _PLACE.fullmatch(stored_name)
    if place is None:
        return stored_name, entry
    *modules, scopes = filter(None, place.groups())
    *within, leaf = _LAYER.sub(r"layer.\1", scopes).split("/")
    name = ".".join((*modules, *within, _LEAVES.get(leaf, leaf)))
    if leaf != "kernel":
        return name, entry
    # A view: whoever wants (inputs, outputs) turns it back, and nothing was copied.
    shape = entry.shape[::-1]
    return name, dataclasses.replace(entry, shape=shape, read=lambda: entry.read().T)
