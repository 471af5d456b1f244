"""``bert_tf.load``: loading models from checkpoints of any format."""

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
from bert_tf.io.messages import listed, one_line, reason, warn
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
_VOCABULARY_PADDING = 128  # Embeddings are often padded to a multiple of 128.
_MAX_SEQ_LENGTH = 128
_MAX_LISTED = 8
_DTYPES = ("float32", "float16", "bfloat16", "float64")


# === Opening ===


def open_checkpoint(
    path: str | os.PathLike[str],
    allow_pickle: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Opens a checkpoint of any format without reading tensor values.

    Reading a tensor later raises ``ValueError`` if the file is damaged or a value is not finite.

    Args:
        path: See ``load``; or a Keras 2 HDF5 file with a BERT model from transformers.
        allow_pickle: See ``load``.
        settings: Contents of ``config.json`` for an HDF5 file; by default read from its directory.

    Raises:
        ValueError: If the path is not a supported checkpoint, or if its config is invalid.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"model: expected a path, hf://OWNER/NAME or a bert_tf model, got a "
            f"{type(path).__name__}."
        )
    path = os.fspath(path)
    hub_names: Collection[str] = ()
    if path.startswith(paths.HUB_SCHEME):
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
    """Adds the path to errors that do not contain it."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        if path in str(error):
            raise
        raise ValueError(f"Cannot read {path}: {reason(error)}") from error


def _with_setfit_note(checkpoint: Checkpoint, names: Collection[str]) -> Checkpoint:
    """Adds a warning if the directory contains a setfit classifier."""
    if not {*names} & {*SETFIT}:
        return checkpoint
    head = (
        f"{checkpoint.path}: the setfit classifier in model_head.pkl is not read; only the encoder "
        f"is loaded. Train a new head: bert_tf.finetune --init_checkpoint={checkpoint.path}."
    )
    return dataclasses.replace(checkpoint, unread_head_note=head, notes=(*checkpoint.notes, head))


def _with_checks(checkpoint: Checkpoint) -> Checkpoint:
    """Adds checks of tensor values, and removes a vocabulary that does not match the model."""
    path, tokenization = checkpoint.path, checkpoint.tokenization

    def with_finite_check(tensor: StoredTensor) -> StoredTensor:
        def read() -> np.ndarray:
            with _path_in_errors(path):
                array = tensor.read()
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{path}: {one_line(tensor.name)} contains NaN or infinity, so training "
                    "diverged. Use an earlier checkpoint."
                )
            return array

        return dataclasses.replace(tensor, read=read)

    tensors = {name: with_finite_check(tensor) for name, tensor in checkpoint.tensors.items()}
    notes = checkpoint.notes
    try:
        pieces = tokenization.vocabulary if tokenization else ()
        # Vocabularies of models trained with bert_tf are not checked.
        if checkpoint.format not in _NATIVE_FORMATS:
            check_is_wordpiece(pieces, path)
        check_vocabulary_fits(pieces, checkpoint.config.vocab_size, path)
    except ValueError as error:
        tokenization, notes = None, (*notes, f"{NO_PREPROCESSOR}{error}")
    return dataclasses.replace(checkpoint, tensors=tensors, tokenization=tokenization, notes=notes)


# === Loading ===


class LoadReport(NamedTuple):
    """Report on loading a checkpoint.

    Attributes:
        format: Format of the checkpoint.
        loaded: Names of the loaded weights.
        new: Names of the randomly initialized weights, which the checkpoint does not have.
        unused: Stored names of the tensors that the model does not use.
        notes: Warnings about settings that bert_tf handles differently, and about assumptions.
    """

    format: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    def messages(self, path: str) -> list[str]:
        """Returns warnings about new weights and unused tensors."""
        messages = []
        if self.new:
            messages.append(
                f"Weights not in {path}, randomly initialized (train before use): "
                f"{listed(self.new, _MAX_LISTED)}."
            )
        if self.unused:
            messages.append(f"Unused tensors in {path}: {listed(self.unused, _MAX_LISTED)}.")
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

    Issues a ``bert_tf.DifferenceWarning`` for each setting of the source that bert_tf handles
    differently. Randomly initialized weights and unused tensors are logged as warnings.

    Args:
        path: A directory of bert_tf, Hugging Face, sentence-transformers, google-research/bert or
            TensorFlow Model Garden, or a KerasHub preset; an export, or the directory of its
            versions; the prefix of a TensorFlow checkpoint; a ``.keras`` file;
            ``hf://OWNER/NAME[@REVISION]``, a model of the Hugging Face Hub; ``tiny``, a small
            model that bert_tf includes; or the result of ``open_checkpoint``.
        model_class: The class of the model; by default determined by the heads of the source. A
            head that the source does not have is randomly initialized.
        max_seq_length: Maximum number of tokens per text. Defaults to the length in fine-tuning or
            in the sentence-transformers directory; otherwise to 128, or less if the tokenizer or
            the position embeddings have a lower limit.
        dtype: A Keras dtype policy; by default the global policy.
        new_head: Whether to randomly initialize the head although the source has one.
        allow_pickle: Whether to read ``pytorch_model.bin``. A pickle from an untrusted source can
            run any code.
        special_tokens_in_texts: Whether special tokens in texts, such as ``[SEP]``, become one
            token instead of being split like other text; by default as in the source.
        **arguments: Arguments of the model's constructor, such as ``num_classes``. By default, a
            new head has the source's ``pooling``.

    Returns:
        The model. Its ``preprocessor`` has the source's vocabulary and tokenizer settings, and
        truncates long texts as in fine-tuning (with ``--long_text=windows``, to the first window).
        Without a vocabulary, ``preprocessor`` is ``None``. The attributes ``labels``,
        ``multi_label``, ``thresholds``, ``task``, ``activation`` and ``sentence_embedding`` come
        from the source.

    Raises:
        ValueError: If the path is not a supported checkpoint, if a weight is missing or has a
            wrong shape, or if the source has unsupported modules of sentence-transformers and
            ``model_class`` is not given.
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
    """Loads a model like ``load``, and returns the report instead of logging it."""
    checkpoint = path if isinstance(path, Checkpoint) else open_checkpoint(path, allow_pickle)
    if (tokenization := checkpoint.tokenization) is not None:
        tokenization = tokenization.with_special_tokens(special_tokens_in_texts)
        checkpoint = dataclasses.replace(checkpoint, tokenization=tokenization)
    if model_class is None and checkpoint.unsupported_modules:
        raise ValueError(
            f"{checkpoint.unsupported_modules}. To load only the BERT encoder, pass "
            "model_class=BertEncoder, or convert the directory first."
        )
    spec = _requested_spec(checkpoint, model_class, arguments)
    # Checked before the model is built, because an invalid config can request any amount of memory.
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
    # New weights take their seeds from Python's generator, like those of any Keras layer.
    generator = random if report.new else None
    model = build_model(checkpoint.config, spec, dtype, generator, initialize=bool(report.new))
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
    """Selects the weights of a model in a checkpoint without reading them.

    Args:
        checkpoint: The checkpoint.
        spec: The model.
        may_be_new: Whether the head and the pooler may be missing.
        new_head: Whether to ignore the head of the checkpoint.
        head_option: Option with which the user can request a new head, for error messages.

    Returns:
        The weights for ``weights.assign``, and a report.

    Raises:
        ValueError: If a weight is missing or has a wrong shape or dtype.
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


