r"""Time and peak memory of the commands by size of their input, as a table, a .csv and a plot.

    python -m benchmarks.growth [--works=vocab,pretrain,...] [--rounds=1] [--max_size=SIZE]
        [--output=FOLDER]

| work     | size                      | command                                                  |
|----------|---------------------------|----------------------------------------------------------|
| vocab    | megabytes of text         | a vocabulary of 30,000 pieces                            |
| pretrain | files with 50 MB of text  | from the start to the first step, without the evaluation |
| finetune | rows of two classes       | one epoch, with evaluation and export                    |
| classes  | classes of 40,000 rows    | the same                                                 |
| predict  | rows                      | classes, from a .csv to a .tsv                           |
| extract  | lines                     | one vector per line, as .npz                             |

Texts are sentences of SST-2 and articles of English Wikipedia, repeated if there are too few. The
classes of the work ``classes`` are row indices modulo their number. The model is `tiny`, 2 layers
of 128 units, so that reading, tokenizing and writing are a large part of the time.

Each measurement is a new process, from its start to its end. Peak memory is that of the largest
process. --output is the folder to which growth.csv and growth.png are written; the plot requires
matplotlib, and shows processor time, which other work on the machine hardly changes. With several
--rounds, the values are medians.
"""

import argparse
import csv
import dataclasses
import itertools
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import whole_jobs_data as data
from .machine import processor
from .whole_jobs import run

_FILE_MB, _CORPUS_MB = 10, 50
_ROWS_OF_CLASSES = 40_000
_ROWS_TO_TRAIN = 1000
_MODEL = "tiny"
_BLUE, _PALE, _GREY = "#2b5fa0", "#dde3ea", "#888888"


@dataclasses.dataclass(frozen=True)
class Work:
    """A command whose input grows.

    Attributes:
        command: Name of the command.
        unit: Description of a size.
        sizes: Sizes to measure, in ascending order.
        write: Writes the input of a size into a folder and returns the flags; ``{output}`` in a
            flag stands for a new directory.
    """

    command: str
    unit: str
    sizes: Sequence[int]
    write: Callable[[str, str, int], Sequence[str]]


def _paragraphs(source: str) -> Iterator[str]:
    """Yields the lines of the articles of English Wikipedia, repeated without end."""
    paths = data.wikipedia_files(source, 1000)
    if not paths:
        raise ValueError("BERT_TF_DATA contains no files in corpora/enwiki.")
    for path in itertools.cycle(paths):
        yield from data.paragraphs(path)


def _examples(source: str, count: int) -> Iterator[data.Row]:
    """Yields sentences and labels of SST-2, repeated if there are too few."""
    repeated = itertools.chain.from_iterable(
        data.read_examples(source, "train") for _ in itertools.count()
    )
    return itertools.islice(repeated, count)


def _write_text(path: str, lines: Iterator[str], size: int) -> None:
    """Writes at least ``size`` characters."""
    with open(path, "w", encoding="utf-8") as file:
        while size > 0:
            line = next(lines)
            file.write(line)
            size -= len(line)


