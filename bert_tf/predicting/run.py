"""Predictions of a fine-tuned model for a file."""

import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from bert_tf.evaluation.prediction_files import check_words, text_stream, write_records
from bert_tf.io import paths
from bert_tf.io.files import atomic_write
from bert_tf.io.messages import EscapedStream
from bert_tf.pipelines.corpora.corpus import format_count
from bert_tf.readers.tables import TABLE_FORMATS, TableFile, check_delimiter, read_rows
from bert_tf.training.distribution import open_devices
from bert_tf.training.progress import Progress, print_progress, progress_to

from .inputs import Inputs, read_inputs
from .predictor import Predictor
from .settings import STANDARD_INPUT, PredictionSettings

# Name of standard input in messages.
_STANDARD_INPUT_NAME = "standard input"
_MAX_PRINTED_ROWS = 5


def run(settings: PredictionSettings) -> None:
    """Runs ``python -m bert_tf.predict`` with its flags."""
    with open_devices(settings.strategy, settings.precision).scope():
        predict_file(settings, open_predictor(settings.model, settings))


def open_predictor(model: Any, settings: PredictionSettings) -> Predictor:
    """Creates a predictor with the settings of the flags."""
    return Predictor(
        model,
        threshold=settings.threshold,
        top_k=settings.top_k,
        max_seq_length=settings.max_seq_length,
        batch_size=settings.batch_size,
    )


def predict_rows(settings: PredictionSettings, predictor: Predictor) -> list[dict[str, Any]]:
    """Returns the records that ``predict_file`` would write."""
    with _input_table(settings) as table:
        inputs = _read_inputs(predictor, table, settings)
        return predictor.table_records(table, inputs, settings.keep_columns)


def predict_file(settings: PredictionSettings, predictor: Predictor) -> None:
    """Predicts a file and writes one record per row, in the same order.

    The records of bad rows and of rows without text contain an error message. The file is checked
    before the model is loaded. Without ``output``, the records are written to standard output, and
    progress is printed to standard error.
    """
    output, suffix = settings.output, _suffix(predictor, settings)
    progress_stream = contextlib.nullcontext() if output else progress_to(sys.stderr)
    with progress_stream, _input_table(settings) as table:
        if predictor.is_unfinished():
            print_progress(
                f"{predictor.path} is an unfinished run; its best weights so far are used. "
                "Rerun its command to resume it."
            )
        output_suffix = suffix if settings.keep_columns else None
        inputs = _read_inputs(predictor, table, settings, output_suffix)
        rows = None
        if settings.keep_columns:
            inputs.check_keeps_columns(table.path, suffix)
            rows = functools.partial(read_rows, table)
        where = f"--output={output}" if output else "The tab-separated output"
        words_to_write = predictor.kind.words_to_write
        for source, words in words_to_write(predictor.labels, inputs.valid()):
            check_words(suffix, words, f"{where}, {source}")
        progress = Progress("Predicting", inputs.count, "examples")
        records = predictor.records(inputs, progress.update)
        with _open_output(output, sys.stdout) as file:
            write_records(file, records, suffix, predictor.columns(inputs), rows)
            progress.close()
        if not (inputs.count or inputs.skipped):
            print_progress(f"{table.path} has no rows.")
        if inputs.skipped:
            print_progress(f"No prediction for {format_count(len(inputs.skipped), 'bad row')}:")
            for message in inputs.skipped[:_MAX_PRINTED_ROWS]:
                print_progress(f"  {message}")
            if len(inputs.skipped) > _MAX_PRINTED_ROWS:
                print_progress(f"  and {len(inputs.skipped) - _MAX_PRINTED_ROWS:,} more")
        if output is not None:
            print_progress(f"Predictions: {output}")


@contextlib.contextmanager
def _input_table(settings: PredictionSettings) -> Iterator[TableFile]:
    """Yields the ``--input`` table; copies standard input, because tables are read twice."""
    suffix = settings.input_format and f".{settings.input_format}"
    options = settings.encoding, check_delimiter(settings.delimiter), suffix
    if settings.input != STANDARD_INPUT:
        yield TableFile(settings.input, *options)
        return
    if suffix is None:
        raise ValueError(
            f"--input=- requires --input_format. Pass one of {', '.join(TABLE_FORMATS)}."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "copy")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with paths.named_file(_STANDARD_INPUT_NAME, path):
            yield TableFile(_STANDARD_INPUT_NAME, *options)


def _read_inputs(
    predictor: Predictor,
    table: TableFile,
    settings: PredictionSettings,
    output_suffix: str | None = None,
) -> Inputs:
    columns, id_column, skip = settings.text_columns, settings.id_column, settings.skip_bad_rows
    return read_inputs(predictor.task, table, columns, id_column, skip, output_suffix)


def _suffix(predictor: Predictor, settings: PredictionSettings) -> str:
    """Returns the suffix of the output file; ``.tsv`` for standard output."""
    output, input = settings.output, settings.input
    if output is None:
        return ".tsv"
    if input != STANDARD_INPUT and os.path.realpath(output) == os.path.realpath(input):
        raise ValueError(f"--output={output} is also the --input. Use another path.")
    suffix = os.path.splitext(output)[1].lower()
    expected = predictor.kind.output_suffixes
    if suffix not in expected:
        raise ValueError(
            f"--output={output}: expected the suffix {' or '.join(expected)} for "
            f"{predictor.kind.kind}."
        )
    return suffix


@contextlib.contextmanager
def _open_output(output: str | None, standard_output: Any) -> Iterator[Any]:
    if output is not None:
        with atomic_write(output) as file:
            yield text_stream(file)
    elif standard_output.isatty():
        # The terminal must not interpret control codes in texts.
        yield EscapedStream(standard_output)
    else:
        yield text_stream(standard_output.buffer)
        standard_output.buffer.flush()
