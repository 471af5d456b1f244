"""Hugging Face's ``config.json``, of a BERT and of a DistilBERT: sizes, class of model, labels.

DistilBERT (Sanh et al. 2019) is a BERT without token types and without next-sentence prediction, so
without a pooler; what a classifier has in the pooler's place is a layer with a ReLU.
``BertConfig`` says it by ``type_vocab_size=0``.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.io.wording import listed, quote
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

# Values of problem_type of two kinds of classifiers.
REGRESSION = "regression"
SEVERAL_CLASSES = "multi_label_classification"

_LABELS = ("id2label", "label2id")
# Functions of a cross-encoder's number, by their names in PyTorch.
ACTIVATIONS = {
    "": "torch.nn.modules.linear.Identity",
    SIGMOID: "torch.nn.modules.activation.Sigmoid",
}

# Names of activations that Hugging Face spells in another way.
_ACTIVATIONS = {"gelu_approximate": "gelu_pytorch_tanh"}

_DISTILBERT = "distilbert"
DISTIL = "Distil"  # before the name of a class
_DISTILBERT_ALIASES = ("hidden_size", "num_attention_heads", "num_hidden_layers")
_DISTILBERT_DEFAULTS = {"n_layers": 6, "seq_classif_dropout": 0.2}  # transformers'
_DROPOUT, _DISTILBERT_DROPOUT = "classifier_dropout", "seq_classif_dropout"
# Heads that read next-sentence prediction's pooler, or the next token.
_NOT_DISTILLED = ("BertForPreTraining", "BertForNextSentencePrediction", "BertLMHeadModel")


# === Reading ===


def read_config(values: Mapping[str, Any], source: str) -> BertConfig:
    """The sizes that a ``config.json`` says."""
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
    """The model, by its tensors, and by the architecture's name where they leave it open.

    ``shapes`` are the tensors', by their names without ``bert.``. Also returned: notes.
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
    """Class of model that ``classifier`` belongs to (sequences, tokens, choices), and notes."""
    notes: tuple[str, ...] = ()
    architectures = values.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    if isinstance(architecture, str) and _is_distilbert(values):
        architecture = architecture.removeprefix(DISTIL)
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


def head_dropout(values: Mapping[str, Any], model_class: type[BertModel]) -> float | None:
    """The rate in front of a head that a ``config.json`` says; ``None``: the encoder's."""
    rate: float | None = values.get(_DROPOUT)
    if _is_distilbert(values):
        own = values.get(_DISTILBERT_DROPOUT)
        own = _DISTILBERT_DEFAULTS[_DISTILBERT_DROPOUT] if own is None else own
        rate = None if model_class is BertTokenClassifier else own  # which check_model judges
    return rate


def read_labels(
    values: Mapping[str, Any], spec: ModelSpec, source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the classes, () where they are the ones made up by default; and notes."""
    classes, names, ids = spec.arguments.get("num_classes"), *map(values.get, _LABELS)
    if classes is None:
        return (), ()
    named = dict(enumerate(names)) if isinstance(names, list) else names
    by_id = {str(at): name for at, name in named.items()} if isinstance(named, Mapping) else {}
    inverse = {str(at): name for name, at in ids.items()} if isinstance(ids, Mapping) else {}
    made_up = {str(at): label for at, label in enumerate(_default_labels(classes))}
    if by_id.items() <= made_up.items() and inverse.items() <= made_up.items():
        return (), ()
    if by_id and inverse and {at: str(name) for at, name in by_id.items()} != inverse:
        note = f"{source}: label2id says otherwise than id2label, which counts: look at the labels."
    else:
        note = ""
    stated = by_id or inverse
    if not by_id:
        note = (
            f"{source}: there is no id2label, and label2id names the classes; transformers calls "
            "them LABEL_0 and so on."
        )
    if stated.keys() != made_up.keys():
        note = (
            f"{source}: {_LABELS[not by_id]} names the classes {listed(stated)}, and the model has "
            f"the classes 0 to {classes - 1}: the labels are these numbers."
        )
        return (), (note,)
    labels = check_labels((stated[at] for at in made_up), source)
    return () if labels == _default_labels(classes) else labels, (note,) if note else ()


def _default_labels(classes: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{index}" for index in range(classes))


def read_activation(
    values: Mapping[str, Any], spec: ModelSpec, source: str
) -> tuple[str, list[str]]:
    """The function of a regressor's number, and notes.

    It is the one that an older cross-encoder's file names; else a sigmoid, as cross-encoders and
    transformers' pipeline take it, unless ``problem_type`` says that the number is meant.
    """
    own = values.get("sentence_transformers")
    own = own.get("activation_fn") if isinstance(own, Mapping) else None
    name = own or values.get("sbert_ce_default_activation_function")
    is_number = spec.model_class is BertRegressor
    known = [ACTIVATIONS[each] for each in (ACTIVATIONS if is_number else ("",))]
    notes = [f"{source}: activation_fn is {quote(name)}, which is not applied."]
    notes = [] if name is None or name in known else notes
    if not is_number:
        return "", notes
    if name is None and values.get("problem_type") == REGRESSION:
        note = (
            f"{source}: problem_type is 'regression', so predictions are logits, as in "
            "transformers; CrossEncoder of sentence-transformers returns their sigmoid. Set "
            "sentence_transformers.activation_fn."
        )
        return "", [*notes, note]
    if name is None:
        return SIGMOID, notes
    return SIGMOID if name == ACTIVATIONS[SIGMOID] else "", notes


# === Writing ===


def config_values(checkpoint: Checkpoint) -> dict[str, Any]:
    """The ``config.json`` of a checkpoint."""
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
        # What sentence-transformers would take the number for otherwise.
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
    return f"{DISTIL}{name}"
