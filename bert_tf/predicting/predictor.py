"""``bert_tf.Predictor``: a fine-tuned model of any kind that answers."""

import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.load import load, open_checkpoint
from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
from bert_tf.checkpoints.weights import to_checkpoint
from bert_tf.evaluation.evaluation import Inference
from bert_tf.evaluation.prediction_files import Record, with_columns
from bert_tf.io import runtime
from bert_tf.io.runtime import check_backend
from bert_tf.modeling.base import TEMPERATURE, BertModel, default_max_length
from bert_tf.readers.examples import BadRow, ExampleSet
from bert_tf.readers.table_formats import RowOrError, in_memory_tables
from bert_tf.readers.tables import TableFile, read_rows
from bert_tf.tasks.kinds import saved_options
from bert_tf.tasks.python_data import is_number, parse_rows
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task import predict
from bert_tf.tasks.task_file import TaskFile, default_kind, kinds_for_class, load_task_file
from bert_tf.training.progress import Progress
from bert_tf.training.run_directory import is_unfinished

from .inputs import Inputs, read_inputs
from .settings import PredictionSettings, settings_of_call

#: What rows in memory are called, where the path of a table is expected.
DATA = "<data>"
_SET = "input"
_loading = threading.Lock()


class Predictor:
    """A fine-tuned model that answers: texts in, predictions out, as ``python -m bert_tf.predict``.

    It is opened at once, loaded at the first call and traced once; later calls only compute.
    Nothing is printed. What a call gives for an example is a record, a dict:

    | kind            | keys, besides ``id``: the example's place, or of ``id_column``           |
    |-----------------|--------------------------------------------------------------------------|
    | classification  | ``prediction``: the class's name; ``probabilities``, by name, or with    |
    |                 | ``top_k`` ``probability``, ``prediction_2``, ``probability_2``, ...      |
    | multilabel      | ``prediction``: a list of names; ``probabilities``, by name              |
    | regression      | ``prediction``: a number                                                 |
    | tagging         | ``words``, ``tags``: of each word; ``scores``: of each tag its           |
    |                 | probability; of a model of texts with character spans ``entities``:      |
    |                 | ``start``, ``end``, ``label``, ``text`` and ``score`` of each            |
    | multiple_choice | ``prediction``: the choice's number, from 0; ``probabilities``           |
    | similarity      | ``prediction``: the cosine of the first two texts; ``third``: of three   |
    |                 | texts that of the first and the third                                    |
    | squad           | ``prediction``: the answer, "" for none; ``score``: its probability;     |
    |                 | ``start``, ``end``: its characters in the context                        |

    The record of an example without text, or of a bad one with ``skip_bad_rows``, has ``None`` for
    its ``prediction``, and ``error`` says why.

    Args:
        model: what ``bert_tf.finetune`` left; any other checkpoint with a task's head, as
            ``bert_tf.load`` takes them; a model in memory with a ``preprocessor``; or what
            ``api.fine_tune`` gave.
        threshold: instead of the model's own. multilabel: the least probability of a class that
            holds; squad: the answer is "" where its score is this much over the best answer's.
        top_k: one class a row: this many of the likeliest, instead of all probabilities.
        max_seq_length: the most tokens of a row; by default the training's, else all positions.
        batch_size: examples at once.

    Raises:
        ValueError: there is no model, it has no task's head, or an argument does not fit it. The
            sentence calls an argument by its flag, as ``--top_k``.

    >>> from bert_tf import BertClassifier, BertConfig, BertPreprocessor, Predictor
    >>> model = BertClassifier(BertConfig.from_preset("bert-tiny", vocab_size=7), num_classes=2)
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    >>> model.preprocessor, model.labels = BertPreprocessor(vocabulary), ("no", "yes")
    >>> predictor = Predictor(model)
    >>> sorted(predictor("good")["probabilities"])
    ['no', 'yes']
    >>> [record["id"] for record in predictor([("good", "bad"), ("bad", "good")])]
    ['0', '1']
    """

    def __init__(
        self,
        model: Any,
        *,
        threshold: float | None = None,
        top_k: int | None = None,
        max_seq_length: int | None = None,
        batch_size: int = 64,
    ) -> None:
        check_backend()
        settings = settings_of_call(
            threshold=threshold,
            top_k=top_k,
            max_seq_length=max_seq_length,
            batch_size=batch_size,
        )
        model = getattr(model, "model", model)  # of a FineTuned
        self._model = model if isinstance(model, BertModel) else None
        self._checkpoint = (
            open_checkpoint(model) if self._model is None else to_checkpoint(self._model)
        )
        task = _task(self._checkpoint, settings.max_seq_length)
        self.kind = KINDS[task.kind]
        self._thresholds = _thresholds(self._checkpoint, task, settings.threshold)
        self._options = self.kind.restore_options(task.options, self._thresholds)
        self.task = dataclasses.replace(task, options=saved_options(self.kind, self._options))
        # Classes have numbers where the source does not name them.
        count = self._checkpoint.model.arguments.get("num_classes", 0)
        self.labels = self._checkpoint.labels or tuple(map(str, range(count)))
        self._settings = settings
        is_single_label = self.kind.classes == "classes" and not self.kind.multi_label
        if settings.top_k is not None and not is_single_label:
            raise ValueError(
                f"--top_k is for one class each, and {self.path} is of {self.task.kind}: leave it "
                "out."
            )

    def __call__(
        self,
        data: Any,
        *,
        text_columns: Sequence[str] | None = None,
        id_column: str | None = None,
        skip_bad_rows: bool = False,
        keep_columns: bool = False,
    ) -> Any:
        """Predicts what is in memory.

        Args:
            data: a text, or a mapping with a text among its values, such as ``{"question": ...,
                "context": ...}``: one example. Else examples: a list of texts, of tuples of texts,
                of lists of words or of mappings; a mapping of columns; a frame of pandas or polars;
                a ``tf.data.Dataset``. Columns without names are called as the training's, or text
                (text_a, text_b); words; context, choices; question, context.
            text_columns: the columns to read; by default the training's.
            id_column: the column of ids; by default the training's where the data have it.
            skip_bad_rows: whether a bad row has a record that says so, instead of an error.
            keep_columns: whether records begin with the columns of their rows, instead of the ids.

        Returns:
            The record of one example; of more a list of records, in order.

        Raises:
            ValueError: a row is bad, columns are not known, or there is no example.
        """
        rows, texts = self.rows_of(data, text_columns)
        settings = dataclasses.replace(
            self._settings,
            text_columns=texts,
            id_column=id_column,
            skip_bad_rows=skip_bad_rows,
            keep_columns=keep_columns,
        )
        with in_memory_tables({DATA: rows}):
            records = self.table_records(TableFile(DATA), settings)
        return records[0] if _is_example(data) else records

    def rows_of(
        self, data: Any, text_columns: Sequence[str] | None = None
    ) -> tuple[list[RowOrError], list[str]]:
        """The rows of examples in memory, and which columns have the texts."""
        columns = text_columns or self.task.columns.get("text_columns")
        data = [data] if _is_example(data) else data
        return parse_rows(data, self.kind, columns, None, "data", is_label=self._is_label)

    def table_records(self, table: TableFile, settings: PredictionSettings) -> list[dict[str, Any]]:
        """The records of a table's rows, as a call gives them."""
        inputs = self.inputs(table, settings)
        records = self.records(inputs)
        if settings.keep_columns:
            inputs.check_keeps_columns(table.path)
            records = map(with_columns, read_rows(table), records)
        return [dict(record) for record in records]

    # === For predictions of a file ===

    @property
    def path(self) -> str:
        """Path of the model, or its name."""
        return self._checkpoint.path

    def is_unfinished(self) -> bool:
        """True if the directory is of a run that has not ended."""
        return self._model is None and is_unfinished(self.path)

    def inputs(
        self, table: TableFile, settings: PredictionSettings, output_suffix: str | None = None
    ) -> Inputs:
        """The rows of a table, read and checked, as ``read_inputs`` does."""
        columns, id_column = settings.text_columns, settings.id_column
        skip = settings.skip_bad_rows
        return read_inputs(self.task, table, columns, id_column, skip, output_suffix)

    def columns(self, inputs: Inputs) -> Record:
        """A record that has every key of all."""
        items = inputs.valid()
        columns = self._select_top_classes(
            self.kind.record_columns(self.labels, items, self.task.columns, self._options)
        )
        return {**columns, "error": None} if inputs.skipped else columns

    def records(self, inputs: Inputs, progress: Progress | None = None) -> Iterator[Record]:
        """A record of each row, in order."""
        model = self._loaded()
        num_predicted = 0
        tokenizer = model.preprocessor.tokenizer
        inference = Inference(model, tokenizer, self.task.max_seq_length, self._settings.batch_size)
        for items in inputs.chunks():
            yield from map(self._select_top_classes, self._records(inference, items))
            num_predicted += sum(not isinstance(item, BadRow) for item in items)
            if progress is not None:
                progress.update(num_predicted)

    # === Within ===

    def __getstate__(self) -> dict[str, Any]:
        # The model has the weights; a checkpoint's tensors read files.
        checkpoint = dataclasses.replace(self._checkpoint, tensors={})
        return {**vars(self), "_model": self._loaded(), "_checkpoint": checkpoint}

    def _is_label(self, text: str) -> bool:
        """True if a text is a label, as tables to train on have it."""
        if not self.labels:
            return is_number(text)
        separator = self.task.columns.get("label_separator")
        names = text.split(separator) if separator else [text]
        return {name.strip() for name in names} <= {*self.labels}

    def _loaded(self) -> BertModel:
        """The model, loaded once, with its preprocessor."""
        runtime.check_fork()
        with _loading:  # threads may make the first call together
            model: BertModel = self._model or load(self._checkpoint)
            self._model = model
        if model.preprocessor is None:
            why = missing_tokenizer_reason(self._checkpoint.notes)
            raise ValueError(f"{self.path} cannot read text, set model.preprocessor: {why}")
        return model

    def _records(self, inference: Inference, items: Sequence[Any]) -> Iterator[Record]:
        """A record of each example, in order; that of a bad row has an ``error``."""
        valid = [item for item in items if not isinstance(item, BadRow)]
        predictions: Iterator[Record] = iter(())
        if valid:
            sets = {_SET: ExampleSet(valid, tuple(self.labels), [])}
            task = self.kind(
                self.task.name,
                train=None,
                dev={},
                test=sets,
                labels=self.labels,
                options=self._options,
                embedding=inference.model.sentence_embedding,
            )
            predictions = predict(task, inference, _SET, self._thresholds)
        for item in items:
            if isinstance(item, BadRow):
                words = {"words": tuple(item.words)} if "words" in self.kind.no_prediction else {}
                nothing = {**self.kind.no_prediction, **words}
                yield {**nothing, "id": item.id, "error": item.reason}
            else:
                yield next(predictions)

    def _select_top_classes(self, record: Record) -> Record:
        """A record with the ``top_k`` likeliest classes in place of all probabilities."""
        shares = record.get("probabilities")
        if not shares or self._settings.top_k is None:
            return record
        # A record of columns alone has no numbers.
        ranked = sorted(shares, key=lambda name: -(shares[name] or 0.0))
        values = {name: value for name, value in record.items() if name != "probabilities"}
        values["probability"] = shares[ranked[0]]
        for rank, name in enumerate(ranked[1 : self._settings.top_k], start=2):
            values |= {f"prediction_{rank}": name, f"probability_{rank}": shares[name]}
        return values


