"""Sentence embeddings compared with sentence-transformers and SetFit, trained on the same data.

    python -m benchmarks.embeddings --peer_python=PEERS/bin/python [--what=stsb,squad,sst2,articles]
        [--start=FOLDER] [--seeds=0,1,2,3] [--rows=N] [--steps=N] [--results=FILE.csv]
    python -m benchmarks.embeddings --summary [--results=FILE.csv]

| task     | training data, from all-MiniLM-L6-v2        | score                        |
|----------|---------------------------------------------|------------------------------|
| stsb     | 5,749 scored pairs of STS-B, with CoSENT    | Spearman, dev and test       |
| squad    | 3,000 questions and their paragraphs        | nDCG@10 in held-out articles |
| sst2     | 8 sentences per class of SST-2              | accuracy on dev              |
| articles | 8 questions about each of 12 SQuAD articles | accuracy on 480 others       |

In squad, the other paragraphs of the batch are the negatives. The last two tasks compare --few_shot
with SetFit's package, with the same number of pairs per text. --start specifies other weights, as a
sentence-transformers directory, which all libraries can read. The peers run in a separate
environment with sentence-transformers, setfit and datasets, which does not need bert_tf. Both sides
use the same data, steps, batches, lengths, learning rates, schedule, weight decay and clipping. The
same code scores their vectors. Each side is one process for all tasks, and the two take turns.

Examples per second count text pairs after the first step, in which TensorFlow traces, by wall time
and by processor time; processor time is more reliable on a busy machine. With --steps, training
stops after this many steps and is not scored. Seed 0 evaluates the initial weights. Each run is a
row of the results.
"""

import argparse
import csv
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from .finetune import minilm_directory
from .machine import processor

OURS, PEER = "bert_tf", "peer"
SCORES = ("dev_spearman", "test_spearman", "ndcg@10", "accuracy")
Record = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Training settings of a task.

    Attributes:
        max_seq_length: Maximum number of tokens per text.
        batch_size: Batch size.
        other_epochs: Number of epochs with weights other than MiniLM, which gets one.
        pairs: In few-shot tasks, number of pairs of a text with others of its class.
    """

    max_seq_length: int
    batch_size: int
    other_epochs: int
    pairs: int = 0


RECIPES = {
    "stsb": Recipe(64, 32, 4),
    "squad": Recipe(128, 32, 4),
    "sst2": Recipe(64, 16, 1, pairs=20),
    "articles": Recipe(64, 16, 1, pairs=10),
}
# For MiniLM, and for other (smaller) weights.
LEARNING_RATE, OTHER_LEARNING_RATE = 2e-5, 5e-4


class Side:
    """Process of a library, which trains on request."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        versions = self._next()
        self.versions = ", ".join(f"{name} {version}" for name, version in versions.items())

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray | None]:
        """Returns the answer of the process, and its vectors or classes of the texts."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "output.npy")
            print(json.dumps({**request, "output": path}), file=self._process.stdin, flush=True)
            answer = self._next()
            return answer, np.load(path) if os.path.exists(path) else None

    def _next(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise ValueError(f"The process of {self.name} ended. See its messages above.")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends the process by closing its input."""
        self._process.communicate()


# === Runs ===


