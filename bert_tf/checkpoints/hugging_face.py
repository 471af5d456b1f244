"""Hugging Face checkpoints: config, weights (safetensors, ``tf_model.h5`` or a pickle), tokenizer.

Kernels have shape (outputs, inputs). In older files, the weights of a normalization are named
``gamma`` and ``beta`` instead of ``weight`` and ``bias``. The prefix ``bert.`` is optional.

This module also reads HDF5 files that ``save_weights("a.h5")`` or ``save("a.h5")`` of a Keras 2
model wrote, if the model contains a BERT model from transformers' TensorFlow classes. The config is
in the same directory or is passed by the caller.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.io.checkpoint_formats import CONFIG, HDF5, SIZES
from bert_tf.io.files import read_json_object, write_json
from bert_tf.io.messages import listed, quote
from bert_tf.io.paths import hint, is_file, starts_with
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import default_max_length

from . import config_keys, tensor_files
from .checkpoint import Checkpoint, ModelSpec, StoredTensor, unused_names
from .hugging_face_config import (
    DISTIL,
    SEVERAL_CLASSES,
    architecture,
    config_values,
    model_spec,
    read_activation,
    read_config,
    read_labels,
)
from .tokenizer_files import read_length, read_tokenization, write_tokenization
from .weights import Names, expected_shapes, is_in_encoder

WEIGHTS, TF_WEIGHTS, PICKLED = "model.safetensors", "tf_model.h5", "pytorch_model.bin"
INDEX = ".index.json"
# Safest format first.
_FILES = tuple(name + suffix for name in (WEIGHTS, TF_WEIGHTS, PICKLED) for suffix in ("", INDEX))
_WEIGHTS_KEY = "transformers_weights"  # the key in config.json for the name of the weights file
ADAPTER = "adapter_config.json"

_NAMES = Names(
    {
        "embeddings/word_embeddings": "embeddings.word_embeddings.weight",
        "embeddings/position_embeddings": "embeddings.position_embeddings.weight",
        "embeddings/token_type_embeddings": "embeddings.token_type_embeddings.weight",
        "embeddings/layer_norm": "embeddings.LayerNorm",
        "layer_{}/attention/query": "encoder.layer.{}.attention.self.query",
        "layer_{}/attention/key": "encoder.layer.{}.attention.self.key",
        "layer_{}/attention/value": "encoder.layer.{}.attention.self.value",
        "layer_{}/attention/output": "encoder.layer.{}.attention.output.dense",
        "layer_{}/attention_layer_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "layer_{}/intermediate": "encoder.layer.{}.intermediate.dense",
        "layer_{}/output": "encoder.layer.{}.output.dense",
        "layer_{}/output_layer_norm": "encoder.layer.{}.output.LayerNorm",
        "pooler/dense": "pooler.dense",
        "masked_lm/dense": "cls.predictions.transform.dense",
        "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
        "masked_lm/output_bias": "cls.predictions.bias",
        "next_sentence/dense": "cls.seq_relationship",
        **dict.fromkeys(("classifier", "regressor", "token_classifier", "choice"), "classifier"),
        "span": "qa_outputs",
    },
    {"kernel": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"},
    transposed=True,
)
_PREFIX = "bert."
# Prefixes that DataParallel and users' wrapper modules add, and a part that torch.compile inserts.
_WRAPPERS, _COMPILED = ("module.", "model."), "_orig_mod."
# Error messages by pattern of tensor names that BERT models do not have.
_UNSUPPORTED_TENSORS = {
    r"Wqkv|qkv_proj|in_proj|gated_layer|\.(gate|up|down)_proj|\.fc1[12]\.|rotary": "models with "
    "custom code (fused attention, gates, other position embeddings) are not supported",
    r"[.:](SCB|qdata|qweight|qzeros|absmax|quant_map|quant_state\b.*|weight_scale|scales)$": (
        "quantized weights are not supported. Dequantize the model, then save it"
    ),
    r"\.(lora_[AB]|base_layer|modules_to_save)\.": "adapters are not supported. Merge the "
    "adapter with peft: merge_and_unload(), then save_pretrained",
}
_OLD_LEAVES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
_DISTILBERT_PREFIX = "distilbert."
# Pairs of corresponding name parts in DistilBERT's and BERT's files.
_DISTILBERT_PARTS = (
    ("transformer.layer.", "encoder.layer."),
    (".attention.q_lin.", ".attention.self.query."),
    (".attention.k_lin.", ".attention.self.key."),
    (".attention.v_lin.", ".attention.self.value."),
    (".attention.out_lin.", ".attention.output.dense."),
    (".sa_layer_norm.", ".attention.output.LayerNorm."),
    (".ffn.lin1.", ".intermediate.dense."),
    (".ffn.lin2.", ".output.dense."),
    (".output_layer_norm.", ".output.LayerNorm."),
    ("pre_classifier.", "pooler.dense."),
    ("vocab_transform.", "cls.predictions.transform.dense."),
    ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("vocab_projector.weight", "cls.predictions.decoder.weight"),
    ("vocab_projector.bias", "cls.predictions.bias"),
)
# Copies of the masked-LM head's kernel and bias in older files.
_DECODER = {
    "cls.predictions.decoder.weight": "embeddings/word_embeddings",
    "cls.predictions.decoder.bias": "masked_lm/output_bias",
}

# Arguments of KerasHub's masked-LM head that Hugging Face's config cannot store.
_KERAS_HUB_HEAD_ARGUMENTS = ("mlm_activation", "mlm_layer_norm_eps")
_WITHOUT_POOLER = ("BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering")

# Patterns of HDF5 names: an indexed block, a Keras 3 variable, and an unnamed TensorFlow variable.
_LAYER = re.compile(r"(?:bert\.encoder|distilbert\.transformer)\.layer\.(\d+)\..+")
_KERAS_3 = re.compile(r"(?:.*/)?vars/\d+")
_NUMBERED = re.compile(r".*/attention/(?:dense_output/dense|q_lin)/vars/\d+")

# Name of a variable that every BERT model has, relative to the model's main layer.
_TF_WORDS = "/embeddings/word_embeddings/weight"
# Matches the last scope that is a module of the BERT model. Surrounding models add outer scopes.
_TF_HEADS = r"classifier|pre_classifier|qa_outputs|vocab_transform|vocab_layer_norm|vocab_projector"
_TF_MODULE = re.compile(rf"(?:.*/)?(?:(bert|distilbert)|[^/]*___(cls)|({_TF_HEADS}))/(.+)")
_TF_LAYER = re.compile(r"\blayer_\._(\d+)\b")
_TF_LEAVES = {"kernel": "weight", "embeddings": "weight"}


def is_directory(path: str) -> bool:
    """Whether a path is a Hugging Face directory."""
    return tf.io.gfile.exists(os.path.join(path, CONFIG)) and find_weights_file(path) is not None


def read_weights_name(path: str) -> str | None:
    """Returns the name of the weights file or index in a directory's config, or ``None``."""
    config = os.path.join(path, CONFIG)
    name = read_json_object(config).get(_WEIGHTS_KEY) if is_file(config) else None
    if name is not None:
        is_plain = isinstance(name, str) and tensor_files.is_plain_name(name)
        if not is_plain or not name.removesuffix(INDEX).endswith(".safetensors"):
            raise ValueError(
                f"{config}: {_WEIGHTS_KEY}={quote(name)}: expected the name of a .safetensors or "
                f".safetensors{INDEX} file, without a directory."
            )
    return name


