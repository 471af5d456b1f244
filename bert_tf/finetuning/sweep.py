"""Several runs with different hyperparameters, seeds or layers, of which the best is kept."""

import dataclasses
import gc
import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.load import load_with_report
from bert_tf.evaluation.evaluation import Inference
from bert_tf.evaluation.metrics import rank, score_text
from bert_tf.io.files import atomic_write, read_json, write_json
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.keras_hooks import fresh_names
from bert_tf.tasks.task import with_options
from bert_tf.training import saved_states
from bert_tf.training.progress import print_progress
from bert_tf.training.run_directory import FineTuningDirectory

from .settings import MAY_CHANGE, FineTuningSettings
from .summary import VARIED, table_rows
from .training import (
    DivergedError,
    FineTuningInputs,
    TrainingOutcome,
    describe,
    evaluate_all,
    train,
)

# Source: Devlin et al. 2019, appendix A.3.
_PAPER = dict(zip(VARIED, ((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4)), strict=True))
_CONFIGURATION = ("feature_based", *_PAPER)


def plan_runs(settings: FineTuningSettings, folder: str) -> dict[str, FineTuningSettings]:
    """Returns the settings of all runs by name, with directories in ``folder``.

    The seeds of a configuration are consecutive.
    """
    grid: Mapping[str, Sequence[Any]] = _PAPER
    if not settings.sweep:
        grid = {name: (getattr(settings, name),) for name in _PAPER}
    seeds = [(settings.seed + restart) % 2**32 for restart in range(settings.restarts)]
    runs = {}
    for variant, *values, seed in itertools.product(
        settings.variants or (None,), *grid.values(), seeds
    ):
        size, rate, epochs = values
        name = f"batch{size}_rate{rate:g}_epochs{epochs}_seed{seed}"
        name = f"{variant}_{name}" if variant else name
        options = {"feature_based": variant} if variant else {}
        runs[name] = settings.replaced(
            **dict(zip(_PAPER, values, strict=True)),
            **options,
            seed=seed,
            sweep=None,
            restarts=1,
            model_dir=os.path.join(folder, name),
        )
    return runs


def run_sweep(inputs: FineTuningInputs) -> TrainingOutcome:
    """Executes the remaining runs, and moves the best run's weights to the model directory."""
    directory, planned = inputs.directory, plan_runs(inputs.settings, inputs.directory.runs)
    dev_set = str(inputs.task.deciding_set)  # The flag rules require a dev set.
    ended: list[dict[str, Any]] = []
    best_inputs: FineTuningInputs | None = None
    outputs: dict[str, Any] = {}
    for number, (name, run) in enumerate(planned.items(), start=1):
        print_progress(f"\nRun {number} of {len(planned)}: {name}", flush=True)
        run_inputs = _inputs_of(run, inputs)
        run_directory = run_inputs.directory
        run_directory.check_location({})
        run_directory.create()
        run_directory.check_settings(run.to_dict(), MAY_CHANGE)
        # All runs have the same, already checked data and initial weights.
        run_directory.check_inputs(read_json(directory.inputs))
        run_outputs: dict[str, Any] = {}
        if run_directory.is_finished():
            results = read_json(run_directory.results)
        else:
            results, run_outputs = _train_run(run_inputs)
        values = run.to_dict()
        configuration = {key: values.get(key) for key in (*_CONFIGURATION, "seed")}
        ended.append({**results, "name": name, **configuration})
        _print_end(ended[-1], dev_set)
        best = _best(ended, dev_set)
        beaten: FineTuningInputs | None = run_inputs
        if best is ended[-1]:
            beaten, best_inputs, outputs = best_inputs, run_inputs, run_outputs
        saved_states.delete_all(run_directory.states)
        if beaten is not None:
            saved_states.delete_all(beaten.directory.best_weights)
    if best is None or best_inputs is None:
        raise ValueError(
            f"Every run diverged. Last error: {ended[-1]['collapsed']}. Lower --learning_rate, and "
            "use another --model_dir."
        )
    results = {
        **best,
        "best_run": best["name"],
        "dev_set": dev_set,
        "configurations": summarize(ended, dev_set),
        "runs": [{k: v for k, v in run.items() if k != "evaluations"} for run in ended],
    }
    with atomic_write(directory.table) as file:
        file.write("".join("\t".join(row) + "\n" for row in table_rows(results)).encode())
    return _move_best(best_inputs, directory, results, outputs)


def _inputs_of(run: FineTuningSettings, inputs: FineTuningInputs) -> FineTuningInputs:
    """Returns the inputs of a run, with the run's settings, directory and task options."""
    is_temporary = inputs.directory.is_temporary
    directory = FineTuningDirectory(run.model_dir, is_temporary=is_temporary)
    task = with_options(inputs.task, run.options)
    return dataclasses.replace(inputs, settings=run, directory=directory, task=task)