# === Class of the model ===


def _requested_spec(
    checkpoint: Checkpoint, model_class: type[BertModel] | None, arguments: Mapping[str, Any]
) -> ModelSpec:
    source = checkpoint.model
    if model_class is None:
        if arguments:
            raise ValueError(
                f"{', '.join(arguments)}: arguments require model_class. Pass model_class; "
                f"{checkpoint.path} contains a {source.class_name}."
            )
        return source
    if model_class not in MODEL_CLASSES.values():
        raise ValueError(
            f"model_class={model_class!r}: expected one of {', '.join(MODEL_CLASSES)}."
        )
    if model_class is source.model_class:
        merged = {**source.arguments, **arguments}
        if merged.get("nsp") and "pooler" not in arguments:
            merged.pop("pooler", None)  # The next-sentence head includes a pooler.
        return ModelSpec(model_class, merged)
    if model_class is BertEncoder:
        arguments = {"pooler": source.has_pooler, **arguments}
    if "pooling" in model_class.argument_checks:
        arguments = {"pooling": checkpoint.pooling, **arguments}
    if "num_classes" in model_class.argument_checks and "num_classes" not in arguments:
        raise ValueError(
            f"{checkpoint.path} contains a {source.class_name}, which does not set the number of "
            f"classes of a {model_class.__name__}. Pass num_classes."
        )
    return ModelSpec(model_class, arguments)


