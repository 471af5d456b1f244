r"""Reproduces the tables of the BERT paper: runs the experiments, and writes scores and tables.

    python examples/paper/make_tables.py --table=ablations --size=bert-mini --input='wiki/*.gz' \
        --steps=20000 --data_dir=data --output_dir=runs/paper --dry_run

With --dry_run, the script only prints the commands. Otherwise, it runs each command, with a log
next to the directory of the run, and skips finished commands. It writes cells.csv,
with a line per score and seed, and tables.md to --output_dir. experiments.toml defines the rows of
the tables and contains the paper's scores.
"""

import argparse
import csv
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_tf.config import PRESETS, BertConfig

EXPERIMENTS = tomllib.loads(pathlib.Path(__file__).with_name("experiments.toml").read_text("utf-8"))
TABLES, TASKS, COMMANDS = (EXPERIMENTS[name] for name in ("tables", "tasks", "commands"))
PERPLEXITY = "held-out text"  # the column with the score of pre-training
OF_MASKS = ("masked_lm_prob", "masking", "mask_split", "max_predictions_per_seq")
OF_THE_PAPER = ("bert-base", "bert-large")  # sizes that have a recipe
SWEPT = ("train_batch_size", "learning_rate", "num_train_epochs")
UNITS = ("loss", "mean_absolute_error", "mean_squared_error")  # scores that are not percentages
COLUMNS = ("run", "metric", "seed", "score", "collapsed")


class Run(NamedTuple):
    """Command that is finished if its product exists; ``needs`` lists the runs to finish first."""

    name: str
    words: list[str]
    product: pathlib.Path
    needs: tuple[str, ...] = ()


class Place(NamedTuple):
    """Cell of a table: the run that has its scores, or a description of what is missing."""

    run: str
    lacks: str = ""
    note: str = ""
    other_task: bool = False


def joined(*texts: str) -> list[str]:
    """Splits flags into arguments; the last value of a flag wins, except for config overrides."""
    flags: dict[str, str] = {}
    for word in shlex.split(" ".join(texts)):
        name, equals, value = word.removeprefix("--").partition("=")
        value = value if equals else "true"
        if name == "config_overrides" and name in flags:
            value = f"{flags[name]},{value}"
        flags[name] = value
    if flags.get("objective", "mlm") != "mlm":  # other objectives mask nothing
        flags = {name: value for name, value in flags.items() if name not in OF_MASKS}
    return [f"--{name}={value}" for name, value in flags.items()]


def sizes(size: str, row: dict[str, Any], flags: str) -> str:
    """Returns the config overrides of a row; wider models have more heads of the same size."""
    blocks, width, more = (row.get(name, 1) for name in ("blocks", "width", "heads"))
    layers, hidden = PRESETS[size][:2]
    heads = BertConfig.from_preset(size).num_attention_heads
    own = [part for part in flags.replace(",", " ").replace("=", " ").split(" ") if part]
    if "num_attention_heads" in own:
        heads = int(own[own.index("num_attention_heads") + 1])
    if min(layers * blocks, heads * more * width) < 1:
        raise ValueError(f"{size} has too few blocks or heads")
    found = {}
    if blocks != 1:
        found["num_hidden_layers"] = round(layers * blocks)
    if more != 1 or width != 1:
        found["num_attention_heads"] = round(heads * more * width)
    if width != 1:
        found["hidden_size"] = hidden // heads * found["num_attention_heads"]
        found["intermediate_size"] = 4 * found["hidden_size"]
    overrides = ",".join(f"{name}={value}" for name, value in found.items())
    return overrides and f"--config_overrides={overrides}"


