"""An hour of pre-training beside transformers' BertForPreTraining: the same text and model.

    python -m benchmarks.hour --input='wiki/*.gz,books/*.gz' --runs=FOLDER [--seconds=3800]
        [--results=FILE.csv] [--picture=FILE.png]

Both train at the same time, each on a core of its own: ``--recipe=hour``, as a command, which keeps
the weights of some steps, and the peer, with the same config, vocabulary and text. Nothing else
should run beside. The peer is given ``--seconds``, by default what the recipe's steps took on a
core. Behind it ``--recipe=default`` makes a quarter of the steps. What the weights make of the same
held-out rows, with 15% masks, is computed off the clock. Whatever is there already is not made
again. ``benchmarks.hour_transformers`` has the peer's side.

SST-2 of both: ``bert_tf.finetune --init_checkpoint=RUNS/bert_tf`` and ``RUNS/transformers``.
"""

import argparse
import contextlib
import csv
import dataclasses
import glob
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bert_tf.pretraining.recipes import RECIPES
from bert_tf.startup import filter_native_log

from .machine import processor

OURS, PEER, DEFAULT = "bert_tf", "transformers", "bert_tf, --recipe=default"
FOLDERS = {OURS: "bert_tf", DEFAULT: "default"}
ROW, BATCH, MASKS = 128, 16, 0.15
# The lengths of the rows, and the share of the steps that each has.
PHASES = [
    (int(length), float(share))
    for length, share in (phase.split(":") for phase in RECIPES["hour"]["phases"].split(","))
]
# Rows: those that both are judged by, and the peer's.
HELD_OUT, TRAIN = "held_out.npz", "train.npz"
INPUTS = ("input_word_ids", "input_mask", "input_type_ids", "masked_lm_positions")
TARGETS = ("masked_lm_ids", "masked_lm_weights")
COLUMNS = ("library", "step", "seconds", "tokens", "held_out_loss", "machine")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is compared, and where it is."""

    patterns: list[str]
    runs: str
    steps: int
    seconds: float

    def path(self, *names: str) -> str:
        """A path below the folder of the runs."""
        return os.path.join(self.runs, *names)

    @property
    def kept(self) -> list[int]:
        """The steps whose weights are looked at, besides the last."""
        return sorted({self.steps >> n for n in range(1, 8)} - {0})

    def has(self, *names: str) -> bool:
        """Whether a file is there."""
        return os.path.exists(self.path(*names))

    def command(self, steps: int, **flags: object) -> list[str]:
        """A pre-training of so many steps, which keeps the weights of some."""
        kept = ",".join(str(step) for step in self.kept if step < steps)
        flags |= {"input": ",".join(self.patterns), "num_train_steps": steps, "keep_steps": kept}
        words = [f"--{name}={value}" for name, value in flags.items()]
        return [sys.executable, "-m", "bert_tf.pretrain", *words]


# === The two trainings ===


@contextlib.contextmanager
def training_ours(plan: Plan, core: int) -> Iterator[None]:
    """Runs the command on a core, beside the block, which begins when it trains."""
    folder = plan.path(FOLDERS[OURS])
    command = plan.command(plan.steps, recipe="hour", model_dir=folder)
    with subprocess.Popen(["taskset", "-c", str(core), *command]) as ours:
        while ours.poll() is None and not os.path.isdir(f"{folder}/logs"):
            time.sleep(1)
        try:
            _check(ours)
            yield
        except BaseException:
            ours.terminate()
            raise
    _check(ours)


def _check(process: subprocess.Popen[bytes]) -> None:
    if process.returncode:
        sys.exit("bert_tf.pretrain has failed: the same command goes on where it ended.")


def train_default(plan: Plan) -> None:
    """A quarter of the steps by the defaults, on the core of this process."""
    flags = {"vocab_file": plan.path(FOLDERS[OURS], "vocab.txt"), "train_batch_size": BATCH}
    flags |= {"model_dir": plan.path(FOLDERS[DEFAULT]), "max_seq_length": ROW}
    subprocess.run(plan.command(plan.steps // 4, recipe="default", **flags), check=True)


def write_rows(plan: Plan) -> None:
    """The peer's rows and the held-out ones, of the run's own division of the documents."""
    from bert_tf.pipelines.pretraining import pretraining_dataset
    from bert_tf.pipelines.sources import open_corpus
    from bert_tf.pipelines.wordpiece import BertTokenizer

    corpus = open_corpus(plan.patterns, cache_dir=plan.path(FOLDERS[OURS], "corpus"))
    train, held_out = corpus.split_held_out()
    if held_out is None:
        sys.exit("The corpus is a single document: nothing could be held out.")
    tokenizer = BertTokenizer(plan.path(FOLDERS[OURS], "vocab.txt"))
    evaluated = pretraining_dataset(
        held_out, tokenizer, batch_size=BATCH, masked_lm_prob=MASKS, num_epochs=1, seed=1
    )
    batches = list(evaluated.as_numpy_iterator())
    names = (*INPUTS, *TARGETS)
    columns = {name: np.stack([batch[name] for batch in batches]) for name in names}
    np.savez(plan.path(HELD_OUT), **columns)
    rows = {}
    for length, share in PHASES:
        size = BATCH * ROW // length
        seen = pretraining_dataset(
            train, tokenizer, batch_size=size, max_seq_length=length, num_epochs=1, seed=1
        )
        needed = seen.take(math.ceil(plan.steps * share)).as_numpy_iterator()
        rows[str(length)] = np.concatenate([unmasked(batch) for batch in needed])
    np.savez(plan.path(TRAIN), **rows)


def unmasked(batch: dict[str, np.ndarray]) -> np.ndarray:
    """A batch's ids, as before they were masked, and its segments: (B, 2, S) uint16."""
    ids, is_masked = batch["input_word_ids"].copy(), batch["masked_lm_weights"] > 0
    positions = batch["masked_lm_positions"][is_masked]
    ids[np.nonzero(is_masked)[0], positions] = batch["masked_lm_ids"][is_masked]
    return np.stack([ids, batch["input_type_ids"]], 1).astype(np.uint16)


