"""``bert_tf.load``: a checkpoint of any format, opened, and made a model."""

import collections
import contextlib
import dataclasses
import importlib
import logging
import os
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.io import paths
from bert_tf.io.checkpoint_formats import FORMATS, SETFIT
from bert_tf.io.wording import listed, one_line, reason, warn
from bert_tf.modeling import MODEL_CLASSES, BertEncoder
from bert_tf.modeling.base import LOADED_ATTRIBUTES, BertModel, default_max_length
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.vocabulary import check_is_wordpiece, check_vocabulary_fits

from . import hub
from .checkpoint import Checkpoint, ModelSpec, StoredTensor
from .tensor_files import bundle_contains_tensor
from .tokenizer_files import NO_PREPROCESSOR
from .weights import assign, build_model, expected_shapes

_LOGGER = logging.getLogger("bert_tf")
_NATIVE_FORMATS = ("bert_tf", "saved_model")
_VOCABULARY_PADDING = 128  # tables of embeddings are filled up to round sizes
_MAX_SEQ_LENGTH = 128
_MAX_LISTED = 8
_DTYPES = ("float32", "float16", "bfloat16", "float64")


# === Opening ===


def open_checkpoint(
    path: str | os.PathLike[str],
    allow_pickle: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Opens a checkpoint of any format that this library reads, no further than names and shapes.

    The path and ``allow_pickle`` are ``bert_tf.load``'s. It may also be an HDF5 file of Keras 2
    that holds a BERT of transformers', whose ``config.json`` is beside it, or is ``settings``.
    Reading a tensor raises ``ValueError`` where the file is damaged, or a value is infinite or no
    number.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"The model is of the type {type(path).__name__}: expected a path, hf://OWNER/NAME of "
            "the Hugging Face hub, or a model of bert_tf."
        )
    path = os.fspath(path)
    hub_names: Collection[str] = ()
    if hub.is_hub_path(path):
        path, hub_names = hub.find_directory(path, allow_pickle)
    paths.check_checkpoint(path)
    path = paths.resolve_model(path).rstrip("/") or path[:1]
    arguments = {"allow_pickle": allow_pickle, "settings": settings}
    names = None
    if tf.io.gfile.isdir(path):
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    with _path_in_errors(path):
        for form in filter(lambda form: paths.matches(form, path, names), FORMATS):
            if not form.tensor or bundle_contains_tensor(path, form.tensor):
                reader = importlib.import_module(f"{__package__}.{form.reader}")
                options = {name: arguments[name] for name in form.options}
                checkpoint = reader.read_checkpoint(path, **options)
                return _with_checks(_with_setfit_note(checkpoint, [*(names or ()), *hub_names]))
    if not tf.io.gfile.exists(path):
        raise ValueError(paths.missing_checkpoint_message(path))
    raise ValueError(paths.unknown_checkpoint_message(path, names))


@contextlib.contextmanager
def _path_in_errors(path: str) -> Iterator[None]:
    """Names the checkpoint in errors that name no file."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        if path in str(error):
            raise
        raise ValueError(f"{path} cannot be read: {reason(error)}") from error


def _with_setfit_note(checkpoint: Checkpoint, names: Collection[str]) -> Checkpoint:
    """The checkpoint, with a sentence on setfit's classifier where its files say there is one."""
    if not {*names} & {*SETFIT}:
        return checkpoint
    head = (
        f"{checkpoint.path} has setfit's classifier in model_head.pkl, a pickle, which is never "
        "read: this is the body alone, which makes its vectors; train a head on it by "
        f"bert_tf.finetune --init_checkpoint={checkpoint.path}."
    )
    return dataclasses.replace(checkpoint, unread_head_note=head, notes=(*checkpoint.notes, head))


def _with_checks(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, with checks of its tensors' values, and no vocabulary that does not fit."""
    path, tokenization = checkpoint.path, checkpoint.tokenization

    def with_finite_check(tensor: StoredTensor) -> StoredTensor:
        def read() -> np.ndarray:
            with _path_in_errors(path):
                array = tensor.read()
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{path}: {one_line(tensor.name)} has a value that is infinite or no number "
                    "(NaN): the training that saved it diverged; take a checkpoint from before."
                )
            return array

        return dataclasses.replace(tensor, read=read)

    tensors = {name: with_finite_check(tensor) for name, tensor in checkpoint.tensors.items()}
    notes = checkpoint.notes
    try:
        pieces = tokenization.vocabulary if tokenization else ()
        # What was trained here with a vocabulary keeps it.
        if checkpoint.format not in _NATIVE_FORMATS:
            check_is_wordpiece(pieces, path)
        check_vocabulary_fits(pieces, checkpoint.config.vocab_size, path)
    except ValueError as error:
        tokenization, notes = None, (*notes, f"{NO_PREPROCESSOR}{error}")
    return dataclasses.replace(checkpoint, tensors=tensors, tokenization=tokenization, notes=notes)


