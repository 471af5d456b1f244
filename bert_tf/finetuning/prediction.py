"""Predictions for a file, by a fine-tuned model of any kind."""

import contextlib
import dataclasses
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TextIO, cast

from bert_tf.files import replace_whole
from bert_tf.interchange.checkpoint import Checkpoint
from bert_tf.interchange.load import load
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling.base import BertModel
from bert_tf.tasks.examples import BadRow, Examples
from bert_tf.training.progress import Progress
from bert_tf.untrusted import Screen

from .kinds import KINDS
from .prediction_files import Record, Writer, check_words
from .prediction_inputs import Inputs, read_inputs
from .run_directory import is_unfinished
from .task import Inference, Task
from .task_file import TaskFile, read_task_file

_SHOWN_ROWS = 5
_SET = "input"


class Predicted(NamedTuple):
    """What was done.

    Attributes:
        num_examples: the examples predicted.
        skipped: a sentence for each bad row, which has no prediction.
    """

    num_examples: int
    skipped: list[str]


def predict_file(
    model_dir: str,
    input: str,
    output: str | None = None,
    *,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
    skip_bad_rows: bool = False,
    threshold: float | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 64,
    allow_pickle: bool = False,
) -> Predicted:
    """Predicts every example of a file and writes the predictions in its order.

    Every row has its record: that of a row without text, or of a bad one that is not to be an
    error, has no prediction, and says why (``error``; CoNLL's columns have ``_`` for its tags,
    SQuAD's predictions an empty answer).

    Args:
        model_dir: what ``bert_tf.finetune`` left, or any checkpoint with a task's head that
            ``bert_tf.load`` takes.
        input: see ``prediction_inputs``. The whole is checked before the model is loaded.
        output: the file to write, replaced where it exists: .tsv or .jsonl; for tagging .conll,
            CoNLL's columns, and for squad .json, SQuAD's predictions. ``None``: standard output,
            tab-separated; all else that is printed goes to standard error.
        text_columns: the columns to read, instead of those that the model was trained with.
        id_column: as for ``prediction_inputs.read_inputs``, and the next two.
        encoding: see there.
        skip_bad_rows: see there.
        threshold: instead of the model's own: the least probability of a class that holds
            (multilabel), or how far "no answer" has to exceed the best answer (squad).
        max_seq_length: the most tokens of a row, instead of the training's.
        batch_size: examples at once.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled.

    Raises:
        ValueError: the model has no task's head or no vocabulary, the columns are not known, the
            file has a bad row, words cannot be written to the output as they are, or an argument
            does not fit.
        OSError: a file cannot be read or written.
    """
    checkpoint = open_checkpoint(model_dir, allow_pickle)
    task = _task(model_dir, checkpoint, max_seq_length)
    task_class = KINDS[task.kind].task_class
    thresholds = _thresholds(model_dir, checkpoint, task, threshold)
    suffix = _suffix(task, input, output)
    standard_output = sys.stdout
    # What is printed must not come between the predictions.
    with contextlib.redirect_stdout(sys.stdout if output else sys.stderr):
        if is_unfinished(model_dir):
            print(
                f"{model_dir}: the run has not finished: these are its best weights so far. The "
                "command that began it goes on with it."
            )
        inputs = read_inputs(
            task,
            input,
            text_columns=text_columns,
            id_column=id_column,
            encoding=encoding,
            skip_bad_rows=skip_bad_rows,
        )
        labels = _labels(checkpoint)
        _check_words(task_class, suffix, output, inputs, labels)
        predict = Predictor(task, _load(checkpoint), labels, thresholds, batch_size)
        with _opened(output, standard_output) as file:
            writer = task_class.writers[suffix](file, predict.columns(inputs))
            _predict_all(predict, inputs, writer)
        _tell(inputs, output)
    return Predicted(inputs.count, inputs.skipped)


def _task(model_dir: str, checkpoint: Checkpoint, max_seq_length: int | None) -> TaskFile:
    """What the directory says of the task, or what can be told from the model; then the flag."""
    model_class = checkpoint.model.model_class
    held = model_class.__name__
    kinds = [kind for kind in KINDS.values() if kind.task_class.trains(model_class)]
    if not kinds:
        raise ValueError(
            f"{model_dir} holds a {held}, which predicts for no task: fine-tune it with "
            "python -m bert_tf.finetune, or name a directory that this left."
        )
    positions = checkpoint.config.max_position_embeddings
    task = read_task_file(model_dir) if os.path.isdir(model_dir) or "://" in model_dir else None
    if task is None:
        several = (kind for kind in kinds if kind.task_class.multi_label == checkpoint.multi_label)
        kind = next(several, kinds[0])
        task = TaskFile(kind.name, model_dir, min(kind.max_seq_length, positions))
    elif KINDS[task.kind] not in kinds:
        raise ValueError(
            f"{model_dir} was trained for {task.kind} and holds a {held}: it is damaged; "
            "fine-tune again."
        )
    if max_seq_length is not None:
        if not 5 <= max_seq_length <= positions:
            raise ValueError(
                f"--max_seq_length={max_seq_length}: expected 5 to {positions}, the positions that "
                f"{model_dir} has embeddings for."
            )
        task = dataclasses.replace(task, max_seq_length=max_seq_length)
    return task


