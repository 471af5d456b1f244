"""Writes ``keras2/``; runs in the environment of ``record.py``.

    TF_USE_LEGACY_KERAS=1 python -m tests.transformers.make_keras2_data

The folders contain files that users may have, each with its outputs for one batch:

- ``classifier``: ``tf_model.h5``, written by ``save_pretrained``.
- ``functional``: HDF5 weights of a functional model with a ``TFBertModel``, after a training step.
- ``main_layer``: a functional model with a ``TFBertMainLayer``, in one HDF5 file.
- ``subclassed``: HDF5 weights of a custom subclass of ``tf.keras.Model``.
"""

import pathlib
import shutil

import numpy as np
import tensorflow as tf
import transformers

from tests.transformers import models

HERE = pathlib.Path(__file__).parent
KERAS2 = HERE / "keras2"
LENGTH = 12
PIECES = [*models.SPECIAL, "the", "cat", "##s", "sat", "on", "mat", *"abcdefghijklmno"]
SIZES = {
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def batch() -> dict[str, np.ndarray]:
    random = np.random.RandomState(7)
    lengths = np.array([[12], [7], [4]])
    mask = (np.arange(LENGTH) < lengths).astype("int32")
    ids = random.randint(5, len(PIECES), size=mask.shape).astype("int32") * mask
    types = (np.arange(LENGTH) >= lengths // 2).astype("int32") * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def randomize(layer: tf.keras.layers.Layer, seed: int) -> None:
    """Randomizes all weights, so that all are different."""
    random = np.random.RandomState(seed)
    for weight in layer.weights:
        values = 0.3 * random.normal(size=weight.shape)
        weight.assign(values + 1.0 if "gamma" in weight.name else values)


def write_outputs(folder: pathlib.Path, **arrays: object) -> None:
    numbers = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez_compressed(folder / "outputs.npz", **batch(), **numbers)


def make_classifier(folder: pathlib.Path) -> None:
    config = transformers.BertConfig(
        **SIZES,
        id2label={0: "bad", 1: "fine", 2: "good"},
        label2id={"bad": 0, "fine": 1, "good": 2},
    )
    model = transformers.TFBertForSequenceClassification(config)
    model(batch())
    randomize(model, 1)
    model.save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in PIECES))
    write_outputs(folder, logits=model(batch()).logits)


def make_functional(folder: pathlib.Path) -> None:
    bert = transformers.TFBertModel(transformers.BertConfig(**SIZES))
    inputs = {name: tf.keras.layers.Input((LENGTH,), dtype=tf.int32, name=name) for name in batch()}
    pooled = bert(inputs)[1]
    hidden = tf.keras.layers.Dense(6, activation="relu", name="hidden")(pooled)
    answer = tf.keras.layers.Dense(3, activation="softmax", name="answer")(hidden)
    model = tf.keras.Model(inputs, answer)
    randomize(model, 2)
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy")
    model.train_on_batch(batch(), np.array([0, 1, 2]))
    model.save_weights(folder / "weights.h5")
    states = bert(batch())
    write_outputs(
        folder,
        answer=model(batch()),
        last_hidden_state=states.last_hidden_state,
        pooler_output=states.pooler_output,
    )


def make_main_layer(folder: pathlib.Path) -> None:
    layer = transformers.TFBertMainLayer(transformers.BertConfig(**SIZES), name="bert")
    ids = tf.keras.layers.Input((LENGTH,), dtype=tf.int32, name="input_ids")
    mask = tf.keras.layers.Input((LENGTH,), dtype=tf.int32, name="attention_mask")
    states = layer({"input_ids": ids, "attention_mask": mask})[0]
    answer = tf.keras.layers.Dense(4, name="tags")(states)
    model = tf.keras.Model([ids, mask], answer)
    randomize(model, 3)
    model.save(folder / "model.h5")
    inputs = {name: batch()[name] for name in ("input_ids", "attention_mask")}
    write_outputs(
        folder, tags=model(list(inputs.values())), last_hidden_state=layer(inputs).last_hidden_state
    )


class Ranker(tf.keras.Model):
    """Custom model of a user."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = transformers.TFBertModel(transformers.BertConfig(**SIZES), name="encoder")
        self.score = tf.keras.layers.Dense(1)

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.score(self.encoder(inputs).pooler_output)


def make_subclassed(folder: pathlib.Path) -> None:
    model = Ranker()
    model(batch())
    randomize(model, 4)
    model.save_weights(folder / "ranker.h5")
    write_outputs(folder, score=model(batch()), pooler_output=model.encoder(batch()).pooler_output)


def main() -> None:
    shutil.rmtree(KERAS2, ignore_errors=True)
    makers = (make_classifier, make_functional, make_main_layer, make_subclassed)
    for maker in makers:
        folder = KERAS2 / maker.__name__.removeprefix("make_")
        folder.mkdir(parents=True)
        tf.keras.backend.clear_session()
        maker(folder)


if __name__ == "__main__":
    main()