# === Loading ===


class LoadReport(NamedTuple):
    """Report of the tensors that were read from a checkpoint."""

    format: str
    loaded: tuple[str, ...]  # the model's weights that came from it, by the library's names
    new: tuple[str, ...]  # the model's weights that it lacks, which start anew
    unused: tuple[str, ...]  # what it has and the model does not use, by its own names
    notes: tuple[str, ...]  # to be told: what is done otherwise than it says, or was assumed

    def messages(self, path: str) -> list[str]:
        """Sentences on what started anew and what is left over; [] if all is one to one."""
        messages = []
        if self.new:
            messages.append(
                f"Not in {path}, and new (train before use): {listed(self.new, _MAX_LISTED)}."
            )
        if self.unused:
            messages.append(f"In {path} and not used: {listed(self.unused, _MAX_LISTED)}.")
        return messages


def load(
    path: str | os.PathLike[str] | Checkpoint,
    model_class: type[BertModel] | None = None,
    *,
    max_seq_length: int | None = None,
    dtype: Any = None,
    new_head: bool = False,
    allow_pickle: bool = False,
    special_tokens_in_texts: bool | None = None,
    **arguments: Any,
) -> BertModel:
    """Loads a model from a checkpoint of any format.

    What the source says and is done otherwise is told by ``bert_tf.DifferenceWarning``. Weights
    that start anew, and tensors that are not used, are logged as warnings.

    Args:
        path: a directory of this library, of Hugging Face, of sentence-transformers, of
            google-research/bert, of TensorFlow Model Garden, or a KerasHub preset; an export, or
            the directory of its versions, whose graph is not run; the prefix of a TensorFlow
            checkpoint; a ``.keras`` file; ``hf://OWNER/NAME[@REVISION]``, a model of the
            Hugging Face hub; ``tiny``, a small model that this library ships, where nothing of
            that name lies in the working directory; or what ``open_checkpoint`` gave, which is
            not opened, and hashed, again.
        model_class: the model to make of it; by default the one that the source's heads name.
            Asked for by name, a head that the source lacks starts anew.
        max_seq_length: of the preprocessor; by default what a fine-tuned model was trained with or
            a model of sentence embeddings says, elsewhere 128, or what the tokenizer's file says,
            or the positions, where these are fewer.
        dtype: a Keras dtype policy; the global one by default.
        new_head: whether the head starts anew though the source has one, as for other classes.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled; a pickle from a stranger can
            run any code.
        special_tokens_in_texts: whether the preprocessor finds special tokens that are written in
            a text, such as ``[SEP]``, as one token each, or parts them like other text; by default
            as the source does it.
        **arguments: of the model's constructor, ``num_classes`` for example. A new head's
            ``pooling`` is the source's: a sentence-transformers directory may say the mean.

    Returns:
        The model. Its ``preprocessor`` is made from the source's vocabulary and casing, ``None``
        where it has none, and cuts long texts as the model's fine-tuning did (of
        ``--long_text=windows`` it gives the first window); its ``labels``, ``multi_label``,
        ``thresholds``, ``task``, ``activation`` and ``sentence_embedding`` are the source's.

    Raises:
        ValueError: nothing is there, a file is damaged or refused, a weight has another shape, or
            is missing and was not asked for; or no ``model_class`` is named, and the source makes
            vectors by modules of sentence-transformers that are not computed here.
    """
    model, report = load_with_report(
        path,
        model_class,
        max_seq_length=max_seq_length,
        dtype=dtype,
        new_head=new_head,
        allow_pickle=allow_pickle,
        special_tokens_in_texts=special_tokens_in_texts,
        **arguments,
    )
    source = path.path if isinstance(path, Checkpoint) else os.fspath(path)
    warn(report.notes)
    for message in report.messages(source):
        _LOGGER.warning(message)
    return model


