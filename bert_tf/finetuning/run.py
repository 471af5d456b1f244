"""A fine-tuning, from its model directory to its results, and how it resumes."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import bert_tf
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.evaluation.calibration import FEW
from bert_tf.files import read_json, write_json
from bert_tf.modeling.base import TEMPERATURE
from bert_tf.paths import HUB_SCHEME
from bert_tf.readers.table_formats import is_given
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.saved_models.options import ExportOptions
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task import TEST
from bert_tf.tasks.task_file import TaskFile, task_of
from bert_tf.training.distribution import open_devices
from bert_tf.training.progress import duration
from bert_tf.untrusted import one_line

from .model import with_usual
from .run_directory import FineTuningDirectory
from .settings import MAY_DIFFER, PATHS, FineTuningSettings, flag_defaults
from .stages import check_inputs, prepare, train, write_outputs
from .sweep import run_sweep, sweep_table
from .training import scores_line

# The settings that every card has; others are there where they are not the default.
_SHOWN = (
    *("max_seq_length", "train_batch_size", "learning_rate", "num_train_epochs"),
    *("warmup_proportion", "optimizer", "precision", "metric", "seed"),
)


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
    settings, sentence = with_usual(settings, directory)
    with contextlib.ExitStack() as stack:
        # A finished run may be on a disk that cannot be written to.
        if not directory.is_finished() or _is_export_left(settings, read_json(directory.results)):
            directory.create()
            stack.enter_context(directory.locked())
        moved = directory.check_settings(settings.to_dict(), MAY_DIFFER, PATHS)
        if directory.is_finished():
            # Rows given in Python have no path by which to tell whether they are the same.
            if moved or any(is_given(str(getattr(settings, name))) for name in PATHS):
                check_inputs(settings, directory, moved)
            print(f"{directory.path} holds this run, finished.\n")
            results = read_json(directory.results)
            if _is_export_left(settings, results):
                export_best(directory, settings.task)
                results["export"] = directory.export
                write_json(directory.results, results)
            show(results, directory)
            return results
        inputs = prepare(settings, directory, moved, strategy, callbacks)
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
        model_card.write(directory.card, card(settings, results, directory.path))
        # Last: that it is there says that everything before is.
        write_json(directory.results, results)
        directory.delete_state()
        print()
        show(results, directory)
        return results


def _is_export_left(settings: FineTuningSettings, results: Mapping[str, Any]) -> bool:
    """True if an export is wanted that the results do not name."""
    return settings.export and not results.get("export")


def card(settings: FineTuningSettings, results: Mapping[str, Any], path: str) -> str:
    """The model card of a run, with only the names of files: paths may say who the user is."""
    start, published = settings.init_checkpoint, f"GLUE {settings.glue}" if settings.glue else None
    is_of_hub = start.startswith(HUB_SCHEME)
    start = start.split("@")[0] if is_of_hub else os.path.basename(start.rstrip("/"))
    paths = {"train": published or settings.train_file, TEST: published or settings.test_file}
    other = published or settings.dev_file or settings.train_file
    files = {name: os.path.basename(str(paths.get(name) or other)) for name in results["rows"]}
    # Of a sweep the results say which of its configurations was the best.
    chosen, defaults = settings.to_dict() | {"metric": results["headline"]}, flag_defaults()
    rows = {
        name: results.get(name, value)
        for name, value in chosen.items()
        if name in _SHOWN or (value != defaults[name] and name not in (*PATHS, *MAY_DIFFER))
    }
    if settings.max_steps:
        del rows["num_train_epochs"]
    name = os.path.basename(os.path.abspath(settings.model_dir))
    checkpoint, version = open_checkpoint(path), bert_tf.__version__
    told = ""
    with contextlib.suppress(ValueError, ImportError):  # the start may be gone by now
        source = open_checkpoint(settings.init_checkpoint)
        told = model_card.differences(source.notes, source.path)
    return model_card.run_card(checkpoint, name, version, start, files, rows, results, told)


def export_options(task: TaskFile | None) -> ExportOptions:
    """Options to serve a model as it was trained; ``None`` if its directory has none."""
    if task is None:
        return ExportOptions()
    known = {field.name for field in dataclasses.fields(ExportOptions)}
    reads_pairs = KINDS[task.kind].num_texts == (1, 2)
    return ExportOptions(
        max_seq_length=task.max_seq_length,
        pair=reads_pairs and len(task.columns.get("text_columns", ())) == 2,
        **{name: value for name, value in task.options.items() if name in known},
    )


def export_best(directory: FineTuningDirectory, name: str) -> None:
    """Exports a run's best weights, as ``name``, in place of an export that a killed run left."""
    print("Exporting.", flush=True)
    remove_export(directory.export)
    checkpoint = open_checkpoint(directory.path)
    model, options = bert_tf.load(checkpoint), export_options(task_of(checkpoint))
    export(model, directory.export, options=options, name=name)


