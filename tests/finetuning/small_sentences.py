"""Sentences of random words with random tags, and what is written of them."""

import dataclasses
import pathlib

import numpy as np

from bert_tf.tasks.examples import TaggedExample

from .small_tasks import WORDS, examples_of

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
# No piece; [UNK]; two pieces; a word with white space in it.
ODD_WORDS = ["\u200b", "\u6f22", "a0s", "b1\u00a0c2"]


def random_examples(count, labels=LABELS, longest=9, seed=5):
    """Sentences of random words with random tags, two to a document."""
    rng = np.random.default_rng(seed)

    def sentence(number):
        words = rng.choice([*WORDS, *ODD_WORDS], rng.integers(1, longest)).tolist()
        words += ODD_WORDS if number == 1 else []
        tags = rng.choice(labels, len(words)).tolist()
        return TaggedExample(f"id{number}", tuple(words), tuple(tags), number // 2)

    return examples_of([sentence(number) for number in range(count)], labels)


def without_tags(examples):
    return examples_of(dataclasses.replace(item, tags=None) for item in examples.items)


def read_columns(path):
    """The sentences of a written file: for each word its columns."""
    sentences = pathlib.Path(path).read_text().split("\n\n")
    assert sentences.pop() == ""
    return [[line.split(" ") for line in sentence.split("\n")] for sentence in sentences]
