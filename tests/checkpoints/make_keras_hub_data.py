"""Regenerates ``data/keras_hub``: small KerasHub presets and KerasHub's outputs.

Run it manually in a separate environment (Python 3.11):

    pip install keras-hub==0.32.0 keras==3.15.1 tensorflow==2.21.0 h5py==3.14.0
    python tests/checkpoints/make_keras_hub_data.py

All weights are random, so that swapped weights are detected. The dense kernel of the masked-LM head
is small, so that the epsilon of its layer normalization matters.
"""

import pathlib
import shutil

import keras
import keras_hub
import numpy as np

DATA = pathlib.Path(__file__).parent / "data" / "keras_hub"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "on", "mat"]


def make_backbone(num_layers=2):
    return keras_hub.models.BertBackbone(
        vocabulary_size=25,
        num_layers=num_layers,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        dropout=0.2,
        max_sequence_length=16,
        num_segments=3,
    )


def randomize(model, seed):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        scale = 0.05 if "mlm_head/intermediate_dense" in weight.path else 0.4
        values = rng.normal(size=weight.shape) * scale
        weight.assign(values + 1.0 if weight.path.endswith("gamma") else values)


def make_inputs(seed):
    rng = np.random.default_rng(seed)
    mask = (np.arange(12) < np.array([[12], [7], [3]])).astype("int32")
    return {
        "token_ids": rng.integers(0, 25, mask.shape).astype("int32"),
        "segment_ids": rng.integers(0, 3, mask.shape).astype("int32") * mask,
        "padding_mask": mask,
    }


def save(name, model, seed, **further):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_to_preset(str(folder), **further)
    (folder / "metadata.json").unlink()  # contains the time
    inputs = make_inputs(seed)
    # Call the model: a task's predict() would preprocess the inputs as text.
    outputs = dict(getattr(model, "backbone", model)(inputs, training=False))
    if isinstance(model, keras_hub.models.BertMaskedLM):
        inputs["mask_positions"] = np.array([[0, 3, 11], [1, 2, 6], [0, 2, 1]], "int32")
    if hasattr(model, "backbone"):
        outputs["logits"] = model(inputs, training=False)
    np.savez_compressed(folder / "outputs.npz", **inputs, **outputs)


def main():
    keras.utils.set_random_seed(0)
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=PIECES, lowercase=True)
    masked_lm = keras_hub.models.BertMaskedLM(
        make_backbone(), keras_hub.models.BertMaskedLMPreprocessor(tokenizer, sequence_length=12)
    )
    randomize(masked_lm, seed=1)
    save("masked_lm", masked_lm, seed=2)

    tokenizer = keras_hub.models.BertTokenizer(vocabulary=[*PIECES, "The"], lowercase=False)
    classifier = keras_hub.models.BertTextClassifier(
        make_backbone(),
        num_classes=3,
        preprocessor=keras_hub.models.BertTextClassifierPreprocessor(tokenizer),
        dropout=0.3,
    )
    randomize(classifier, seed=3)
    save("classifier", classifier, seed=4)

    backbone = make_backbone(num_layers=1)
    randomize(backbone, seed=5)
    save("sharded", backbone, seed=6, max_shard_size=2e-6)


if __name__ == "__main__":
    main()
