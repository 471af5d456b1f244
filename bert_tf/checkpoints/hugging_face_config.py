"""Hugging Face's ``config.json`` for BERT and DistilBERT: sizes, model class and labels.

DistilBERT (Sanh et al. 2019) is BERT without token types, next-sentence prediction and pooler. Its
classifiers have a dense layer with ReLU instead of the pooler. A ``BertConfig`` with
``type_vocab_size=0`` describes DistilBERT.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.io.messages import listed, quote
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

from .checkpoint import (
    SIGMOID,
    Checkpoint,
    ModelSpec,
    check_labels,
    check_model,
    make_pretrained_spec,
    make_spec,
)
from .config_keys import DISTILBERT_FIELDS

# Values of problem_type.
REGRESSION = "regression"
SEVERAL_CLASSES = "multi_label_classification"

_LABELS = ("id2label", "label2id")
# PyTorch classes of a cross-encoder's activation.
ACTIVATIONS = {
    "": "torch.nn.modules.linear.Identity",
    SIGMOID: "torch.nn.modules.activation.Sigmoid",
}

# Hugging Face's names of activations that bert_tf names differently.
_ACTIVATIONS = {"gelu_approximate": "gelu_pytorch_tanh"}

_DISTILBERT = "distilbert"
DISTIL = "Distil"  # the prefix of class names
_DISTILBERT_ALIASES = ("hidden_size", "num_attention_heads", "num_hidden_layers")
_DISTILBERT_DEFAULTS = {"n_layers": 6, "seq_classif_dropout": 0.2}  # from transformers
_DROPOUT, _DISTILBERT_DROPOUT = "classifier_dropout", "seq_classif_dropout"
# Classes without a DistilBERT equivalent.
_BERT_ONLY = ("BertForPreTraining", "BertForNextSentencePrediction", "BertLMHeadModel")


# === Reading ===


def read_config(values: Mapping[str, Any], source: str) -> BertConfig:
    """Creates a ``BertConfig`` from the contents of a ``config.json``."""
    if _is_distilbert(values):
        filled = {**_DISTILBERT_DEFAULTS, **values}
        sizes = {name: filled[key] for key, name in DISTILBERT_FIELDS.items() if key in filled}
        sizes |= {name: values[name] for name in _DISTILBERT_ALIASES if name in values}
        values = {**sizes, "type_vocab_size": 0}
    return BertConfig.from_dict(values, source)


def _is_distilbert(values: Mapping[str, Any]) -> bool:
    return values.get("model_type") == _DISTILBERT


def model_spec(
    values: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], source: str
) -> tuple[ModelSpec, tuple[str, ...]]:
    """Determines the model from its tensors and, for classifiers, from the architecture.

    Args:
        values: The contents of ``config.json``.
        shapes: Shapes of the tensors by name, without the prefix ``bert.``.
        source: The path of ``config.json``, for errors.

    Returns:
        The model, and warnings.
    """
    pooler = "pooler.dense.weight" in shapes
    if "qa_outputs.weight" in shapes:
        return make_spec(BertSpanPredictor, pooler=pooler), ()
    if "classifier.weight" in shapes:
        classes = next(iter(shapes["classifier.weight"]), 0)
        model_class, notes = _classifier(values, classes, pooler, source)
        dropout = head_dropout(values, model_class)
        spec = make_spec(model_class, num_classes=classes, dropout=dropout, pooler=pooler)
        return check_model(spec.class_name, spec.arguments, source), notes
    prefixes = ("cls.predictions.", "cls.seq_relationship.", "pooler.dense.weight")
    return make_pretrained_spec(shapes, prefixes), ()


def _classifier(
    values: Mapping[str, Any], classes: int, pooler: bool, source: str
) -> tuple[type[BertModel], tuple[str, ...]]:
    """Determines the class of a model with a layer ``classifier``; also returns warnings."""
    notes: tuple[str, ...] = ()
    architectures = values.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    if isinstance(architecture, str) and _is_distilbert(values):
        architecture = architecture.removeprefix(DISTIL)
    if architecture not in [cls.hugging_face for cls in MODEL_CLASSES.values() if cls.hugging_face]:
        kind = (BertClassifier if pooler else BertTokenClassifier).hugging_face
        notes = (
            f"{source}: architectures: {quote(architecture)} is not known; {kind} is assumed.",
        )
        architecture = kind
    for model_class in (BertTokenClassifier, BertMultipleChoice):
        if architecture == model_class.hugging_face:
            return model_class, notes
    problem = values.get("problem_type")
    is_regressor = classes == 1 and problem in (None, REGRESSION)
    if problem == REGRESSION and not is_regressor:
        notes += (
            f"{source}: problem_type={REGRESSION!r} is not supported for {classes} outputs; they "
            "are treated as class logits. Use only the logits.",
        )
    return BertRegressor if is_regressor else BertClassifier, notes


def head_dropout(values: Mapping[str, Any], model_class: type[BertModel]) -> float | None:
    """Returns the dropout rate of a head, or ``None`` if it is the encoder's rate."""
    rate: float | None = values.get(_DROPOUT)
    if _is_distilbert(values):
        rate = values.get(_DISTILBERT_DROPOUT)
        rate = _DISTILBERT_DEFAULTS[_DISTILBERT_DROPOUT] if rate is None else rate
        rate = None if model_class is BertTokenClassifier else rate
    return rate