def _train_run(inputs: FineTuningInputs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains one run; returns its results and the outputs of its best weights."""
    outputs: dict[str, Any] = {}
    try:
        with fresh_names():
            outcome = train(inputs)
        results, outputs = outcome.results, outcome.inference.cache or {}
        del outcome
    except DivergedError as error:
        results = {"task": inputs.task.name, "headline": inputs.task.headline}
        results |= {"scores": {}, "collapsed": str(error).split(". Rerun")[0]}
    gc.collect()  # Frees the trained model, which contains reference cycles.
    write_json(inputs.directory.results, results)
    return results, outputs


def _headline(run: dict[str, Any], dev_set: str) -> float | None:
    value: float | None = run["scores"][dev_set][run["headline"]]
    return value


def _best(runs: Sequence[dict[str, Any]], dev_set: str) -> dict[str, Any] | None:
    scored = [run for run in runs if run["scores"]]
    return max(scored, key=lambda run: rank(run["headline"], run["scores"][dev_set]), default=None)


def _print_end(run: dict[str, Any], dev_set: str) -> None:
    score = "no score"
    if run["scores"]:
        scores, headline = run["scores"][dev_set], run["headline"]
        score = f"{headline} {score_text(headline, scores[headline], scores)}"
    collapsed = f"; COLLAPSED: {run['collapsed']}" if run["collapsed"] else ""
    print_progress(f"{run['name']}: {score}{collapsed}", flush=True)


def _move_best(
    inputs: FineTuningInputs,
    directory: FineTuningDirectory,
    results: dict[str, Any],
    outputs: dict[str, Any],
) -> TrainingOutcome:
    """Moves the weights of the best run, whose inputs are ``inputs``; returns the outcome."""
    run_directory, task, settings = inputs.directory, inputs.task, inputs.settings
    # If an earlier process was interrupted after the move, the run's directory has no weights. The
    # model directory may also contain the weights of an earlier best run.
    source = run_directory if saved_states.find_latest(run_directory.best_weights) else directory
    with inputs.devices.strategy.scope():
        model, _ = load_with_report(
            source.path,
            MODEL_CLASSES[task.model],
            max_seq_length=settings.max_seq_length,
            **task.model_arguments,
        )
    describe(dataclasses.replace(inputs, directory=directory), results["thresholds"])
    weights = {f"model/{weight.path}": weight for weight in model.weights}
    if source is run_directory:
        saved_states.delete_all(directory.best_weights)
    saved_states.save(directory.best_weights, results["best"]["step"], weights, {}, keep=1)
    saved_states.delete_all(run_directory.best_weights)
    length, batch_size = settings.max_seq_length, settings.eval_batch_size
    inference = Inference(model, inputs.start.tokenizer, length, batch_size, cache=outputs)
    return TrainingOutcome(task, inference, evaluate_all(task, inference), results)


def summarize(runs: Sequence[dict[str, Any]], dev_set: str) -> list[dict[str, Any]]:
    """Returns the configurations, sorted by decreasing mean of the main metric.

    Each configuration contains the numbers of ``runs``, ``scored`` runs and ``collapsed`` runs; the
    ``mean``, ``std`` (sample standard deviation; ``None`` for one run) and ``best`` value of the
    main metric; the ``best_seed``; and the ``means`` and ``deviations`` of all scores.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(map(run.get, _CONFIGURATION)), []).append(run)
    entries = []
    for configuration, members in groups.items():
        scored = [run for run in members if run["scores"]]
        found = (_headline(run, dev_set) for run in scored)
        values = [value for value in found if value is not None]
        best = _best(members, dev_set)
        # Class scores are undefined if the dev set does not contain the class.
        names = [
            name
            for name in (scored[0]["scores"][dev_set] if scored else ())
            if all(run["scores"][dev_set].get(name) is not None for run in scored)
        ]
        columns = {name: [run["scores"][dev_set][name] for run in scored] for name in names}
        entries.append(
            {
                **dict(zip(_CONFIGURATION, configuration, strict=True)),
                "runs": len(members),
                "scored": len(scored),
                "mean": statistics.fmean(values) if values else None,
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "best": _headline(best, dev_set) if best else None,
                "best_seed": best["seed"] if best else None,
                "collapsed": sum(bool(run["collapsed"]) for run in members),
                "means": {name: statistics.fmean(column) for name, column in columns.items()},
                "deviations": {
                    name: statistics.stdev(column) if len(column) > 1 else None
                    for name, column in columns.items()
                },
            }
        )
    name = runs[0]["headline"]
    scored = [entry for entry in entries if entry["mean"] is not None]
    scored.sort(key=lambda entry: rank(name, {name: entry["mean"]}), reverse=True)
    return scored + [entry for entry in entries if entry["mean"] is None]
