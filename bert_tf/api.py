"""Python functions for the commands: fine-tune, pre-train, predict and export.

The flags of a command are keyword arguments with the same defaults, bounds and meaning. Data are
paths, as on the command line, or objects in memory, such as lists, columns and pandas data frames.

>>> from bert_tf import api
>>> api.fine_tune([("Fine.", "good")], task="classification", learnin_rate=1e-4)
Traceback (most recent call last):
TypeError: Unknown keyword argument learnin_rate (did you mean learning_rate?).
"""

import contextlib
import dataclasses
import functools
import gc
import inspect
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bert_tf import export as export_command
from bert_tf.answering.export_options import ExportOptions
from bert_tf.cli import flag_fields
from bert_tf.finetuning import settings as fine_tuning_settings
from bert_tf.io import runtime
from bert_tf.predicting import settings as predicting_settings
from bert_tf.pretraining import settings as pretraining_settings

if TYPE_CHECKING:
    from bert_tf.modeling.base import BertModel
    from bert_tf.readers.table_formats import Rows
    from bert_tf.saved_models.exporting import Exported

F = TypeVar("F", bound=Callable[..., Any])
Path = str | os.PathLike[str]
# The dataclasses that declare the flags of an export.
_EXPORT = (export_command.ExportSettings, ExportOptions)
# Data arguments, and the flags that set the corresponding paths.
_DATA = {"train": "train_file", "dev": "dev_file", "test": "test_file"}
# The flags of all functions. Error messages may contain any of them.
_FLAGS: set[str] = set()


# === Shared by the functions ===


def _takes_flags(*settings: type, without: Sequence[str]) -> Callable[[F], F]:
    """Replaces ``**given`` with a command's flags in a function's signature, help and errors.

    The flags in ``without`` are left out, because the function has arguments for them.
    """
    declared = [field for table in settings for field in flag_fields.flags_of(table)]
    fields = {field.name: field for field in declared if field.name not in without}
    _FLAGS.update(field.name for field in declared)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            runtime.check_fork()
            try:
                return function(*arguments, **keywords)
            except ValueError as error:
                if error.args and isinstance(error.args[0], str):
                    # The keywords are included because a custom task type has additional flags.
                    error.args = (_without_hyphens(error.args[0], keywords), *error.args[1:])
                raise

        documented = "\n".join(
            f"        {field.name}: {_without_hyphens(field.metadata['help'])}"
            for field in fields.values()
        )
        call.__doc__ = (function.__doc__ or "").replace("        **given: the flags.", documented)
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
            for name, field in fields.items()
        ]
        call.__dict__["__signature__"] = signature.replace(parameters=[*named, *keywords])
        return call  # type: ignore[return-value]

    return decorate


def _without_hyphens(text: str, more: Iterable[str] = ()) -> str:
    """Removes the hyphens of flags in a text, except in shell commands.

    Other words with hyphens, such as a label, are unchanged. ``more`` contains additional flag
    names.

    >>> _without_hyphens("--seed, or python -m bert_tf.convert --model=m --output=DIR; got --odd")
    'seed, or python -m bert_tf.convert --model=m --output=DIR; got --odd'
    """
    names = "|".join(map(re.escape, {*_FLAGS, *more}))
    command = r"(python -m bert_tf\.\w+(?: --?\S+)*)"
    return re.sub(rf"{command}|(?<![\w-])--(?=(?:{names})\b)", lambda found: found[1] or "", text)


@contextlib.contextmanager
def _preserved_global_state(verbose: bool) -> Iterator[None]:
    """Loads TensorFlow and Keras; finally restores the thread's precision and the environment.

    Within the context, ``verbose`` specifies whether progress lines are printed.
    """
    with runtime.compiler_flags():
        runtime.check_backend()
        from bert_tf.training.precision import preserved_arithmetic
        from bert_tf.training.progress import NOWHERE, progress_to

        with preserved_arithmetic(), progress_to(None if verbose else NOWHERE):
            yield


