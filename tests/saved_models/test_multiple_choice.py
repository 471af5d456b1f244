"""Choices against the model on the rows that it is fine-tuned with, and rows made by hand."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertMultipleChoice
from bert_tf.pipelines.multiple_choice import multiple_choice_examples
from bert_tf.saved_models.classification import choose

from .conftest import ask, assert_same, features_of, make, serve, softmax

CLS, SEP = 2, 3
THE, A, CAT, DOG, SAT, ON, MAT = range(5, 12)

CONTEXTS = ["The cat", "", "dog dog dog dog dog", b"a \xff\xc3dog."]
CHOICES = [
    ["sat", "the mat", ""],
    ["on a mat", "sat", "!"],
    ["a", "the cat sat on the mat", "dog"],
    [b"\xff", b"\xffcat", "unable"],
]


@pytest.fixture(scope="module")
def chooser():
    return make(BertMultipleChoice)


def test_choices_by_hand(chooser):
    outputs = ask(choose, serve(chooser), context=["The cat"], choices=[["sat", "on mat"]])
    logits = [
        chooser({key: value[None] for key, value in features_of(ids, types).items()}).numpy()[0, 0]
        for ids, types in (
            ([CLS, THE, CAT, SEP, SAT, SEP], [0] * 4 + [1] * 2),
            ([CLS, THE, CAT, SEP, ON, MAT, SEP], [0] * 4 + [1] * 3),
        )
    ]
    assert_same(
        outputs,
        {
            "choice": np.array([np.argmax(logits)], np.int32),
            "probabilities": softmax(np.array([logits])),
            "truncated": np.array([False]),
        },
    )
    assert abs(logits[0] - logits[1]) > 1e-3


def test_rows_are_those_of_fine_tuning(chooser, tokenizer):
    outputs = ask(choose, serve(chooser, 8), context=CONTEXTS, choices=CHOICES)
    examples = multiple_choice_examples(tokenizer, CONTEXTS, CHOICES, max_seq_length=8)
    for batch in examples.evaluation_batches(2):
        place = batch.pop("example_index").numpy()
        logits = chooser(batch, training=False).numpy()
        np.testing.assert_allclose(outputs["probabilities"][place], softmax(logits), atol=1e-6)
        assert outputs["choice"][place].tolist() == logits.argmax(1).tolist()
    assert outputs["truncated"].tolist() == [False, False, True, False]
    assert examples.num_too_long == 1


def test_no_choices(chooser):
    choices = tf.zeros([2, 0], tf.string)
    outputs = ask(choose, serve(chooser), context=["a", "cat"], choices=choices)
    assert outputs["choice"].tolist() == [-1, -1]
    assert outputs["probabilities"].shape == (2, 0) and not outputs["truncated"].any()


def test_rows_do_not_depend_on_their_batch(chooser):
    served = serve(chooser, 8)
    together = ask(choose, served, context=CONTEXTS, choices=CHOICES)
    for size in (0, 1, 3):
        choices = tf.constant(CHOICES[:size], tf.string, [size, 3])
        assert_same(
            ask(choose, served, context=CONTEXTS[:size], choices=choices),
            {key: value[:size] for key, value in together.items()},
        )


def test_as_many_rows_of_choices_as_contexts(chooser):
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many rows in both columns"):
        choose(serve(chooser), tf.constant(["a"]), tf.constant([["a"], ["cat"]]))
