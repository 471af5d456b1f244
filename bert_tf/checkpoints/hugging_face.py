"""Hugging Face directories: config, weights (safetensors, ``tf_model.h5``, a pickle), tokenizer.

Old files say ``gamma`` and ``beta`` for ``weight`` and ``bias`` of a normalisation, some names
begin with ``bert.`` and some do not; both are read. Matrices are (outputs, inputs) there.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import marks
from bert_tf.config import BertConfig
from bert_tf.files import read_json_object, write_json
from bert_tf.modeling import (
    MODEL_CLASSES,
    BertClassifier,
    BertMultipleChoice,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.vocabulary import PAD_TOKEN
from bert_tf.untrusted import quote

from . import distilbert, safetensors, tf_model_files, torch_files
from .checkpoint import (
    Checkpoint,
    ModelSpec,
    StoredTensor,
    check_labels,
    check_model,
    model_of,
    pretrained_model,
)
from .tensor_files import open_shards
from .tokenizer_files import read_tokenization, write_tokenization
from .weights import Names, expected_shapes, is_in_encoder

# Names in config.json (problem_type) of two kinds of classifiers.
REGRESSION = "regression"
SEVERAL_CLASSES = "multi_label_classification"

# Names of activations that Hugging Face spells in another way.
_ACTIVATIONS = {"gelu_approximate": "gelu_pytorch_tanh"}


def model_spec(
    values: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], source: str
) -> tuple[ModelSpec, tuple[str, ...]]:
    """Which model it is: the tensors say, and the architecture's name where they leave it open.

    ``shapes`` are the tensors', by their names without ``bert.``. Also returned: sentences on what
    was assumed.
    """
    pooler = "pooler.dense.weight" in shapes
    if "qa_outputs.weight" in shapes:
        return model_of(BertSpanPredictor, pooler=pooler), ()
    if "classifier.weight" in shapes:
        classes = next(iter(shapes["classifier.weight"]), 0)
        model_class, notes = _classifier(values, classes, pooler, source)
        dropout = head_dropout(values, model_class)
        spec = model_of(model_class, num_classes=classes, dropout=dropout, pooler=pooler)
        return check_model(spec.class_name, spec.arguments, source), notes
    masked_lm = any(name.startswith("cls.predictions.") for name in shapes)
    next_sentence = any(name.startswith("cls.seq_relationship.") for name in shapes)
    return pretrained_model(masked_lm, next_sentence, pooler), ()


def _classifier(
    values: Mapping[str, Any], classes: int, pooler: bool, source: str
) -> tuple[type[BertModel], tuple[str, ...]]:
    """Class of model that ``classifier`` belongs to (sequences, tokens, choices), and notes."""
    notes: tuple[str, ...] = ()
    named = values.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else None
    if isinstance(architecture, str) and _is_distilbert(values):
        architecture = architecture.removeprefix(_DISTIL)
    if architecture not in [cls.hugging_face for cls in MODEL_CLASSES.values() if cls.hugging_face]:
        kind = (BertClassifier if pooler else BertTokenClassifier).hugging_face
        notes = (
            f"{source} names the architecture {quote(architecture)}, which does not say what the "
            f"classifier classifies: it is taken as {kind}'s.",
        )
        architecture = kind
    for model_class in (BertTokenClassifier, BertMultipleChoice):
        if architecture == model_class.hugging_face:
            return model_class, notes
    problem = values.get("problem_type")
    is_regressor = classes == 1 and problem in (None, REGRESSION)
    if problem == REGRESSION and not is_regressor:
        notes += (
            f"{source} says that its {classes} outputs are numbers (problem_type), and here they "
            "are the logits of classes: read the logits alone.",
        )
    return BertRegressor if is_regressor else BertClassifier, notes


def read_config(values: Mapping[str, Any], source: str) -> BertConfig:
    """The sizes that a ``config.json`` says."""
    if _is_distilbert(values):
        return distilbert.read_config(values, source)
    return BertConfig.from_dict(values, source)


def _is_distilbert(values: Mapping[str, Any]) -> bool:
    return values.get("model_type") == distilbert.MODEL_TYPE


def head_dropout(values: Mapping[str, Any], model_class: type[BertModel]) -> float | None:
    """The rate in front of a head that a ``config.json`` says; ``None``: the encoder's."""
    if _is_distilbert(values):
        of_tokens = model_class is BertTokenClassifier
        return None if of_tokens else distilbert.classifier_dropout(values)
    rate: float | None = values.get("classifier_dropout")
    return rate


def read_labels(values: Mapping[str, Any], spec: ModelSpec, source: str) -> tuple[str, ...]:
    """The names of the classes; () where they are the ones made up by default."""
    names = values.get("id2label")
    classes = spec.arguments.get("num_classes")
    if not isinstance(names, Mapping) or classes is None:
        return ()
    defaults = _default_labels(classes)
    found = (names.get(str(index), defaults[index]) for index in range(classes))
    labels = check_labels(found, source)
    return () if labels == defaults else labels


