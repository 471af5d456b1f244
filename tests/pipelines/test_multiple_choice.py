import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.classification import multiple_choice_examples
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .small_vocabulary import TOKENIZER, VOCAB

PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, G, SUB_B, SUB_C, BANG = range(15)
CONTEXTS = ["a b c d e f", "", "g", "a b", "c d e", "f f"]
CHOICES = [
    ["a", "b c d e f g", "c"],
    ["a", "a b", ""],
    ["d", "e", "a b c d"],
    ["c", "d", "e"],
    ["", "", "f"],
    ["g g g g", "a", "b"],
]


def test_rows():
    examples = multiple_choice_examples(
        TOKENIZER, ["a", "b b b"], [["c", "d"], ["ab", "d d d"]], labels=[1, 0], max_seq_length=8
    )
    assert (len(examples), examples.num_too_long) == (2, 1)
    assert examples.lengths.tolist() == [5, 8]
    ((batch, labels),) = examples.evaluation_batches(2, longest_first=True)
    features.check_batch(batch, features.CHOICE_FEATURES)
    assert batch["input_word_ids"].numpy().tolist() == [
        [[CLS, B, B, B, SEP, A, SUB_B, SEP], [CLS, B, B, B, SEP, D, D, SEP]],
        [[CLS, A, SEP, C, SEP, PAD, PAD, PAD], [CLS, A, SEP, D, SEP, PAD, PAD, PAD]],
    ]
    assert batch["input_type_ids"].numpy()[1].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0]] * 2
    assert batch["input_mask"].numpy().sum(2).tolist() == [[8, 8], [5, 5]]
    assert batch["example_index"].numpy().tolist() == [1, 0]
    assert (labels.dtype, labels.numpy().tolist()) == (tf.int32, [0, 1])


def test_another_number_of_choices_in_each_row():
    choices = [["c"], ["ab", "d d d", "a"]]
    examples = multiple_choice_examples(TOKENIZER, ["a", "b b b"], choices, labels=[0, 2])
    batch, labels = examples.make_batch(tf.range(2), 9)
    none = [CLS, SEP, SEP, *[PAD] * 6]
    assert batch["input_word_ids"].numpy().tolist() == [
        [[CLS, A, SEP, C, SEP, *[PAD] * 4], none, none],
        [[CLS, B, B, B, SEP, A, SUB_B, SEP, PAD], [CLS, B, B, B, SEP, D, D, D, SEP],
         [CLS, B, B, B, SEP, A, SEP, PAD, PAD]],
    ]  # fmt: skip
    assert batch["input_mask"].numpy()[0].sum(1).tolist() == [5, 3, 3]
    assert labels.numpy().tolist() == [[0, 1], [2, 3]]


def test_full_rows_are_the_preprocessors():
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=9)
    for form in (list, np.array, tf.constant):
        examples = multiple_choice_examples(
            TOKENIZER, form(CONTEXTS), form(CHOICES), max_seq_length=9
        )
        batch = examples.make_batch(tf.range(6), 9)
        for column in range(3):
            pairs = CONTEXTS, [choices[column] for choices in CHOICES]
            for key, value in preprocessor(pairs).items():
                np.testing.assert_array_equal(batch[key][:, column], value)
    # "a b c d e f" with any of its choices is 10 tokens or more.
    assert examples.num_too_long == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"choices": [*CHOICES[:4], ["a", "b"], CHOICES[5]], "labels": [2] * 6},
            r"labels\[4\] is 2: expected 0 to 1",
        ),
        ({"choices": [[]] * 6}, r"choices\[0\] has 0 choices: expected some"),
        ({"choices": ["abc"] * 6}, r"choices\[0\] is 'abc': expected a list of strings"),
        ({"choices": CHOICES[:5]}, "choices: expected one row for each of the 6 examples"),
        ({"labels": [3] * 6}, r"labels\[0\] is 3: expected 0 to 2"),
        ({"contexts": [], "choices": []}, "contexts is empty"),
        ({"max_seq_length": 4}, "max_seq_length: expected 5 or more; got 4"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        multiple_choice_examples(
            TOKENIZER, **{"contexts": CONTEXTS, "choices": CHOICES, **arguments}
        )
