"""Several runs of one task: the paper's grid, other seeds; a table of them, and the best kept."""

import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.files import read_json, replace_whole, write_json
from bert_tf.interchange.load import load_with_report
from bert_tf.tasks.metrics import rank
from bert_tf.training import checkpoints

from .model import forget_models
from .results import layer_table, score, table_rows
from .run_directory import FineTuningDirectory
from .settings import MAY_DIFFER, PATHS, FineTuningSettings, flag_defaults
from .stages import (
    Material,
    Trained,
    describe,
    evaluate_all,
    inference_of,
    train,
    write_outputs,
)
from .tagging import FeatureTaggingTask
from .training import DivergedError

# Source: Devlin et al. 2019, appendix A.3.
_PAPER = {
    "train_batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "num_train_epochs": (2, 3, 4),
}
_CONFIGURATION = ("feature_based", *_PAPER)


def plan_runs(settings: FineTuningSettings) -> list[tuple[str, FineTuningSettings]]:
    """The runs of a sweep and of restarts: each one's name and settings.

    The seeds of one configuration follow each other. What is held out is drawn by the first seed
    for all of them.
    """
    own = {name: getattr(settings, name) for name in _CONFIGURATION}
    tried: Sequence[Mapping[str, Any]] = settings.tried or [{}]
    if settings.sweep:
        tried = [dict(zip(_PAPER, v, strict=True)) for v in itertools.product(*_PAPER.values())]
    runs = []
    for variant, values in itertools.product(settings.variants or (None,), tried):
        chosen = {**own, "feature_based": variant, **values}
        chosen["num_train_epochs"] = int(chosen["num_train_epochs"])
        size, rate, epochs = (chosen[name] for name in _PAPER)
        others = "".join(f"_{name}{chosen[name]}" for name in values if name not in own)
        for restart in range(settings.restarts):
            seed = (settings.seed + restart) % 2**32
            name = f"batch{size}_rate{rate:g}_epochs{epochs}{others}_seed{seed}"
            name = f"{variant}_{name}" if variant else name
            run = dataclasses.replace(
                settings,
                **chosen,
                seed=seed,
                sweep=None,
                grid=None,
                trials=None,
                max_search_hours=None,
                restarts=1,
                model_dir=os.path.join(FineTuningDirectory(settings.model_dir).runs, name),
            )
            runs.append((name, run))
    return runs


def run_sweep(
    settings: FineTuningSettings, directory: FineTuningDirectory, material: Material
) -> dict[str, Any]:
    """Makes the runs that are left, and puts the best one's files into the directory itself.

    The runs share what was read and tokenised. The weights of all but the best so far are deleted
    as soon as a run has ended. Runs that have ended are not repeated.
    """
    planned = plan_runs(settings)
    dev_set = str(material.task.deciding_set)  # a sweep without one is refused with its flags
    ended: list[dict[str, Any]] = []
    best: dict[str, Any] | None = None
    outputs_of_best: dict[str, Any] = {}
    others = [name for name in (settings.tried or [{}])[0] if name not in _CONFIGURATION]
    began = time.monotonic()
    for number, (name, run_settings) in enumerate(planned, start=1):
        hours = (time.monotonic() - began) / 3600
        if ended and settings.max_search_hours and hours >= settings.max_search_hours:
            left = len(planned) - len(ended)
            print(f"\n--max_search_hours={settings.max_search_hours:g}: {left} runs are not made.")
            break
        print(f"\nRun {number} of {len(planned)}: {name}", flush=True)
        run_directory = FineTuningDirectory(
            run_settings.model_dir, is_temporary=directory.is_temporary
        )
        run_directory.check_place({})
        run_directory.create()
        run_directory.check_settings(run_settings.to_dict(), MAY_DIFFER, PATHS, flag_defaults())
        # The same data and the same start for all, and found to be those by now.
        run_directory.check_inputs(read_json(directory.inputs))
        shared = _material_of(run_settings, material)
        results, outputs = _finish_run(run_settings, run_directory, shared)
        configuration = {
            key: getattr(run_settings, key) for key in (*_CONFIGURATION, *others, "seed")
        }
        ended.append({**results, "name": name, **configuration})
        _say(ended[-1], dev_set)
        best = _best(ended, dev_set)
        if best is ended[-1]:
            outputs_of_best = outputs
        _delete_weights_but_of(best, ended, directory)
    if best is None:
        raise ValueError(
            f"Every run diverged; the last: {ended[-1]['collapsed']}. Lower --learning_rate and "
            "name another --model_dir."
        )
    results = {
        **best,
        "best_run": best["name"],
        "dev_set": dev_set,
        "grid": others,
        "configurations": summarise(ended, dev_set, others),
        "runs": [{k: v for k, v in run.items() if k != "evaluations"} for run in ended],
    }
    with replace_whole(directory.table) as file:
        file.write("".join("\t".join(row) + "\n" for row in table_rows(results)).encode())
    if settings.variants:
        with replace_whole(directory.layer_table) as file:
            file.write(f"{layer_table(results)}\n".encode())
    best_settings = dict(planned)[best["name"]]
    best_material = _material_of(best_settings, material)
    results["files"] = _put_in_place(best_settings, directory, best_material, best, outputs_of_best)
    return results