def load_with_report(
    path: str | os.PathLike[str] | Checkpoint,
    model_class: type[BertModel] | None = None,
    *,
    max_seq_length: int | None = None,
    dtype: Any = None,
    new_head: bool = False,
    allow_pickle: bool = False,
    special_tokens_in_texts: bool | None = None,
    **arguments: Any,
) -> tuple[Any, LoadReport]:
    """As ``load``, and gives the report instead of logging it."""
    checkpoint = path if isinstance(path, Checkpoint) else open_checkpoint(path, allow_pickle)
    if (tokenization := checkpoint.tokenization) is not None:
        tokenization = tokenization.with_special_tokens(special_tokens_in_texts)
        checkpoint = dataclasses.replace(checkpoint, tokenization=tokenization)
    if model_class is None and checkpoint.unsupported_modules:
        raise ValueError(
            f"{checkpoint.unsupported_modules}; for its BERT alone pass model_class=BertEncoder, "
            "or convert it first (python -m bert_tf.convert)."
        )
    spec = _requested_spec(checkpoint, model_class, arguments)
    # Before anything is built: what does not fit may claim any size.
    tensors, report = select(
        checkpoint,
        spec,
        may_be_new=model_class is not None,
        new_head=new_head,
        head_option="" if new_head else "new_head=True",
    )
    has_loaded_head = spec.model_class is checkpoint.model.model_class and not report.new
    task = (checkpoint.task if has_loaded_head else None) or {}
    preprocessor, notes = make_preprocessor(checkpoint, max_seq_length, task)
    # Weights that are new are drawn as those of any Keras layer.
    model = build_model(checkpoint.config, spec, dtype, random if report.new else None)
    assign(model, tensors)
    model.preprocessor = preprocessor
    model.max_seq_length = checkpoint.max_seq_length
    if has_loaded_head:
        for name in LOADED_ATTRIBUTES:
            setattr(model, name, getattr(checkpoint, name))
    if spec.model_class in (BertEncoder, checkpoint.model.model_class):
        model.sentence_embedding = checkpoint.sentence_embedding
    return model, report._replace(notes=(*report.notes, *notes))


def select(
    checkpoint: Checkpoint,
    spec: ModelSpec,
    *,
    may_be_new: bool = True,
    new_head: bool = False,
    head_option: str = "",
) -> tuple[dict[str, StoredTensor], LoadReport]:
    """Finds the weights of a model, of the checkpoint's config, in a checkpoint; none is read yet.

    Returned: the weights that ``weights.assign`` takes, and what became of the rest. A head, or the
    pooler, that the checkpoint lacks is an error unless it ``may_be_new``. ``head_option`` is the
    caller's own name of ``new_head``, for an error.
    """
    expected = expected_shapes(checkpoint.config, spec)
    head_names = {name.split("/")[0] for name in spec.head_shapes(checkpoint.config)}
    source = checkpoint.tensors
    if new_head:
        source = {name: t for name, t in source.items() if name.split("/")[0] not in head_names}
    tensors = {name: source[name] for name in expected if name in source}
    check_tensors(checkpoint.path, tensors, expected, head_option)
    new = tuple(name for name in expected if name not in tensors)
    parts = {"pooler", *head_names} if may_be_new else ()
    _check_missing(checkpoint, new, expected, parts)
    unused_names = [t.name for name, t in checkpoint.tensors.items() if name not in tensors]
    return tensors, LoadReport(
        format=checkpoint.format,
        loaded=tuple(tensors),
        new=new,
        unused=(*unused_names, *checkpoint.unused),
        notes=checkpoint.notes,
    )


# === Which model ===


def _requested_spec(
    checkpoint: Checkpoint, model_class: type[BertModel] | None, arguments: Mapping[str, Any]
) -> ModelSpec:
    source = checkpoint.model
    if model_class is None:
        if arguments:
            raise ValueError(
                f"{', '.join(arguments)} would be an argument of a model that is not named: pass "
                f"model_class too; {checkpoint.path} holds a {source.class_name}."
            )
        return source
    if model_class not in MODEL_CLASSES.values():
        raise ValueError(
            f"model_class is {model_class!r}, expected one of {', '.join(MODEL_CLASSES)}."
        )
    if model_class is source.model_class:
        merged = {**source.arguments, **arguments}
        if merged.get("nsp") and "pooler" not in arguments:
            merged.pop("pooler", None)  # the head asked for brings its own
        return ModelSpec(model_class, merged)
    if model_class is BertEncoder:
        arguments = {"pooler": source.has_pooler, **arguments}
    if "pooling" in model_class.argument_checks:
        arguments = {"pooling": checkpoint.pooling, **arguments}
    if "num_classes" in model_class.argument_checks and "num_classes" not in arguments:
        raise ValueError(
            f"{checkpoint.path} holds a {source.class_name}, which does not say how many classes a "
            f"{model_class.__name__} has: pass num_classes."
        )
    return ModelSpec(model_class, arguments)