def _write_table(path: str, rows: Iterable[data.Row]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence", "label"), *rows])


def _vocab(source: str, folder: str, megabytes: int) -> Sequence[str]:
    lines = _paragraphs(source)
    for number in range(megabytes // _FILE_MB):
        _write_text(os.path.join(folder, f"{number}.txt"), lines, _FILE_MB * 1_000_000)
    return f"--input={folder}/*.txt", "--vocab_size=30000", "--output={output}/vocab.txt"


def _pretrain(source: str, folder: str, files: int) -> Sequence[str]:
    lines = _paragraphs(source)
    for number in range(files):
        path = os.path.join(folder, f"{number}.txt")
        _write_text(path, lines, _CORPUS_MB * 1_000_000 // files)
    start = (f"--init_checkpoint={_MODEL}", "--num_train_steps=1", "--held_out_fraction=0")
    return f"--input={folder}/*.txt", *start, "--export=false", "--model_dir={output}"


def _finetune(source: str, folder: str, rows: int) -> Sequence[str]:
    return _training_flags(folder, _examples(source, rows))


def _classes(source: str, folder: str, classes: int) -> Sequence[str]:
    rows = enumerate(_examples(source, _ROWS_OF_CLASSES))
    return _training_flags(folder, ((row[0], f"class {n % classes}") for n, row in rows))


def _training_flags(folder: str, rows: Iterable[data.Row]) -> Sequence[str]:
    train = os.path.join(folder, "train.csv")
    _write_table(train, rows)
    start = (f"--init_checkpoint={_MODEL}", "--num_train_epochs=1", "--task=classification")
    columns = ("--text_columns=sentence", "--label_column=label")
    return f"--train_file={train}", *start, *columns, "--model_dir={output}"


def _predict(source: str, folder: str, rows: int) -> Sequence[str]:
    model, train = os.path.join(folder, "model"), os.path.join(folder, "train")
    os.mkdir(train)
    flags = [flag.replace("{output}", model) for flag in _finetune(source, train, _ROWS_TO_TRAIN)]
    run(_command("finetune", flags), folder)
    table = os.path.join(folder, "rows.csv")
    _write_table(table, _examples(source, rows))
    return f"--model={model}", f"--input={table}", "--output={output}/predictions.tsv"


def _extract(source: str, folder: str, lines: int) -> Sequence[str]:
    path = os.path.join(folder, "lines.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text, _ in _examples(source, lines))
    pooled = ("--format=numpy", "--pooling=mean")
    return f"--model={_MODEL}", f"--input={path}", *pooled, "--output={output}"


WORKS = {
    "vocab": Work("vocab", "MB of text", (10, 30, 100, 300, 1000), _vocab),
    "pretrain": Work("pretrain", "files", (1, 10, 100, 1000, 10_000, 50_000), _pretrain),
    "finetune": Work("finetune", "rows", (1000, 10_000, 50_000, 200_000), _finetune),
    "classes": Work("finetune", "classes", (2, 200, 2000, 20_000), _classes),
    "predict": Work("predict", "rows", (10, 1000, 10_000, 100_000, 1_000_000), _predict),
    "extract": Work("extract_features", "lines", (10, 1000, 10_000, 100_000, 1_000_000), _extract),
}


@dataclasses.dataclass(frozen=True)
class Point:
    """A measurement, and a row of growth.csv."""

    work: str
    size: int
    seconds: float
    processor_seconds: float
    peak_mib: float


def _command(name: str, flags: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"bert_tf.{name}", *flags]


def measure(name: str, size: int, source: str, rounds: int) -> Point:
    """Returns the medians of the rounds of a work with one size.

    Raises:
        ValueError: If the command fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = WORKS[name].write(source, folder, size)
        usages = []
        for number in range(rounds):
            output = os.path.join(folder, f"output-{number}")
            os.mkdir(output)
            filled = [flag.replace("{output}", output) for flag in flags]
            usages.append(run(_command(WORKS[name].command, filled), folder))
            shutil.rmtree(output)
    columns = zip(*map(dataclasses.astuple, usages), strict=True)
    return Point(name, size, *(round(statistics.median(column), 2) for column in columns))


def plot(points: Sequence[Point], path: str) -> None:
    """Draws the processor time, with logarithmic axes, and the peak memory of each work."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [*dict.fromkeys(point.work for point in points)]
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    shape: dict[str, Any] = {"sharex": "col", "sharey": "row", "squeeze": False}
    figure, panels = plt.subplots(
        2, len(names), figsize=(2.2 * len(names), 5), layout="constrained", **shape
    )
    for name, column in zip(names, panels.T, strict=True):
        sizes, _, seconds, peaks = zip(
            *(dataclasses.astuple(point)[1:] for point in points if point.work == name),
            strict=True,
        )
        for axes, values, scale in zip(column, (seconds, peaks), ("log", "linear"), strict=True):
            axes.plot(sizes, values, color=_BLUE, marker="o", markersize=4)
            axes.set(xscale="log", yscale=scale)
            axes.grid(color=_PALE, linewidth=0.6)
        # A line through the last point with a slope of 1 shows what linear growth looks like.
        linear = [seconds[-1] * size / sizes[-1] for size in sizes]
        column[0].plot(sizes, linear, color=_GREY, linestyle="--", linewidth=1, zorder=0)
        column[0].set(title=WORKS[name].command)
        column[1].set(xlabel=WORKS[name].unit)
    # The panels of a row share their limits.
    panels[0, 0].set_ylim(1, 1.5 * max(point.processor_seconds for point in points))
    panels[1, 0].set_ylim(0, 1.1 * max(point.peak_mib for point in points))
    panels[0, 0].set_ylabel("processor time, s")
    panels[1, 0].set_ylabel("peak memory, MiB")
    figure.savefig(path, dpi=110, facecolor="white")


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--works", type=lambda text: text.split(","), default=[*WORKS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--max_size", type=int, help="Omit larger sizes.")
    parser.add_argument("--output", default=".", help="Folder for growth.csv and growth.png.")
    arguments = parser.parse_args()
    if not set(arguments.works) <= set(WORKS):
        parser.error(
            f"--works: expected some of {', '.join(WORKS)}, got {', '.join(arguments.works)}"
        )
    return arguments


def main() -> None:
    """Measures the requested works, and writes the table and the plot."""
    arguments = parse_arguments()
    source = os.environ.get("BERT_TF_DATA")
    if not source:
        sys.exit("Set BERT_TF_DATA to the folder that contains corpora/ and glue/.")
    print(f"{processor()}; load average {os.getloadavg()[0]:.2f}\n", flush=True)
    print("| work | size | s | processor s | peak MiB |\n|---|---|---|---|---|", flush=True)
    points = []
    for name in arguments.works:
        for size in WORKS[name].sizes:
            if arguments.max_size is None or size <= arguments.max_size:
                points.append(point := measure(name, size, source, arguments.rounds))
                print(
                    f"| {name} | {size:,} {WORKS[name].unit} | {point.seconds:.1f} | "
                    f"{point.processor_seconds:.1f} | {point.peak_mib:,.0f} |",
                    flush=True,
                )
    with open(os.path.join(arguments.output, "growth.csv"), "w", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in dataclasses.fields(Point))
        writer.writerows(map(dataclasses.astuple, points))
    plot(points, os.path.join(arguments.output, "growth.png"))


if __name__ == "__main__":
    main()
