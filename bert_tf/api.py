"""The commands as functions of Python: fine-tune, pre-train, predict, export.

A command's flags are keywords here, with the same defaults, bounds and meaning. Data are paths, as
in the shell, or what a program has in memory: lists, columns, frames of pandas.

>>> from bert_tf import api
>>> api.fine_tune([("Fine.", "good")], task="classification", learnin_rate=1e-4)
Traceback (most recent call last):
TypeError: learnin_rate is no setting (did you mean learning_rate?).
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
from bert_tf.answering.options import ExportOptions
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
# What declares the flags of an export.
_EXPORT = (export_command.ExportSettings, ExportOptions)
# The arguments that are data, with the flags that name files of them.
_DATA = {"train": "train_file", "dev": "dev_file", "test": "test_file"}
# The flags of all functions, which an error of any of them may name.
_FLAGS: set[str] = set()


# === Shared by the functions ===


def _takes_flags(*settings: type, without: Sequence[str]) -> Callable[[F], F]:
    """Makes a function's ``**given`` a command's flags: in its signature, help and errors.

    Those in ``without`` are the function's own arguments, by these names or by others.
    """
    declared = [field for each in settings for field in flag_fields.flags_of(each)]
    fields = {field.name: field for field in declared if field.name not in without}
    _FLAGS.update(field.name for field in declared)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            runtime.check_fork()
            try:
                return function(*arguments, **keywords)
            except ValueError as error:
                if error.args and isinstance(error.args[0], str):
                    # A kind of the user's own has other flags.
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
        call.__dict__["__signature__"] = signature.replace(parameters=[*own, *keywords])
        return call  # type: ignore[return-value]

    return decorate


def _without_hyphens(text: str, more: Iterable[str] = ()) -> str:
    """A text with flags as keywords, but for a command's to be given in the shell.

    Other words that begin with hyphens are the user's, as a label may be. ``more`` are flags that
    no settings of the library declare.

    >>> _without_hyphens("--seed, or python -m bert_tf.convert --model=m --output=DIR; got --odd")
    'seed, or python -m bert_tf.convert --model=m --output=DIR; got --odd'
    """
    names = "|".join(map(re.escape, {*_FLAGS, *more}))
    command = r"(python -m bert_tf\.\w+(?: --?\S+)*)"
    return re.sub(rf"{command}|(?<![\w-])--(?=(?:{names})\b)", lambda found: found[1] or "", text)


@contextlib.contextmanager
def _preserved_global_state(verbose: bool) -> Iterator[None]:
    """Loads TensorFlow and Keras; restores the thread's arithmetic and the environment.

    Progress lines and the seeds of models belong to the call.
    """
    with runtime.compiler_flags():
        runtime.check_backend()
        from bert_tf.training.precision import preserved_arithmetic
        from bert_tf.training.progress import NOWHERE, progress_to

        with preserved_arithmetic(), progress_to(None if verbose else NOWHERE):
            yield


def _place(given: dict[str, Any], model_dir: Path | None, stack: contextlib.ExitStack) -> bool:
    """Names the run's directory: without one that is temporary, and nothing is exported.

    Returned is whether the directory is kept.
    """
    other = given.pop("output_dir", None)  # Google's name
    if model_dir is None:
        model_dir = other
    elif other is not None:
        raise ValueError("model_dir and output_dir are the same: give one of them.")
    if model_dir is not None:
        given["model_dir"] = model_dir
        return True
    if given.get("export"):
        raise ValueError("export=True needs a model_dir, in which the SavedModel is written.")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
    given |= {"model_dir": os.path.join(folder, "run"), "export": False}
    return False


def _start(init: Any, stack: contextlib.ExitStack) -> Any:
    """A checkpoint's path, of a model in memory too."""
    from bert_tf.checkpoints.model_directory import save
    from bert_tf.modeling.base import BertModel

    if not isinstance(init, BertModel):
        return init
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
    save(init, os.path.join(folder, "init"))
    return os.path.join(folder, "init")