# === Fit of tensors and variables ===


def check_tensors(
    path: str,
    tensors: Mapping[str, StoredTensor],
    expected: Mapping[str, tuple[int, ...]],
    head_option: str = "",
) -> None:
    """Checks the shapes of stored tensors, and that they are floats; see ``select``."""
    for tensor in tensors.values():
        if tensor.dtype not in _DTYPES:
            raise ValueError(
                f"{path}: {one_line(tensor.name)} is stored as {tensor.dtype}, "
                f"expected one of {', '.join(_DTYPES)}: quantised weights are not read."
            )
    problems = [
        f"{one_line(tensor.name)} is {tensor.shape}, expected {expected[name]}"
        for name, tensor in tensors.items()
        if tensor.shape != expected[name]
    ]
    if problems:
        more = f", and {len(problems) - _MAX_LISTED} more" if len(problems) > _MAX_LISTED else ""
        option = f", or pass {head_option} for a new head of another size" if head_option else ""
        raise ValueError(
            f"{path} does not fit its config, or the arguments given (shapes in this library's "
            f"layout, inputs first): {'; '.join(problems[:_MAX_LISTED])}{more}. Mend the config"
            f"{option}."
        )


def _check_missing(
    checkpoint: Checkpoint,
    missing: Sequence[str],
    expected: Iterable[str],
    may_be_new: Collection[str],
) -> None:
    """Only a whole part that the caller asked for may be missing: a head, or the pooler."""
    needed = collections.Counter(name.split("/")[0] for name in expected)
    lacking = collections.Counter(name.split("/")[0] for name in missing)
    new = {part for part in may_be_new if lacking[part] == needed[part]}
    missing_names = [name for name in missing if name.split("/")[0] not in new]
    if missing_names:
        available = (
            f" (it has {listed(checkpoint.unused, _MAX_LISTED)})" if checkpoint.unused else ""
        )
        raise ValueError(
            f"{checkpoint.path} lacks {listed(missing_names, _MAX_LISTED)}{available}, which "
            "the model needs that its files describe or that you asked for: take a whole "
            "checkpoint, or a model without them."
        )


# === Text to the model's inputs ===


def make_preprocessor(
    checkpoint: Checkpoint,
    max_seq_length: int | None = None,
    task: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[BertPreprocessor | None, tuple[str, ...]]:
    """The preprocessor of a checkpoint's vocabulary and casing; or ``None``, and why.

    ``task`` is the ``task.json`` of a model that is used for what it was fine-tuned for, unread.
    """
    positions = checkpoint.config.max_position_embeddings
    if max_seq_length is not None and max_seq_length > positions:
        raise ValueError(
            f"max_seq_length is {max_seq_length}, and {checkpoint.path} has {positions} positions "
            "(max_position_embeddings): pass no more than that."
        )
    if checkpoint.tokenization is None:
        return None, ()
    tokenization = checkpoint.tokenization
    vocabulary, do_lower_case = tokenization.vocabulary, tokenization.do_lower_case
    default = default_max_length(checkpoint)
    if checkpoint.sentence_embedding is None:
        default = min(default, _MAX_SEQ_LENGTH)
    if type(trained_length := task.get("max_seq_length")) is int:
        default = trained_length
    length = min(default, positions) if max_seq_length is None else max_seq_length
    options = task.get("options")
    cuts_middle = isinstance(options, Mapping) and options.get("long_text") == "head_tail"
    long_text = "head_tail" if cuts_middle else "head"
    size = checkpoint.config.vocab_size
    note = (
        f"{checkpoint.path} has {len(vocabulary):,} pieces in its vocabulary and {size:,} "
        "embeddings: the vocabulary may be cut short."
    )
    notes = (note,) if len(vocabulary) <= size - _VOCABULARY_PADDING else ()
    try:
        preprocessor = BertPreprocessor(
            vocabulary, do_lower_case, length, long_text, tokenization.rules
        )
        return preprocessor, notes
    except ValueError as error:
        if max_seq_length is not None:
            raise
        return None, (f"{NO_PREPROCESSOR}{error}",)