def make_request(task: str, start: str, seed: int, data: Any, steps: int | None) -> dict[str, Any]:
    """Returns the request to both sides; with 0 ``steps``, for vectors of the initial weights."""
    recipe, is_minilm = RECIPES[task], not start
    count = len(data.rows) * (2 * recipe.pairs or 1)
    total = -(-count // recipe.batch_size) * (1 if is_minilm else recipe.other_epochs)
    return {
        **{"start": start or minilm_directory(), "seed": seed, "pairs": recipe.pairs},
        **{"rows": data.rows, "texts": data.texts if steps is None or not steps else []},
        **{"steps": total if steps is None else min(steps, total), "total_steps": total},
        **{"is_few_shot": bool(recipe.pairs), "max_seq_length": recipe.max_seq_length},
        **{
            "batch_size": recipe.batch_size,
            "learning_rate": LEARNING_RATE if is_minilm else OTHER_LEARNING_RATE,
        },
        **{"weight_decay": 0.01, "warmup_proportion": 0.1},
    }


def make_columns(
    request: dict[str, Any], answer: dict[str, Any], scores: dict[str, float]
) -> Record:
    """Returns the measured columns of a row."""
    found = {"rows": str(len(request["rows"])), "steps": str(request["steps"])}
    found |= {name: f"{scores[name]:.3f}" for name in SCORES if name in scores}
    if request["steps"]:
        times = np.array(answer["times"])
        first, later = times[1] - times[0], times[-1] - times[1]
        examples = request["batch_size"] * (len(times) - 2)
        found |= {
            "first_step_seconds": f"{first[0]:.2f}",
            "examples_per_second": f"{examples / later[0]:.2f}",
            "examples_per_processor_second": f"{examples / later[1]:.2f}",
        }
    return found


COLUMNS = (
    *("task", "start", "library", "seed", "rows", "steps", *SCORES),
    *("first_step_seconds", "examples_per_second", "examples_per_processor_second"),
    *("load", "versions", "machine"),
)


def measure(arguments: argparse.Namespace, folder: str) -> Iterable[Record]:
    """Trains the requested tasks, alternating between the libraries; yields a row per run."""
    from .embeddings_data import min_cosine, read_data

    here = os.path.dirname(os.path.abspath(__file__))
    sides = [
        Side(OURS, [sys.executable, "-m", "benchmarks.embeddings_bert_tf"]),
        Side(PEER, [arguments.peer_python, os.path.join(here, "embeddings_peers.py")]),
    ]
    print("; ".join(side.versions for side in sides), flush=True)
    name = (
        os.path.basename(os.path.normpath(arguments.start))
        if arguments.start
        else "all-MiniLM-L6-v2"
    )
    for task in arguments.what:
        for seed in arguments.seeds:
            if not seed and (RECIPES[task].pairs or arguments.steps):
                continue
            steps = arguments.steps if seed else 0
            data, outputs = read_data(task, folder, seed, arguments.rows), []
            request = make_request(task, arguments.start, seed, data, steps)
            for side in sides:
                load = f"{os.getloadavg()[0]:.1f}"
                answer, vectors = side.ask(request)
                outputs.append(vectors)
                scores = {} if vectors is None else data.score(vectors)
                yield {
                    **{"task": task, "start": name, "library": side.name, "seed": str(seed)},
                    **make_columns(request, answer, scores),
                    **{"load": load, "versions": side.versions, "machine": processor()},
                }
            if steps == 0:
                cosine = min_cosine(*outputs)
                print(f"Initial weights: minimum cosine of both sides' vectors {cosine:.6f}.")
    for side in sides:
        side.close()


# === The summary ===


def summarize(records: list[Record]) -> Iterable[str]:
    """Yields tables: means and standard deviations of the scores over the seeds, median speeds."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["start"], record["task"]), []).append(record)
    yield "| start | task | score | untrained | bert_tf | peer | difference by seed |"
    yield "|---|---|---|---|---|---|---|"
    for (start, task), group in groups.items():
        for score in SCORES:
            found = {
                (record["library"], record["seed"]): float(record[score])
                for record in group
                if record[score]
            }
            seeds = sorted({s for _, s in found} - {"0"})
            seeds = [s for s in seeds if all((side, s) in found for side in (OURS, PEER))]
            if not seeds:
                continue
            mine, theirs = ([found[side, seed] for seed in seeds] for side in (OURS, PEER))
            differences = ", ".join(f"{a - b:+.2f}" for a, b in zip(mine, theirs, strict=True))
            untrained = found.get((OURS, "0"))
            cells = [start, task, score, "" if untrained is None else f"{untrained:.2f}"]
            yield f"| {' | '.join([*cells, _mean(mine), _mean(theirs), differences])} |"
    yield "\n| start | task | pairs/s, bert_tf | peer | ratio by wall time | by processor time |"
    yield "|---|---|---|---|---|---|"
    for (start, task), group in groups.items():
        all_speeds = {
            (side, column): [float(r[column]) for r in group if r["library"] == side and r[column]]
            for side in (OURS, PEER)
            for column in COLUMNS[-5:-3]
        }
        if all(all_speeds.values()):
            medians = {key: statistics.median(values) for key, values in all_speeds.items()}
            wall, cpu = (medians[OURS, c] / medians[PEER, c] for c in COLUMNS[-5:-3])
            speeds = [f"{medians[side, COLUMNS[-5]]:.1f}" for side in (OURS, PEER)]
            yield f"| {' | '.join([start, task, *speeds, f'{wall:.2f}', f'{cpu:.2f}'])} |"


def _mean(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer_python", help="Python interpreter of the peers' environment.")
    parser.add_argument("--what", type=lambda text: text.split(","), default=[*RECIPES])
    parser.add_argument("--start", default="", help="Directory of other weights than MiniLM.")
    parser.add_argument(
        "--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2, 3]
    )
    parser.add_argument("--rows", type=int, help="Number of training pairs of stsb and squad.")
    parser.add_argument(
        "--steps", type=int, help="Number of steps after which to stop, without scores."
    )
    parser.add_argument("--results", default="runs/benchmark_embeddings.csv")
    parser.add_argument(
        "--summary", action="store_true", help="Only print the summary of the results."
    )
    arguments = parser.parse_args()
    if not set(arguments.what) <= set(RECIPES):
        parser.error(
            f"--what: expected some of {', '.join(RECIPES)}, got {', '.join(arguments.what)}"
        )
    if not arguments.summary and not arguments.peer_python:
        parser.error("Pass --peer_python, an interpreter with sentence-transformers.")
    return arguments


def main() -> None:
    """Measures, then prints the summary of all results."""
    arguments = parse_arguments()
    if not arguments.summary:
        folder = os.environ.get("BERT_TF_DATA")
        if not folder:
            sys.exit("Set BERT_TF_DATA to the folder that contains glue/ and squad/.")
        print(processor(), flush=True)
        os.makedirs(os.path.dirname(os.path.abspath(arguments.results)), exist_ok=True)
        is_new = not os.path.exists(arguments.results)
        for record in measure(arguments, folder):
            with open(arguments.results, "a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
                if is_new:
                    writer.writeheader()
                    is_new = False
                writer.writerow(record)
            printed = {key: value for key, value in record.items() if key not in COLUMNS[-2:]}
            print(", ".join(f"{key} {value}" for key, value in printed.items()), flush=True)
    with open(arguments.results, newline="") as file:
        print("\n".join(summarize([*csv.DictReader(file)])))


if __name__ == "__main__":
    main()
