"""Several runs of one task: a grid, other seeds, folds; a table of them, and the best kept."""

import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.files import read_json, replace_whole, write_json
from bert_tf.interchange.load import load_with_report
from bert_tf.metrics.formulas import rank
from bert_tf.results.run_directory import FineTuningDirectory
from bert_tf.results.summary import layer_table, score, table_rows
from bert_tf.training import checkpoints

from .data import fold_of, make_task, training_options
from .model import RATES, forget_models, with_rates
from .settings import MAY_DIFFER, PATHS, FineTuningSettings
from .stages import (
    Material,
    Trained,
    describe,
    evaluate_all,
    inference_of,
    train,
    write_outputs,
)
from .training import DivergedError

# Source: Devlin et al. 2019, appendix A.3.
_PAPER = {
    "train_batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "num_train_epochs": (2, 3, 4),
}
_CONFIGURATION = ("feature_based", *_PAPER)
# What runs may vary that is of the task or of its model, and not of the training alone.
_OF_TASK = (
    *("feature_based", *RATES, "classifier_dropout", "label_smoothing"),
    *("distillation_weight", "distillation_temperature"),
)


class Run(NamedTuple):
    """A run to make: its name, its settings, and the fold, from 0, that it is evaluated on."""

    name: str
    settings: FineTuningSettings
    fold: int | None = None


def plan_runs(settings: FineTuningSettings) -> list[Run]:
    """The runs of a sweep, of restarts and of folds: a configuration's seeds and folds in a row."""
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
        folds = range(settings.folds) if settings.folds else [None]
        for restart, fold in itertools.product(range(settings.restarts), folds):
            seed = (settings.seed + restart) % 2**32
            name = f"batch{size}_rate{rate:g}_epochs{epochs}{others}_seed{seed}"
            name += "" if fold is None else f"_fold{fold + 1}"
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
            runs.append(Run(name, run, fold))
    return runs


def run_sweep(
    settings: FineTuningSettings, directory: FineTuningDirectory, material: Material
) -> dict[str, Any]:
    """Makes the runs that are left, and puts the best one's files into the directory itself."""
    planned = plan_runs(settings)
    dev_set = str(material.task.deciding_set)  # a sweep without one is refused with its flags
    ended: list[dict[str, Any]] = []
    best: dict[str, Any] | None = None
    outputs: dict[str, Any] = {}
    others = [name for name in (settings.tried or [{}])[0] if name not in _CONFIGURATION]
    began = time.monotonic()
    for number, planned_run in enumerate(planned, start=1):
        name, run_settings, _ = planned_run
        run_directory = FineTuningDirectory(
            run_settings.model_dir, is_temporary=directory.is_temporary
        )
        has_ended = tf.io.gfile.exists(run_directory.results)
        hours = (time.monotonic() - began) / 3600
        if ended and not has_ended and 0 < (settings.max_search_hours or 0) <= hours:
            left = len(planned) - len(ended)
            print(f"\n--max_search_hours={settings.max_search_hours:g}: {left} runs are not made.")
            break
        print(f"\nRun {number} of {len(planned)}: {name}", flush=True)
        run_directory.check_place({})
        run_directory.create()
        run_directory.check_settings(run_settings.to_dict(), MAY_DIFFER, PATHS)
        # The same data and the same start for all, and found to be those by now.
        run_directory.check_inputs(read_json(directory.inputs))
        if has_ended:
            results = read_json(run_directory.results)
        else:
            own = _material_of(planned_run, settings, material)
            results, outputs[name] = _make_run(run_settings, run_directory, own)
        configuration = {
            key: getattr(run_settings, key) for key in (*_CONFIGURATION, *others, "seed")
        }
        ended.append({**results, "name": name, **configuration})
        _say(ended[-1], dev_set)
        kept = _kept(ended, dev_set, others, folds=bool(settings.folds))
        best = kept[0] if kept else None
        _delete_weights_but_of(kept, ended, directory)
        outputs = {run["name"]: outputs[run["name"]] for run in kept if run["name"] in outputs}
    if best is None:
        raise ValueError(
            f"Every run diverged; the last: {ended[-1]['collapsed']}. Lower --learning_rate and "
            "name another --model_dir."
        )
    # Of folds the last configuration's may be kept until then.
    _delete_weights_but_of([best], ended, directory)
    results = {
        **best,
        "best_run": best["name"],
        "dev_set": dev_set,
        "grid": others,
        "configurations": summarise(ended, dev_set, others),
        "runs": [{k: v for k, v in run.items() if k != "evaluations"} for run in ended],
    }
    if settings.folds:
        results["folds"] = settings.folds
    with replace_whole(directory.table) as file:
        file.write("".join("\t".join(row) + "\n" for row in table_rows(results)).encode())
    if settings.variants:
        with replace_whole(directory.layer_table) as file:
            file.write(f"{layer_table(results)}\n".encode())
    (best_run,) = (run for run in planned if run.name == best["name"])
    own = _material_of(best_run, settings, material)
    found = outputs.get(best_run.name, {})
    results["files"] = _put_in_place(best_run.settings, directory, own, best, found)
    return results


