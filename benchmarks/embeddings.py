"""Sentence embeddings against sentence-transformers and SetFit, trained on the same rows.

    python -m benchmarks.embeddings --peer_python=PEERS/bin/python [--what=stsb,squad,sst2,articles]
        [--start=FOLDER] [--seeds=0,1,2,3] [--rows=N] [--steps=N] [--results=FILE.csv]
    python -m benchmarks.embeddings --summary [--results=FILE.csv]

| task     | trained on, from all-MiniLM-L6-v2           | scored                       |
|----------|---------------------------------------------|------------------------------|
| stsb     | STS-B's 5,749 scored pairs, by CoSENT       | Spearman, dev and test       |
| squad    | 3,000 questions and their paragraphs        | nDCG@10 in held-out articles |
| sst2     | 8 sentences of each of SST-2's classes      | accuracy on dev              |
| articles | 8 questions about each of 12 SQuAD articles | accuracy on 480 others       |

The second has the other paragraphs of a batch as wrong ones. The last two are --few_shot and
SetFit's own package, with as many pairs of each text. --start names other weights, in a directory
of sentence-transformers, which all libraries read. The peers are in an environment of their own,
with sentence-transformers, setfit and datasets; nothing of this library is needed there. Both sides
have the same rows, steps, batches, lengths, rates, schedule, decay and clipping; the vectors that
they make are scored here, by one code. One process of each side stays, and they are asked in turn.

Examples a second count pairs of texts, from the end of the first step, where TensorFlow traces; by
the clock and by processor time, which says more where other work is beside. With --steps a training
ends after so many, and is not scored. Seed 0 stands for the start, untrained. Every run is a row of
the results.
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
    """How a task is trained from MiniLM; smaller weights take more ``other_epochs``.

    ``pairs`` are those of a text with others of its class, where examples are few.
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
# The rate of MiniLM, and that of smaller weights.
RATE, OTHER_RATE = 2e-5, 5e-4


