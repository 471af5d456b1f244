"""A fine-tuning, from its model directory to its results, and how it resumes."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.files import read_json, write_json
from bert_tf.readers.table_formats import is_given
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.tasks.task_file import export_options, task_of
from bert_tf.training.distribution import open_devices

from .data import read_splits
from .model import open_origin, with_usual
from .run_card import run_card
from .run_directory import FineTuningDirectory
from .settings import MAY_DIFFER, PATHS, FineTuningSettings
from .stages import prepare, train, write_outputs
from .summary import show
from .sweep import run_sweep


def run(
    settings: FineTuningSettings, callbacks: Sequence[Any] = (), *, is_temporary: bool = False
) -> dict[str, Any]:
    """Does what is left to do of the fine-tuning that the settings describe; prints its results.

    ``callbacks`` are Keras'; ``is_temporary``: the model directory is gone after it. Returned are
    the results, as ``results.json`` has them.
    """
    strategy = open_devices(
        settings.strategy, settings.precision, jit_compile=settings.jit_compile == "true"
    )
    directory = FineTuningDirectory(settings.model_dir, is_temporary=is_temporary)
    directory.check_place({f"--{name}": getattr(settings, name) for name in sorted(PATHS)})
    origin = open_origin(settings, directory)
    settings, sentence = with_usual(settings, origin.config)
    with contextlib.ExitStack() as stack:
        # A finished run may be on a disk that cannot be written to.
        if not directory.is_finished() or _is_export_left(settings, read_json(directory.results)):
            directory.create()
            stack.enter_context(directory.locked())
        moved = directory.check_settings(settings.to_dict(), MAY_DIFFER, PATHS)
        identity = _identity(settings, origin, directory, moved)
        if directory.is_finished():
            # Rows given in Python have no path by which to tell whether they are the same.
            if moved or any(is_given(str(getattr(settings, name))) for name in PATHS):
                directory.check_inputs({**read_splits(settings).fingerprints(), **identity})
            print(f"{directory.path} holds this run, finished.\n")
            results = read_json(directory.results)
            if _is_export_left(settings, results):
                export_best(directory, settings.task)
                results["export"] = directory.export
                write_json(directory.results, results)
            show(results, directory)
            return results
        inputs = prepare(
            settings, directory, origin, strategy, identity=identity, callbacks=callbacks
        )
        if sentence:
            print(sentence)
        if settings.sweep or settings.restarts > 1 or settings.variants:
            results = run_sweep(directory, inputs)
        else:
            outcome = train(directory, inputs)
            results = {**outcome.results, "files": write_outputs(directory, inputs, outcome)}
        results["export"] = None
        if _is_export_left(settings, results):
            export_best(directory, settings.task)
            results["export"] = directory.export
        model_card.write(directory.card, run_card(settings, results, directory.path))
        # Last: that it is there says that everything before is.
        write_json(directory.results, results)
        directory.delete_state()
        print()
        show(results, directory)
        return results


def _identity(
    settings: FineTuningSettings,
    origin: Checkpoint,
    directory: FineTuningDirectory,
    moved: Sequence[str],
) -> dict[str, str]:
    """The fingerprint of what ``--init_checkpoint`` names, by the flag; {} where that may be gone.

    A run that goes on has weights of its own: it is opened where the flag has come to name another
    place, and is to be what it was.
    """
    if origin.path == directory.path:
        if "init_checkpoint" not in moved:
            return {}
        origin = open_checkpoint(settings.init_checkpoint)
    return {"--init_checkpoint": origin.fingerprint()}


def _is_export_left(settings: FineTuningSettings, results: Mapping[str, Any]) -> bool:
    """True if an export is wanted that the results do not name."""
    return settings.export and not results.get("export")


def export_best(directory: FineTuningDirectory, name: str) -> None:
    """Exports a run's best weights, as ``name``, in place of an export that a killed run left."""
    print("Exporting.", flush=True)
    remove_export(directory.export)
    checkpoint = open_checkpoint(directory.path)
    model, options = bert_tf.load(checkpoint), export_options(task_of(checkpoint))
    export(model, directory.export, options=options, name=name)
