"""Random examples of each task type, a tiny model and stand-ins, for the tests of tasks."""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.evaluation.evaluation import Inference
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.examples import (
    Answer,
    ChoiceExample,
    ExampleSet,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from bert_tf.tasks.registry import KINDS

WORDS = [f"{letter}{number}" for letter in "abcdefgh" for number in range(5)]
VOCAB = [*SPECIAL_TOKENS, *WORDS, "##s", "##t"]
TOKENIZER = BertTokenizer(VOCAB)
IDS = {token: number for number, token in enumerate(VOCAB)}
CONFIG = BertConfig(
    vocab_size=len(VOCAB),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.1,
)


def examples_of(items, labels=()):
    return ExampleSet(list(items), tuple(labels), [])


def inference(model, *, tokenizer=TOKENIZER, max_seq_length=32, batch_size=4):
    """Returns an inference that runs a model once per data set and caches its outputs."""
    return Inference(model, tokenizer, max_seq_length, batch_size, cache={})


def loss_of(task, model, rows, targets, training=True):
    """Returns the loss of a batch, as the command computes it."""
    model.compile(jit_compile=False, **task.compile_arguments)
    return float(model.compute_loss(rows, targets, model(rows, training=training)))


class StandIn:
    """A model whose outputs are a function of its features; it counts its traces."""

    def __init__(self, compute):
        self._compute = compute
        self.traces = 0

    def __call__(self, inputs, training):
        assert training is False
        self.traces += 1
        return self._compute(inputs)

    @staticmethod
    def activated(outputs):
        """The activation of a regressor: the identity."""
        return outputs


def by_token(scores):
    """Maps token ids (B, S) to float scores from a dict by token; other tokens get 0."""
    table = tf.constant([float(scores.get(token, 0.0)) for token in VOCAB])
    return lambda inputs: tf.gather(table, inputs["input_word_ids"])


def by_first_word(table):
    """A model whose output for a text is that of its first word, or 0 for other words."""
    width = np.shape(next(iter(table.values())))
    values = np.zeros([len(VOCAB), *width], np.float32)
    for word, output in table.items():
        values[IDS[word]] = output
    values = tf.constant(values)
    return StandIn(lambda inputs: tf.gather(values, inputs["input_word_ids"][:, 1]))


def items_of(table):
    """Returns one text per word, which begins with that word; their lengths differ."""
    return [
        TextExample(f"id{number}", " ".join([word, *WORDS[: 7 * number % 5]]), None, label)
        for number, (word, label) in enumerate(table.items())
    ]


def make_task(kind, name, train=None, dev=None, test=None, **given):
    """Returns a task of a type with the given sets and options."""
    common = ("labels", "metric", "folder", "embedding")
    arguments = {key: given.pop(key) for key in common if key in given}
    options = KINDS[kind].Options(**given)
    return KINDS[kind](name, train, dev or {}, test or {}, options=options, **arguments)


def text_task(*sets, kind="classification", **given):
    """Returns a text task of a type."""
    return make_task(kind, *sets, **given)


# === Random examples ===

LABELS = ("x", "y", "z")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
# No piece; [UNK]; two pieces; a word that contains white space.
ODD_WORDS = ["\u200b", "\u6f22", "a0s", "b1\u00a0c2"]
WINDOWS = {"doc_stride": 4, "max_query_length": 6}


def random_labels(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "classification":
        return [str(label) for label in rng.choice(LABELS, count)]
    if kind == "multilabel":
        return [tuple(name for name in LABELS if rng.random() < 0.4) for _ in range(count)]
    return rng.normal(1.0, 2.0, count).round(2).tolist()


def random_text(rng, longest):
    return " ".join(rng.choice(WORDS, rng.integers(1, longest)))


def texts_with(labels, second=False):
    """Returns one text of random length per label."""
    rng = np.random.default_rng(len(labels))
    return [
        TextExample(f"id{n}", random_text(rng, 9), random_text(rng, 9) if second else None, label)
        for n, label in enumerate(labels)
    ]


def random_sentences(count, labels=TAGS, longest=9, seed=5):
    """Returns sentences of random words with random tags, two per document."""
    rng = np.random.default_rng(seed)

    def sentence(number):
        words = rng.choice([*WORDS, *ODD_WORDS], rng.integers(1, longest)).tolist()
        words += ODD_WORDS if number == 1 else []
        tags = rng.choice(labels, len(words)).tolist()
        return TaggedExample(f"id{number}", tuple(words), tuple(tags), number // 2)

    return examples_of([sentence(number) for number in range(count)], labels)


def tagging_on_frozen_features(examples, folder, lstm_units):
    """Returns a task that uses these examples for both training and dev set."""
    return make_task(
        "tagging", "ner", examples, {"again": examples}, folder=str(folder),
        document_context=True, feature_based="weighted_sum_all", lstm_units=lstm_units,
    )  # fmt: skip


def random_choices(count, longest=6):
    rng = np.random.default_rng(5)
    return examples_of(
        ChoiceExample(
            f"id{number}",
            random_text(rng, longest),
            tuple(random_text(rng, longest) for _ in range(4)),
            int(rng.integers(4)),
        )
        for number in range(count)
    )


def question(name, asked, context, *answers, is_impossible=False):
    found = tuple(Answer(text, context.encode().index(text.encode())) for text in answers)
    return QuestionExample(name, "", asked, context, found, is_impossible)


def random_questions(count, impossible=0.0, longest=16):
    """Returns random questions about random words; the answers are random spans or missing."""
    rng = np.random.default_rng(7)
    items = []
    for number in range(count):
        words = rng.permutation(WORDS)[: rng.integers(4, longest)]
        start = rng.integers(len(words))
        answer = " ".join(words[start : start + rng.integers(1, 4)])
        asked = " ".join(rng.choice(WORDS, 4))
        answers = () if rng.random() < impossible else (answer,)
        items.append(
            question(f"id{number}", asked, " ".join(words), *answers, is_impossible=not answers)
        )
    return examples_of(items)


def without(examples, **fields):
    """Returns the examples with some fields replaced."""
    return examples_of(dataclasses.replace(item, **fields) for item in examples.items)


def read_columns(path):
    """Returns the sentences of a written file: the columns of each word."""
    sentences = pathlib.Path(path).read_text().split("\n\n")
    assert sentences.pop() == ""
    return [[line.split(" ") for line in sentence.split("\n")] for sentence in sentences]
