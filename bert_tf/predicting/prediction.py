"""Predictions for a file, by a fine-tuned model of any kind."""

import contextlib
import dataclasses
import itertools
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TextIO, cast

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli.pipes import copy_bounded
from bert_tf.files import replace_whole
from bert_tf.interchange.checkpoint import Checkpoint
from bert_tf.interchange.load import load
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.interchange.saving import checkpoint_of
from bert_tf.modeling.base import TEMPERATURE, BertModel, without_temperature
from bert_tf.readers.examples import BadRow, ExampleSet
from bert_tf.readers.tables import FORMS, SUFFIXES, TableFile, check_delimiter, read_rows
from bert_tf.results.explanation import (
    EXPLANATIONS,
    MOST,
    Explanation,
    explain_texts,
    values_of,
    write_explanations,
)
from bert_tf.results.run_directory import is_unfinished
from bert_tf.tasks.inference import Inference
from bert_tf.tasks.kinds import KINDS, Kind
from bert_tf.tasks.prediction_outputs import Record, RecordWriter, check_words, with_columns
from bert_tf.tasks.task import Task
from bert_tf.tasks.task_file import TaskFile, task_of
from bert_tf.training.distribution import open_devices
from bert_tf.training.progress import Progress
from bert_tf.untrusted import Screen

from .inputs import Inputs, own_form, read_inputs
from .settings import STANDARD_INPUT, PredictionSettings

_SHOWN_ROWS = 5
_SET = "input"


class Predicted(NamedTuple):
    """How many examples were predicted, and a sentence for each bad row, which has none."""

    num_examples: int
    skipped: list[str]


def run(settings: PredictionSettings) -> Predicted:
    """Does what ``bert_tf.predict`` does with its flags, on the devices that they name."""
    options = dataclasses.asdict(settings)
    strategy, precision = options.pop("strategy"), options.pop("precision")
    with open_devices(strategy, precision).scope():
        return predict_file(**options)