# === Fine-tuning ===


class FineTuned:
    """Result of ``fine_tune``.

    Attributes:
        model: the weights of the best evaluation, with ``preprocessor``, ``labels``,
            ``thresholds`` and ``task``, as ``bert_tf.load`` gives them.
        results: what ``results.json`` holds.
        directory: the run's ``model_dir``, ``None`` where there was none.
    """

    def __init__(
        self,
        model: "BertModel",
        results: Mapping[str, Any],
        directory: str | None,
        settings: fine_tuning_settings.FineTuningSettings,
        rows_given_in_python: "Mapping[str, Rows]",
    ) -> None:
        self.model = model
        self.results = results
        self.directory = directory
        self._settings = settings
        self._rows_given_in_python = rows_given_in_python

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """The scores of each set that has labels: ``scores["dev"]["accuracy"]``.

        A score that the labels leave undefined is NaN; in ``results`` it is ``None``.
        """
        return {
            name: {key: math.nan if value is None else value for key, value in scores.items()}
            for name, scores in self.results["scores"].items()
        }

    @functools.cached_property
    def predictions(self) -> dict[str, list[dict[str, Any]]]:
        """By set (``"dev"``, ``"test"``), a record for each example, as ``predict`` gives them.

        The model is run when they are first asked for.
        """
        from bert_tf.finetuning.data import read_splits
        from bert_tf.predicting.inputs import Inputs
        from bert_tf.predicting.predictor import Predictor
        from bert_tf.readers.table_formats import in_memory_tables

        with in_memory_tables(self._rows_given_in_python):
            splits = read_splits(self._settings)
        predictor = Predictor(self.model, batch_size=self._settings.eval_batch_size)
        return {
            name: list(map(dict, predictor.records(Inputs.from_items(examples.items))))
            for name, examples in {**splits.dev, **splits.test}.items()
        }

    def predict(self, data: Any, output: Path | None = None, **given: Any) -> Any:
        """As ``api.predict`` with the model."""
        return predict(self.model, data, output, **given)

    def save(self, directory: Path) -> None:
        """As ``bert_tf.save`` with the model."""
        from bert_tf.checkpoints.model_directory import save

        save(self.model, directory)

    def export(self, output: Path, **given: Any) -> "Exported":
        """As ``api.export`` with the model."""
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
    """Fine-tunes as ``python -m bert_tf.finetune`` does, and gives the model with its scores.

    Data are a path, or in memory: an iterable of (text, label) tuples, of (text, text, label), or
    of mappings; a mapping of columns; a frame of pandas or polars, a table of Arrow. Columns
    without names are called text (or text_a, text_b) and label; words and tags; context, choices
    and label; question, context and answers. Other names are told by ``text_columns`` and
    ``label_column``. Examples to predict have no label.

    A call changes no state of the process, such as random generators. Another training at the same
    time is possible in float32 on one device.

    Args:
        train: what to train on.
        dev: what to evaluate on; without it a part of ``train`` is held out (``dev_fraction``).
        test: what to predict, or, where it has labels, to score too.
        init: the weights to start from: any path that ``bert_tf.load`` takes, or a model.
        model_dir: where everything is kept, and the run resumes from. Without it the run is in a
            temporary directory, and what is left of it is what this returns.
        callbacks: Keras callbacks, called as ``fit`` calls them: after each step with ``loss``,
            after each evaluation with its scores, after each epoch with ``loss`` and ``val_SCORE``.
            ``model.stop_training`` ends the training. Each run of several calls them anew.
        verbose: whether to print what the command prints.
        **given: the flags.

    Returns:
        The model with the weights of the best evaluation, its scores and predictions.

    Raises:
        TypeError: a keyword is no setting.
        ValueError: what the command says in one sentence, or if another training is in progress in
            the process and one of the two is exclusive.
        KeyboardInterrupt: the run was stopped; with a ``model_dir`` the same call resumes it.
    """
    with contextlib.ExitStack() as stack:
        tables = _give_data(given, {"train": train, "dev": dev, "test": test})
        saved_in_task_file = _place(given, model_dir, stack)
        if init is not None:
            given["init_checkpoint"] = _start(init, stack)
        parsed = flag_fields.flags_of_call(given, *fine_tuning_settings.declarations())
        settings = fine_tuning_settings.settings_from_flags(parsed)
        stack.enter_context(_preserved_global_state(verbose))
        # Only now: wrong settings answer without loading TensorFlow.
        from bert_tf.checkpoints.load import load
        from bert_tf.finetuning.run import run
        from bert_tf.readers.table_formats import in_memory_tables

        with in_memory_tables(tables):
            results = run(settings, callbacks, is_temporary=not saved_in_task_file)
        directory = settings.model_dir if saved_in_task_file else None
        gc.collect()  # the trained model, which reference cycles contain, before the best is loaded
        return FineTuned(load(settings.model_dir), results, directory, settings, tables)


