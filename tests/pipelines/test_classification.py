import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.classification import classification_examples
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .small_vocabulary import TOKENIZER, VOCAB

PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, G, SUB_B, SUB_C, BANG = range(15)
TEXTS = ["a b c", "Ab!", "a b c d e f g a", "", "g", "b b b b b"]
SECONDS = ["d e f g", "", "g", "a", "b c", "a b c d e"]


def test_rows_of_single_texts():
    examples = classification_examples(
        TOKENIZER, ["a", "a b c d", "Ab! a"], labels=[2, 0, 1], max_seq_length=5
    )
    assert (len(examples), examples.num_too_long) == (3, 2)
    assert examples.lengths.tolist() == [3, 5, 5]
    first, second = examples.evaluation_batches(2, longest_first=True)
    features.check_batch(first[0], features.ENCODER_FEATURES)
    assert {value.dtype for value in first[0].values()} == {tf.int32}
    assert first[0]["input_word_ids"].numpy().tolist() == [
        [CLS, A, B, C, SEP],
        [CLS, A, SUB_B, BANG, SEP],
    ]
    assert first[0]["example_index"].numpy().tolist() == [1, 2]
    assert first[1].dtype == tf.int32 and first[1].numpy().tolist() == [0, 1]
    assert second[0]["input_word_ids"].numpy().tolist() == [[CLS, A, SEP, PAD, PAD]]
    assert second[0]["input_mask"].numpy().tolist() == [[1, 1, 1, 0, 0]]
    assert second[1].numpy().tolist() == [2]


@pytest.mark.parametrize("max_seq_length", [5, 8])
def test_full_rows_are_the_preprocessors(max_seq_length):
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=max_seq_length)
    for second_texts, inputs in ((None, TEXTS), (SECONDS, (TEXTS, SECONDS))):
        examples = classification_examples(
            TOKENIZER, tf.constant(TEXTS), second_texts, max_seq_length=max_seq_length
        )
        batch = examples.make_batch(tf.range(6), max_seq_length)
        for key, value in preprocessor(inputs).items():
            np.testing.assert_array_equal(batch[key], value)
        whole = BertPreprocessor(VOCAB, max_seq_length=40)(inputs)["input_mask"].numpy().sum(1)
        assert examples.num_too_long == (whole > max_seq_length).sum()


def test_labels_and_weights_of_every_form():
    def targets(**arguments):
        examples = classification_examples(TOKENIZER, TEXTS[:3], **arguments)
        _, *rest = examples.make_batch(tf.range(3), 8)
        return [(value.dtype, value.numpy().tolist()) for value in rest]

    table = [[1, 0], [0, 0], [1, 1]]
    assert targets(labels=table) == [(tf.float32, table)]
    weights = [1.0, 0.5, 0.0]
    with_weights = targets(labels=[0, 1, 2], sample_weights=weights)
    assert with_weights == [(tf.int32, [0, 1, 2]), (tf.float32, weights)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"second_texts": SECONDS[:5]}, "second_texts: expected one row for each of the 6"),
        ({"labels": [0] * 5}, "labels: expected one row for each of the 6 .* got 5"),
        ({"sample_weights": [1.0] * 6}, "sample_weights: expected labels beside them"),
        ({"texts": []}, "texts is empty"),
        ({"max_seq_length": 4}, "max_seq_length: expected 5 or more; got 4"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        classification_examples(TOKENIZER, **{"texts": TEXTS, **arguments})
