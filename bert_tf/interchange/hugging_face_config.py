"""Which model a Hugging Face ``config.json`` describes, and the ``config.json`` of a model."""

from collections.abc import Mapping
from typing import Any

from bert_tf.modeling import (
    MODEL_CLASSES,
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.pipelines.vocabulary import PAD_TOKEN
from bert_tf.untrusted import quote

from .checkpoint import Checkpoint, ModelSpec
from .description import check_labels, check_model

# Names of activations that Hugging Face spells in another way.
_ACTIVATIONS = {"gelu_approximate": "gelu_pytorch_tanh"}


def model_spec(
    values: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], source: str
) -> tuple[ModelSpec, tuple[str, ...]]:
    """Which model it is: the tensors say, and the architecture's name where they leave it open.

    Args:
        values: the parsed ``config.json``.
        shapes: the tensors' shapes by their names, without ``bert.``.
        source: the path of the config, for notes.

    Returns:
        The model, and sentences on what was assumed.

    Raises:
        ValueError: the classifier has no classes, or its dropout is no rate.
    """
    pooler = "pooler.dense.weight" in shapes
    if "qa_outputs.weight" in shapes:
        return ModelSpec(BertSpanPredictor, {"pooler": pooler}), ()
    if "classifier.weight" in shapes:
        classes = next(iter(shapes["classifier.weight"]), 0)
        spec, notes = _classifier_spec(values, classes, pooler, source)
        return check_model(spec.class_name, spec.arguments, source), notes
    masked_lm = any(name.startswith("cls.predictions.") for name in shapes)
    next_sentence = any(name.startswith("cls.seq_relationship.") for name in shapes)
    if masked_lm or next_sentence:
        heads = {"mlm": masked_lm, "nsp": next_sentence, "pooler": pooler or next_sentence}
        return ModelSpec(BertPretrainer, heads), ()
    return ModelSpec(BertEncoder, {"pooler": pooler}), ()


def _classifier_spec(
    values: Mapping[str, Any], classes: int, pooler: bool, source: str
) -> tuple[ModelSpec, tuple[str, ...]]:
    """Whose ``classifier`` it is: of sequences, tokens or choices."""
    dropout = values.get("classifier_dropout")
    arguments: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
    notes: tuple[str, ...] = ()
    named = values.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else None
    known = [cls.hugging_face for cls in MODEL_CLASSES.values() if cls.hugging_face]
    if architecture not in known:
        kind = (BertClassifier if pooler else BertTokenClassifier).hugging_face
        notes = (
            f"{source} names the architecture {quote(architecture)}, which does not say what the "
            f"classifier classifies: it is taken as {kind}'s.",
        )
        architecture = kind
    if architecture == BertTokenClassifier.hugging_face:
        arguments |= {"num_classes": classes, "pooler": pooler}
        return ModelSpec(BertTokenClassifier, arguments), notes
    if architecture == BertMultipleChoice.hugging_face:
        return ModelSpec(BertMultipleChoice, arguments), notes
    if classes == 1 and values.get("problem_type") in (None, "regression"):
        return ModelSpec(BertRegressor, arguments), notes
    return ModelSpec(BertClassifier, {"num_classes": classes, **arguments}), notes


def read_labels(values: Mapping[str, Any], spec: ModelSpec, source: str) -> tuple[str, ...]:
    """The names of the classes; () where they are the ones made up by default.

    Raises:
        ValueError: a name is no text.
    """
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
    values = {
        "architectures": [spec.model_class.hugging_face_class(spec.arguments)],
        "model_type": "bert",
        **config.to_dict(),
        "hidden_act": _ACTIVATIONS.get(config.hidden_act, config.hidden_act),
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "dtype": checkpoint.tensors["embeddings/word_embeddings"].dtype,
    }
    tokenization = checkpoint.tokenization
    if tokenization is not None:
        values["pad_token_id"] = tokenization.vocabulary.index(PAD_TOKEN)
    if "dropout" in spec.arguments:
        values["classifier_dropout"] = spec.arguments["dropout"]
    classes = spec.arguments.get("num_classes")
    if spec.model_class is BertRegressor:
        classes = 1
        values["problem_type"] = "regression"
    elif checkpoint.multi_label:
        values["problem_type"] = "multi_label_classification"
    elif spec.model_class is BertClassifier:
        values["problem_type"] = "single_label_classification"
    if classes is not None:
        labels = checkpoint.labels or _default_labels(classes)
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    return values
