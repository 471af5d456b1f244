"""Variables of transformers' TFBert classes, in ``tf_model.h5`` or elsewhere, by PyTorch's names.

A variable's name is the scopes that it was made in, and a dataset's path in HDF5 is the Keras layer
that owns the variable, its name, and ``:0``:

    bert/tf_bert_for_masked_lm/bert/encoder/layer_._0/attention/self/query/kernel:0
    mlm___cls/tf_bert_for_masked_lm/mlm___cls/predictions/bias:0

The masked-LM head owns the embedding tables too, so the file has them twice. Kernels are (inputs,
outputs). Transformers 5 has neither these classes nor a reader of the file.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

import numpy as np

from bert_tf.untrusted import quote

from .checkpoint import StoredTensor
from .tensor_files import open_hdf5

# Names that every BERT has below its main layer.
WORDS = "/embeddings/word_embeddings/weight"
# The last of the scopes that stand for a module of the model: whoever built it inside a model of
# their own has more of them in front.
_HEADS = r"classifier|pre_classifier|qa_outputs|vocab_transform|vocab_layer_norm|vocab_projector"
_PLACE = re.compile(rf"(?:.*/)?(?:(bert|distilbert)|[^/]*___(cls)|({_HEADS}))/(.+)")
_LAYER = re.compile(r"\blayer_\._(\d+)\b")
_LEAVES = {"kernel": "weight", "embeddings": "weight"}


def open_file(path: str) -> dict[str, StoredTensor]:
    """Every tensor by its name in a PyTorch file and in that layout; none is read yet."""
    return by_pytorch_names(variables_of(open_hdf5(path)), path)


def variables_of(datasets: Mapping[str, StoredTensor]) -> list[tuple[str, StoredTensor]]:
    """The variables in HDF5 by their names: those of a whole model without its optimizer."""
    whole = "model_weights/"
    prefix = whole if any(name.startswith(whole) for name in datasets) else ""
    return [
        (name.removeprefix(prefix).partition("/")[2].removesuffix(":0"), entry)
        for name, entry in datasets.items()
        if name.startswith(prefix)
    ]


def places(names: Iterable[str]) -> list[str]:
    """The names of the main layers whose variables these are, but for an optimizer's copies."""
    layers = {f"/{name}".removesuffix(WORDS) for name in names if f"/{name}".endswith(WORDS)}
    # An optimizer's slots have the whole name of their variable behind its own.
    return sorted(
        place[1:]
        for place in layers
        if not any(place.endswith(other) for other in layers - {place})
    )


def by_pytorch_names(
    variables: Iterable[tuple[str, StoredTensor]], path: str
) -> dict[str, StoredTensor]:
    """Variables by their names in a PyTorch file, in that layout; those of one BERT, or none."""
    pairs = list(variables)
    layers = places(name for name, _ in pairs)
    if len(layers) > 1:
        raise ValueError(
            f"{path} holds {len(layers)} BERTs, {quote(layers[0])} and {quote(layers[1])} among "
            "them, and nothing says which to take: expected one; save the model that you want by "
            "itself."
        )
    below = f"{layers[0]}/" if layers else "/"
    kind = "distilbert" if any(n.startswith(f"{below}transformer/") for n, _ in pairs) else "bert"
    tensors: dict[str, StoredTensor] = {}
    for variable, entry in pairs:
        scopes, place, within = f"/{variable}".partition(f"/{below}")
        name, tensor = entry.name, entry
        if not scopes:
            name, tensor = _as_in_pytorch(f"{kind}/{within}", entry)
        elif not place:  # an optimizer's copy has both
            name, tensor = _as_in_pytorch(variable, entry)
        first = tensors.get(name)
        if first is None:
            tensors[name] = tensor
        elif first.shape == tensor.shape and np.array_equal(first.read(), tensor.read()):
            tensors[name] = dataclasses.replace(first, names=(*first.names, *tensor.names))
        else:
            raise ValueError(
                f"{path}: {quote(first.name)} and {quote(entry.name)} mean the same weight and "
                "differ: expected one, or copies of it; save the model again."
            )
    return tensors


def _as_in_pytorch(variable: str, entry: StoredTensor) -> tuple[str, StoredTensor]:
    place = _PLACE.fullmatch(variable)
    if place is None:
        return entry.name, entry
    *modules, scopes = filter(None, place.groups())
    *within, leaf = _LAYER.sub(r"layer.\1", scopes).split("/")
    name = ".".join((*modules, *within, _LEAVES.get(leaf, leaf)))
    if leaf != "kernel":
        return name, entry
    # A view: whoever wants (inputs, outputs) turns it back, and nothing was copied.
    return name, entry.changed(entry.shape[::-1], np.transpose)
