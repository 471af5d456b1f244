"""A fine-tuning, from its model directory to its results, and how it resumes."""

import contextlib
from collections.abc import Mapping
from typing import Any

from bert_tf.files import read_json, write_json
from bert_tf.training import distribution

from .model import device_type
from .results import show
from .run_directory import FineTuningDirectory
from .serving import export_best
from .settings import MAY_DIFFER, PATHS, FineTuningSettings, flag_defaults
from .stages import check_inputs, prepare, train, write_outputs
from .sweep import run_sweep


def run(settings: FineTuningSettings) -> None:
    """Does what is left to do of the fine-tuning that the settings describe; prints its results.

    Raises:
        ValueError: the data, the checkpoint, a flag or the model directory does not fit, or the
            loss is no number.
        KeyboardInterrupt: the run was stopped; its state is saved.
    """
    distribution.check_one_worker()
    directory = FineTuningDirectory(settings.model_dir)
    directory.check_place({f"--{name}": getattr(settings, name) for name in sorted(PATHS)})
    with contextlib.ExitStack() as stack:
        # A finished run may be on a disk that cannot be written to.
        if not directory.is_finished() or _is_export_left(settings, read_json(directory.results)):
            directory.create()
            stack.enter_context(directory.locked())
        moved = directory.check_settings(settings.to_dict(), MAY_DIFFER, PATHS, flag_defaults())
        if directory.is_finished():
            if moved:
                check_inputs(settings, directory, moved)
            print(f"{directory.path} holds this run, finished.\n")
            results = read_json(directory.results)
            if _is_export_left(settings, results):
                _export(settings, directory, results)
                write_json(directory.results, results)
            show(results, directory)
            return
        distribution.set_precision(settings.precision, device_type())
        material = prepare(settings, directory, moved)
        if settings.sweep or settings.restarts > 1 or settings.variants:
            results = run_sweep(settings, directory, material)
        else:
            trained = train(settings, directory, material)
            files = write_outputs(directory, material, trained)
            results = {**trained.results, "files": files}
        results["export"] = None
        if _is_export_left(settings, results):
            _export(settings, directory, results)
        # Last: that it is there says that everything before is.
        write_json(directory.results, results)
        directory.delete_state()
        print()
        show(results, directory)


def _is_export_left(settings: FineTuningSettings, results: Mapping[str, Any]) -> bool:
    """Whether an export is wanted that the results do not name."""
    # A tagger on frozen features has no signatures.
    return settings.export and not settings.variants and not results.get("export")


def _export(
    settings: FineTuningSettings, directory: FineTuningDirectory, results: dict[str, Any]
) -> None:
    """Exports, and says so in the results."""
    print("Exporting.", flush=True)
    export_best(directory, settings.task)
    results["export"] = directory.export