def _material_of(run: Run, settings: FineTuningSettings, material: Material) -> Material:
    """A run's own material, where its task or its start is not that of all."""
    one, task = run.settings, material.task
    changed = any(getattr(one, name) != getattr(settings, name) for name in _OF_TASK)
    if not run.fold and not changed:  # the first fold is that of all
        return material
    examples, start = material.examples, material.start
    if run.fold:
        task = make_task(one, fold_of(material.sets, settings, run.fold), start.embedding)
        examples = task.training_examples(start.tokenizer, one.max_seq_length)
    else:
        task = task.asked(training_options(one))
    start = start._replace(config=with_rates(start.config, one))
    return dataclasses.replace(material, task=task, examples=examples, start=start)


def _make_run(
    settings: FineTuningSettings, directory: FineTuningDirectory, material: Material
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains; gives a run's results, and what its best weights gave for the sets."""
    outputs: dict[str, Any] = {}
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


def _kept(
    runs: Sequence[dict[str, Any]], dev_set: str, others: Sequence[str], *, folds: bool
) -> list[dict[str, Any]]:
    """The runs whose weights are kept so far, the best first: with folds, too, one that may be it.

    The score of one fold says little next to that of another: the best is a configuration, the one
    with the best mean, and of its runs the first is kept.
    """
    if not folds:
        best = _best(runs, dev_set)
        return [best] if best else []
    firsts, ranks = [], []
    for members in _by_configuration(runs, others).values():
        scored = [run for run in members if run["scores"]]
        if scored:
            mean = statistics.fmean(_headline(run, dev_set) for run in scored)
            firsts.append(scored[0])
            ranks.append((len(scored), rank(scored[0]["headline"], mean)))
    if not firsts:
        return []
    best = firsts[ranks.index(max(ranks))]
    return [best, *(run for run in firsts[-1:] if run is not best)]


def _by_configuration(
    runs: Sequence[dict[str, Any]], others: Sequence[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(map(run.get, (*_CONFIGURATION, *others))), []).append(run)
    return groups


def _say(run: dict[str, Any], dev_set: str) -> None:
    shown = "no score"
    if run["scores"]:
        scores, headline = run["scores"][dev_set], run["headline"]
        shown = f"{headline} {score(headline, scores[headline], scores)}"
    collapsed = f"; COLLAPSED: {run['collapsed']}" if run["collapsed"] else ""
    print(f"{run['name']}: {shown}{collapsed}", flush=True)


def _delete_weights_but_of(
    kept: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], directory: FineTuningDirectory
) -> None:
    names = {run["name"] for run in kept}
    for run in runs:
        folder = FineTuningDirectory(os.path.join(directory.runs, run["name"]))
        paths = [folder.last]
        if run["name"] not in names:
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
    # An earlier process may have been stopped when the weights had moved here already. Those here
    # may also be of what was the best then: a run's own are gone only where they have moved.
    there = run_directory if checkpoints.find_latest(run_directory.checkpoints) else directory
    with material.strategy.scope():
        model, _ = load_with_report(
            there.path,
            material.task.model_class,
            max_seq_length=settings.max_seq_length,
            **material.task.model_arguments,
        )
    describe(settings, directory, material, best["thresholds"])
    weights = {f"model/{weight.path}": weight for weight in model.weights}
    if there is run_directory:
        checkpoints.delete_all(directory.checkpoints)
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
    and ``best`` of the headline over the ``scored`` runs, with the ``best_seed``; how many
    runs ``collapsed``; ``means`` and ``deviations`` of every score.
    """
    keys = (*_CONFIGURATION, *others)
    entries = []
    for configuration, members in _by_configuration(runs, others).items():
        scored = [run for run in members if run["scores"]]
        values = [_headline(run, dev_set) for run in scored]
        best = _best(members, dev_set)
        # Of a class that no run of the seed has on dev there is no score.
        names = [
            name
            for name in (scored[0]["scores"][dev_set] if scored else ())
            if all(name in run["scores"][dev_set] for run in scored)
        ]
        columns = {name: [run["scores"][dev_set][name] for run in scored] for name in names}
        entries.append(
            {
                **dict(zip(keys, configuration, strict=True)),
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
    entries.sort(key=lambda entry: (entry["mean"] is None, -rank(name, entry["mean"] or 0.0)))
    return entries
