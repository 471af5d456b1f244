"""Makes a plan's runs, a process each: finished ones are skipped, failed ones are named."""

import concurrent.futures
import contextlib
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.cli.command import run_apart
from bert_tf.cli.flag_fields import as_words
from bert_tf.config import BertConfig
from bert_tf.files import read_json_object, write_json
from bert_tf.pretraining.cost import parameter_count
from bert_tf.pretraining.settings import settings_from_words
from bert_tf.pretraining.timing import mean_step_seconds
from bert_tf.results.summary import scores_by_seed
from bert_tf.training.distribution import choose_strategy, machine_name
from bert_tf.training.progress import duration
from bert_tf.training.run_directory import RunDirectory
from bert_tf.untrusted import one_line, quote

from . import page
from .plan import Plan, Run
from .score_table import Cell, Score, read_cells, write_cells
from .settings import Settings

Execute = Callable[[str, Sequence[str], str], str | None]


class Reproduction:
    """The plan of some flags, the cells that are finished, and what failed, with the reason."""

    def __init__(self, settings: Settings, execute: Execute = run_apart) -> None:
        self.settings, self._execute = settings, execute
        self.failed: dict[str, str] = {}
        path, kept = settings.output_dir, self._kept("plan.json")
        if not kept and tf.io.gfile.isdir(path) and tf.io.gfile.listdir(path):
            raise ValueError(f"--output_dir={path} holds no reproduction: name an empty directory.")
        for name, value in settings.plan.items():
            if kept and kept.get(name) != value:
                raise ValueError(
                    f"--output_dir={path} holds another plan: --{name}={quote(value)} (was "
                    f"{quote(kept.get(name))}). Give that plan's flags, or name another directory."
                )
        self.plan = Plan(settings)
        inputs = kept.get("inputs")
        inputs = inputs if isinstance(inputs, dict) else {}
        for name, value in self.plan.inputs.items():
            if inputs.get(name, value) != value:
                raise ValueError(
                    f"--output_dir={path} holds runs of other files: {name} have changed. Name "
                    "another directory."
                )
        self._inputs = {**inputs, **self.plan.inputs}
        page.check(settings, self.plan)
        self.scores = read_cells(str(settings.cells))

    def _file(self, name: str) -> str:
        return os.path.join(self.settings.output_dir, name)

    def _log(self, run: Run) -> str:
        return self._file(f"logs/{run.name.replace('/', '_')}.log")

    def _kept(self, name: str) -> dict[str, Any]:
        there = tf.io.gfile.exists(self._file(name))
        return read_json_object(self._file(name)) if there else {}

    def run(self) -> None:
        """Makes the runs that are left and writes the page; failed ones are an error at the end."""
        directory = RunDirectory(self.settings.output_dir, flag="--output_dir")
        directory.create()
        with directory.locked("a reproduction"):
            write_json(self._file("plan.json"), {**self.settings.plan, "inputs": self._inputs})
            tf.io.gfile.makedirs(self._file("logs"))
            try:
                self._collect()
                # At once, as a page that cannot be written is known before the hours of the runs.
                page.write(self.settings, self.plan, self.scores, self.failed)
                self._say_what_lacks()
                for number, run in enumerate(left := self.left(), start=1):
                    print(f"{number} of {len(left)}: {run.name}", end="", flush=True)
                    self._make(run)
                    self._collect()
                    if why := self.failed.get(run.name):
                        log = self._log(run)
                        see = f"; see {log}" if os.path.exists(log) else ""
                        print(f": FAILED: {why}{see}", end="")
                    print()
            finally:
                page.write(self.settings, self.plan, self.scores, self.failed)
                print(f"The page: {self.settings.page}\nThe cells: {self.settings.cells}")
        for name, why in self.failed.items():
            raise ValueError(f"{len(self.failed)} runs have failed, the first {name}: {why}.")

    def left(self) -> list[Run]:
        """The runs to make for the cells that are missing, each behind those that it needs."""
        wanted = {name for name in self._missing() if not _is_done(self.plan.runs[name])}
        for name in reversed(self.plan.runs):
            wanted |= {*self.plan.runs[name].needs} if name in wanted else set()
        return [run for run in self.plan.runs.values() if run.name in wanted and not _is_done(run)]

    def _missing(self) -> dict[str, Cell]:
        """The cells that are not finished, by the run that makes them."""
        known = {score.cell for score in self.scores}
        places = (place for table in self.plan.places.values() for place in table.values())
        return {p.run: p.cell for p in places if p.cell is not None and p.cell not in known}

    def _make(self, run: Run) -> None:
        if lacking := [name for name in run.needs if name in self.failed]:
            self.failed[run.name] = f"it needs {lacking[0]}, which failed"
            return
        began, why = time.monotonic(), None
        try:
            steps = {"num_train_steps": str(self._steps(run))} if run.equal_time else {}
            why = self._execute(run.command, as_words({**run.flags, **steps}), self._log(run))
        except ValueError as error:
            why = str(error).rstrip(".")
        except BaseException:
            print()  # the run's line ends
            raise
        finally:
            times, took = self._kept("times.json"), time.monotonic() - began
            write_json(self._file("times.json"), {**times, run.name: took + times.get(run.name, 0)})
        print(f", {duration(took)}", end="")
        if why or not _is_done(run):
            self.failed[run.name] = why or f"it wrote no {run.product}"

    def _steps(self, run: Run) -> int:
        """The steps that the time of the plan's holds; measured once, as a resumed run has them."""
        if run.name not in (steps := self._kept("steps.json")):
            base, own = self._step_seconds([self.plan.runs[run.needs[-1]], run])
            steps[run.name] = max(1, math.floor(self.settings.steps * base / own))
            write_json(self._file("steps.json"), steps)
        return int(steps[run.name])

    def _step_seconds(self, runs: Sequence[Run]) -> list[float]:
        size = {"vocab_file": "", "vocab_size": str(self.settings.vocab_size)}
        words = [as_words({**run.flags, **size}) for run in runs]
        # TensorFlow would hold a GPU's memory as long as this process lives, and the runs need it.
        start = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, start) as apart:
            return apart.submit(_measured, words).result()

    def report(self) -> None:
        """Prints what is left to run, with measured hours and disk; nothing is written."""
        left = self.left()
        trained = [run for run in left if run.command == "pretrain"]
        # One for all: the others' steps are like it, but for their blocks and masks.
        seconds = [self.settings.steps * each for each in self._step_seconds(trained[:1])]
        tuned: list[float] = [s.seconds * self.settings.seeds for s in self.scores if s.seed]
        means = {"pretrain": seconds, "finetune": tuned}
        costs = {run.name: statistics.fmean(means.get(run.command) or [math.nan]) for run in left}
        for name, took in costs.items():
            print(f"{name}: {'not measured' if math.isnan(took) else duration(took)}")
        self._say_what_lacks()
        size = BertConfig.from_preset(self.settings.size, vocab_size=self.settings.vocab_size)
        # Of a pre-training a checkpoint with Adam's moments, the best and the kept weights.
        disk = 4 * parameter_count(size) * (8 * len(trained) + len(left)) / 1e9
        total = duration(math.fsum(took for took in costs.values() if not math.isnan(took)))
        print(f"{len(left)} runs are left: {total} where measured, about {disk:.2g} GB of disk.")

    def _say_what_lacks(self) -> None:
        for table, places in self.plan.places.items():
            for why in sorted({place.note for place in places.values() if place.cell is None}):
                print(f"{table}: {why}.")

    def _collect(self) -> None:
        """Adds the cells of finished runs to the file of cells."""
        known = {score.cell for score in self.scores}
        trained = {name: cell for name, cell in self.plan.trained.items() if cell not in known}
        for name, cell in {**trained, **self._missing()}.items():
            if _is_done(run := self.plan.runs[name]):
                try:
                    seconds = self._kept("times.json").get(name, 0.0)
                    found = [*_scores(cell, read_json_object(run.product), seconds)]
                    # Another plan may have added its own meanwhile.
                    there = [s for s in read_cells(str(self.settings.cells)) if s.cell != cell]
                    self.scores = [*there, *found]
                    write_cells(str(self.settings.cells), self.scores)
                except (KeyError, TypeError, ValueError) as error:
                    self.failed[name] = f"{run.product} has no scores ({one_line(repr(error))})"


def _measured(runs: Sequence[Sequence[str]]) -> list[float]:
    """The seconds of a mean step of some pre-trainings, by their flags; prints nothing."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return mean_step_seconds([*map(settings_from_words, runs)], choose_strategy("auto"))


def _is_done(run: Run) -> bool:
    return bool(tf.io.gfile.exists(run.product))


def _scores(cell: Cell, results: Mapping[str, Any], seconds: float) -> Iterator[Score]:
    if "evaluation" in results:  # a pre-training's
        perplexity = results["evaluation"].get("masked_lm_perplexity", math.nan)
        runs = [("", "", {"perplexity": perplexity})]
    else:
        runs = scores_by_seed(results)
    for seed, collapsed, scores in runs:
        rest = collapsed, round(seconds / len(runs)), machine_name()
        for metric, value in (scores or {"": math.nan}).items():
            yield Score(cell, metric, seed, round(value, 4), *rest)
