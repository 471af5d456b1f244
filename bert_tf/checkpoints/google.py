"""google-research/bert directories: ``bert_config.json``, ``bert_model.ckpt.*``, ``vocab.txt``.

Kernels have shape (inputs, outputs), but the ``output_weights`` of heads have shape (outputs,
inputs). Source: google-research/bert ``modeling.py``, ``run_pretraining.py``,
``run_classifier.py``, ``run_squad.py``.
"""

import operator
import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.io.checkpoint_formats import SIZES
from bert_tf.io.files import read_json_object, write_json
from bert_tf.modeling import BertClassifier, BertSpanPredictor
from bert_tf.pipelines.vocabulary import save_vocabulary

from .checkpoint import (
    Checkpoint,
    ModelSpec,
    describe,
    make_pretrained_spec,
    parse_description,
    unused_names,
)
from .tensor_files import RELEASED, Bundle, find_prefix, write_bundle
from .tokenizer_files import VOCABULARY, read_vocabulary
from .weights import Names, expected_shapes, is_in_encoder

# Key in bert_config.json for settings without a Google equivalent. Google's BertConfig ignores it.
_DESCRIPTION = "bert_tf"

_ENCODER_NAMES = Names(
    {
        "embeddings/word_embeddings": "bert/embeddings/word_embeddings",
        "embeddings/position_embeddings": "bert/embeddings/position_embeddings",
        "embeddings/token_type_embeddings": "bert/embeddings/token_type_embeddings",
        "embeddings/layer_norm": "bert/embeddings/LayerNorm",
        "layer_{}/attention/query": "bert/encoder/layer_{}/attention/self/query",
        "layer_{}/attention/key": "bert/encoder/layer_{}/attention/self/key",
        "layer_{}/attention/value": "bert/encoder/layer_{}/attention/self/value",
        "layer_{}/attention/output": "bert/encoder/layer_{}/attention/output/dense",
        "layer_{}/attention_layer_norm": "bert/encoder/layer_{}/attention/output/LayerNorm",
        "layer_{}/intermediate": "bert/encoder/layer_{}/intermediate/dense",
        "layer_{}/output": "bert/encoder/layer_{}/output/dense",
        "layer_{}/output_layer_norm": "bert/encoder/layer_{}/output/LayerNorm",
        "pooler/dense": "bert/pooler/dense",
        "masked_lm/dense": "cls/predictions/transform/dense",
        "masked_lm/layer_norm": "cls/predictions/transform/LayerNorm",
        "masked_lm/output_bias": "cls/predictions/output_bias",
    },
    {"kernel": "/kernel", "bias": "/bias", "gamma": "/gamma", "beta": "/beta"},
    transposed=False,
)
_HEAD_NAMES = Names(
    {
        "next_sentence/dense": "cls/seq_relationship/",
        **dict.fromkeys(("classifier", "regressor", "token_classifier", "choice"), ""),
        "span": "cls/squad/",
        "sentence_dense": "cls/sentence/",
    },
    {"kernel": "output_weights", "bias": "output_bias"},
    transposed=True,
)


def _names_for(name: str) -> Names:
    """Returns the name table that contains a weight."""
    in_graph = is_in_encoder(name) or name.startswith("masked_lm/")
    return _ENCODER_NAMES if in_graph else _HEAD_NAMES


def source_name(name: str) -> str:
    """Returns Google's name of a weight."""
    return _names_for(name).source_name(name)


# === Reading ===


def read_checkpoint(path: str) -> Checkpoint:
    """Opens a directory or prefix released by Google or saved by Google's scripts."""
    bundle = Bundle(find_prefix(path) or path)
    folder, name = os.path.split(bundle.prefix)
    config_path = os.path.join(folder, SIZES)
    if not tf.io.gfile.exists(config_path):
        raise ValueError(
            f"No such file: {config_path}. Add the {SIZES} of the model next to {name}."
        )
    values = read_json_object(config_path)
    config = BertConfig.from_dict(values, config_path)
    if _DESCRIPTION in values:
        fields, do_lower_case = parse_description(
            values[_DESCRIPTION], f"{config_path}, {_DESCRIPTION}"
        )
    else:
        fields, do_lower_case = {"model": _model_spec(bundle.shapes)}, None
    tensors = {
        name: _names_for(name).to_source_layout(name, bundle.tensor(source_name(name)))
        for name in expected_shapes(config, fields["model"])
        if source_name(name) in bundle.shapes
    }
    do_lower_case = _casing(folder) if do_lower_case is None else do_lower_case
    rules = (values.get(_DESCRIPTION) or {}).get("text_rules")
    tokenization, notes = read_vocabulary(folder, do_lower_case, rules)
    return Checkpoint(
        path=path,
        format="google_tf1",
        config=config,
        tensors=tensors,
        unused=unused_names(bundle.shapes, tensors),
        tokenization=tokenization,
        notes=notes,
        **fields,
    )


def _model_spec(shapes: Mapping[str, tuple[int, ...]]) -> ModelSpec:
    """Determines the model from the stored head, which one of Google's scripts trained."""
    if source_name("span/kernel") in shapes:
        return ModelSpec(BertSpanPredictor, {"pooler": True})
    if source_name("classifier/kernel") in shapes:
        classes = shapes[source_name("classifier/kernel")][0]
        return ModelSpec(BertClassifier, {"num_classes": classes})
    prefixes = ("cls/predictions/", "cls/seq_relationship/", source_name("pooler/dense/kernel"))
    return make_pretrained_spec(shapes, prefixes)


def _casing(folder: str) -> bool | None:
    """Derives ``do_lower_case`` from the directory's name, as Google's scripts do."""
    name = os.path.basename(os.path.abspath(folder)).lower()
    if "uncased" in name or re.match(r"(chinese|multilingual)_l-12", name):
        return True
    return False if "cased" in name else None


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> tuple[str, ...]:
    """Writes a directory in the format of Google's releases, and returns warnings."""
    config = checkpoint.config
    if config.is_distilbert or config.is_decoder:
        kind = "DistilBERT" if config.is_distilbert else "causal"
        raise ValueError(
            f"--format=google_tf1: cannot store the {kind} {checkpoint.model.class_name} of "
            f"{checkpoint.path}. Use bert_tf or huggingface."
        )
    values = {**checkpoint.config.to_dict(), _DESCRIPTION: describe(checkpoint)}
    write_json(os.path.join(path, SIZES), values)
    if checkpoint.tokenization is not None:
        save_vocabulary(os.path.join(path, VOCABULARY), checkpoint.tokenization.vocabulary)
    converted = (_names_for(n).to_source(n, tensor) for n, tensor in checkpoint.tensors.items())
    # TensorFlow 1 restores float32 variables only from float32 tensors.
    as_float32 = operator.methodcaller("astype", np.float32, copy=False)
    stored = (tensor.transform(tensor.shape, as_float32) for tensor in converted)
    write_bundle(os.path.join(path, RELEASED), stored)
    if (read := checkpoint.tokenization) is not None and read.rules.to_json():
        return ("Google's scripts ignore the tokenization rules and the added tokens.",)
    return ()