def _give_data(given: dict[str, Any], data: Mapping[str, Any]) -> "dict[str, Rows]":
    """Sets the flags that name data; gives the rows that are in memory, by their names."""
    from bert_tf.tasks.python_data import is_data, label_column_name, parse_rows
    from bert_tf.tasks.registry import KINDS

    tables: dict[str, Rows] = {}
    for argument, value in data.items():
        if value is None:
            continue
        if given.get(_DATA[argument]) is not None:
            raise ValueError(f"{argument} and {_DATA[argument]} are the same: give one of them.")
        if not is_data(value):
            given[_DATA[argument]] = value
            continue
        kind = KINDS.get(str(given.get("task")).lower())
        if kind is None:
            raise ValueError(
                f"task={given.get('task')}: data in memory are of one of {', '.join(KINDS)}."
            )
        label = given.get("label_column")
        rows, texts = parse_rows(value, kind, given.get("text_columns"), label, argument)
        given |= {_DATA[argument]: f"<{argument}>", "text_columns": texts}
        label = label_column_name(kind, label)
        good = (row for row in rows if isinstance(row, Mapping))
        if not kind.label_is_optional or any(label in row for row in good):
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
    """Predicts as ``python -m bert_tf.predict`` does: the records that a ``Predictor`` gives.

    A ``Predictor`` opens the model once for many calls.

    Args:
        model: what a ``Predictor`` takes.
        data: what to predict: a path, or what a ``Predictor`` is called with: a list of texts for
            example.
        output: the file to write instead: .tsv, .csv, .jsonl, ...
        verbose: whether to print what the command prints where it writes an ``output``.
        **given: the flags.

    Returns:
        The records, a list of dicts; with an ``output`` its path.
    """
    if data is None:
        raise ValueError("data=None: expected a path, or rows such as a list of texts.")
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
    """Exports a SavedModel for TensorFlow Serving, as ``python -m bert_tf.export`` does.

    Args:
        model: any path that ``bert_tf.load`` takes, a model with a ``preprocessor``, or what
            ``fine_tune`` gave.
        output: the version's directory, such as exports/mine/1, which must not be there yet.
        verbose: whether to print what the command prints.
        **given: the flags.

    Returns:
        What was exported: its ``path``, ``signatures``, ``outputs``, ``samples``.
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
        model: the pre-trained model, with its ``preprocessor``.
        results: what ``results.json`` holds: ``evaluation``, ``parameters``, ``step``, ...
        directory: the run's ``model_dir``, ``None`` where there was none.
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
    """Pre-trains as ``python -m bert_tf.pretrain`` does: raw text to a model.

    Args:
        input: the corpus: a path, a glob, or a list of them.
        texts: the corpus in memory instead: an iterable of documents, each a text.
        model_dir: where everything is kept, and the run resumes from. Without it the run is in a
            temporary directory, and what is left of it is what this returns.
        callbacks: Keras callbacks. An epoch is ``save_checkpoints_steps`` steps, counted from 0
            from the run's start, in a resumed run too. Of several workers each calls its own.

            - ``on_train_begin`` and ``on_train_end`` are called once in a process that finds
              something to do, the latter when everything is written; an interrupted run calls no
              ``on_train_end``.
            - ``on_epoch_begin`` is called before an epoch's first step of the process.
            - ``on_train_batch_begin`` and ``on_train_batch_end`` are called round what is reported
              together, up to 500 steps that take about 2 seconds. The batch is the first step's
              place in its epoch and the last one's; the logs are means over these steps (``loss``,
              ``masked_lm_loss``, ``masked_lm_accuracy``, ``next_sentence_loss``,
              ``next_sentence_accuracy``, ``gradient_norm``), the last ``learning_rate`` and, after
              the first time, speeds such as ``tokens_per_second``.
            - ``on_test_begin`` and ``on_test_end`` are called round each evaluation: after each
              checkpoint on up to 20 batches, at the end on all. The logs are ``loss`` and the
              figures of ``results["evaluation"]``.
            - ``on_epoch_end`` is called after the evaluation at the epoch's end, at the run's last
              step and where a callback ends the training. The logs are ``loss``, the mean of the
              steps that this process made of the epoch, and that evaluation's figures as
              ``val_loss``, ``val_masked_lm_accuracy`` and so on.

            ``model.stop_training`` ends the training at the end of such a report or epoch, with a
            checkpoint, an evaluation and the results: the run is finished then, and the same call
            trains no further. Callbacks change nothing of what is trained.
        verbose: whether to print what the command prints.
        **given: the flags.

    Returns:
        The model and its held-out losses and accuracies.

    Raises:
        TypeError: a keyword is no setting.
        ValueError: what the command says in one sentence, or if another training is in progress in
            the process and one of the two is exclusive.
        KeyboardInterrupt: the run was stopped; with a ``model_dir`` the same call resumes it.
    """
    if given.get("dry_run"):
        raise ValueError(
            "dry_run is of the command alone, python -m bert_tf.pretrain: this function trains."
        )
    with contextlib.ExitStack() as stack:
        if texts is not None:
            if input is not None:
                raise ValueError("input and texts are both a corpus: give one of them.")
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
            input = _write_texts(os.path.join(folder, "texts.jsonl"), texts)
        if input is not None:
            paths = [input] if isinstance(input, str | os.PathLike) else input
            given["input"] = [os.fspath(path) for path in paths]
        saved_in_task_file = _place(given, model_dir, stack)
        parsed = flag_fields.flags_of_call(given, *pretraining_settings.DECLARATIONS)
        settings, sentences = pretraining_settings.settings_from_flags(parsed=parsed)
        stack.enter_context(_preserved_global_state(verbose))
        from bert_tf.checkpoints.load import load
        from bert_tf.io.files import read_json
        from bert_tf.pretraining.run import run
        from bert_tf.training.progress import print_progress
        from bert_tf.training.run_directory import RunDirectory

        for sentence in sentences:
            print_progress(sentence)
        run(settings, callbacks, is_temporary=not saved_in_task_file)
        results = read_json(RunDirectory(settings.model_dir).results)
        directory = settings.model_dir if saved_in_task_file else None
        gc.collect()  # as in `fine_tune`
        return Pretrained(load(settings.model_dir), results, directory)


def _write_texts(path: str, texts: Iterable[Any]) -> str:
    if isinstance(texts, str):
        raise ValueError("texts is one text: expected an iterable of documents, each a text.")
    with open(path, "w", encoding="utf-8") as file:
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"texts[{place}] is {text!r:.60}: expected a text.")
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return path