class Side:
    """A library's process, which trains when it is asked to."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        versions = self._next()
        self.versions = ", ".join(f"{name} {version}" for name, version in versions.items())

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray | None]:
        """Its answer, and what it made of the texts."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "made.npy")
            print(json.dumps({**request, "output": path}), file=self._process.stdin, flush=True)
            answer = self._next()
            return answer, np.load(path) if os.path.exists(path) else None

    def _next(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise ValueError(f"The process of {self.name} ended: see its messages above.")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends the process, by the end of its input."""
        self._process.communicate()


# === Runs ===


def request_of(task: str, start: str, seed: int, data: Any, steps: int | None) -> dict[str, Any]:
    """What both sides are asked; ``steps`` 0 asks for the start's own vectors."""
    recipe, is_minilm = RECIPES[task], not start
    count = len(data.rows) * (2 * recipe.pairs or 1)
    total = -(-count // recipe.batch_size) * (1 if is_minilm else recipe.other_epochs)
    return {
        **{"start": start or minilm_directory(), "seed": seed, "pairs": recipe.pairs},
        **{"rows": data.rows, "texts": data.texts if steps is None or not steps else []},
        **{"steps": total if steps is None else min(steps, total), "total_steps": total},
        **{"is_few_shot": bool(recipe.pairs), "max_seq_length": recipe.max_seq_length},
        **{"batch_size": recipe.batch_size, "learning_rate": RATE if is_minilm else OTHER_RATE},
        **{"weight_decay": 0.01, "warmup_proportion": 0.1},
    }


def record_of(request: dict[str, Any], answer: dict[str, Any], scores: dict[str, float]) -> Record:
    """A row's figures."""
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


def measure(given: argparse.Namespace, folder: str) -> Iterable[Record]:
    """Runs what is asked for, the libraries in turn; gives each row when it is there."""
    from .embeddings_data import read_data, same_vectors

    here = os.path.dirname(os.path.abspath(__file__))
    sides = [
        Side(OURS, [sys.executable, "-m", "benchmarks.embeddings_bert_tf"]),
        Side(PEER, [given.peer_python, os.path.join(here, "embeddings_peers.py")]),
    ]
    print("; ".join(side.versions for side in sides), flush=True)
    name = os.path.basename(os.path.normpath(given.start)) if given.start else "all-MiniLM-L6-v2"
    for task in given.what:
        for seed in given.seeds:
            if not seed and (RECIPES[task].pairs or given.steps):
                continue
            steps = given.steps if seed else 0
            data, made = read_data(task, folder, seed, given.rows), []
            request = request_of(task, given.start, seed, data, steps)
            for side in sides:
                load = f"{os.getloadavg()[0]:.1f}"
                answer, vectors = side.ask(request)
                made.append(vectors)
                scores = {} if vectors is None else data.score(vectors)
                yield {
                    **{"task": task, "start": name, "library": side.name, "seed": str(seed)},
                    **record_of(request, answer, scores),
                    **{"load": load, "versions": side.versions, "machine": processor()},
                }
            if steps == 0:
                print(f"The start: least cosine of both sides' vectors {same_vectors(*made):.6f}.")
    for side in sides:
        side.close()


# === The summary ===


def summarise(records: list[Record]) -> Iterable[str]:
    """Of each task means over the seeds, with their standard deviations; medians of the speeds."""
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
            apart = ", ".join(f"{a - b:+.2f}" for a, b in zip(mine, theirs, strict=True))
            untrained = found.get((OURS, "0"))
            cells = [start, task, score, "" if untrained is None else f"{untrained:.2f}"]
            yield f"| {' | '.join([*cells, _mean(mine), _mean(theirs), apart])} |"
    yield "\n| start | task | pairs/s, bert_tf | peer | ratio by the clock | by processor time |"
    yield "|---|---|---|---|---|---|"
    for (start, task), group in groups.items():
        rates = {
            (side, column): [float(r[column]) for r in group if r["library"] == side and r[column]]
            for side in (OURS, PEER)
            for column in COLUMNS[-5:-3]
        }
        if all(rates.values()):
            middle = {key: statistics.median(values) for key, values in rates.items()}
            wall, cpu = (middle[OURS, c] / middle[PEER, c] for c in COLUMNS[-5:-3])
            shown = [f"{middle[side, COLUMNS[-5]]:.1f}" for side in (OURS, PEER)]
            yield f"| {' | '.join([start, task, *shown, f'{wall:.2f}', f'{cpu:.2f}'])} |"


def _mean(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def parsed() -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer_python", help="the interpreter of the peers' environment")
    parser.add_argument("--what", type=lambda text: text.split(","), default=[*RECIPES])
    parser.add_argument("--start", default="", help="other weights than MiniLM's")
    parser.add_argument(
        "--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2, 3]
    )
    parser.add_argument("--rows", type=int, help="train stsb and squad on so many of their pairs")
    parser.add_argument("--steps", type=int, help="stop there, and do not score")
    parser.add_argument("--results", default="runs/benchmark_embeddings.csv")
    parser.add_argument("--summary", action="store_true", help="only print what was measured")
    given = parser.parse_args()
    if not set(given.what) <= set(RECIPES):
        parser.error(f"--what: expected some of {', '.join(RECIPES)}; got {', '.join(given.what)}")
    if not given.summary and not given.peer_python:
        parser.error("--peer_python: name the interpreter that has sentence-transformers.")
    return given


def main() -> None:
    """Measures, and prints the summary of all results."""
    given = parsed()
    if not given.summary:
        folder = os.environ.get("BERT_TF_DATA")
        if not folder:
            sys.exit("Set BERT_TF_DATA to the folder that holds glue/ and squad/.")
        print(processor(), flush=True)
        os.makedirs(os.path.dirname(os.path.abspath(given.results)), exist_ok=True)
        is_new = not os.path.exists(given.results)
        for record in measure(given, folder):
            with open(given.results, "a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
                if is_new:
                    writer.writeheader()
                    is_new = False
                writer.writerow(record)
            shown = {key: value for key, value in record.items() if key not in COLUMNS[-2:]}
            print(", ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    with open(given.results, newline="") as file:
        print("\n".join(summarise([*csv.DictReader(file)])))


if __name__ == "__main__":
    main()
