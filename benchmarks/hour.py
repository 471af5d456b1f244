"""An hour of pre-training beside transformers' BertForPreTraining: the same text, model and rows.

    python -m benchmarks.hour --input='wiki/*.gz,books/*.gz' --runs=FOLDER [--hours=1]
        [--results=FILE.csv] [--picture=FILE.png]

First ``--recipe=hour``, as a command, which keeps the weights of some steps; then the peer, with
the same config, vocabulary and text, for as long as the first trained. Nothing else should run
beside. What the weights make of the same held-out rows, with 15% masks, is computed afterwards and
off the clock. Whatever is there already is not made again. ``benchmarks.hour_transformers`` has the
peer's side.

SST-2 of both: ``bert_tf.finetune --init_checkpoint=RUNS/bert_tf`` and ``RUNS/transformers``.
"""

import argparse
import csv
import dataclasses
import glob
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.startup import filter_native_log

from .machine import processor

if TYPE_CHECKING:
    from bert_tf.pipelines.wordpiece import BertTokenizer

OURS, PEER = "bert_tf", "transformers"
ROW, BATCH, MASKS = 128, 16, 0.15
KEPT = [36_000 >> n for n in range(8)]
COLUMNS = ("library", "step", "seconds", "tokens", "held_out_loss", "machine")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is compared, and where it is."""

    patterns: list[str]
    runs: str
    hours: float

    def path(self, *names: str) -> str:
        """A path below the folder of the runs."""
        return os.path.join(self.runs, *names)

    def results(self) -> dict[str, Any]:
        """What the command says of its run."""
        with open(self.path(OURS, "results.json")) as file:
            found: dict[str, Any] = json.load(file)
        return found


# === The two trainings ===


def train_ours(plan: Plan) -> None:
    """Runs the command, for as many hours as are asked for; the recipe's steps are an hour's."""
    command = [sys.executable, "-m", "bert_tf.pretrain", "--recipe=hour"]
    command += [f"--input={','.join(plan.patterns)}", f"--model_dir={plan.path(OURS)}"]
    command += [f"--keep_steps={','.join(map(str, KEPT[1:]))}"]
    command += [] if plan.hours == 1 else [f"--max_hours={plan.hours}"]
    subprocess.run(command, check=True)


def write_rows(plan: Plan) -> None:
    """The peer's rows and the held-out ones, of the run's own division of the documents."""
    from bert_tf.pipelines.pretraining import pretraining_dataset
    from bert_tf.pipelines.sources import open_corpus
    from bert_tf.pipelines.wordpiece import BertTokenizer

    corpus = open_corpus(plan.patterns, cache_dir=plan.path(OURS, "corpus"))
    train, held_out = corpus.split_held_out()
    if held_out is None:
        sys.exit("The corpus is a single document: nothing could be held out.")
    tokenizer = BertTokenizer(plan.path(OURS, "vocab.txt"))
    evaluated = pretraining_dataset(
        held_out, tokenizer, batch_size=BATCH, masked_lm_prob=MASKS, num_epochs=1, seed=1
    )
    batches = list(evaluated.as_numpy_iterator())
    columns = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    rows = np.stack([*blocks(train.sentences(), tokenizer)])
    np.savez(plan.path("rows.npz"), train=rows, **columns)


def blocks(sentences: Iterable[str], tokenizer: "BertTokenizer") -> Iterator[np.ndarray]:
    """The text as rows of [CLS], 126 tokens and [SEP], (128,) int32."""
    texts, rest = iter(sentences), np.zeros(0, np.int32)
    while part := list(itertools.islice(texts, 20_000)):
        rest = np.concatenate([rest, tokenizer.tokenize(part).flat_values.numpy()])
        whole = rest[: len(rest) // (ROW - 2) * (ROW - 2)].reshape(-1, ROW - 2)
        rest = rest[whole.size :]
        for row in whole:
            yield np.array([tokenizer.cls_id, *row, tokenizer.sep_id], np.int32)


# === What the weights make of the held-out rows ===


def curve_of_ours(plan: Plan) -> Iterator[dict[str, Any]]:
    """The loss at the kept steps and at the last, with the seconds of training until there."""
    import bert_tf

    results = plan.results()
    seconds = clock(plan.path(OURS, "logs"))
    kept = [step for step in sorted(KEPT) if os.path.isdir(plan.path(OURS, "steps", str(step)))]
    folders = {step: plan.path(OURS, "steps", str(step)) for step in kept}
    folders[results["step"]] = plan.path(OURS)
    for step, folder in folders.items():
        yield {
            **{"library": OURS, "step": step, "seconds": seconds(step)},
            "tokens": round(results["trained_tokens"] * step / results["step"]),
            "held_out_loss": held_out_loss(plan.path("rows.npz"), _logits(bert_tf.load(folder))),
        }


def _logits(model: Any) -> Callable[[dict[str, np.ndarray]], Any]:
    names = ("input_word_ids", "input_mask", "input_type_ids", "masked_lm_positions")
    return lambda rows: model({name: rows[name] for name in names})["masked_lm_logits"]


def held_out_loss(path: str, logits_of: Callable[[dict[str, np.ndarray]], Any]) -> float:
    """The mean over the masked tokens; ``logits_of`` a batch are (B, P, V)."""
    data, total, count = np.load(path), 0.0, 0.0
    rows = {name: data[name] for name in data.files if name not in ("train", "cursor")}
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
    if not os.path.exists(plan.path(OURS, "results.json")):
        train_ours(plan)
    if not os.path.exists(plan.path("rows.npz")):
        write_rows(plan)
    ours = list(curve_of_ours(plan))
    if not os.path.exists(plan.path("peer.json")):
        peer = [sys.executable, "-m", "benchmarks.hour_transformers", plan.runs]
        subprocess.run([*peer, str(ours[-1]["seconds"])], check=True)
    with open(plan.path("peer.json")) as file:
        return [*ours, *json.load(file)]


def draw(curves: list[dict[str, str]], path: str) -> None:
    """The perplexity of both over the minutes, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for library, colour in ((OURS, "#2b5fa0"), (PEER, "#c8492d")):
        points = [row for row in curves if row["library"] == library]
        minutes = [float(row["seconds"]) / 60 for row in points]
        values = [float(np.exp(float(row["held_out_loss"]))) for row in points]
        axes.plot(minutes, values, "o-", color=colour, label=library)
        end = (minutes[-1], values[-1])
        axes.annotate(f"{values[-1]:.0f}", end, (0, 5), textcoords="offset points", ha="center")
    axes.set(xlabel="minutes of training", ylabel="held-out perplexity", yscale="log")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, writes every point as a row of the results, and draws them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True, help="the text, as pretrain's --input")
    parser.add_argument("--runs", required=True, help="the folder of everything that is made")
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--results", default="hour_peers.csv")
    parser.add_argument("--picture")
    given = parser.parse_args()
    filter_native_log()
    curves = measure(Plan(given.input.split(","), given.runs, given.hours))
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