def read_labels(
    values: Mapping[str, Any], spec: ModelSpec, source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the class names (``()`` for default names), and warnings."""
    classes, names, ids = spec.arguments.get("num_classes"), *map(values.get, _LABELS)
    if classes is None:
        return (), ()
    named = dict(enumerate(names)) if isinstance(names, list) else names
    by_id = {str(at): name for at, name in named.items()} if isinstance(named, Mapping) else {}
    inverse = {str(at): name for name, at in ids.items()} if isinstance(ids, Mapping) else {}
    defaults = {str(at): label for at, label in enumerate(_default_labels(classes))}
    if by_id.items() <= defaults.items() and inverse.items() <= defaults.items():
        return (), ()
    note = ""
    if by_id and inverse and {at: str(name) for at, name in by_id.items()} != inverse:
        note = f"{source}: label2id differs from id2label; id2label is used. Check the labels."
    labels_by_id = by_id or inverse
    if not by_id:
        note = f"{source}: id2label is missing; label2id is used (transformers uses LABEL_0, ...)."
    if labels_by_id.keys() != defaults.keys():
        note = (
            f"{source}: {_LABELS[not by_id]}: expected the ids 0 to {classes - 1}, got "
            f"{listed(labels_by_id)}. The ids are used as labels."
        )
        return (), (note,)
    labels = check_labels((labels_by_id[at] for at in defaults), source)
    return () if labels == _default_labels(classes) else labels, (note,) if note else ()


def _default_labels(classes: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{index}" for index in range(classes))


def read_activation(
    values: Mapping[str, Any], spec: ModelSpec, source: str
) -> tuple[str, list[str]]:
    """Returns the activation of a regressor's output, and warnings.

    If the config does not specify one, the activation is a sigmoid, as in cross-encoders and in
    transformers' pipelines, unless ``problem_type`` is regression.
    """
    settings = values.get("sentence_transformers")
    name = settings.get("activation_fn") if isinstance(settings, Mapping) else None
    name = name or values.get("sbert_ce_default_activation_function")
    is_regressor = spec.model_class is BertRegressor
    supported = [*ACTIVATIONS.values()] if is_regressor else [ACTIVATIONS[""]]
    if name is not None and name not in supported:
        return "", [f"{source}: activation_fn={quote(name)} is not supported and not applied."]
    if not is_regressor or name == ACTIVATIONS[""]:
        return "", []
    if name is None and values.get("problem_type") == REGRESSION:
        note = (
            f"{source}: problem_type={REGRESSION!r}: predictions are logits, but CrossEncoder of "
            "sentence-transformers applies a sigmoid. Set sentence_transformers.activation_fn."
        )
        return "", [note]
    return SIGMOID, []


# === Writing ===


def config_values(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the contents of ``config.json`` for a checkpoint."""
    config, spec = checkpoint.config, checkpoint.model
    sizes = config.to_dict()
    sizes["hidden_act"] = _ACTIVATIONS.get(config.hidden_act, config.hidden_act)
    if config.is_distilbert:
        sizes = {key: sizes[name] for key, name in DISTILBERT_FIELDS.items()}
    else:
        sizes |= {"position_embedding_type": "absolute", "use_cache": True}
    values = {
        "architectures": [architecture(checkpoint)],
        "model_type": _DISTILBERT if config.is_distilbert else "bert",
        **sizes,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": checkpoint.tensors["embeddings/word_embeddings"].dtype,
    }
    if (tokenization := checkpoint.tokenization) is not None:
        values["pad_token_id"] = tokenization.vocabulary.index(PAD_TOKEN)
    rate = spec.arguments.get("dropout")
    if "dropout" in spec.arguments and not (config.is_distilbert and rate is None):
        values[_DISTILBERT_DROPOUT if config.is_distilbert else _DROPOUT] = rate
    classes = spec.arguments.get("num_classes")
    if spec.model_class is BertRegressor:
        classes = 1
        values["problem_type"] = REGRESSION
        # Otherwise sentence-transformers applies a sigmoid.
        if not checkpoint.activation:
            values["sentence_transformers"] = {"activation_fn": ACTIVATIONS[""]}
    elif checkpoint.multi_label:
        values["problem_type"] = SEVERAL_CLASSES
    elif spec.model_class is BertClassifier:
        values["problem_type"] = "single_label_classification"
    if checkpoint.problem_type != "":
        values["problem_type"] = checkpoint.problem_type
    elif checkpoint.activation:
        values["problem_type"] = None
    if classes is not None:
        labels = checkpoint.labels or _default_labels(classes)
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    return values


def architecture(checkpoint: Checkpoint) -> str:
    """Returns the name of the Hugging Face class.

    Raises:
        ValueError: If the class does not exist for DistilBERT.
    """
    config, spec = checkpoint.config, checkpoint.model
    name = spec.model_class.hugging_face_class(config, spec.arguments)
    if not config.is_distilbert:
        return name
    if name in _BERT_ONLY or (name == "BertModel" and spec.has_pooler):
        raise ValueError(
            f"{checkpoint.path}: Hugging Face has no {name} for DistilBERT. Convert the encoder "
            "without its pooler."
        )
    return f"{DISTIL}{name}"
