"""What the tests of fine-tuning's pipelines share: a vocabulary of 15 and tiny models for it."""

import keras
import numpy as np

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


def _training_losses(examples, model, loss, **padding):
    """The mean loss of each of two epochs of plain gradient descent, by ``fit``."""
    # XLA, which is Keras' default, would compile each new width.
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss, jit_compile=False)
    history = model.fit(
        examples.training_batches(4, epochs=2, seed=1, **padding),
        epochs=2,
        steps_per_epoch=examples.num_batches(4),
        shuffle=False,
        verbose=0,
    )
    return history.history["loss"]


def by_example(batch, outputs):
    return dict(zip(batch["example_index"].numpy().tolist(), outputs, strict=True))


def assert_padding_changes_nothing(examples, model_class, **arguments):
    """Neither answers, which are returned in the order of their places, nor training."""

    def answers(**padding):
        model, found, widths = new_model(model_class, **arguments), {}, set()
        for batch, _ in examples.evaluation_batches(2, **padding):
            widths.add(batch["input_mask"].shape[-1])
            found |= by_example(batch, model(batch, training=False).numpy())
        return np.array([found[place] for place in sorted(found)]), widths

    short, widths = answers(length_multiple=2)
    full, full_widths = answers(bucket_lengths=[])
    assert len(widths) > 1 and len(full_widths) == 1
    np.testing.assert_allclose(short, full, atol=1e-5)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    bucketed, padded = (
        _training_losses(examples, new_model(model_class, **arguments), loss, **padding)
        for padding in ({"length_multiple": 2}, {"bucket_lengths": []})
    )
    np.testing.assert_allclose(bucketed, padded, rtol=1e-5)
    return full