def _set_model_dir(
    given: dict[str, Any], model_dir: Path | None, stack: contextlib.ExitStack
) -> bool:
    """Sets the run directory; by default it is temporary, and nothing is exported.

    Returns:
        Whether the directory is permanent.
    """
    output_dir = given.pop("output_dir", None)  # the flag of google-research/bert
    if model_dir is None:
        model_dir = output_dir
    elif output_dir is not None:
        raise ValueError("model_dir and output_dir are aliases. Pass only one of them.")
    if model_dir is not None:
        given["model_dir"] = model_dir
        return True
    if given.get("export"):
        raise ValueError("export=True requires model_dir, which will contain the SavedModel.")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
    given |= {"model_dir": os.path.join(folder, "run"), "export": False}
    return False


def _initial_path(init: Any, stack: contextlib.ExitStack) -> Any:
    """Returns the path of a checkpoint; first saves a model that is in memory."""
    from bert_tf.checkpoints.model_directory import save
    from bert_tf.modeling.base import BertModel

    if not isinstance(init, BertModel):
        return init
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
    save(init, os.path.join(folder, "init"))
    return os.path.join(folder, "init")


# === Fine-tuning ===


@dataclasses.dataclass(eq=False, repr=False)
class FineTuned:
    """Result of ``fine_tune``.

    Attributes:
        model: Model with the weights of the best evaluation, with ``preprocessor``, ``labels``,
            ``thresholds`` and ``task``, as returned by ``bert_tf.load``.
        results: Contents of ``results.json``.
        directory: The run's ``model_dir``, or ``None``.
        settings: Settings of the run.
        tables: Data in memory, keyed by name in the settings.
    """

    model: "BertModel"
    results: Mapping[str, Any]
    directory: str | None
    settings: fine_tuning_settings.FineTuningSettings
    tables: "Mapping[str, Rows]"

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Scores by data set and metric, such as ``scores["dev"]["accuracy"]``.

        A score that is undefined for the labels is NaN; in ``results`` it is ``None``.
        """
        return {
            name: {key: math.nan if value is None else value for key, value in scores.items()}
            for name, scores in self.results["scores"].items()
        }

    @functools.cached_property
    def predictions(self) -> dict[str, list[dict[str, Any]]]:
        """Records by data set (``"dev"``, ``"test"``), as returned by ``predict``.

        The records are computed on first access.
        """
        from bert_tf.finetuning.data import read_splits
        from bert_tf.predicting.inputs import Inputs
        from bert_tf.predicting.predictor import Predictor
        from bert_tf.readers.table_formats import in_memory_tables

        with in_memory_tables(self.tables):
            splits = read_splits(self.settings)
        predictor = Predictor(self.model, batch_size=self.settings.eval_batch_size)
        return {
            name: list(map(dict, predictor.records(Inputs.from_items(examples.items))))
            for name, examples in {**splits.dev, **splits.test}.items()
        }

    def predict(self, data: Any, output: Path | None = None, **given: Any) -> Any:
        """Calls ``api.predict`` with the model."""
        return predict(self.model, data, output, **given)

    def save(self, directory: Path) -> None:
        """Calls ``bert_tf.save`` with the model."""
        from bert_tf.checkpoints.model_directory import save

        save(self.model, directory)

    def export(self, output: Path, **given: Any) -> "Exported":
        """Calls ``api.export`` with the model."""
        return export(self.model, output, **given)

    def __repr__(self) -> str:
        headline = self.results["headline"]
        scored = [
            f"{name} {headline} {scores[headline]:.4g}"
            for name, scores in self.scores.items()
            if headline in scores
        ]
        return f"FineTuned({', '.join([self.results['task'], *scored])})"


@_takes_flags(
    *fine_tuning_settings.declarations(),
    without=("init_checkpoint", "model_dir", *_DATA.values()),
)
def fine_tune(
    train: Any = None,
    dev: Any = None,
    test: Any = None,
    *,
    init: Any = None,
    model_dir: Path | None = None,
    callbacks: Sequence[Any] = (),
    verbose: bool = True,
    **given: Any,
) -> FineTuned:
    """Fine-tunes a model, like ``python -m bert_tf.finetune``.

    Data are a path or an object in memory: an iterable of (text, label) tuples, of
    (text, text, label) tuples or of mappings; a mapping of columns; a pandas or polars data frame;
    or an Arrow table. Columns without names are called text (or text_a, text_b) and label; words
    and tags; context, choices and label; or question, context and answers. For other column names,
    pass ``text_columns`` and ``label_column``. Test examples need no label.

    The call does not change the state of the process, such as random generators. Several training
    runs can be in progress at the same time if all use float32 on one device.

    Args:
        train: Training data.
        dev: Evaluation data; by default ``dev_fraction`` of ``train`` is held out.
        test: Data for predictions, which are also scored if the data have labels.
        init: Initial weights: a path in any format of ``bert_tf.load``, or a model.
        model_dir: Directory of the run, from which an interrupted run resumes. By default the run
            uses a temporary directory that is deleted at the end.
        callbacks: Keras callbacks, called as by ``fit``: after each step with ``loss``, after each
            evaluation with its scores, after each epoch with ``loss`` and ``val_SCORE``. Setting
            ``model.stop_training`` ends the training. With several runs (``restarts``, ``sweep``),
            each run calls the callbacks.
        verbose: Whether to print the output of the command.
        **given: the flags.

    Returns:
        A ``FineTuned`` with the model of the best evaluation, its scores and predictions.

    Raises:
        TypeError: If a keyword argument is unknown.
        ValueError: If a setting is invalid, if the data are invalid, or if another training run is
            in progress and either run needs exclusive access.
        KeyboardInterrupt: If the run was stopped. With a ``model_dir``, the same call resumes it.
    """
    with contextlib.ExitStack() as stack:
        tables = _set_data_flags(given, {"train": train, "dev": dev, "test": test})
        is_permanent = _set_model_dir(given, model_dir, stack)
        if init is not None:
            given["init_checkpoint"] = _initial_path(init, stack)
        parsed = flag_fields.flags_of_call(given, *fine_tuning_settings.declarations())
        settings = fine_tuning_settings.settings_from_flags(parsed)
        stack.enter_context(_preserved_global_state(verbose))
        # These imports load TensorFlow, so they follow the checks of the settings.
        from bert_tf.checkpoints.load import load
        from bert_tf.finetuning.run import run
        from bert_tf.readers.table_formats import in_memory_tables

        with in_memory_tables(tables):
            results = run(settings, callbacks, is_temporary=not is_permanent)
        directory = settings.model_dir if is_permanent else None
        # Free the trained model, which is part of reference cycles, before loading the best one.
        gc.collect()
        return FineTuned(load(settings.model_dir), results, directory, settings, tables)


def _set_data_flags(given: dict[str, Any], data: Mapping[str, Any]) -> "dict[str, Rows]":
    """Sets the flags that contain data paths, and returns the rows in memory by name."""
    from bert_tf.tasks.python_data import is_data, label_column_name, parse_rows
    from bert_tf.tasks.registry import KINDS

    tables: dict[str, Rows] = {}
    for argument, value in data.items():
        if value is None:
            continue
        if given.get(_DATA[argument]) is not None:
            raise ValueError(
                f"{argument} and {_DATA[argument]} are aliases. Pass only one of them."
            )
        if not is_data(value):
            given[_DATA[argument]] = value
            continue
        kind = KINDS.get(str(given.get("task")).lower())
        if kind is None:
            raise ValueError(
                f"task={given.get('task')}: expected one of {', '.join(KINDS)} for data in memory."
            )
        label = given.get("label_column")
        rows, texts = parse_rows(value, kind, given.get("text_columns"), label, argument)
        given |= {_DATA[argument]: f"<{argument}>", "text_columns": texts}
        label = label_column_name(kind, label)
        mappings = (row for row in rows if isinstance(row, Mapping))
        if not kind.label_is_optional or any(label in row for row in mappings):
            given["label_column"] = label
        tables[f"<{argument}>"] = rows
    return tables


# === Predictions ===


@_takes_flags(
    predicting_settings.PredictionSettings,
    without=("model", "input", "output"),
)
def predict(
    model: Any, data: Any, output: Path | None = None, *, verbose: bool = False, **given: Any
) -> Any:
    """Computes predictions, like ``python -m bert_tf.predict``.

    To call a model many times, create a ``Predictor``, which loads the model once.

    Args:
        model: A path, a model, or another model argument of ``Predictor``.
        data: A path, or data in memory, such as a list of strings.
        output: Path of a file to write instead of returning the records: .tsv, .csv, .jsonl, ...
        verbose: Whether to print the output of the command when writing to ``output``.
        **given: the flags.

    Returns:
        A list of dicts, one per example; or ``output``.

    Raises:
        TypeError: If a keyword argument is unknown.
        ValueError: If a setting or the data are invalid.
    """
    if data is None:
        raise ValueError("data=None: expected a path, or rows such as a list of strings.")
    is_memory = not isinstance(data, str | os.PathLike)
    given |= {"output": output, **({} if is_memory else {"input": data})}
    settings = predicting_settings.settings_of_call(**given)
    with _preserved_global_state(verbose):
        from bert_tf.predicting.predictor import DATA
        from bert_tf.predicting.run import open_predictor, predict_file, predict_rows
        from bert_tf.readers.table_formats import in_memory_tables
        from bert_tf.training.distribution import open_devices

        with open_devices(settings.strategy, settings.precision).scope():
            predictor = open_predictor(model, settings)
            tables = {}
            if is_memory:
                tables[DATA], texts = predictor.rows_of(data, settings.text_columns)
                settings = dataclasses.replace(settings, input=DATA, text_columns=texts)
            with in_memory_tables(tables):
                if output is None:
                    return predict_rows(settings, predictor)
                predict_file(settings, predictor)
                return settings.output


# === Export ===


@_takes_flags(*_EXPORT, without=("model", "output"))
def export(model: Any, output: Path, *, verbose: bool = True, **given: Any) -> "Exported":
    """Exports a SavedModel for TensorFlow Serving, like ``python -m bert_tf.export``.

    Args:
        model: A path in any format of ``bert_tf.load``, a model with a ``preprocessor``, or a
            result of ``fine_tune``.
        output: New directory of the version, such as exports/mine/1.
        verbose: Whether to print the output of the command.
        **given: the flags.

    Returns:
        An ``Exported`` with ``path``, ``signatures``, ``outputs`` and ``samples``.

    Raises:
        TypeError: If a keyword argument is unknown.
        ValueError: If a setting is invalid, or ``output`` exists.
    """
    is_path = model is None or isinstance(model, str | os.PathLike)
    given |= {"model": model if is_path else "memory", "output": output}
    parsed = flag_fields.flags_of_call(given, *_EXPORT)
    with _preserved_global_state(verbose):
        settings, options = flag_fields.settings_of(parsed, *_EXPORT)
        in_memory = None if is_path else getattr(model, "model", model)
        return export_command.run(settings, options, in_memory)


# === Pre-training ===


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """Result of ``pretrain``.

    Attributes:
        model: Pre-trained model, with its ``preprocessor``.
        results: Contents of ``results.json``: ``evaluation``, ``parameters``, ``step``, ...
        directory: The run's ``model_dir``, or ``None``.
    """

    model: "BertModel"
    results: Mapping[str, Any]
    directory: str | None


@_takes_flags(
    pretraining_settings.PretrainingSettings,
    without=("input", "model_dir", "dry_run"),
)
def pretrain(
    input: Path | Sequence[Path] | None = None,
    *,
    texts: Iterable[Any] | None = None,
    model_dir: Path | None = None,
    callbacks: Sequence[Any] = (),
    verbose: bool = True,
    **given: Any,
) -> Pretrained:
    """Pre-trains a model on raw text, like ``python -m bert_tf.pretrain``.

    Args:
        input: Corpus: a path, a glob pattern, or a list of paths and patterns.
        texts: Corpus in memory, instead of ``input``: an iterable of documents, each a string.
        model_dir: Directory of the run, from which an interrupted run resumes. By default the run
            uses a temporary directory that is deleted at the end.
        callbacks: Keras callbacks. An epoch has ``save_checkpoints_steps`` steps. Epochs are
            numbered from the start of the run, also after it resumes. Each worker calls its own
            callbacks.

            - ``on_train_begin`` and ``on_train_end`` are called once, if there is something to
              train. ``on_train_end`` follows the last output, and is not called after an
              interrupt.
            - ``on_epoch_begin`` is called before the first step of an epoch in the process.
            - ``on_train_batch_begin`` and ``on_train_batch_end`` are called once for up to 500
              steps, which take about 2 seconds. Their ``batch`` is the index within the epoch of
              the first and of the last of these steps. The logs are means over these steps
              (``loss``, ``masked_lm_loss``, ``masked_lm_accuracy``, ``next_sentence_loss``,
              ``next_sentence_accuracy``, ``gradient_norm``), the last ``learning_rate`` and, from
              the second call on, speeds such as ``tokens_per_second``.
            - ``on_test_begin`` and ``on_test_end`` are called for each evaluation: after each
              checkpoint on up to 20 batches, at the end on all batches. The logs are ``loss`` and
              the metrics of ``results["evaluation"]``.
            - ``on_epoch_end`` is called after the evaluation at the end of an epoch, after the last
              step, and when a callback ends the training. The logs are ``loss``, the mean over the
              steps of the epoch in this process, and the metrics of that evaluation as
              ``val_loss``, ``val_masked_lm_accuracy`` and so on.

            Setting ``model.stop_training`` ends the training after the current steps or epoch, with
            a checkpoint, an evaluation and results. The run is then finished, and the same call
            does not train further. Callbacks do not affect the weights.
        verbose: Whether to print the output of the command.
        **given: the flags.

    Returns:
        A ``Pretrained`` with the model and its held-out losses and accuracies.

    Raises:
        TypeError: If a keyword argument is unknown.
        ValueError: If a setting is invalid, if the data are invalid, or if another training run is
            in progress and either run needs exclusive access.
        KeyboardInterrupt: If the run was stopped. With a ``model_dir``, the same call resumes it.
    """
    if given.get("dry_run"):
        raise ValueError(
            "api.pretrain does not support dry_run. Run python -m bert_tf.pretrain --dry_run."
        )
    with contextlib.ExitStack() as stack:
        if texts is not None:
            if input is not None:
                raise ValueError("input and texts both set the corpus. Pass only one of them.")
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
            input = _write_texts(os.path.join(folder, "texts.jsonl"), texts)
        if input is not None:
            paths = [input] if isinstance(input, str | os.PathLike) else input
            given["input"] = [os.fspath(path) for path in paths]
        is_permanent = _set_model_dir(given, model_dir, stack)
        parsed = flag_fields.flags_of_call(given, *pretraining_settings.DECLARATIONS)
        settings, messages = pretraining_settings.settings_from_flags(parsed=parsed)
        stack.enter_context(_preserved_global_state(verbose))
        from bert_tf.checkpoints.load import load
        from bert_tf.io.files import read_json
        from bert_tf.pretraining.run import run
        from bert_tf.training.progress import print_progress
        from bert_tf.training.run_directory import RunDirectory

        for message in messages:
            print_progress(message)
        run(settings, callbacks, is_temporary=not is_permanent)
        results = read_json(RunDirectory(settings.model_dir).results)
        directory = settings.model_dir if is_permanent else None
        gc.collect()  # as in `fine_tune`
        return Pretrained(load(settings.model_dir), results, directory)


def _write_texts(path: str, texts: Iterable[Any]) -> str:
    if isinstance(texts, str):
        raise ValueError("texts: expected an iterable of strings, got a string.")
    with open(path, "w", encoding="utf-8") as file:
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"texts[{index}]={text!r:.60}: expected a string.")
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return path