def find_weights_file(path: str) -> str | None:
    """Returns the weights file or index that the config names, else the safest existing one."""
    name = read_weights_name(path)
    candidates = (os.path.join(path, name) for name in ([name] if name else _FILES))
    return next(filter(tf.io.gfile.exists, candidates), None)


def is_keras_3_file(path: str) -> bool:
    """Whether a file is an HDF5 file of Keras 3, with numbered variables."""
    return starts_with(path, HDF5) and any(map(_KERAS_3.fullmatch, _open_hdf5(path)))


def _open_hdf5(path: str) -> dict[str, StoredTensor]:
    """Opens the datasets of an HDF5 file of Keras 2 or 3."""
    datasets = tensor_files.open_hdf5(path)
    if any(map(_NUMBERED.fullmatch, datasets)):
        raise ValueError(
            f"{path}: expected variable names, got numbers, which Keras 2 writes to .weights.h5 "
            'files. Load the file in the original program, then call save_weights("bert.h5").'
        )
    return datasets


def _check_pooled_token(path: str, config: BertConfig, spec: ModelSpec) -> None:
    """Checks that a pooler reads the same token in bert_tf and in transformers."""
    if spec.pools_last_token(config):
        raise ValueError(
            f"{path}: a causal {spec.class_name} with a pooler is not supported: bert_tf pools the "
            "last token, but transformers pools the first. Use a model without a "
            "pooler, such as BertLMHeadModel."
        )