def _thresholds(
    model_dir: str, checkpoint: Checkpoint, task: TaskFile, threshold: float | None
) -> Mapping[str, float]:
    """The model's; or the flag."""
    if threshold is None:
        return checkpoint.thresholds
    if not math.isfinite(threshold):
        raise ValueError(f"--threshold={threshold}: expected a finite number.")
    task_class = KINDS[task.kind].task_class
    if task_class.threshold is None:
        having = [kind.name for kind in KINDS.values() if kind.task_class.threshold]
        raise ValueError(
            f"--threshold={threshold:g} means nothing to {task.kind}: it is for "
            f"{' and '.join(having)}."
        )
    fault = task_class.threshold_fault(threshold, task.options, model_dir)
    if fault:
        raise ValueError(f"--threshold={threshold:g}: {fault}")
    return {task_class.threshold: threshold}


def _suffix(task: TaskFile, input: str, output: str | None) -> str:
    if output is None:
        return ".tsv"
    if os.path.realpath(output) == os.path.realpath(input):
        raise ValueError(f"--output={output} is the file to read: name another.")
    suffix = os.path.splitext(output)[1].lower()
    expected = KINDS[task.kind].task_class.writers
    if suffix not in expected:
        raise ValueError(
            f"--output={output}: expected a name that ends in {' or '.join(expected)} for "
            f"{task.kind}."
        )
    return suffix


def _check_words(
    task_class: type[Task], suffix: str, output: str | None, inputs: Inputs, labels: Sequence[str]
) -> None:
    where = f"--output={output}" if output else "The tab-separated output"
    for what, words in task_class.words_to_write(labels, inputs.good()):
        check_words(suffix, words, f"{where}, {what}")


def _load(checkpoint: Checkpoint) -> BertModel:
    model: BertModel = load(checkpoint)
    if model.preprocessor is None:
        raise ValueError(
            f"{checkpoint.path} has no vocabulary: put its vocab.txt into the directory."
        )
    return model


def _labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The classes' names; their numbers where the source does not name them."""
    count = checkpoint.model.arguments.get("num_classes", 0)
    return checkpoint.labels or tuple(str(number) for number in range(count))


@contextlib.contextmanager
def _opened(output: str | None, standard_output: Any) -> Iterator[IO[bytes]]:
    if output is not None:
        with replace_whole(output) as file:
            yield file
    elif standard_output.isatty():
        yield cast(IO[bytes], _Terminal(standard_output))
    else:
        yield standard_output.buffer
        standard_output.buffer.flush()


class _Terminal:
    """Takes the bytes that a file would hold; whoever reads the screen sees no control codes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = Screen(stream)

    def write(self, content: bytes) -> int:
        self._stream.write(content.decode())
        return len(content)


class Predictor:
    """Makes records of examples, some at a time, as ``Task.predict``.

    Args:
        task: what the model was trained for.
        model: with its preprocessor.
        labels: the classes' names in the order of their ids; () without classes.
        thresholds: as ``Evaluation.thresholds``; {} where nothing was decided.
        batch_size: examples at once.
    """

    def __init__(
        self,
        task: TaskFile,
        model: BertModel,
        labels: Sequence[str],
        thresholds: Mapping[str, float],
        batch_size: int,
    ) -> None:
        self._class = KINDS[task.kind].task_class
        options = self._class.with_thresholds(task.options, thresholds)
        self._task = dataclasses.replace(task, options=options)
        self._labels = tuple(labels)
        self._thresholds = thresholds
        self._inference = Inference(
            model, model.preprocessor.tokenizer, task.max_seq_length, batch_size
        )

    def records(self, items: Sequence[Any]) -> Iterator[Record]:
        """A record of each example, in order; that of a bad row (``BadRow``) has an ``error``."""
        good = [item for item in items if not isinstance(item, BadRow)]
        found: Iterator[Record] = iter(())
        if good:
            sets = {_SET: Examples(good, self._labels, [])}
            options = self._task.options
            task = self._class(self._task.name, None, {}, sets, labels=self._labels, **options)
            found = task.predict(self._inference, _SET, self._thresholds)
        for item in items:
            if isinstance(item, BadRow):
                nothing = self._class.empty_record(item.words)
                yield {**nothing, "id": item.id, "error": item.reason}
            else:
                yield next(found)

    def columns(self, inputs: Inputs) -> Record:
        """A record that has every key of all."""
        first = next(inputs.good(), None)
        columns = self._class.record_columns(self._labels, first, self._task)
        return {**columns, "error": None} if inputs.skipped else columns


def _predict_all(predictor: Predictor, inputs: Inputs, writer: Writer) -> None:
    progress = Progress("Predicting", inputs.count, "examples")
    done = 0
    for items in inputs.chunks():
        for record in predictor.records(items):
            writer.write(record)
        done += sum(not isinstance(item, BadRow) for item in items)
        progress.update(done)
    writer.finish()
    progress.close()


def _tell(inputs: Inputs, output: str | None) -> None:
    if inputs.skipped:
        print(f"{len(inputs.skipped):,} bad rows have no prediction:")
        for sentence in inputs.skipped[:_SHOWN_ROWS]:
            print(f"  {sentence}")
        if len(inputs.skipped) > _SHOWN_ROWS:
            print(f"  and {len(inputs.skipped) - _SHOWN_ROWS:,} more")
    if output is not None:
        print(f"Predictions: {output}")