# === What is printed of a finished run ===


def show(results: Mapping[str, Any], directory: FineTuningDirectory) -> None:
    """Prints the results of a finished fine-tuning, and the commands that come next."""
    if "configurations" in results:
        print(sweep_table(results))
        print(f"\nBest: {results['best_run']}, kept in {directory.path}")
    best = results["best"]
    trained = f"{results['steps']:,} steps"
    if results["examples_per_second"]:
        speed = f"{results['examples_per_second']:,.1f} examples/s"
        # Of each process' steps but its first, which compiles the graph.
        trained += f", {duration(results['seconds'])} after the first, {speed}"
    print(f"Trained {trained}; the weights of epoch {best['epoch']:.3g} are kept.")
    for name, scores in results["scores"].items():
        print(f"  {name:<16}{scores_line(results['headline'], scores)}")
    for name, value in results["thresholds"].items():
        if name != TEMPERATURE:
            print(f"  threshold {name}: {value:g}, used for the scores and the predictions")
    for line in calibration_lines(results.get("calibration", {})):
        print(f"  {line}")
    if results["collapsed"]:
        print(
            f"COLLAPSED: {results['collapsed']}. Try another --seed (--restarts=5 tries five), a "
            "lower --learning_rate, or more --num_train_epochs."
        )
    if directory.is_temporary:
        return
    for name, paths in results["files"].items():
        print(f"\n{name}:")
        for path in paths:
            print(f"  {path}")
    logs = directory.runs if "configurations" in results else directory.logs
    print(f"\nResults: {directory.results}")
    exported = results.get("export")
    if exported:
        print(f"SavedModel: {exported}")
    print(f"\nWhat comes next:\n  python -m bert_tf.predict --model={directory.path} --input=FILE")
    if exported:
        print(f"  python -m bert_tf.verify {exported}")
    print(
        f"  tensorboard --logdir {logs}\n"
        f'  python -c "import bert_tf; model = bert_tf.load({directory.path!r})"'
    )
    if exported:
        print(f"Try it in a browser: python -m bert_tf.serve --model={directory.path}")


def calibration_lines(calibration: Mapping[str, Mapping[str, Any]]) -> list[str]:
    r"""Lines on the temperature's effect on each set where it helps: the loss and the bins' error.

    >>> raw, better = ({"expected_calibration_error": e, "loss": e} for e in (0.5, 0.25))
    >>> values = {"temperature": 1.7, "decisions": 900, "raw": raw, "calibrated": better}
    >>> print(*calibration_lines({"dev": values})[0].split("; "), sep="\n")
    temperature 1.7: on dev the probabilities are off by 0.250 on average, without it by 0.500
    the loss is 0.250, without it 0.500
    >>> calibration_lines({"dev": {**values, "raw": {**raw, "expected_calibration_error": 0.2}}})
    []
    """
    lines = []
    for name, values in calibration.items():
        raw, scaled = values["raw"], values["calibrated"]
        if any(scaled[figure] >= raw[figure] for figure in raw):
            continue
        error = "expected_calibration_error"
        is_few = values["decisions"] < FEW
        few = f"; {values['decisions']:,} decisions are few to tell" if is_few else ""
        lines.append(
            f"temperature {values['temperature']:.3g}: on {one_line(name)} the probabilities are "
            f"off by {scaled[error]:.3f} on average, without it by {raw[error]:.3f}; the loss is "
            f"{scaled['loss']:.3f}, without it {raw['loss']:.3f}{few}"
        )
    return lines
