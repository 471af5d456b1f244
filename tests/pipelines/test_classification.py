import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.classification import (
    classification_examples,
    multiple_choice_examples,
    similarity_examples,
)
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .small_vocabulary import TOKENIZER, VOCAB

PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, G, SUB_B, SUB_C, BANG = range(15)
TEXTS = ["a b c", "Ab!", "a b c d e f g a", "", "g", "b b b b b"]
SECONDS = ["d e f g", "", "g", "a", "b c", "a b c d e"]


@pytest.mark.parametrize("max_seq_length", [5, 8])
def test_inputs_equal_preprocessor_outputs(max_seq_length):
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=max_seq_length)
    for second_texts, inputs in ((None, TEXTS), (SECONDS, (TEXTS, SECONDS))):
        examples = classification_examples(
            TOKENIZER, tf.constant(TEXTS), second_texts, max_seq_length=max_seq_length
        )
        batch = examples.make_batch(tf.range(6), max_seq_length)
        for key, value in preprocessor(inputs).items():
            np.testing.assert_array_equal(batch[key], value)
        full_lengths = (
            BertPreprocessor(VOCAB, max_seq_length=40)(inputs)["input_mask"].numpy().sum(1)
        )
        assert examples.num_too_long == (full_lengths > max_seq_length).sum()


def test_batch_includes_labels_and_weights():
    def targets(**arguments):
        examples = classification_examples(TOKENIZER, TEXTS[:3], **arguments)
        _, *rest = examples.make_batch(tf.range(3), 8)
        return [(value.dtype, value.numpy().tolist()) for value in rest]

    table = [[1, 0], [0, 0], [1, 1]]
    assert targets(labels=table) == [(tf.float32, table)]
    weights = [1.0, 0.5, 0.0]
    with_weights = targets(labels=[0, 1, 2], sample_weights=weights)
    assert with_weights == [(tf.int32, [0, 1, 2]), (tf.float32, weights)]


@pytest.mark.parametrize("form", [list, np.array, tf.constant])
def test_multiple_choice_batch(form):
    contexts, choices = form(["a", "b b b"]), form([["c", "d"], ["ab", "d d d"]])
    examples = multiple_choice_examples(
        TOKENIZER, contexts, choices, labels=[1, 0], max_seq_length=8
    )
    assert (len(examples), examples.num_too_long) == (2, 1)
    assert examples.lengths.tolist() == [5, 8]
    ((batch, labels),) = examples.sorted_batches(2)[0]
    features.check_batch(batch, features.CHOICE_FEATURES)
    assert batch["input_word_ids"].numpy().tolist() == [
        [[CLS, B, B, B, SEP, A, SUB_B, SEP], [CLS, B, B, B, SEP, D, D, SEP]],
        [[CLS, A, SEP, C, SEP, PAD, PAD, PAD], [CLS, A, SEP, D, SEP, PAD, PAD, PAD]],
    ]
    assert batch["input_type_ids"].numpy()[1].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0]] * 2
    assert batch["input_mask"].numpy().sum(2).tolist() == [[8, 8], [5, 5]]
    assert batch["example_index"].numpy().tolist() == [1, 0]
    assert (labels.dtype, labels.numpy().tolist()) == (tf.int32, [0, 1])


def test_varying_number_of_choices_is_padded():
    choices = [["c"], ["ab", "d d d", "a"]]
    examples = multiple_choice_examples(TOKENIZER, ["a", "b b b"], choices, labels=[0, 2])
    batch, labels = examples.make_batch(tf.range(2), 9)
    padding = [CLS, SEP, SEP, *[PAD] * 6]
    assert batch["input_word_ids"].numpy().tolist() == [
        [[CLS, A, SEP, C, SEP, *[PAD] * 4], padding, padding],
        [[CLS, B, B, B, SEP, A, SUB_B, SEP, PAD], [CLS, B, B, B, SEP, D, D, D, SEP],
         [CLS, B, B, B, SEP, A, SEP, PAD, PAD]],
    ]  # fmt: skip
    assert batch["input_mask"].numpy()[0].sum(1).tolist() == [5, 3, 3]
    assert labels.numpy().tolist() == [[0, 1], [2, 3]]


TEXT = classification_examples, {"texts": TEXTS}
CHOICE = multiple_choice_examples, {"contexts": ["a", "b"], "choices": [["c", "d"], ["e", "f"]]}
SIMILAR = similarity_examples, {"columns": [TEXTS, SECONDS]}


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        (TEXT, {"second_texts": SECONDS[:5]}, "second_texts: expected one row for each of the 6 "
         "examples, got 5"),
        (TEXT, {"labels": [0] * 5}, "labels: expected one row for each of the 6 examples, got 5"),
        (TEXT, {"sample_weights": [1.0] * 6}, "sample_weights needs labels. Pass both"),
        (TEXT, {"texts": []}, "texts: expected at least one string, got none"),
        (TEXT, {"max_seq_length": 4}, "max_seq_length: expected at least 5, got 4"),
        (TEXT, {"long_text": "tail"},
         "long_text='tail': expected one of head, head_tail, windows, or head for pairs"),
        (TEXT, {"long_text": "windows", "second_texts": SECONDS},
         "long_text='windows': expected one of head, head_tail, windows, or head for pairs"),
        (CHOICE, {"choices": [["c", "d", "e"], ["f", "g"]], "labels": [2] * 2},
         r"labels\[1\]: expected 0 to 1, got 2"),
        (CHOICE, {"choices": [[]] * 2}, r"choices\[0\]: expected at least one choice, got none"),
        (CHOICE, {"choices": ["abc"] * 2}, r"choices\[0\]: expected a list of choices, got 'abc'"),
        (CHOICE, {"choices": [["c"]]}, "choices: expected one row for each of the 2 examples"),
        (CHOICE, {"labels": [2] * 2}, r"labels\[0\]: expected 0 to 1, got 2"),
        (CHOICE, {"contexts": [], "choices": []}, "contexts: expected at least one string"),
        (CHOICE, {"max_seq_length": 4}, "max_seq_length: expected at least 5, got 4"),
        (SIMILAR, {"columns": [TEXTS, TEXTS[:5]]}, "columns: expected one row for each of the 6 "
         "examples, got 5"),
        (SIMILAR, {"labels": [0.5]}, "labels: expected one row for each of the 6 examples, got 1"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_error(given, arguments, message):
    make, columns = given
    with pytest.raises(ValueError, match=message):
        make(TOKENIZER, **{**columns, **arguments})
