"""Input files of ``benchmarks.whole_jobs``, and the comparison of its results."""

import csv
import glob
import gzip
import itertools
import json
import os
from collections.abc import Iterator, Mapping

from .whole_jobs_peers import LABELS

_MIN_AGREEMENT = 0.995
_MAX_DIFFERENCE = 1e-4

Row = tuple[str, str]


def read_examples(folder: str, split: str) -> Iterator[Row]:
    """Yields the sentences of SST-2 and their labels, in the order of the file."""
    (path,) = glob.glob(os.path.join(folder, "glue", "SST-2", f"{split}.tsv*"))
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield row["sentence"].strip(), LABELS[int(row["label"])]


def write_table(path: str, folder: str, split: str, rows: int | None = None) -> str:
    """Writes the first ``rows`` examples of a split of SST-2 as .csv; returns the path.

    Raises:
        ValueError: If the split has fewer rows.
    """
    examples = list(itertools.islice(read_examples(folder, split), rows))
    if len(examples) < (rows or 1):
        raise ValueError(f"The split {split} of SST-2 has only {len(examples):,} rows.")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "label"])
        writer.writerows(examples)
    return path


def wikipedia_files(folder: str, count: int) -> list[str]:
    """Returns the first ``count`` files of English Wikipedia, each with 1 MB of text."""
    return sorted(glob.glob(os.path.join(folder, "corpora", "enwiki", "*.gz")))[:count]


def write_texts(directory: str, folder: str, count: int) -> str:
    """Writes files of Wikipedia as plain text; returns their pattern.

    Each line is a paragraph, and a blank line ends an article.
    """
    os.makedirs(directory)
    for path in wikipedia_files(folder, count):
        name = os.path.basename(path).removesuffix(".gz")
        with open(os.path.join(directory, f"{name}.txt"), "w", encoding="utf-8") as file:
            file.writelines(paragraphs(path))
    return os.path.join(directory, "*.txt")


def paragraphs(path: str) -> Iterator[str]:
    """Yields the lines of the articles in a file, and an empty one after each article."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.startswith("</doc"):
                yield "\n"
            elif not line.startswith("<doc") and line.strip():
                yield line


def write_sentences(path: str, folder: str, count: int) -> str:
    """Writes sentences of Wikipedia with 40 to 300 characters, one per line; returns the path."""
    files = wikipedia_files(folder, 60)
    lines = itertools.chain.from_iterable(paragraphs(file) for file in files)
    found = itertools.chain.from_iterable(line.strip().split(". ") for line in lines)
    # " ||| " would separate the two texts of a pair.
    usable = (text for text in found if 40 < len(text) < 300 and "|||" not in text)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{' '.join(text.split())}\n" for text in itertools.islice(usable, count))
    return path


# === Comparison; each function reads the output directories of the contenders ===

Outputs = Mapping[str, str]


def compare_vocabularies(outputs: Outputs) -> Iterator[str]:
    """Yields the size of each vocabulary.

    Raises:
        ValueError: If the sizes differ.
    """
    pieces: dict[str, set[str]] = {}
    for name, output in outputs.items():
        with open(os.path.join(output, "vocab.txt"), encoding="utf-8") as file:
            pieces[name] = set(file.read().splitlines())
    first = next(iter(pieces.values()))
    for name, found in pieces.items():
        yield f"{name}: {len(found):,} pieces, {len(first & found) / len(first):.1%} the same"
    if len({len(found) for found in pieces.values()}) > 1:
        raise ValueError("The vocabularies have different sizes.")


def _predictions(output: str) -> list[tuple[str, float]]:
    with open(os.path.join(output, "predictions.tsv"), encoding="utf-8", newline="") as file:
        return [
            (row["prediction"], float(row[f"probability_{LABELS[0]}"]))
            for row in csv.DictReader(file, delimiter="\t")
        ]


def compare_predictions(outputs: Outputs) -> Iterator[str]:
    """Yields the fraction of labels that equal those of the first contender.

    Raises:
        ValueError: If the fraction is below 99.5%.
    """
    answers = {name: _predictions(output) for name, output in outputs.items()}
    first = next(iter(answers.values()))
    for name, found in answers.items():
        pairs = list(zip(first, found, strict=True))
        equal = sum(ours[0] == other[0] for ours, other in pairs) / len(pairs)
        largest = max(abs(ours[1] - other[1]) for ours, other in pairs)
        share = sum(label == LABELS[1] for label, _ in found) / len(found)
        yield (
            f"{name}: {equal:.2%} of {len(pairs):,} labels equal, probabilities within "
            f"{largest:.1e}; {share:.0%} {LABELS[1]}"
        )
        if equal < _MIN_AGREEMENT:
            raise ValueError(f"{name}: expected {_MIN_AGREEMENT:.1%} equal labels.")


def compare_accuracies(outputs: Outputs) -> Iterator[str]:
    """Yields the accuracy of each classifier on the dev set; seeds and libraries differ."""
    for name, output in outputs.items():
        with open(os.path.join(output, "results.json"), encoding="utf-8") as file:
            yield f"{name}: accuracy {json.load(file)['scores']['dev']['accuracy']:.4f}"


def compare_records(outputs: Outputs) -> Iterator[str]:
    """Yields the number of files and their size, which differs by the splits of the text."""
    for name, output in outputs.items():
        sizes = [entry.stat().st_size for entry in os.scandir(output)]
        yield f"{name}: {len(sizes)} written, {sum(sizes) / 1e6:.2f} MB"


def compare_vectors(outputs: Outputs) -> Iterator[str]:
    """Yields the largest difference from the vectors of the first contender.

    Raises:
        ValueError: If a difference exceeds 1e-4.
    """
    import numpy as np

    first = None
    for name, output in outputs.items():
        paths = sorted(glob.glob(os.path.join(output, "*.npz")))
        vectors = np.concatenate([np.load(path)["values"] for path in paths])
        first = vectors if first is None else first
        if vectors.shape != first.shape:
            raise ValueError(f"{name}: expected the shape {first.shape}, got {vectors.shape}.")
        difference = float(abs(vectors - first).max())
        yield f"{name}: vectors {vectors.shape}, maximum difference {difference:.1e}"
        if difference > _MAX_DIFFERENCE:
            raise ValueError(f"{name}: expected differences of at most {_MAX_DIFFERENCE}.")
