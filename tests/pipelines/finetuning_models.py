"""What the tests of fine-tuning's pipelines share: a vocabulary of 15 and tiny models for it."""

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer

VOCAB = [*SPECIAL_TOKENS, *"abcdefg", "##b", "##c", "!"]
TOKENIZER = BertTokenizer(VOCAB)

TINY = BertConfig(
    vocab_size=15,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def new_model(model_class, **arguments):
    """A model without dropout whose answers differ clearly from row to row."""
    model = model_class(TINY, **arguments)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        values = rng.normal(size=variable.shape) * 0.5
        variable.assign(values + 1.0 if variable.path.endswith("gamma") else values)
    return model


def by_example(batch, outputs):
    return dict(zip(batch["example_index"].numpy().tolist(), outputs, strict=True))


def assert_padding_changes_nothing(examples, model_class, **arguments):
    """Neither answers, which are returned in the order of their places, nor gradients."""
    model = new_model(model_class, **arguments)

    def learned(**padding):
        found, widths, gradients = {}, set(), []
        for batch, labels in examples.training_batches(4, epochs=1, seed=1, **padding):
            widths.add(batch["input_mask"].shape[-1])
            with tf.GradientTape() as tape:
                logits = model(batch, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            sources = [variable.value for variable in model.trainable_variables]
            of_batch = tape.gradient(losses, sources)
            gradients += [tf.convert_to_tensor(gradient).numpy() for gradient in of_batch]
            found |= by_example(batch, logits.numpy())
        return np.array([found[place] for place in sorted(found)]), gradients, widths

    short, gradients, widths = learned(length_multiple=2)
    full, full_gradients, full_widths = learned(bucket_lengths=[])
    assert len(widths) > 1 and len(full_widths) == 1
    np.testing.assert_allclose(short, full, atol=1e-5)
    for gradient, expected in zip(gradients, full_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-4 * np.abs(expected).max() + 1e-6)
    return full
