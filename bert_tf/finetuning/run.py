"""A fine-tuning, from its model directory to its results, and how it resumes."""

import contextlib
import gc
from collections.abc import Mapping, Sequence
from typing import Any

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.files import read_json, write_json
from bert_tf.readers.table_formats import is_given
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.tasks.task_file import export_options, task_of
from bert_tf.training.distribution import device_type, open_devices
from bert_tf.training.precision import is_rewritten
from bert_tf.training.process import training_in_process
from bert_tf.training.progress import print_progress

from .data import read_splits
from .model import Origin, with_usual
from .run_card import run_card
from .run_directory import FineTuningDirectory
from .settings import MAY_DIFFER, PATHS, FineTuningSettings
from .stages import FineTuningInputs, prepare, train, write_outputs
from .summary import show
from .sweep import run_sweep


def run(
    settings: FineTuningSettings, callbacks: Sequence[Any] = (), *, is_temporary: bool = False
) -> dict[str, Any]:
    """Does what is left to do of the fine-tuning that the settings describe; prints its results.

    ``callbacks`` are Keras'; ``is_temporary``: the model directory is gone after it. Returned are
    the results, as ``results.json`` has them.
    """
    jit_compile = settings.jit_compile == "true"
    strategy = open_devices(settings.strategy, settings.precision, jit_compile=jit_compile)
    directory = FineTuningDirectory(settings.model_dir, is_temporary=is_temporary)
    directory.check_place({f"--{name}": getattr(settings, name) for name in sorted(PATHS)})
    origin = Origin(settings.init_checkpoint, directory)
    settings, sentence = with_usual(settings, origin)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            training_in_process(
                num_replicas=strategy.num_replicas_in_sync,
                is_rewritten=is_rewritten(settings.precision, device_type(), jit_compile),
            )
        )
        # A finished run may be on a disk that cannot be written to.
        if not directory.is_finished() or _is_export_left(settings, read_json(directory.results)):
            directory.create()
            stack.enter_context(directory.locked())
        moved = directory.check_settings(settings.to_dict(), MAY_DIFFER, PATHS)
        if directory.is_finished():
            # Rows given in Python have no path by which to tell whether they are the same.
            if moved or any(is_given(str(getattr(settings, name))) for name in PATHS):
                of_data = read_splits(settings).fingerprints()
                directory.check_inputs({**of_data, **origin.fingerprint(moved)})
            print_progress(f"{directory.path} holds this run, finished.\n")
            results = read_json(directory.results)
            if _is_export_left(settings, results):
                export_best(directory, settings.task)
                results["export"] = directory.export
                write_json(directory.results, results)
            show(results, directory)
            return results
        inputs = prepare(settings, directory, origin, moved, strategy, callbacks)
        if sentence:
            print_progress(sentence)
        if settings.sweep or settings.restarts > 1 or settings.variants:
            results = run_sweep(directory, inputs)
        else:
            results = _train_once(directory, inputs)
        results["export"] = None
        if _is_export_left(settings, results):
            export_best(directory, settings.task)
            results["export"] = directory.export
        model_card.write(directory.card, run_card(settings, results, directory.path))
        # Last: that it is there says that everything before is.
        write_json(directory.results, results)
        directory.delete_state()
        print_progress()
        show(results, directory)
        return results


def _train_once(directory: FineTuningDirectory, inputs: FineTuningInputs) -> dict[str, Any]:
    """Trains, and writes what people look at; the model is not kept."""
    outcome = train(directory, inputs)
    return {**outcome.results, "files": write_outputs(directory, inputs, outcome)}


def _is_export_left(settings: FineTuningSettings, results: Mapping[str, Any]) -> bool:
    """True if an export is wanted that the results do not name."""
    return settings.export and not results.get("export")


def export_best(directory: FineTuningDirectory, name: str) -> None:
    """Exports a run's best weights, as ``name``, in place of an export that a killed run left."""
    print_progress("Exporting.", flush=True)
    remove_export(directory.export)
    gc.collect()  # the trained model, which refers to itself
    checkpoint = open_checkpoint(directory.path)
    model, options = bert_tf.load(checkpoint), export_options(task_of(checkpoint))
    export(model, directory.export, options=options, name=name)