class Plan:
    """Runs by name, each after the runs that it needs, and the cells of each table."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.output = given, pathlib.Path(given.output_dir)
        is_of_the_paper = given.size in OF_THE_PAPER
        self.values = {
            **vars(given),
            "recipe": given.size.replace("-", "_") if is_of_the_paper else "default",
            "warmup": math.ceil(given.steps / (100 if is_of_the_paper else 10)),
            "vocab_file": self.output / "vocab.txt",
            "stride": min(128, given.max_seq_length // 2),
        }
        self.runs: dict[str, Run] = {}
        self.places = {
            name: [[self._place(TABLES[name], row, task) for task, _ in TABLES[name]["columns"]]
                   for row in TABLES[name]["rows"]]
            for name in given.table
        }  # fmt: skip

    def _words(self, command: str, *flags: str, files: Sequence[str] = (), **own: Any) -> list[str]:
        # Flags are split before values are inserted, because paths may contain spaces.
        name, _, rest = COMMANDS[command].partition(" ")
        filled = [word.format(*files, **(self.values | own)) for word in joined(rest, *flags)]
        return [sys.executable, "-m", f"bert_tf.{name}", *filled]

    def _pretraining(self, row: dict[str, Any]) -> str:
        own, general = row.get("pretrain", ""), self.given.pretrain_flags
        size = sizes(self.given.size, row, general)
        if not self.given.input:
            raise ValueError("no --input (text to pre-train on)")
        vocab = self.values["vocab_file"]
        self.runs.setdefault("vocab", Run("vocab", self._words("vocab"), vocab))
        rest = f"{own} {size.removeprefix('--config_overrides=')}".replace("--", "").split()
        name = "pretrain/" + ("_".join(rest) or "base")
        words = self._words("pretrain", general, own, size, directory=self.output / name)
        product = self.output / name / "results.json"
        return self.runs.setdefault(name, Run(name, words, product, ("vocab",))).name

    def _there(self, name: str) -> str:
        path = f"{self.given.data_dir}/{name}"
        return next((path + end for end in ("", ".gz") if pathlib.Path(path + end).exists()), "")

    def _place(self, table: dict[str, Any], row: dict[str, Any], task: str) -> Place:
        checkpoint, needs, start = self.given.checkpoint, (), "checkpoint"
        try:
            if not (table.get("uses_checkpoint") and checkpoint):
                start = self._pretraining(row)
                checkpoint, needs = self.output / start, (start,)
        except ValueError as error:
            return Place("", str(error))
        if task == PERPLEXITY:
            return Place(start)
        sources = [each for each in TASKS[task] if all(map(self._there, each["files"]))]
        if not sources:
            lacking = next(name for name in TASKS[task][0]["files"] if not self._there(name))
            return Place("", f"no {lacking} in --data_dir")
        source, own = sources[0], row.get("finetune", "")
        is_frozen = "--feature_based" in own
        general = self.given.feature_flags if is_frozen else self.given.finetune_flags
        parts = [start.removeprefix("pretrain/"), *own.replace("--", "").split(), task]
        name = "finetune/" + "_".join(parts).lower().replace(" ", "_")
        files = [*map(self._there, source["files"])]
        places = {"checkpoint": checkpoint, "directory": self.output / name}
        words = self._words("finetune", source["flags"], general, own, files=files, **places)
        product = self.output / name / "results.json"
        self.runs.setdefault(name, Run(name, words, product, needs))
        return Place(name, "", source.get("note", ""), source.get("other_task", False))


def make(run: Run, output: pathlib.Path) -> str:
    """Runs a command; returns the reason if it failed, else ""."""
    text, log = shlex.join(run.words[1:]), output / f"{run.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.read_text(errors="replace").partition("\n")[0] != text:
        return f"{log} belongs to a different command. Use its flags, or another --output_dir"
    if run.product.exists():
        return ""
    with log.open("a") as file:
        print(text, file=file, flush=True)
        status = subprocess.run(run.words, stdout=file, stderr=file).returncode
    return f"exit status {status}, see {log}" if status or not run.product.exists() else ""


def scores(results: dict[str, Any]) -> list[tuple[str, str, dict[str, float]]]:
    """Returns each seed in a results.json, why it collapsed (or ""), and its dev scores in percent.

    For a sweep, only the seeds of the configuration with the best mean are returned.
    """
    if "evaluation" in results:  # results of pre-training
        return [("", "", {"perplexity": results["evaluation"]["masked_lm_perplexity"]})]
    best = next(iter(results.get("configurations", ())), {})
    found = []
    for run in results["runs"]:
        if any(run.get(name) != best[name] for name in ("feature_based", *SWEPT) if name in best):
            continue
        own = {k: v for k, v in run["scores"].get(results["dev_set"], {}).items() if k not in UNITS}
        scale = 1 if {"exact", "exact_match"} & set(own) else 100  # SQuAD scores are percentages
        second = run["scores"].get("dev_mismatched", {}).get("accuracy")
        own |= {} if second is None else {"mismatched_accuracy": second}
        percent = {name: value * scale for name, value in own.items()}
        found.append((str(run["seed"]), run["collapsed"] or "", percent))
    return found


def gather(plan: Plan) -> list[tuple[str, str, str, float, str]]:
    """Returns the scores of finished runs: run, metric, seed, score, and why the run collapsed."""
    return [
        (name, metric, seed, round(value, 4), collapsed)
        for name, run in plan.runs.items()
        if run.product.name == "results.json" and run.product.exists()
        for seed, collapsed, of_seed in scores(json.loads(run.product.read_text()))
        for metric, value in (of_seed or {"": math.nan}).items()
    ]


def markdown(name: str, plan: Plan, cells: Sequence[tuple[str, str, str, float, str]]) -> str:
    """Returns a table of means over seeds, with standard errors and the paper's scores."""
    table, places = TABLES[name], plan.places[name]
    columns, said = table["columns"], {table["note"]: None}
    lines = [
        f"| run | {' | '.join(', '.join(column) for column in columns)} |",
        "|:--|" + "--:|" * len(columns),
    ]
    for row, of_row in zip(table["rows"], places, strict=True):
        line = f"| {row['name']} |"
        for number, ((task, metric), place) in enumerate(zip(columns, of_row, strict=True)):
            own = [cell for cell in cells if cell[0] == place.run and cell[1] in (metric, "")]
            values = [cell[3] for cell in own if not math.isnan(cell[3])]
            line += f" {statistics.fmean(values):.1f}" if values else " -"
            if len(values) > 1:
                line += f" ± {statistics.stdev(values) / math.sqrt(len(values)):.1f}"
            paper = row.get("paper", [])[number : number + 1]
            line += f" ({paper[0]:g}) |" if paper and not place.other_task else " |"
            if failed := sum(bool(cell[4]) for cell in own):
                said[f"Collapsed: {row['name']} ({task}), {failed} of {len(own)} seeds."] = None
            if place.lacks or not values:
                said[f"Missing: {task}, {place.lacks or f'{place.run} is not finished'}."] = None
            if place.note:
                said[f"{task} uses {place.note}."] = None
        lines.append(line)
    for of, figures in table.get("published", {}).items():
        lines.append(f"| {of}, published | {' | '.join(f'{each:g}' for each in figures)} |")
    return "\n".join([f"## {table['title']}", "", *lines, "", *said, ""])


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags = {
        "size": ("bert-base", "preset of the model to pre-train"),
        "input": ("", "text to pre-train on, as for pretrain --input"),
        "output_dir": ("runs/paper", "folder for the runs, the scores and the tables"),
        "data_dir": ("data", "folder with any of glue/TASK/, squad/, swag/ and ner/"),
        "checkpoint": ("", "checkpoint for the tables features and stability"),
        "pretrain_flags": ("", "flags to add to or replace in every pretrain command"),
        "finetune_flags": ("", "flags to add to every finetune command, such as --sweep=paper"),
        "feature_flags": ("", "flags to add to every finetune command with frozen features"),
        "steps": (1_000_000, "number of steps per pre-training run"),
        "train_batch_size": (256, "number of rows per pre-training step"),
        "vocab_size": (30_522, "size of the vocabulary, which is learned from --input"),
        "max_seq_length": (384, "maximum number of tokens per row for SQuAD"),
        "seeds": (3, "number of seeds per fine-tuning run"),
    }
    tables = f"one or more of {','.join(TABLES)}; by default all"
    parser.add_argument(
        "--table", type=lambda text: text.split(","), default=[*TABLES], help=tables
    )
    for name, (default, text) in flags.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    parser.add_argument(
        "--dry_run", action="store_true", help="print the commands without running them"
    )
    given = parser.parse_args(argv)
    if wrong := [name for name in given.table if name not in TABLES]:
        parser.error(f"--table={wrong[0]} is unknown: expected {tables}")
    if given.size not in PRESETS:
        parser.error(f"--size={given.size} is not a preset: expected a name such as bert-base")
    return given


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the commands, or runs them and writes the tables."""
    plan = Plan(given := parsed(argv))
    if given.dry_run:
        places = [place for table in plan.places.values() for row in table for place in row]
        said = [f"# {why}" for why in dict.fromkeys(place.lacks for place in places) if why]
        commands = [shlex.join(["python", *run.words[1:]]) for run in plan.runs.values()]
        print(*commands, *said, sep="\n")
        return
    failed: dict[str, str] = {}
    for number, run in enumerate(plan.runs.values(), start=1):
        print(f"{number} of {len(plan.runs)}: {run.name}", flush=True)
        lacking = [f"{name} failed" for name in run.needs if name in failed]
        if why := lacking[0] if lacking else make(run, plan.output):
            print(f"  {why}")
            failed[run.name] = why
        cells = gather(plan)
        with (plan.output / "cells.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *cells])
        text = "\n".join(markdown(name, plan, cells) for name in plan.places)
        (plan.output / "tables.md").write_text(text)
    sys.exit(f"{len(failed)} runs have failed. Rerun the command to retry them." if failed else 0)


if __name__ == "__main__":
    main()