def predict_file(
    model_dir: "str | Predictor",
    input: str,
    output: str | None = None,
    *,
    input_format: str | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    keep_columns: bool = False,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool = False,
    threshold: float | None = None,
    raw_probabilities: bool = False,
    top_k: int | None = None,
    reject_below: float | None = None,
    explain: str | None = None,
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
    if isinstance(model_dir, str):
        model_dir = Predictor(
            model_dir,
            threshold,
            max_seq_length,
            batch_size,
            allow_pickle,
            raw_probabilities,
            top_k,
            reject_below,
        )
    predictor = model_dir
    suffix = _suffix(predictor.task, input, output)
    if explain is not None:
        _check_explanation(input, output, explain)
        _check_explains(predictor, f"--explain={explain}")
    standard_output = sys.stdout
    # What is printed must not come between the predictions.
    with (
        contextlib.redirect_stdout(sys.stdout if output else sys.stderr),
        _input_table(input, input_format, encoding, check_delimiter(delimiter)) as table,
    ):
        if predictor.is_unfinished():
            print(
                f"{predictor.path}: the run has not finished: these are its best weights so far. "
                "The command that began it goes on with it."
            )
        inputs = read_inputs(predictor.task, table, text_columns, id_column, skip_bad_rows)
        if keep_columns:
            _check_has_columns(predictor.task, table, text_columns, suffix)
        where = f"--output={output}" if output else "The tab-separated output"
        predictor.check_words(suffix, inputs, where)
        with _opened(output, standard_output) as file:
            if keep_columns:
                _write_behind_rows(predictor, inputs, table, RecordWriter(file, suffix))
            else:
                writer = predictor.task_class.writers[suffix](file, predictor.columns(inputs))
                for record in predictor.records(inputs):
                    writer.write(record)
                writer.finish()
        if explain is not None:
            found = predictor.explanations(inputs)
            write_explanations(explain, found, f"Why: {predictor.path}, {input}")
        _tell(inputs, output)
        if explain is not None:
            print(f"Explanations of {len(found):,} of {inputs.count:,} rows: {explain}")
    return Predicted(inputs.count, inputs.skipped)


class Predictor:
    """A model, opened, and what its predictions depend on; it is loaded when it is needed.

    ``source`` is a path or a model in memory, the other arguments are flags of ``bert_tf.predict``,
    whose errors these are.
    """

    def __init__(
        self,
        source: str | BertModel,
        threshold: float | None = None,
        max_seq_length: int | None = None,
        batch_size: int = 64,
        allow_pickle: bool = False,
        raw_probabilities: bool = False,
        top_k: int | None = None,
        reject_below: float | None = None,
    ) -> None:
        self._model: BertModel | None = None
        if isinstance(source, BertModel):
            self._model = source
            self._checkpoint = checkpoint_of(source)
        else:
            self._checkpoint = open_checkpoint(source, allow_pickle)
        checkpoint, name = self._checkpoint, self._checkpoint.path
        task = _task(name, checkpoint, max_seq_length)
        self.task_class = KINDS[task.kind].task_class
        self._thresholds = _thresholds(name, checkpoint, task, threshold, raw_probabilities)
        options = self.task_class.with_thresholds(task.options, self._thresholds)
        self.task = dataclasses.replace(task, options=options)
        # Classes have numbers where the source does not name them.
        count = checkpoint.model.arguments.get("num_classes", 0)
        self.labels = checkpoint.labels or tuple(str(number) for number in range(count))
        self._batch_size = batch_size
        self._top_k, self._reject_below = top_k, reject_below
        self._check_choice(name)

    def _check_choice(self, name: str) -> None:
        """Checks that what is asked of the classes' probabilities goes with the task."""
        if self.task_class.classes == "classes" and not self.task_class.multi_label:
            return
        for flag, value in (("top_k", self._top_k), ("reject_below", self._reject_below)):
            if value is not None:
                raise ValueError(
                    f"--{flag} is for one class each, and {name} is of {self.task.kind}: leave it "
                    "out."
                )

    def _choose(self, record: Record) -> Record:
        """A record with as many classes as were asked for, and without what is too improbable."""
        found = record.get("probabilities")
        if not found or (self._top_k, self._reject_below) == (None, None):
            return record
        # A record of columns alone has no numbers.
        ranked = sorted(found, key=lambda name: -(found[name] or 0.0))
        chosen = dict(record)
        if self._reject_below is not None and (found[ranked[0]] or 0.0) < self._reject_below:
            chosen["prediction"] = None
        if self._top_k is not None:
            del chosen["probabilities"]
            for place, name in enumerate(ranked[: self._top_k], start=1):
                suffix = f"_{place}" if place > 1 else ""
                if place > 1:
                    chosen[f"prediction{suffix}"] = name
                chosen[f"probability{suffix}"] = found[name]
        return chosen

    @property
    def path(self) -> str:
        """Where the model is from, or its name."""
        return self._checkpoint.path

    @property
    def kind(self) -> Kind:
        """What its task is."""
        return KINDS[self.task.kind]

    @property
    def text_columns(self) -> list[str] | None:
        """The columns that it reads, where its directory says them."""
        found: list[str] = []
        for name in self.kind.texts:
            column = self.task.columns.get(name, [])
            found += [column] if isinstance(column, str) else column
        return found or None

    def is_unfinished(self) -> bool:
        """Whether it is what a run has kept that has not ended."""
        return self._model is None and is_unfinished(self.path)

    def check_words(self, suffix: str, inputs: Inputs, where: str) -> None:
        """Checks that an output's form holds the words that it must hold."""
        for what, words in self.task_class.words_to_write(self.labels, inputs.good()):
            check_words(suffix, words, f"{where}, {what}")

    def columns(self, inputs: Inputs) -> Record:
        """A record that has every key of all."""
        items = inputs.good()
        columns = self._choose(self.task_class.record_columns(self.labels, items, self.task))
        return {**columns, "error": None} if inputs.skipped else columns

    def model(self) -> BertModel:
        """The model, loaded once, with its preprocessor."""
        model = self._model = self._model or _load(self._checkpoint)
        if model.preprocessor is None:
            raise ValueError(f"{model.name} has no preprocessor: set one, with its vocabulary.")
        return model

    def explanations(self, inputs: Inputs) -> list[Explanation]:
        """What spoke for the predictions of the first rows; shows how far it is."""
        model = self.model()
        items = list(itertools.islice(inputs.good(), MOST))
        labels = self.labels if self.task_class.classes else ()
        progress = Progress("Explaining", len(items), "examples")
        found = []
        tokenizer = model.preprocessor.tokenizer
        for one in explain_texts(model, tokenizer, items, labels, self.task.max_seq_length):
            found.append(one)
            progress.update(len(found))
        progress.close()
        return found

    def records(self, inputs: Inputs) -> Iterator[Record]:
        """A record of each row, in order; shows how far it is."""
        model = self.model()
        tokenizer = model.preprocessor.tokenizer
        inference = Inference(model, tokenizer, self.task.max_seq_length, self._batch_size)
        progress = Progress("Predicting", inputs.count, "examples")
        done = 0
        for items in inputs.chunks():
            found = _records(self.task, items, self.labels, inference, self._thresholds)
            yield from map(self._choose, found)
            done += sum(not isinstance(item, BadRow) for item in items)
            progress.update(done)
        progress.close()


def predict_rows(
    predictor: Predictor,
    input: str,
    *,
    input_format: str | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    keep_columns: bool = False,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool = False,
    explain: bool = False,
) -> list[dict[str, Any]]:
    """The records that ``predict_file`` would write, as ``Task.predict`` gives them.

    With ``explain`` the first 50 good ones have an ``explanation`` besides.
    """
    if explain:
        _check_explains(predictor, "explain=True")
    with _input_table(input, input_format, encoding, check_delimiter(delimiter)) as table:
        inputs = read_inputs(predictor.task, table, text_columns, id_column, skip_bad_rows)
        records = predictor.records(inputs)
        if keep_columns:
            _check_has_columns(predictor.task, table, text_columns)
            records = map(with_columns, read_rows(table), records)
        found = [dict(record) for record in records]
        good = (record for record in found if record.get("error") is None)
        for record, why in zip(
            good, predictor.explanations(inputs) if explain else (), strict=False
        ):
            record["explanation"] = values_of(why)
        return found


# === The input ===


@contextlib.contextmanager
def _input_table(
    path: str, form: str | None, encoding: str, delimiter: str | None
) -> Iterator[TableFile]:
    """What ``--input`` names; standard input is read to its end first, as it is read twice."""
    suffix = form and f".{form}"
    if path != STANDARD_INPUT:
        yield TableFile(path, encoding, delimiter, suffix)
        return
    if suffix is None:
        raise ValueError(
            f"--input=- needs --input_format, which says what comes: {', '.join(FORMS)}."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"standard_input{suffix}")
        copy_bounded(sys.stdin.buffer, path, "Standard input")
        yield TableFile(path, encoding, delimiter, suffix)


def _check_has_columns(
    task: TaskFile, table: TableFile, text_columns: Sequence[str] | None, suffix: str = ""
) -> None:
    """Checks that ``--keep_columns`` finds columns, and may write them."""
    form = own_form(task, table, text_columns)
    if form is not None and not form.has_names:
        raise ValueError(
            f"--keep_columns is for tables with names of columns, and {table.path} is none: leave "
            f"it out, or name a file that ends in {', '.join(SUFFIXES)}, with --text_columns."
        )
    if suffix not in ("", *Task.writers):
        raise ValueError(
            f"--keep_columns writes tables, and {suffix} holds none: name an --output that ends "
            f"in {' or '.join(Task.writers)}."
        )


def _write_behind_rows(
    predictor: "Predictor", inputs: Inputs, table: TableFile, writer: RecordWriter
) -> None:
    # Of all rows: the first may be a bad one, and an object of JSON need not have every key.
    names = dict.fromkeys(name for row in read_rows(table) for name in row)
    writer.write_header(predictor.columns(inputs), names)
    for row, record in zip(read_rows(table), predictor.records(inputs), strict=True):
        writer.write(record, row)


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
    model_dir: str, checkpoint: Checkpoint, task: TaskFile, threshold: float | None, raw: bool
) -> Mapping[str, float]:
    """The model's; or the flag."""
    if threshold is None:
        return without_temperature(checkpoint.thresholds) if raw else checkpoint.thresholds
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
    kept = {} if raw else {TEMPERATURE: checkpoint.thresholds.get(TEMPERATURE, 1.0)}
    return {**kept, task_class.threshold: threshold}


