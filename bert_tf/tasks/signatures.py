"""Export signatures: the model class determines the inputs, and the task determines the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from bert_tf.answering import embeddings, fill_mask
from bert_tf.answering.served import Outputs, Served
from bert_tf.answering.signatures import Signatures, bind_all, model_outputs
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertFeatureTagger,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel

from .questions import answer as questions
from .registry import KINDS
from .tagging import answer as tagging
from .task import Task
from .task_file import default_kind, kinds_for_class, read_task_file
from .texts import answer as texts


@dataclasses.dataclass(frozen=True)
class ClassSignatures:
    """Signatures of a model class.

    Attributes:
        signatures: Function of a served model and its task (``None`` if no task trains the class)
            that returns signatures by name, including ``serving_default`` and ``tokens``. Aliases
            must be the same ``Signature`` object.
        options: Fields of ``ExportOptions`` that apply to this class but not to all classes.
        transformers: Function of a served model and features by name that returns the outputs of
            the corresponding transformers class; ``None`` if there is no such class.
    """

    signatures: Callable[[Served, Any], Signatures]
    options: tuple[str, ...] = ()
    transformers: Callable[..., Outputs] | None = model_outputs


_CLASSES: dict[type[BertModel], ClassSignatures] = {
    BertEncoder: ClassSignatures(
        lambda served, _: embeddings.signatures(served),
        ("normalize",),
        embeddings.transformers_outputs,
    ),
    BertPretrainer: ClassSignatures(
        lambda served, _: fill_mask.signatures(served),
        ("normalize",),
        fill_mask.transformers_outputs,
    ),
    BertClassifier: ClassSignatures(texts.text_signatures, ("pair",)),
    BertRegressor: ClassSignatures(texts.text_signatures, ("pair",), texts.regressor_logits),
    BertTokenClassifier: ClassSignatures(tagging.signatures),
    BertFeatureTagger: ClassSignatures(tagging.signatures, transformers=None),
    BertSpanPredictor: ClassSignatures(questions.signatures),
    BertMultipleChoice: ClassSignatures(texts.choice_signatures),
}


def register_signatures(model_class: type[BertModel], entry: ClassSignatures) -> None:
    """Registers the signatures of a custom model class for exports in this process.

    Args:
        model_class: Model class.
        entry: Signatures of the model class.

    Raises:
        ValueError: If the class is already registered.
    """
    if model_class in _CLASSES:
        raise ValueError(f"{model_class.__name__} is already registered. Register a subclass.")
    _CLASSES[model_class] = entry


def classes_with(option: str) -> list[type[BertModel]]:
    """Returns the model classes to which an export option is limited; empty if it is not."""
    if option == "transformers_signature":
        return [model_class for model_class, entry in _CLASSES.items() if entry.transformers]
    return [model_class for model_class, entry in _CLASSES.items() if option in entry.options]


def model_signatures(served: Served) -> Signatures:
    """Returns the signatures of a served model by name, ``serving_default`` first.

    The function of each signature takes only the inputs.
    """
    model_class = type(served.model)
    entry = next((_CLASSES[c] for c in model_class.__mro__ if c in _CLASSES), None)
    if entry is None:
        known = ", ".join(c.__name__ for c in _CLASSES)
        raise ValueError(f"{model_class.__name__} cannot be served: expected one of {known}.")
    return bind_all(entry.signatures(served, _served_task(served)), served, entry.transformers)


def _served_task(served: Served) -> Task | None:
    """Returns a task without data for a model, or ``None`` if no task type trains its class."""
    model = served.model
    kinds = kinds_for_class(type(model), embeds=False)
    if not kinds:
        return None
    saved = model.task and read_task_file(model.task, model.name)
    if saved and KINDS[saved.kind] in kinds:
        kind, options = KINDS[saved.kind], saved.options
    else:
        kind, options = default_kind(kinds, multi_label=model.multi_label), {}
    return kind(
        model.name,
        train=None,
        dev={},
        test={},
        labels=served.labels if kind.classes else (),
        options=kind.restore_options(options, model.thresholds),
    )
