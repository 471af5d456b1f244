"""Small corpora with planted duplicates, and preparations without Apache Beam."""

import contextlib
import gzip
from unittest import mock

import numpy as np

from bert_tf import create_pretraining_data as command
from bert_tf.preparation import beam
from bert_tf.preparation import plan as plan_module
from bert_tf.preparation.run import run
from bert_tf.preparation.settings import resolve
from tests.anew import own_flags


class Serial:
    """A stand-in for Beam's process: every unit, in this one, in an order drawn from a seed."""

    def __init__(self, seed=0, most=None):
        """``most`` is after how many units it is as if the process were killed."""
        self.rng = np.random.default_rng(seed)
        self.left = most

    def run(self, steps, on_wait):
        for step in steps:
            for number in self.rng.permutation(step.num_units):
                if self.left == 0:
                    raise KeyboardInterrupt
                self.left = None if self.left is None else self.left - 1
                step.work(int(number))
            on_wait()


@contextlib.contextmanager
def serially(unit_order=0, most=None, group_bytes=1):
    """A context in which preparations run without Beam, with groups of so many bytes at least."""

    @contextlib.contextmanager
    def started(flags):
        assert list(flags) == []
        yield Serial(unit_order, most)

    with (
        mock.patch.object(beam, "started", started),
        mock.patch.object(plan_module, "_LEAST_GROUP_BYTES", group_bytes),
    ):
        yield


def prepare(folder, output, *, unit_order=0, most=None, group_bytes=1, **flags):
    """Prepares a folder's files; gives the report. Other arguments are those of ``serially``."""
    given = {
        "input": [f"{folder}/*"], "input_format": "google", "min_characters": 100,
        "held_out_fraction": 0.1, **flags,
    }  # fmt: skip
    with serially(unit_order, most, group_bytes):
        return run(resolve(output=str(output), **given), [])


def sentence(rng, words, letter="w"):
    return " ".join(f"{letter}{number}" for number in rng.integers(5000, size=words)) + "."


def document(rng, letter="w"):
    """Some sentences, of 40 words at least."""
    return [sentence(rng, int(rng.integers(10, 20)), letter) for _ in range(rng.integers(4, 12))]


def edited(rng, lines):
    """A near duplicate: one word in the middle is another."""
    lines = list(lines)
    place = len(lines) // 2
    words = lines[place].split()
    words[len(words) // 2] = f"edited{rng.integers(10**6)}"
    lines[place] = " ".join(words)
    return lines


def write_corpus(folder, num_files=6, seed=0):
    """Writes files of documents with planted duplicates and others to be left out.

    Gives how many are planted, by the report's reasons.
    """
    rng = np.random.default_rng(seed)
    # Long enough that one word more changes a tenth of the shingles at most.
    originals = [[line for _ in range(3) for line in document(rng)] for _ in range(60)]
    planted = {
        "exact_duplicate": [originals[i] for i in (0, 1, 2, 2, 2)],
        "near_duplicate": [edited(rng, originals[i]) for i in (10, 11, 12, 12, 12, 13)],
        "too_short": [["Short.", "Very."]] * 3,
        "too_few_sentences": [[sentence(rng, 40)]] * 2,
        "another_script": [document(rng, letter="ж") for _ in range(4)],
        "without_text": [["***", "—"]],
    }
    every = originals + [lines for found in planted.values() for lines in found]
    order = rng.permutation(len(every))
    folder.mkdir()
    for number, part in enumerate(np.array_split(order, num_files)):
        # White space that cleaning removes.
        texts = ["".join(f" {line}\u00a0 \n" for line in every[place]) for place in part]
        content = "\n".join(texts).encode()
        if number % 2:
            (folder / f"{number}.txt.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{number}.txt").write_bytes(content)
    return {reason: len(found) for reason, found in planted.items()}


def read_documents(output, kind):
    """The documents of all files of a kind, in their order: texts of a sentence a line."""
    texts = [path.read_text() for path in sorted(output.glob(f"{kind}-*"))]
    return [text for content in texts for text in content.split("\n\n") if text]


def create_pretraining_data(*arguments):
    """Runs the command of this name in this process."""
    with own_flags() as values:
        command.define_flags()
        command.main(values(["create_pretraining_data", *arguments], known_only=True))
