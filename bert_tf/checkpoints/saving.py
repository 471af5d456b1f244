"""``bert_tf.save``: a model to a directory of this library."""

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.files import whole_directory
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.base import BertModel
from bert_tf.untrusted import listed

from .checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization
from .model_directory import write
from .weights import take_weights, variable_shapes


def save(model: BertModel, directory: str | os.PathLike[str]) -> None:
    """Writes a model to a new directory, whole or not at all.

    The directory has the weights, the sizes, and what ``bert_tf.load`` gave the model besides: the
    vocabulary of its ``preprocessor``, its ``labels``, ``multi_label``, ``thresholds``, ``task``
    and ``sentence_embedding``. So ``bert_tf.load`` and every command take it as they take what a
    run left. Set ``model.labels`` of a classifier that you trained by ``fit``, for names in its
    answers.

    Args:
        model: of one of this library's classes. What ``compile`` was given is not kept.
        directory: nothing yet, or an empty directory.

    Raises:
        ValueError: something is there; the model has other weights than its class (as adapters
            have, which are to be merged first) or another number of labels than of classes.

    >>> import os, tempfile, bert_tf
    >>> config = bert_tf.BertConfig.from_preset("bert-tiny", vocab_size=8)
    >>> model = bert_tf.BertClassifier(config, num_classes=2)
    >>> model.preprocessor = bert_tf.BertPreprocessor(
    ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "is", "so"])
    >>> model.labels = ("no", "yes")
    >>> directory = os.path.join(tempfile.mkdtemp(), "saved")
    >>> bert_tf.save(model, directory)
    >>> bert_tf.load(directory).labels
    ('no', 'yes')
    """
    path = os.fspath(directory)
    checkpoint = checkpoint_of(model)
    with whole_directory(path) as folder:
        write(checkpoint, folder)


def spec_of(model: BertModel) -> ModelSpec:
    """The class and the arguments of a model in memory."""
    known = model.get_config()
    arguments = {name: known[name] for name in model.argument_checks if name in known}
    return ModelSpec(type(model), arguments)


def checkpoint_of(model: BertModel) -> Checkpoint:
    """A model in memory as what a reader gives; its weights are read when they are asked for."""
    if type(model) not in MODEL_CLASSES.values():
        raise ValueError(
            f"The model is a {type(model).__name__}: expected one of {', '.join(MODEL_CLASSES)}."
        )
    spec = spec_of(model)
    classes = spec.arguments.get("num_classes")
    if model.labels and len(model.labels) != classes:
        raise ValueError(
            f"model.labels has {len(model.labels)} names ({listed(model.labels)}), and the model "
            f"{classes or 'no'} classes: expected a name for each."
        )
    variables = {weight.path.split("/", 1)[1]: weight for weight in model.weights}
    _check(model, variables, variable_shapes(model.config, spec))

    def find_variable(path: str) -> StoredTensor:
        variable = variables[path]
        return StoredTensor((path,), tuple(variable.shape), str(variable.dtype), variable.numpy)

    tokenizer = model.preprocessor and model.preprocessor.tokenizer
    return Checkpoint(
        path=model.name,
        format="memory",
        config=model.config,
        model=spec,
        tensors=take_weights(model.config, spec, find_variable, model.name),
        tokenization=tokenizer and Tokenization(tuple(tokenizer.vocab), tokenizer.do_lower_case),
        labels=tuple(map(str, model.labels)),
        multi_label=model.multi_label,
        thresholds=dict(model.thresholds),
        task=model.task,
        sentence_embedding=model.sentence_embedding,
    )


def _check(
    model: BertModel, variables: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]]
) -> None:
    found = {path: tuple(variable.shape) for path, variable in variables.items()}
    odd = [
        path for path in sorted(found.keys() | expected) if found.get(path) != expected.get(path)
    ]
    if odd:
        raise ValueError(
            f"The weights of {model.name} are not those of a {type(model).__name__} "
            f"({listed(odd, 5)}): merge adapters, such as LoRA's, into the kernels first, or save "
            "it by model.save."
        )