def _default_labels(classes: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{index}" for index in range(classes))


def config_values(checkpoint: Checkpoint) -> dict[str, Any]:
    """The ``config.json`` of a checkpoint."""
    config, spec = checkpoint.config, checkpoint.model
    named = dataclasses.replace(
        config, hidden_act=_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
    )
    of_bert = {"position_embedding_type": "absolute", "use_cache": True}
    values = {
        "architectures": [_architecture(checkpoint)],
        "model_type": distilbert.MODEL_TYPE if config.is_distilbert else "bert",
        **(distilbert.config_values(named) if config.is_distilbert else named.to_dict() | of_bert),
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": checkpoint.tensors["embeddings/word_embeddings"].dtype,
    }
    tokenization = checkpoint.tokenization
    if tokenization is not None:
        values["pad_token_id"] = tokenization.vocabulary.index(PAD_TOKEN)
    if "dropout" in spec.arguments:
        rate = spec.arguments["dropout"]
        own = distilbert.classifier_values(rate) if config.is_distilbert else None
        values |= {"classifier_dropout": rate} if own is None else own
    classes = spec.arguments.get("num_classes")
    if spec.model_class is BertRegressor:
        classes = 1
        values["problem_type"] = REGRESSION
    elif checkpoint.multi_label:
        values["problem_type"] = SEVERAL_CLASSES
    elif spec.model_class is BertClassifier:
        values["problem_type"] = "single_label_classification"
    if classes is not None:
        labels = checkpoint.labels or _default_labels(classes)
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    return values


CONFIG = marks.CONFIG
WEIGHTS, TF_WEIGHTS, PICKLED = marks.WEIGHTS, marks.TF_WEIGHTS, marks.PICKLED
FILES = marks.WEIGHT_FILES  # the form that is safest to read first

_PREFIX = "bert."
_DISTIL = "Distil"
_OLD_LEAVES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# The masked-LM head's matrix and bias, stored twice in old files.
_DECODER_WEIGHT = "cls.predictions.decoder.weight"
_DECODER_BIAS = "cls.predictions.decoder.bias"
_WORD_EMBEDDINGS = "embeddings/word_embeddings"
_OUTPUT_BIAS = "masked_lm/output_bias"

NAMES = Names(
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

# Arguments of KerasHub's masked-LM head.
_OF_ANOTHER_HEAD = ("mlm_activation", "mlm_layer_norm_eps")
# Heads that read next-sentence prediction's pooler, or the next token.
_NOT_DISTILLED = ("BertForPreTraining", "BertForNextSentencePrediction", "BertLMHeadModel")
_WITHOUT_POOLER = ("BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering")


def is_checkpoint(path: str) -> bool:
    """True if a directory looks like Hugging Face's."""
    return tf.io.gfile.exists(os.path.join(path, CONFIG)) and weights_file(path) is not None


def weights_file(path: str) -> str | None:
    """The file of the weights, or their index; of several the one that is safest to read."""
    return next(filter(tf.io.gfile.exists, (os.path.join(path, name) for name in FILES)), None)


def _check_reads_no_first_token(path: str, config: BertConfig, spec: ModelSpec) -> None:
    """Refuses what would read another token there than here."""
    if spec.pools_last_token(config):
        raise ValueError(
            f"{path} holds a causal {spec.class_name} (is_decoder) with a pooler, which reads the "
            "last token in this library and the first one, which sees no other, in Hugging Face's: "
            "expected a model without one, such as a BertLMHeadModel."
        )


# === Reading ===


def open_checkpoint(path: str, allow_pickle: bool = False) -> Checkpoint:
    """Opens a directory that ``save_pretrained`` made, or one downloaded from the hub."""
    source = os.path.join(path, CONFIG)
    values = read_json_object(source)
    return of_tensors(path, open_tensors(path, allow_pickle), values, source, path)


def of_tensors(
    path: str,
    entries: Mapping[str, StoredTensor],
    values: Mapping[str, Any],
    source: str,
    folder: str,
) -> Checkpoint:
    """The checkpoint of tensors by their names in a PyTorch file, at ``path``.

    ``values`` are those of a ``config.json``, which ``source`` names in errors; ``folder`` is where
    the tokenizer's files are.
    """
    config = read_config(values, source)
    stored = _normalised(entries, path, config.is_distilbert)
    shapes = {name: entry.shape for name, entry in stored.items()}
    spec, notes = model_spec(values, shapes, source)
    _check_reads_no_first_token(path, config, spec)
    tensors = {}
    for name in expected_shapes(config, spec):
        spelling = NAMES.spell(name)
        if spelling.name in stored:
            tensors[name] = spelling.lay_out(stored.pop(spelling.name))
    if any(name.startswith("masked_lm/") for name in spec.head_shapes(config)):
        _take_decoder(path, stored, tensors)
    # 0, 1, 2, ...: a buffer that older releases of transformers wrote, and no weight.
    unused = (e.name for e in stored.values() if not e.name.endswith("embeddings.position_ids"))
    tokenization, tokenizer_notes = read_tokenization(folder)
    return Checkpoint(
        path=path,
        format="huggingface",
        config=config,
        model=spec,
        tensors=tensors,
        unused=tuple(sorted(unused)),
        tokenization=tokenization,
        labels=read_labels(values, spec, source),
        multi_label=values.get("problem_type") == SEVERAL_CLASSES,
        notes=(*notes, *tokenizer_notes),
    )


def open_tensors(path: str, allow_pickle: bool) -> Mapping[str, StoredTensor]:
    """The tensors of a directory by their names there."""
    file = weights_file(path)
    if file is None:
        raise ValueError(f"{path} has no {WEIGHTS}, {TF_WEIGHTS} or {PICKLED}.")
    if os.path.basename(file) == TF_WEIGHTS:
        return tf_model_files.open_file(file)
    if os.path.basename(file).startswith(PICKLED):
        return torch_files.open_pytorch_bin(file, allow_pickle)
    is_index = file.endswith(".json")
    return open_shards(file, safetensors.open_file) if is_index else safetensors.open_file(file)


def _normalised(
    entries: Mapping[str, StoredTensor], path: str, is_distilbert: bool
) -> dict[str, StoredTensor]:
    """The tensors by their names of today in a BERT's files, without ``bert.``."""
    stored: dict[str, StoredTensor] = {}
    for spelled, entry in entries.items():
        name = spelled.removeprefix(_PREFIX)
        if is_distilbert:
            name = distilbert.as_bert(spelled.removeprefix(distilbert.PREFIX))
        for old, new in _OLD_LEAVES.items():
            name = name.replace(old, new)
        if name in stored:
            raise ValueError(
                f"{path} has both {quote(stored[name].name)} and {quote(entry.name)}, which mean "
                "the same weight: remove one of them."
            )
        stored[name] = entry
    return stored


def _take_decoder(
    path: str, stored: dict[str, StoredTensor], tensors: dict[str, StoredTensor]
) -> None:
    """Takes the decoder's copies of the embeddings and of the bias, if copies they are."""
    for decoder, name in ((_DECODER_WEIGHT, _WORD_EMBEDDINGS), (_DECODER_BIAS, _OUTPUT_BIAS)):
        if decoder not in stored:
            continue
        entry = stored.pop(decoder)
        tensor = tensors.get(name)
        if tensor is None:
            tensors[name] = entry
        elif tensor.shape != entry.shape or not np.array_equal(tensor.read(), entry.read()):
            raise ValueError(
                f"{path}: {decoder} differs from {tensor.names[0]}: in BERT as published the "
                "masked-LM head multiplies by the word embeddings, so it cannot be built."
            )
        else:
            tensors[name] = dataclasses.replace(tensor, names=(*tensor.names, entry.name))


# === Writing ===


def _architecture(checkpoint: Checkpoint) -> str:
    """The name of Hugging Face's class; an error where a DistilBERT has no such head."""
    config, spec = checkpoint.config, checkpoint.model
    name = spec.model_class.hugging_face_class(config, spec.arguments)
    if not config.is_distilbert:
        return name
    if name in _NOT_DISTILLED or (name == "BertModel" and spec.has_pooler):
        raise ValueError(
            f"{checkpoint.path} holds a DistilBERT that would be Hugging Face's {name}, a "
            "class that exists for BERT alone: convert the encoder without its pooler."
        )
    return f"{_DISTIL}{name}"


def _name_in(architecture: str, name: str) -> str:
    """A weight's name in the files of a class."""
    there = NAMES.spell(name).name
    is_whole = architecture.endswith("BertModel")
    if architecture.startswith(_DISTIL):
        in_front = is_in_encoder(name) and not name.startswith("pooler/") and not is_whole
        return (distilbert.PREFIX if in_front else "") + distilbert.from_bert(there)
    return (_PREFIX if is_in_encoder(name) and not is_whole else "") + there


def write(checkpoint: Checkpoint, path: str) -> None:
    """Writes a directory that ``from_pretrained`` loads with nothing missing or unexpected.

    A weight that Hugging Face's class has no place for stays out: a token classifier's pooler.
    """
    spec = checkpoint.model
    _check_reads_no_first_token(checkpoint.path, checkpoint.config, spec)
    architecture = _architecture(checkpoint)
    own = [key for key in _OF_ANOTHER_HEAD if spec.arguments.get(key) is not None]
    if own:
        raise ValueError(
            f"{checkpoint.path} cannot become Hugging Face's: its masked-LM head has "
            f"{' and '.join(f'{key}={spec.arguments[key]}' for key in own)} of its own, and there "
            "it has the encoder's; load it, and convert the encoder alone."
        )
    write_json(os.path.join(path, CONFIG), config_values(checkpoint))
    if checkpoint.tokenization is not None:
        config = checkpoint.config
        most, types = config.max_position_embeddings, config.type_vocab_size
        write_tokenization(path, checkpoint.tokenization, most, types)
    without_pooler = architecture.removeprefix(_DISTIL) in _WITHOUT_POOLER
    entries = (
        dataclasses.replace(
            NAMES.spell(name).lay_out(tensor), names=(_name_in(architecture, name),)
        )
        for name, tensor in checkpoint.tensors.items()
        if not (name.startswith("pooler/") and without_pooler)
    )
    safetensors.write_file(os.path.join(path, WEIGHTS), entries, {"format": "pt"})
