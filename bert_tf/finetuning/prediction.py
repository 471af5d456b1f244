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
from .prediction_inputs import Inputs, read_inputs
from .prediction_outputs import Record, check_words
from .run_directory import is_unfinished
from .task import Inference
from .task_file import TaskFile, task_of

_SHOWN_ROWS = 5
_SET = "input"


class Predicted(NamedTuple):
    """How many examples were predicted, and a sentence for each bad row, which has none."""

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
    SQuAD's predictions an empty answer). The arguments are the flags of ``bert_tf.predict``; the
    whole input is checked before the model is loaded. Without an ``output`` a table goes to
    standard output, and all else that is printed to standard error.

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
    task = dataclasses.replace(task, options=task_class.with_thresholds(task.options, thresholds))
    suffix = _suffix(task, input, output)
    standard_output = sys.stdout
    # What is printed must not come between the predictions.
    with contextlib.redirect_stdout(sys.stdout if output else sys.stderr):
        if is_unfinished(model_dir):
            print(
                f"{model_dir}: the run has not finished: these are its best weights so far. The "
                "command that began it goes on with it."
            )
        inputs = read_inputs(task, input, text_columns, id_column, encoding, skip_bad_rows)
        # Classes have numbers where the source does not name them.
        count = checkpoint.model.arguments.get("num_classes", 0)
        labels = checkpoint.labels or tuple(str(number) for number in range(count))
        where = f"--output={output}" if output else "The tab-separated output"
        for what, words in task_class.words_to_write(labels, inputs.good()):
            check_words(suffix, words, f"{where}, {what}")
        model = _load(checkpoint)
        inference = Inference(model, model.preprocessor.tokenizer, task.max_seq_length, batch_size)
        columns = task_class.record_columns(labels, next(inputs.good(), None), task)
        if inputs.skipped:
            columns = {**columns, "error": None}
        with _opened(output, standard_output) as file:
            writer = task_class.writers[suffix](file, columns)
            progress = Progress("Predicting", inputs.count, "examples")
            done = 0
            for items in inputs.chunks():
                for record in _records(task, items, labels, inference, thresholds):
                    writer.write(record)
                done += sum(not isinstance(item, BadRow) for item in items)
                progress.update(done)
            writer.finish()
            progress.close()
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
    task = task_of(checkpoint)
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


def _load(checkpoint: Checkpoint) -> BertModel:
    model: BertModel = load(checkpoint)
    if model.preprocessor is None:
        raise ValueError(
            f"{checkpoint.path} has no vocabulary: put its vocab.txt into the directory."
        )
    return model


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


def _records(
    task: TaskFile,
    items: Sequence[Any],
    labels: Sequence[str],
    inference: Inference,
    thresholds: Mapping[str, float],
) -> Iterator[Record]:
    """A record of each example, in order; that of a bad row (``BadRow``) has an ``error``."""
    task_class = KINDS[task.kind].task_class
    good = [item for item in items if not isinstance(item, BadRow)]
    found: Iterator[Record] = iter(())
    if good:
        sets = {_SET: Examples(good, tuple(labels), [])}
        made = task_class(task.name, None, {}, sets, labels=labels, **task.options)
        found = made.predict(inference, _SET, thresholds)
    for item in items:
        if isinstance(item, BadRow):
            yield {**task_class.empty_record(item.words), "id": item.id, "error": item.reason}
        else:
            yield next(found)


def _tell(inputs: Inputs, output: str | None) -> None:
    if inputs.skipped:
        print(f"{len(inputs.skipped):,} bad rows have no prediction:")
        for sentence in inputs.skipped[:_SHOWN_ROWS]:
            print(f"  {sentence}")
        if len(inputs.skipped) > _SHOWN_ROWS:
            print(f"  and {len(inputs.skipped) - _SHOWN_ROWS:,} more")
    if output is not None:
        print(f"Predictions: {output}")
