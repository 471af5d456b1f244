"""A fine-tuning, from its model directory to its results, and how it resumes."""

from typing import Any

import tensorflow as tf

from bert_tf.files import read_json, write_json
from bert_tf.training import distribution

from .model import device_type
from .results import show
from .run_directory import FineTuningDirectory
from .serving import export_best
from .settings import MAY_DIFFER, FineTuningSettings
from .stages import prepare, train, write_outputs
from .sweep import run_sweep


def run(settings: FineTuningSettings) -> None:
    """Does what is left to do of the fine-tuning that the settings describe; prints its results.

    Raises:
        ValueError: the data, the checkpoint, a flag or the model directory does not fit, or the
            loss is no number.
        KeyboardInterrupt: the run was stopped; its state is saved.
    """
    directory = FineTuningDirectory(settings.model_dir)
    directory.create()
    with directory.locked():
        directory.check_settings(settings.to_dict(), MAY_DIFFER)
        if tf.io.gfile.exists(directory.results):
            print(f"{directory.path} holds this run, finished.\n")
            results = read_json(directory.results)
            if not results.get("export") and _export(settings, directory, results):
                write_json(directory.results, results)
            show(results, directory)
            return
        distribution.set_precision(settings.precision, device_type())
        material = prepare(settings, directory)
        if settings.sweep or settings.restarts > 1 or settings.variants:
            results = run_sweep(settings, directory, material)
        else:
            trained = train(settings, directory, material)
            files = write_outputs(directory, material, trained)
            results = {**trained.results, "files": files}
        results["export"] = None
        _export(settings, directory, results)
        # Last: that it is there says that everything before is.
        write_json(directory.results, results)
        print()
        show(results, directory)


def _export(
    settings: FineTuningSettings, directory: FineTuningDirectory, results: dict[str, Any]
) -> bool:
    """Exports where that is wanted and there is something to export; says so in the results."""
    # A tagger on frozen features has no signatures.
    if not settings.export or settings.variants:
        return False
    print("Exporting.", flush=True)
    export_best(directory, settings.task)
    results["export"] = directory.export
    return True
