"""``bert_tf.Predictor``: predictions of a fine-tuned model for data in memory."""

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.load import load, open_checkpoint
from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
from bert_tf.checkpoints.weights import to_checkpoint
from bert_tf.evaluation.evaluation import Inference
from bert_tf.evaluation.prediction_files import Record, with_columns
from bert_tf.features import TEMPERATURE
from bert_tf.io import runtime
from bert_tf.modeling.base import BertModel, default_max_length
from bert_tf.pipelines.tokenized_examples import prediction_length_multiple
from bert_tf.readers.examples import BadRow, ExampleSet
from bert_tf.readers.table_formats import RowOrError, in_memory_tables
from bert_tf.readers.tables import TableFile, read_rows
from bert_tf.tasks.python_data import is_number, parse_rows
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task import predict
from bert_tf.tasks.task_file import TaskFile, default_kind, kinds_for_class, load_task_file
from bert_tf.training.run_directory import is_unfinished

from .inputs import Inputs, read_inputs
from .settings import settings_of_call

#: Name of rows in memory, used in place of a path.
DATA = "<data>"
_SET = "input"
_loading = threading.Lock()


class Predictor:
    """Predicts data in memory with a fine-tuned model, like ``python -m bert_tf.predict``.

    The weights are loaded on the first call. For each example, a call returns a record, a ``dict``
    with ``id`` (the index of the example or its ``id_column``) and these keys:

    | task type       | keys                                                                     |
    |-----------------|--------------------------------------------------------------------------|
    | classification  | ``prediction``: class name; ``probabilities`` by class name, replaced by |
    |                 | ``probability``, ``prediction_2``, ``probability_2``, ... with ``top_k`` |
    | multilabel      | ``prediction``: list of class names; ``probabilities`` by class name     |
    | regression      | ``prediction``: number                                                   |
    | tagging         | ``words``; ``tags`` and their probabilities ``scores``, one per word; or |
    |                 | ``entities`` with ``start``, ``end``, ``label``, ``text`` and ``score``, |
    |                 | for models trained with character spans                                  |
    | multiple_choice | ``prediction``: index of the choice; ``probabilities``                   |
    | similarity      | ``prediction``: cosine similarity of texts 1 and 2; ``third``: cosine    |
    |                 | similarity of texts 1 and 3                                              |
    | squad           | ``prediction``: answer, or ""; ``score``: probability of the answer;     |
    |                 | ``start``, ``end``: character offsets of the answer in the context       |

    Examples without text, and bad rows with ``skip_bad_rows=True``, have the prediction ``None``
    and an error message, ``error``.

    Args:
        model: Model directory of a run, any other checkpoint with a task head that ``bert_tf.load``
            supports, a model with a ``preprocessor``, or the result of ``api.fine_tune``.
        threshold: Threshold to use instead of the model's. For multilabel, the minimum probability
            of a predicted class. For squad, the margin by which the score of no answer ("") must
            exceed the score of the best answer.
        top_k: Number of most probable classes to return instead of all probabilities; for
            classification and multiple choice.
        max_seq_length: Maximum number of tokens per sequence; by default, the limit from training,
            or else from the tokenizer, or else the number of positions.
        batch_size: Batch size.

    Raises:
        ValueError: If the model does not exist or has no task head, or if it does not support an
            argument.

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
        runtime.check_backend()
        settings = settings_of_call(
            threshold=threshold, top_k=top_k, max_seq_length=max_seq_length, batch_size=batch_size
        )
        model = getattr(model, "model", model)  # of the result of api.fine_tune
        self._model = model if isinstance(model, BertModel) else None
        self._checkpoint = (
            open_checkpoint(model) if self._model is None else to_checkpoint(self._model)
        )
        task = _task(self._checkpoint, settings.max_seq_length)
        self.kind = KINDS[task.kind]
        self._thresholds = _thresholds(self._checkpoint, task, settings.threshold)
        self._options = self.kind.restore_options(task.options, self._thresholds)
        self.task = dataclasses.replace(task, options=self.kind.saved_options(self._options))
        # Classes without names are numbered.
        count = self._checkpoint.model.arguments.get("num_classes", 0)
        self.labels = self._checkpoint.labels or tuple(map(str, range(count)))
        self._batch_size, self._top_k = settings.batch_size, settings.top_k
        is_single_label = self.kind.classes == "classes" and not self.kind.multi_label
        if self._top_k is not None and not is_single_label:
            raise ValueError(
                f"--top_k requires a single-label model, got {self.path} for {self.task.kind}. "
                "Remove the flag."
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
        """Predicts one or more examples in memory.

        Args:
            data: One example: a string, or a mapping with string values, such as ``{"question":
                ..., "context": ...}``. Or several examples: a list of strings, tuples of strings,
                lists of words, or mappings; a mapping of columns; a pandas or polars data frame; or
                a ``tf.data.Dataset``. Columns without names get the names in the training data, or
                default names: text; text_a, text_b; words; context, choices; question, context.
            text_columns: Columns to read; by default those of the training data, or the default
                names.
            id_column: Column of the ids; by default that of the training data if it exists.
            skip_bad_rows: Whether bad rows get a record with an ``error`` instead of raising
                ``ValueError``.
            keep_columns: Whether records contain all input columns instead of the ids.

        Returns:
            A record for one example, else a list of records in the same order.

        Raises:
            ValueError: If a row is invalid, a column is missing, or ``data`` is empty.
        """
        rows, texts = self.rows_of(data, text_columns)
        table = TableFile(DATA)
        with in_memory_tables({DATA: rows}):
            inputs = read_inputs(self.task, table, texts, id_column, skip_bad_rows)
            records = self.table_records(table, inputs, keep_columns)
        return records[0] if _is_example(data) else records

    def rows_of(
        self, data: Any, text_columns: Sequence[str] | None = None
    ) -> tuple[list[RowOrError], list[str]]:
        """Converts data in memory to rows; also returns the text columns."""
        columns = text_columns or self.task.columns.get("text_columns")
        data = [data] if _is_example(data) else data
        return parse_rows(data, self.kind, columns, None, "data", is_label=self._is_label)

    def table_records(
        self, table: TableFile, inputs: Inputs, keep_columns: bool
    ) -> list[dict[str, Any]]:
        """Returns the records of a table whose examples are ``inputs``."""
        records = self.records(inputs)
        if keep_columns:
            inputs.check_keeps_columns(table.path)
            records = map(with_columns, read_rows(table), records)
        return [dict(record) for record in records]

    # === Predictions of a file ===

    @property
    def path(self) -> str:
        """Path or name of the model."""
        return self._checkpoint.path

    def is_unfinished(self) -> bool:
        """Returns whether the model belongs to a run in progress."""
        return self._model is None and is_unfinished(self.path)

    def columns(self, inputs: Inputs) -> Record:
        """Returns a record with the keys of all records."""
        items = inputs.valid()
        columns = self._select_top_classes(
            self.kind.record_columns(self.labels, items, self.task.columns, self._options)
        )
        return {**columns, "error": None} if inputs.skipped else columns

    def records(
        self, inputs: Inputs, on_progress: Callable[[int], None] = lambda _: None
    ) -> Iterator[Record]:
        """Yields the record of each row, in order.

        ``on_progress`` receives the number of predicted examples.
        """
        model = self._loaded()
        num_predicted = 0
        tokenizer = model.preprocessor.tokenizer
        inference = Inference(
            model,
            tokenizer,
            self.task.max_seq_length,
            self._batch_size,
            length_multiple=prediction_length_multiple(),
        )
        for items in inputs.chunks():
            yield from map(self._select_top_classes, self._records(inference, items))
            num_predicted += sum(not isinstance(item, BadRow) for item in items)
            on_progress(num_predicted)

    # === Internal ===

    def __getstate__(self) -> dict[str, Any]:
        # The loaded model replaces the checkpoint's tensors, which are read lazily from files.
        checkpoint = dataclasses.replace(self._checkpoint, tensors={})
        return {**vars(self), "_model": self._loaded(), "_checkpoint": checkpoint}

    def _is_label(self, text: str) -> bool:
        """Returns whether a string is a label or a list of labels."""
        if not self.labels:
            return is_number(text)
        separator = self.task.columns.get("label_separator")
        names = text.split(separator) if separator else [text]
        return {name.strip() for name in names} <= {*self.labels}

    def _loaded(self) -> BertModel:
        """Returns the model, which the first call loads."""
        runtime.check_fork()
        with _loading:
            model: BertModel = self._model or load(self._checkpoint)
            self._model = model
        if model.preprocessor is None:
            why = missing_tokenizer_reason(self._checkpoint.notes)
            raise ValueError(f"{self.path} has no tokenizer. Set model.preprocessor: {why}")
        return model

    def _records(self, inference: Inference, items: Sequence[Any]) -> Iterator[Record]:
        """Yields the record of each item, in order; the record of a bad row has an ``error``."""
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
        """Replaces all probabilities with those of the ``top_k`` most probable classes."""
        probabilities = record.get("probabilities")
        if not probabilities or self._top_k is None:
            return record
        # The values are None in the record of ``columns``.
        ranked = sorted(probabilities, key=lambda name: -(probabilities[name] or 0.0))
        values = {name: value for name, value in record.items() if name != "probabilities"}
        values["probability"] = probabilities[ranked[0]]
        for rank, name in enumerate(ranked[1 : self._top_k], start=2):
            values |= {f"prediction_{rank}": name, f"probability_{rank}": probabilities[name]}
        return values


def _is_example(data: Any) -> bool:
    """Returns whether ``data`` is a single example."""
    has_text = isinstance(data, Mapping) and any(isinstance(value, str) for value in data.values())
    return has_text or isinstance(data, str)


def _task(checkpoint: Checkpoint, max_seq_length: int | None) -> TaskFile:
    """Returns the task of the checkpoint, or the default task of the model class."""
    path, model_class = checkpoint.path, checkpoint.model.model_class
    class_name = model_class.__name__
    embeds = checkpoint.sentence_embedding is not None
    kinds = kinds_for_class(model_class, embeds=embeds)
    if checkpoint.unread_head_note:
        raise ValueError(checkpoint.unread_head_note)
    if not kinds:
        raise ValueError(
            f"{path} contains a {class_name}, which has no task head. Fine-tune it with "
            "python -m bert_tf.finetune, or pass a fine-tuned model."
        )
    positions = checkpoint.config.max_position_embeddings
    task = load_task_file(checkpoint)
    if task is None:
        kind = default_kind(kinds, multi_label=checkpoint.multi_label)
        task = TaskFile(kind.kind, path, default_max_length(checkpoint))
    elif KINDS[task.kind] not in kinds:
        raise ValueError(
            f"{path} is damaged: it was trained for {task.kind} but contains a {class_name}. "
            "Fine-tune again."
        )
    if max_seq_length is not None:
        if not 5 <= max_seq_length <= positions:
            raise ValueError(
                f"--max_seq_length={max_seq_length}: expected 5 to {positions}, the number of "
                f"positions of {path}."
            )
        task = dataclasses.replace(task, max_seq_length=max_seq_length)
    return task


def _thresholds(
    checkpoint: Checkpoint, task: TaskFile, threshold: float | None
) -> Mapping[str, float]:
    """Returns the model's thresholds, or the model's temperature and ``threshold``."""
    if threshold is None:
        return checkpoint.thresholds
    if not math.isfinite(threshold):
        raise ValueError(f"--threshold={threshold}: expected a finite number.")
    kind = KINDS[task.kind]
    if kind.threshold is None:
        supported = [name for name, task_class in KINDS.items() if task_class.threshold]
        raise ValueError(
            f"--threshold={threshold:g} is not supported for {task.kind}, only for "
            f"{' and '.join(supported)}."
        )
    options = kind.restore_options(task.options, checkpoint.thresholds)
    error = kind.check_threshold(threshold, options, checkpoint.path)
    if error:
        raise ValueError(f"--threshold={threshold:g}: {error}")
    temperature = checkpoint.thresholds.get(TEMPERATURE, 1.0)
    return {TEMPERATURE: temperature, kind.threshold: threshold}