def _material_of(settings: FineTuningSettings, material: Material) -> Material:
    """A run's own material, where its task is not that of all."""
    if not isinstance(material.task, FeatureTaggingTask):
        return material
    (variant,) = settings.variants
    return dataclasses.replace(material, task=material.task.reading(variant))


def _finish_run(
    settings: FineTuningSettings, directory: FineTuningDirectory, material: Material
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's results, and what its best weights gave for the sets, where that was computed now."""
    outputs: dict[str, Any] = {}
    if tf.io.gfile.exists(directory.results):
        return read_json(directory.results), outputs
    forget_models()
    try:
        trained = train(settings, directory, material)
        results, outputs = trained.results, trained.inference.kept or {}
    except DivergedError as error:
        results = {"task": material.task.name, "headline": material.task.headline}
        results |= {"scores": {}, "collapsed": str(error).split(":")[0]}
    write_json(directory.results, results)
    return results, outputs


def _headline(run: dict[str, Any], dev_set: str) -> float:
    value: float = run["scores"][dev_set][run["headline"]]
    return value


def _best(runs: Sequence[dict[str, Any]], dev_set: str) -> dict[str, Any] | None:
    scored = [run for run in runs if run["scores"]]
    return max(scored, key=lambda run: rank(run["headline"], _headline(run, dev_set)), default=None)


def _say(run: dict[str, Any], dev_set: str) -> None:
    shown = "no score"
    if run["scores"]:
        scores, headline = run["scores"][dev_set], run["headline"]
        shown = f"{headline} {score(headline, scores[headline], scores)}"
    collapsed = f"; COLLAPSED: {run['collapsed']}" if run["collapsed"] else ""
    print(f"{run['name']}: {shown}{collapsed}", flush=True)


def _delete_weights_but_of(
    best: dict[str, Any] | None, runs: Sequence[dict[str, Any]], directory: FineTuningDirectory
) -> None:
    for run in runs:
        folder = FineTuningDirectory(os.path.join(directory.runs, run["name"]))
        paths = [folder.last]
        if best is None or run["name"] != best["name"]:
            paths.append(folder.checkpoints)
        for path in paths:
            checkpoints.delete_all(path)


def _put_in_place(
    settings: FineTuningSettings,
    directory: FineTuningDirectory,
    material: Material,
    best: dict[str, Any],
    outputs: Mapping[str, Any],
) -> dict[str, list[str]]:
    run_directory = FineTuningDirectory(settings.model_dir)
    # An earlier process may have been stopped when the weights had moved here already.
    there = directory if checkpoints.find_latest(directory.checkpoints) else run_directory
    with material.strategy.scope():
        model, _ = load_with_report(
            there.path,
            material.task.model_class,
            max_seq_length=settings.max_seq_length,
            **material.task.model_arguments,
        )
    describe(settings, directory, material, best["thresholds"])
    weights = {f"model/{weight.path}": weight for weight in model.weights}
    checkpoints.save(directory.checkpoints, best["best"]["step"], weights, {}, keep=1)
    checkpoints.delete_all(run_directory.checkpoints)
    inference = inference_of(settings, material, model, outputs)
    trained = Trained(inference, evaluate_all(material.task, inference), best)
    return write_outputs(directory, material, trained)


def summarise(
    runs: Sequence[dict[str, Any]], dev_set: str, others: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """A sweep's configurations, the one of the best mean first.

    Each has the number of ``runs``; ``mean``, ``std`` (of the sample, n - 1; ``None`` for one run)
    and ``best`` of the headline over the runs that have a score, with the ``best_seed``; how many
    runs ``collapsed``; ``means`` of every score.
    """
    keys = (*_CONFIGURATION, *others)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(map(run.get, keys)), []).append(run)
    entries = []
    for configuration, members in groups.items():
        scored = [run for run in members if run["scores"]]
        values = [_headline(run, dev_set) for run in scored]
        best = _best(members, dev_set)
        # A run that an earlier version finished may have fewer.
        names = [
            name
            for name in (scored[0]["scores"][dev_set] if scored else ())
            if all(name in run["scores"][dev_set] for run in scored)
        ]
        entries.append(
            {
                **dict(zip(keys, configuration, strict=True)),
                "runs": len(members),
                "mean": statistics.fmean(values) if values else None,
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "best": _headline(best, dev_set) if best else None,
                "best_seed": best["seed"] if best else None,
                "collapsed": sum(bool(run["collapsed"]) for run in members),
                "means": {
                    name: statistics.fmean(run["scores"][dev_set][name] for run in scored)
                    for name in names
                },
            }
        )
    name = runs[0]["headline"]
    entries.sort(key=lambda entry: (entry["mean"] is None, -rank(name, entry["mean"] or 0.0)))
    return entries