def _is_example(data: Any) -> bool:
    """True if data are one example, and no collection of them."""
    has_text = isinstance(data, Mapping) and any(isinstance(value, str) for value in data.values())
    return has_text or isinstance(data, str)


def _task(checkpoint: Checkpoint, max_seq_length: int | None) -> TaskFile:
    """The task of the directory, or one that suits the model; ``max_seq_length`` overrides it."""
    path, model_class = checkpoint.path, checkpoint.model.model_class
    class_name = model_class.__name__
    embeds = checkpoint.sentence_embedding is not None
    kinds = kinds_for_class(model_class, embeds=embeds)
    if checkpoint.unread_head_note:
        raise ValueError(checkpoint.unread_head_note)
    if not kinds:
        raise ValueError(
            f"{path} holds a {class_name}, which predicts for no task: fine-tune it with "
            "python -m bert_tf.finetune, or name a directory that this left."
        )
    positions = checkpoint.config.max_position_embeddings
    task = load_task_file(checkpoint)
    if task is None:
        kind = default_kind(kinds, multi_label=checkpoint.multi_label)
        task = TaskFile(kind.kind, path, default_max_length(checkpoint))
    elif KINDS[task.kind] not in kinds:
        raise ValueError(
            f"{path} was trained for {task.kind} and holds a {class_name}: it is damaged; "
            "fine-tune again."
        )
    if max_seq_length is not None:
        if not 5 <= max_seq_length <= positions:
            raise ValueError(
                f"--max_seq_length={max_seq_length}: expected 5 to {positions}, the positions that "
                f"{path} has embeddings for."
            )
        task = dataclasses.replace(task, max_seq_length=max_seq_length)
    return task


def _thresholds(
    checkpoint: Checkpoint, task: TaskFile, threshold: float | None
) -> Mapping[str, float]:
    """The thresholds that decide: the model's, or the one that is given."""
    if threshold is None:
        return checkpoint.thresholds
    if not math.isfinite(threshold):
        raise ValueError(f"--threshold={threshold}: expected a finite number.")
    kind = KINDS[task.kind]
    if kind.threshold is None:
        supported = [name for name, task_class in KINDS.items() if task_class.threshold]
        raise ValueError(
            f"--threshold={threshold:g} means nothing to {task.kind}: it is for "
            f"{' and '.join(supported)}."
        )
    options = kind.restore_options(task.options, checkpoint.thresholds)
    error = kind.check_threshold(threshold, options, checkpoint.path)
    if error:
        raise ValueError(f"--threshold={threshold:g}: {error}")
    temperature = checkpoint.thresholds.get(TEMPERATURE, 1.0)
    return {TEMPERATURE: temperature, kind.threshold: threshold}