# === Checks of tensors ===


def check_tensors(
    path: str,
    tensors: Mapping[str, StoredTensor],
    expected: Mapping[str, tuple[int, ...]],
    head_option: str = "",
) -> None:
    """Checks the shapes and dtypes of stored tensors; ``head_option`` is as in ``select``."""
    for tensor in tensors.values():
        if tensor.dtype not in _DTYPES:
            raise ValueError(
                f"{path}: {one_line(tensor.name)}: expected one of {', '.join(_DTYPES)}, got "
                f"{tensor.dtype}. Quantized weights are not supported."
            )
    problems = [
        f"{one_line(tensor.name)}: expected {expected[name]}, got {tensor.shape}"
        for name, tensor in tensors.items()
        if tensor.shape != expected[name]
    ]
    if problems:
        more = f", and {len(problems) - _MAX_LISTED} more" if len(problems) > _MAX_LISTED else ""
        option = f", or pass {head_option} to replace the head" if head_option else ""
        raise ValueError(
            f"{path} has tensors whose shapes do not match its config or the arguments: "
            f"{'; '.join(problems[:_MAX_LISTED])}{more}. Fix the config{option}."
        )


def _check_missing(
    checkpoint: Checkpoint,
    missing: Sequence[str],
    expected: Iterable[str],
    may_be_new: Collection[str],
) -> None:
    """Checks that only complete layers are missing, and only layers in ``may_be_new``."""
    needed = collections.Counter(name.split("/")[0] for name in expected)
    counts = collections.Counter(name.split("/")[0] for name in missing)
    new = {part for part in may_be_new if counts[part] == needed[part]}
    names = [name for name in missing if name.split("/")[0] not in new]
    if names:
        unused = listed(checkpoint.unused, _MAX_LISTED)
        raise ValueError(
            f"{checkpoint.path} lacks weights of the model: {listed(names, _MAX_LISTED)} (unused: "
            f"{unused}). Use a complete checkpoint, or a model without these weights."
        )


# === Preprocessor ===


def make_preprocessor(
    checkpoint: Checkpoint,
    max_seq_length: int | None = None,
    task: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[BertPreprocessor | None, tuple[str, ...]]:
    """Creates the preprocessor of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        max_seq_length: See ``load``.
        task: Contents of ``task.json``, not validated, if the model has its fine-tuned head.

    Returns:
        The preprocessor (``None`` without a supported vocabulary), and warnings.
    """
    positions = checkpoint.config.max_position_embeddings
    if max_seq_length is not None and max_seq_length > positions:
        raise ValueError(
            f"max_seq_length={max_seq_length}: expected at most {positions} "
            f"(max_position_embeddings of {checkpoint.path})."
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
        f"{checkpoint.path} has {len(vocabulary):,} tokens in its vocabulary but {size:,} "
        "embeddings. The vocabulary may be truncated."
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
