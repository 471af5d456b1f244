"""Signatures of an export: the inputs by the model's class, the answers by its task."""

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
    """How the models of a class are served.

    Attributes:
        signatures: takes a served model and its task, ``None`` for a class that no task trains;
            returns the signatures by name, among them ``serving_default`` and ``tokens``. Two names
            of one function are one ``Signature`` object.
        options: the fields of ``ExportOptions`` that apply to these models, and not to all.
        transformers: takes a served model and features of ids by name; returns the outputs that
            SavedModels of transformers' class had. ``None``: there was no such class.
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


def register_signatures(model_class: type[BertModel], how: ClassSignatures) -> None:
    """Has the models of a class from elsewhere exported, in this process.

    Raises:
        ValueError: the class is registered already.
    """
    if model_class in _CLASSES:
        raise ValueError(
            f"{model_class.__name__} has signatures already: register a class of its own."
        )
    _CLASSES[model_class] = how


def classes_with(option: str) -> list[type[BertModel]]:
    """The classes of models that an export option applies to; none if it does to all."""
    if option == "transformers_signature":
        return [model_class for model_class, how in _CLASSES.items() if how.transformers]
    return [model_class for model_class, how in _CLASSES.items() if option in how.options]


def model_signatures(served: Served) -> Signatures:
    """Signatures of a served model, by name, ``serving_default`` first.

    Their functions take the inputs alone.
    """
    model_class = type(served.model)
    how = next((_CLASSES[one] for one in model_class.__mro__ if one in _CLASSES), None)
    if how is None:
        known = ", ".join(one.__name__ for one in _CLASSES)
        raise ValueError(f"{model_class.__name__} cannot be served: expected one of {known}.")
    return bind_all(how.signatures(served, _task_of(served)), served, how.transformers)


def _task_of(served: Served) -> Task | None:
    """The task without data whose answers a model has; ``None`` if no kind trains its class."""
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
