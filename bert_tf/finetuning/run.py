"""Starts or resumes a fine-tuning run."""

import contextlib
import gc
from collections.abc import Mapping, Sequence
from typing import Any

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.io.files import atomic_write, read_json, write_json
from bert_tf.readers.table_formats import is_in_memory
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.tasks.task_file import export_options, load_task_file
from bert_tf.training.distribution import Distribution, open_distribution
from bert_tf.training.precision import is_rewritten, training_in_process
from bert_tf.training.progress import print_progress
from bert_tf.training.run_directory import FineTuningDirectory

from .data import read_splits, read_task
from .model import RunSource, initial_model, with_default_schedule
from .settings import MAY_CHANGE, FineTuningSettings
from .summary import run_card, show, training_summary, write_outputs
from .sweep import run_sweep
from .training import FineTuningInputs, train


def run(
    settings: FineTuningSettings, callbacks: Sequence[Any] = (), *, is_temporary: bool = False
) -> dict[str, Any]:
    """Starts or resumes a fine-tuning run, and prints the results.

    Args:
        settings: Settings of the run.
        callbacks: Keras callbacks.
        is_temporary: Whether the caller deletes the model directory afterwards.

    Returns:
        The contents of ``results.json``.
    """
    jit_compile = settings.jit_compile == "true"
    devices = open_distribution(settings.strategy, settings.precision, jit_compile=jit_compile)
    directory = FineTuningDirectory(settings.model_dir, is_temporary=is_temporary)
    directory.check_location(settings.files)
    source = RunSource(settings.init_checkpoint, directory)
    settings, message = with_default_schedule(settings, source)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            training_in_process(
                num_replicas=devices.strategy.num_replicas_in_sync,
                is_rewritten=is_rewritten(settings.precision, devices.device_type, jit_compile),
            )
        )
        # A finished run may be on a read-only disk.
        if not directory.is_finished() or _is_export_left(settings, read_json(directory.results)):
            directory.create()
            stack.enter_context(directory.locked())
        moved = directory.check_settings(settings.to_dict(), MAY_CHANGE)
        is_finished = directory.is_finished()
        if is_finished:
            # Rows in memory have no path, so their contents are compared.
            if moved or any(is_in_memory(str(path)) for path in settings.files.values()):
                fingerprints = read_splits(settings).fingerprints()
                directory.check_inputs({**fingerprints, **source.fingerprint(moved)})
            print_progress(f"{directory.path} contains this run, which has finished.")
            results = read_json(directory.results)
        else:
            inputs = open_inputs(settings, directory, devices, source, moved, callbacks)
            if message:
                print_progress(message)
            has_runs = settings.sweep or settings.restarts > 1 or settings.variants
            outcome = run_sweep(inputs) if has_runs else train(inputs)
            files = write_outputs(outcome, directory)
            results = {**outcome.results, "files": files, "export": None}
            del outcome  # Frees the model before the export.
        exports = _is_export_left(settings, results)
        if exports:
            export_best(directory, settings.task)
            results["export"] = directory.export
        if not is_finished:
            card = run_card(settings, results, directory.path, source.differences)
            model_card.write(directory.card, card)
        if exports or not is_finished:
            # The results are written last and mark the run as finished.
            write_json(directory.results, results)
            directory.delete_state()
        print_progress()
        show(results, directory)
        return results


def open_inputs(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    devices: Distribution,
    source: RunSource,
    moved: Sequence[str],
    callbacks: Sequence[Any],
) -> FineTuningInputs:
    """Opens the initial model, reads the data, tokenizes the training set and prints notes.

    ``moved`` contains the flags whose paths have changed since the run started.
    """
    start = initial_model(settings, source.checkpoint, resumes=source.is_run)
    task, splits = read_task(settings, start.embedding)
    directory.check_inputs({**splits.fingerprints(), **source.fingerprint(moved)})
    for note in splits.notes:
        print_progress(note)
    if splits.skipped:
        with atomic_write(directory.skipped_rows) as file:
            file.write("".join(f"{message}\n" for message in splits.skipped).encode())
        print_progress(f"Skipped rows: {directory.skipped_rows}")
    examples = task.training_examples(start.tokenizer, settings.max_seq_length)
    print_progress(*training_summary(task, examples, start.tokenizer), sep="\n", flush=True)
    return FineTuningInputs(
        settings, directory, devices, callbacks, task, splits.columns, start, examples
    )


def _is_export_left(settings: FineTuningSettings, results: Mapping[str, Any]) -> bool:
    """Returns whether the export is requested but does not exist yet."""
    return settings.export and not results.get("export")


def export_best(directory: FineTuningDirectory, name: str) -> None:
    """Exports the best weights, and replaces an incomplete export left by a killed process."""
    print_progress("Exporting.", flush=True)
    remove_export(directory.export)
    gc.collect()  # Frees the trained model, which contains reference cycles.
    checkpoint = open_checkpoint(directory.path)
    model, options = bert_tf.load(checkpoint), export_options(load_task_file(checkpoint))
    export(model, directory.export, options=options, name=name)