def _check_explanation(input: str, output: str | None, path: str) -> None:
    if os.path.splitext(path)[1] not in EXPLANATIONS:
        expected = " or ".join(EXPLANATIONS)
        raise ValueError(f"--explain={path}: expected a name that ends in {expected}.")
    others = {os.path.realpath(other) for other in (input, output or input)}
    if os.path.realpath(path) in others:
        raise ValueError(f"--explain={path} is the input or the output: name another.")


def _check_explains(predictor: Predictor, given: str) -> None:
    if not predictor.task_class.explains:
        having = [kind.name for kind in KINDS.values() if kind.task_class.explains]
        raise ValueError(
            f"{given} means nothing to {predictor.task.kind}: it is for {', '.join(having)}."
        )
    form = predictor.task.options.get("long_text", LONG_TEXTS[0])
    if form != LONG_TEXTS[0]:
        raise ValueError(
            f"{given} explains texts that are read from their beginning, and "
            f"{predictor.path} was trained with --long_text={form}: leave it out."
        )


def _suffix(task: TaskFile, input: str, output: str | None) -> str:
    if output is None:
        return ".tsv"
    if input != STANDARD_INPUT and os.path.realpath(output) == os.path.realpath(input):
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
        sets = {_SET: ExampleSet(good, tuple(labels), [])}
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