# === Reading ===


def read_checkpoint(
    path: str, allow_pickle: bool = False, settings: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Opens a directory that ``save_pretrained`` wrote, or an HDF5 file.

    Args:
        path: The directory or file.
        allow_pickle: Whether a pickle may be read.
        settings: Keys that override the directory's ``config.json``. For an HDF5 file, the complete
            config; by default it is read from the same directory.
    """
    if is_file(path):
        return _open_keras_2(path, settings)
    if tf.io.gfile.exists(os.path.join(path, ADAPTER)):
        raise ValueError(
            f"{path} is not a supported checkpoint{hint(path, [ADAPTER])}, or remove the adapter's "
            "files to load the base weights."
        )
    source = os.path.join(path, CONFIG)
    values = {**read_json_object(source), **(settings or {})}
    return _make_checkpoint(path, open_tensors(path, allow_pickle), values, source, path)


def _open_keras_2(path: str, values: Mapping[str, Any] | None) -> Checkpoint:
    variables = _named_variables(_open_hdf5(path))
    names = [name for name, _ in variables]
    if not _find_main_layers(names):
        raise ValueError(
            f"{path}: expected a variable NAME{_TF_WORDS}, got {listed(sorted(names), 5)}"
            f"{hint(path, None)}. See docs/guides/weights.md."
        )
    folder, source = os.path.dirname(path), path
    if values is None:
        files = [os.path.join(folder, name) for name in (CONFIG, SIZES)]
        config_file = next(filter(is_file, files), None)
        if config_file is None:
            raise ValueError(
                f"{path}: expected {CONFIG} or {SIZES} in {folder or '.'}. Add it, or call "
                f"bert_tf.transformers.TFBertModel(config).load_weights({path!r})."
            )
        source, values = config_file, read_json_object(config_file)
    tensors = _by_pytorch_names(variables, path)
    checkpoint = _make_checkpoint(path, tensors, values, source, folder)
    layers, expected = map(_LAYER.fullmatch, tensors), checkpoint.config.num_hidden_layers
    last = max((int(match[1]) for match in layers if match), default=-1)
    if last >= expected:
        raise ValueError(
            f"{path} has {last + 1} layers, expected {expected} (num_hidden_layers). Use the "
            "config of this model."
        )
    return checkpoint


def _make_checkpoint(
    path: str,
    entries: Mapping[str, StoredTensor],
    values: Mapping[str, Any],
    source: str,
    folder: str,
) -> Checkpoint:
    """Creates a checkpoint from tensors, keyed by their PyTorch names.

    ``values`` are the contents of ``config.json``, ``source`` is its name in errors, and ``folder``
    contains the tokenizer.
    """
    config = read_config(values, source)
    entries, unwrapped = _unwrap(entries, path)
    stored = _normalize_names(entries, path, config.is_distilbert)
    shapes = {name: entry.shape for name, entry in stored.items()}
    spec, notes = model_spec(values, shapes, source)
    _check_pooled_token(path, config, spec)
    expected = expected_shapes(config, spec)
    tensors = _NAMES.read(expected, stored)
    if any(name.startswith("masked_lm/") for name in spec.head_shapes(config)):
        _merge_decoder(path, stored, tensors)
    # position_ids is a buffer that older releases of transformers saved.
    names = (e.name for e in stored.values() if not e.name.endswith("embeddings.position_ids"))
    unused = unused_names(names, tensors)
    if expected.keys() - tensors.keys():
        _check_supported_tensors(path, unused)
    tokenization, tokenizer_notes = read_tokenization(folder)
    labels, label_notes = read_labels(values, spec, source)
    activation, activation_notes = read_activation(values, spec, source)
    problem = values.get("problem_type")
    if not isinstance(problem, str | None):
        raise ValueError(f"{source}: problem_type={quote(problem)}: expected a string or null.")
    form = f"{CONFIG} of a DistilBERT" if config.is_distilbert else CONFIG
    key_notes = config_keys.messages(form, values, source)
    return Checkpoint(
        path=path,
        format="huggingface",
        config=config,
        model=spec,
        tensors=tensors,
        unused=unused,
        tokenization=tokenization,
        labels=labels,
        multi_label=problem == SEVERAL_CLASSES,
        activation=activation,
        problem_type=problem,
        max_seq_length=read_length(folder, config.max_position_embeddings),
        notes=(*key_notes, *unwrapped, *notes, *label_notes, *activation_notes, *tokenizer_notes),
    )


def _unwrap(
    entries: Mapping[str, StoredTensor], path: str
) -> tuple[Mapping[str, StoredTensor], tuple[str, ...]]:
    """Removes the names of wrapper modules from tensor names, and returns a warning."""
    names = {name.replace(_COMPILED, ""): entry for name, entry in entries.items()}
    if not names or len(names) < len(entries):
        return entries, ()
    while prefix := next((p for p in _WRAPPERS if all(name.startswith(p) for name in names)), ""):
        names = {name.removeprefix(prefix): entry for name, entry in names.items()}
    wrapped = next(filter(lambda name: name not in names, entries), None)
    note = (
        f"{path} was saved from a wrapper module: {', '.join((*_WRAPPERS, _COMPILED))} are removed "
        f"from names such as {quote(wrapped)}."
    )
    return names, () if wrapped is None else (note,)


def _check_supported_tensors(path: str, unused: Iterable[str]) -> None:
    """Checks that no unused tensor belongs to an unsupported architecture."""
    for name in unused:
        for pattern, problem in _UNSUPPORTED_TENSORS.items():
            if re.search(pattern, name):
                raise ValueError(f"{path} has {quote(name)}: {problem}.")


def open_tensors(path: str, allow_pickle: bool) -> Mapping[str, StoredTensor]:
    """Opens the tensors of a directory, keyed by their stored names."""
    file = find_weights_file(path)
    if file is None:
        weights_name = read_weights_name(path)
        if weights_name is not None:
            raise ValueError(f"{path} has no {weights_name} ({_WEIGHTS_KEY} in {CONFIG}).")
        raise ValueError(f"{path} has no weights{hint(path, tf.io.gfile.listdir(path))}.")
    name = os.path.basename(file)
    if name == TF_WEIGHTS:
        return _by_pytorch_names(_named_variables(tensor_files.open_hdf5(file)), file)
    open_file = tensor_files.open_safetensors
    if name.startswith(PICKLED):
        open_file = functools.partial(tensor_files.open_pickle, allow_pickle=allow_pickle)
    if name.startswith(TF_WEIGHTS):
        open_file = tensor_files.open_hdf5
    tensors = tensor_files.open_shards(file, open_file) if name.endswith(INDEX) else open_file(file)
    # In other formats that TensorFlow classes write, names do not start with the Keras layer.
    if tensors and all(name.endswith(tensor_files.VARIABLE) for name in tensors):
        suffix = tensor_files.VARIABLE
        return _by_pytorch_names([(n.removesuffix(suffix), t) for n, t in tensors.items()], file)
    return tensors


def _normalize_names(
    entries: Mapping[str, StoredTensor], path: str, is_distilbert: bool
) -> dict[str, StoredTensor]:
    """Converts old and DistilBERT tensor names to BERT's current names, without ``bert.``."""
    prefix = _DISTILBERT_PREFIX if is_distilbert else _PREFIX
    renamed = (*(_DISTILBERT_PARTS if is_distilbert else ()), *_OLD_LEAVES)
    stored: dict[str, StoredTensor] = {}
    for stored_name, entry in entries.items():
        name = stored_name.removeprefix(prefix)
        for old, new in renamed:
            name = name.replace(old, new)
        if name in stored:
            raise ValueError(
                f"{path}: {quote(stored[name].name)} and {quote(entry.name)} are the same weight. "
                "Remove one of them."
            )
        stored[name] = entry
    return stored


def _merge_decoder(
    path: str, stored: dict[str, StoredTensor], tensors: dict[str, StoredTensor]
) -> None:
    """Uses the decoder's kernel and bias for missing tied weights; else checks for equality."""
    for decoder, name in _DECODER.items():
        if decoder in stored and not tensor_files.add_copy(tensors, name, stored.pop(decoder)):
            raise ValueError(
                f"{path}: {decoder} differs from {tensors[name].name}. Only masked-LM heads with "
                "tied word embeddings are supported."
            )


# === Variables of transformers' TFBert classes, in tf_model.h5 or other HDF5 files ===

# A dataset's path in HDF5 consists of the Keras layer that owns the variable, the variable's name
# with its scopes, and ``:0``:
#
#     bert/tf_bert_for_masked_lm/bert/encoder/layer_._0/attention/self/query/kernel:0
#     mlm___cls/tf_bert_for_masked_lm/mlm___cls/predictions/bias:0
#
# The masked-LM head also owns the word embeddings, so they are stored twice. Kernels have shape
# (inputs, outputs). Transformers 5 removed these classes.


def _named_variables(datasets: Mapping[str, StoredTensor]) -> list[tuple[str, StoredTensor]]:
    """Returns the names and tensors of HDF5 variables, except an optimizer's."""
    full_model_prefix = "model_weights/"
    prefix = (
        full_model_prefix if any(name.startswith(full_model_prefix) for name in datasets) else ""
    )
    return [
        (name.removeprefix(prefix).partition("/")[2].removesuffix(tensor_files.VARIABLE), entry)
        for name, entry in datasets.items()
        if name.startswith(prefix)
    ]


def _find_main_layers(names: Iterable[str]) -> list[str]:
    """Returns the names of the BERT main layers among variables, without optimizer slots."""
    layers = {
        f"/{name}".removesuffix(_TF_WORDS) for name in names if f"/{name}".endswith(_TF_WORDS)
    }
    # The name of an optimizer slot ends with the complete name of its variable.
    return sorted(
        layer[1:]
        for layer in layers
        if not any(layer.endswith(other) for other in layers - {layer})
    )


def _by_pytorch_names(
    variables: Sequence[tuple[str, StoredTensor]], path: str
) -> dict[str, StoredTensor]:
    """Converts the variables of at most one BERT model to PyTorch names and layout."""
    layers = _find_main_layers(name for name, _ in variables)
    if len(layers) > 1:
        raise ValueError(
            f"{path}: expected one BERT model, got {len(layers)}, such as {quote(layers[0])} and "
            f"{quote(layers[1])}. Save one of them separately."
        )
    scope = f"{layers[0]}/" if layers else "/"
    is_distilbert = any(name.startswith(f"{scope}transformer/") for name, _ in variables)
    kind = "distilbert" if is_distilbert else "bert"
    tensors: dict[str, StoredTensor] = {}
    for variable, entry in variables:
        scopes, separator, inner_name = f"/{variable}".partition(f"/{scope}")
        name, tensor = entry.name, entry
        if not scopes:
            name, tensor = _to_pytorch_name_and_layout(f"{kind}/{inner_name}", entry)
        elif not separator:  # Optimizer slots have scopes and the separator.
            name, tensor = _to_pytorch_name_and_layout(variable, entry)
        if not tensor_files.add_copy(tensors, name, tensor):
            raise ValueError(
                f"{path}: {quote(tensors[name].name)} and {quote(entry.name)} should be copies of "
                "the same weight, but their values differ. Save the model again."
            )
    return tensors


def _to_pytorch_name_and_layout(variable: str, entry: StoredTensor) -> tuple[str, StoredTensor]:
    """Converts, for example, ``bert/pooler/dense/kernel`` to ``bert.pooler.dense.weight``."""
    match = _TF_MODULE.fullmatch(variable)
    if match is None:
        return entry.name, entry
    *modules, scopes = filter(None, match.groups())
    *inner, leaf = _TF_LAYER.sub(r"layer.\1", scopes).split("/")
    name = ".".join((*modules, *inner, _TF_LEAVES.get(leaf, leaf)))
    if leaf != "kernel":
        return name, entry
    # np.transpose returns a view, so transposing it again does not copy.
    return name, entry.transform(entry.shape[::-1], np.transpose)


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> tuple[str, ...]:
    """Writes a directory that ``from_pretrained`` loads without missing or unexpected weights.

    Weights that the Hugging Face class does not have, such as a token classifier's pooler, are left
    out.
    """
    config, spec = checkpoint.config, checkpoint.model
    _check_pooled_token(checkpoint.path, config, spec)
    class_name = architecture(checkpoint)
    custom = [key for key in _KERAS_HUB_HEAD_ARGUMENTS if spec.arguments.get(key) is not None]
    if custom:
        raise ValueError(
            f"--format=huggingface: cannot store the masked-LM head in {checkpoint.path} with "
            f"{' and '.join(f'{key}={spec.arguments[key]}' for key in custom)}. Load it as a "
            "BertEncoder, save the encoder, then convert the saved encoder."
        )
    write_json(os.path.join(path, CONFIG), config_values(checkpoint))
    notes: list[str] = []
    if checkpoint.tokenization is not None:
        notes += write_tokenization(
            path,
            checkpoint.tokenization,
            default_max_length(checkpoint),
            config.type_vocab_size,
            finds_mask="masked_lm/output_bias" in checkpoint.tensors,
        )
    without_pooler = class_name.removeprefix(DISTIL) in _WITHOUT_POOLER
    entries = (
        dataclasses.replace(
            _NAMES.to_source_layout(name, tensor), name=_target_name(class_name, name)
        )
        for name, tensor in checkpoint.tensors.items()
        if not (name.startswith("pooler/") and without_pooler)
    )
    tensor_files.write_safetensors(os.path.join(path, WEIGHTS), entries)
    if spec.model_class is BertEncoder and not spec.has_pooler:
        notes.append(
            "The encoder has no pooler. Load it with BertModel.from_pretrained(DIR, "
            "add_pooling_layer=False); otherwise the pooler is randomly initialized."
        )
    if checkpoint.thresholds:
        values = ", ".join(f"{name}={value:g}" for name, value in checkpoint.thresholds.items())
        notes.append(f"Hugging Face directories cannot store the thresholds {values}.")
    return tuple(notes)


def _target_name(class_name: str, name: str) -> str:
    """Returns the name of a weight in the files of a Hugging Face class."""
    target_name = _NAMES.source_name(name)
    has_prefix = is_in_encoder(name) and not class_name.endswith("BertModel")
    if not class_name.startswith(DISTIL):
        return f"{_PREFIX}{target_name}" if has_prefix else target_name
    for distilbert_part, bert_part in _DISTILBERT_PARTS:
        target_name = target_name.replace(bert_part, distilbert_part)
    has_prefix = has_prefix and not name.startswith("pooler/")
    return f"{_DISTILBERT_PREFIX}{target_name}" if has_prefix else target_name