# === What the weights make of the held-out rows ===


def curve_of_ours(plan: Plan, name: str) -> Iterator[dict[str, Any]]:
    """The loss at the kept steps and at the last, with the seconds of training until there."""
    import bert_tf

    run = FOLDERS[name]
    with open(plan.path(run, "results.json")) as file:
        results: dict[str, Any] = json.load(file)
    seconds = clock(plan.path(run, "logs"))
    kept = [step for step in plan.kept if plan.has(run, "steps", str(step))]
    folders = {step: plan.path(run, "steps", str(step)) for step in kept}
    folders[results["step"]] = plan.path(run)
    for step, folder in folders.items():
        yield {
            **{"library": name, "step": step, "seconds": seconds(step)},
            "tokens": round(results["trained_tokens"] * step / results["step"]),
            "held_out_loss": held_out_loss(plan.path(HELD_OUT), _logits(bert_tf.load(folder))),
        }


def _logits(model: Any) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda rows: model({name: rows[name] for name in INPUTS})["masked_lm_logits"]


def held_out_loss(path: str, logits_of: Callable[[dict[str, np.ndarray]], Any]) -> float:
    """The mean over the masked tokens; ``logits_of`` a batch are (B, P, V)."""
    rows, total, count = dict(np.load(path)), 0.0, 0.0
    for batch in range(len(rows["input_word_ids"])):
        one = {name: values[batch] for name, values in rows.items()}
        logits = np.float64(logits_of(one))
        logits -= logits.max(-1, keepdims=True)
        right = np.take_along_axis(logits, one["masked_lm_ids"][..., None], -1)[..., 0]
        losses = np.log(np.exp(logits).sum(-1)) - right
        total += float((losses * one["masked_lm_weights"]).sum())
        count += float(one["masked_lm_weights"].sum())
    return total / count


def clock(logs: str) -> Callable[[int], float]:
    """The seconds from a run's first step to any other, by what it wrote for TensorBoard.

    It writes every few seconds: a longer pause, in which the run was stopped, counts as a minute.
    """
    import tensorflow as tf

    found: dict[int, float] = {}
    for path in sorted(glob.glob(os.path.join(logs, "**", "*tfevents*"), recursive=True)):
        for event in tf.compat.v1.train.summary_iterator(path):
            if event.summary.value and event.step:
                found.setdefault(event.step, event.wall_time)
    steps = sorted(found)
    gaps = np.minimum(np.diff([found[step] for step in steps]), 60.0)
    # The first of them are written when the first steps have been made.
    first = steps[0] * gaps[0] / (steps[1] - steps[0])
    seconds = first + np.concatenate([[0.0], np.cumsum(gaps)])
    return lambda step: float(np.interp(step, [0, *steps], [0.0, *seconds]))


# === The command ===


def measure(plan: Plan) -> list[dict[str, Any]]:
    """Makes what is not there yet; gives the curves of both."""
    os.makedirs(plan.runs, exist_ok=True)
    first, second, *_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {second})  # and so the peer's
    is_trained = plan.has(FOLDERS[OURS], "results.json")
    with contextlib.nullcontext() if is_trained else training_ours(plan, first):
        if not plan.has(TRAIN):
            write_rows(plan)
        if not plan.has("peer.json"):
            peer = [sys.executable, "-m", "benchmarks.hour_transformers", plan.runs]
            subprocess.run([*peer, str(plan.seconds)], check=True)
    if not plan.has(FOLDERS[DEFAULT], "results.json"):
        train_default(plan)
    with open(plan.path("peer.json")) as file:
        return [*curve_of_ours(plan, OURS), *json.load(file), *curve_of_ours(plan, DEFAULT)]


def draw(curves: list[dict[str, str]], path: str) -> None:
    """The perplexities over the minutes, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for library, colour in ((OURS, "#2b5fa0"), (PEER, "#c8492d"), (DEFAULT, "#8fb1d9")):
        points = [row for row in curves if row["library"] == library]
        minutes = [float(row["seconds"]) / 60 for row in points]
        values = [float(np.exp(float(row["held_out_loss"]))) for row in points]
        axes.plot(minutes, values, "o-", color=colour, label=library)
        end = (minutes[-1], values[-1])
        axes.annotate(f"{values[-1]:.0f}", end, (0, 5), textcoords="offset points", ha="center")
    axes.set(xlabel="minutes of training", ylabel="held-out perplexity", yscale="log")
    for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis(matplotlib.ticker.LogFormatter(minor_thresholds=(2, 0.5)))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, writes every point as a row of the results, and draws them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True, help="the text, as pretrain's --input")
    parser.add_argument("--runs", required=True, help="the folder of everything that is made")
    parser.add_argument("--steps", type=int, default=RECIPES["hour"]["num_train_steps"])
    parser.add_argument("--seconds", type=float, default=3800, help="the peer's, of training")
    parser.add_argument("--results", default="hour_peers.csv")
    parser.add_argument("--picture")
    given = parser.parse_args()
    filter_native_log()
    curves = measure(Plan(given.input.split(","), given.runs, given.steps, given.seconds))
    with open(given.results, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "machine": processor()} for row in curves)
    for row in curves:
        print({name: row[name] for name in COLUMNS[:-1]})
    if given.picture:
        draw(curves, given.picture)


if __name__ == "__main__":
    main()
