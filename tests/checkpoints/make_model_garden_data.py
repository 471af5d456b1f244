"""Regenerates ``data/model_garden``: small TensorFlow Model Garden checkpoints and outputs.

Run it manually in a separate environment (Python 3.11):

    pip install tf-models-official==2.20.0 tensorflow==2.20.0 tf-keras==2.20.1
    python tests/checkpoints/make_model_garden_data.py

The models are saved as by the trainer, the converter and the tests of ``official/nlp``. All weights
are random, so that swapped weights are detected.
"""

import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
import tf_keras
from official.nlp.configs import bert, encoders
from official.nlp.modeling import models, networks
from official.nlp.tasks import masked_lm

DATA = pathlib.Path(__file__).parent / "data" / "model_garden"
SIZES = {
    "vocab_size": 25,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "type_vocab_size": 3,
    "initializer_range": 0.03,
}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "The"]
POSITIONS = np.array([[0, 3, 11], [1, 2, 6], [0, 2, 1]], "int32")


def encoder_config(kind):
    sizes = {**SIZES, "num_layers": 2, "dropout_rate": 0.2, "attention_dropout_rate": 0.15}
    return encoders.EncoderConfig(type=kind, **{kind: encoders.BertEncoderConfig(**sizes)})


def randomize(model, seed):
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        values = rng.normal(size=variable.shape) * 0.3
        variable.assign(values + 1.0 if "gamma" in variable.name else values)


def make_inputs(seed):
    rng = np.random.default_rng(seed)
    mask = (np.arange(12) < np.array([[12], [7], [3]])).astype("int32")
    return {
        "input_word_ids": rng.integers(0, 25, mask.shape).astype("int32"),
        "input_mask": mask,
        "input_type_ids": rng.integers(0, 3, mask.shape).astype("int32") * mask,
    }


def folder(name):
    path = DATA / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def record(path, **arrays):
    np.savez_compressed(path / "outputs.npz", **{k: np.asarray(v) for k, v in arrays.items()})


def make_pretrainer():
    """Saves a pretrainer as the trainer does: each model item twice, the optimizer, the step."""
    head = bert.ClsHeadConfig(inner_dim=8, num_classes=2, name="next_sentence", dropout_rate=0.1)
    config = masked_lm.MaskedLMConfig(
        model=bert.PretrainerConfig(encoder=encoder_config("bert_v2"), cls_heads=[head])
    )
    model = masked_lm.MaskedLMTask(config).build_model()
    model(model.inputs)
    randomize(model, seed=1)
    optimizer = tf_keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    path = folder("pretrainer")
    checkpoint = tf.train.Checkpoint(
        model=model,
        optimizer=optimizer,
        global_step=tf.Variable(7, name="global_step"),
        **model.checkpoint_items,
    )
    tf.train.CheckpointManager(checkpoint, str(path), max_to_keep=2).save(7)
    inputs = {**make_inputs(2), "masked_lm_positions": POSITIONS}
    outputs = model(inputs, training=False)
    pooled = model.classification_heads[0](outputs["sequence_output"], only_project=True)
    record(
        path,
        **inputs,
        sequence_output=outputs["sequence_output"],
        pooled_output=pooled,
        masked_lm_logits=outputs["mlm_logits"],
        next_sentence_logits=outputs["next_sentence"],
    )


def make_old_pretrainer():
    """Saves the legacy class without a config; its optimizer stores slots per variable."""
    encoder = networks.BertEncoder(
        **{
            k: v
            for k, v in SIZES.items()
            if k not in ("max_position_embeddings", "initializer_range")
        },
        num_layers=2,
        max_sequence_length=16,
    )
    model = models.BertPretrainer(
        encoder, 2, 3, activation=lambda x: tf_keras.activations.gelu(x, approximate=True)
    )
    randomize(model, seed=3)
    optimizer = tf_keras.optimizers.legacy.Adam()
    optimizer._create_all_weights(model.trainable_variables)
    path = folder("old_pretrainer")
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(str(path / "ckpt"))
    inputs = make_inputs(4)
    outputs = model([*inputs.values(), POSITIONS], training=False)
    sequence_output, pooled_output = encoder(list(inputs.values()), training=False)
    record(
        path,
        **inputs,
        masked_lm_positions=POSITIONS,
        sequence_output=sequence_output,
        pooled_output=pooled_output,
        masked_lm_logits=outputs["masked_lm"],
        next_sentence_logits=outputs["classification"],
    )


def make_encoder():
    """Saves an encoder in the layout of the released archives."""
    encoder = encoders.build_encoder(encoder_config("bert"))
    randomize(encoder, seed=5)
    path = folder("encoder")
    tf.train.Checkpoint(encoder=encoder).write(str(path / "bert_model.ckpt"))
    config = {
        **SIZES,
        "num_hidden_layers": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.15,
    }
    (path / "bert_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (path / "vocab.txt").write_text("".join(piece + "\n" for piece in PIECES))
    inputs = make_inputs(6)
    outputs = encoder(inputs, training=False)
    record(
        path,
        **inputs,
        sequence_output=outputs["sequence_output"],
        pooled_output=outputs["pooled_output"],
    )


def main():
    tf_keras.utils.set_random_seed(0)
    make_pretrainer()
    make_old_pretrainer()
    make_encoder()


if __name__ == "__main__":
    main()
