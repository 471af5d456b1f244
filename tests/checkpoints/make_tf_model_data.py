"""Regenerates ``data/tf_model``: a ``tf_model.h5`` of each TFBert class, and its outputs.

Run it manually in a separate environment (Python 3.11), because transformers 5 does not support
TensorFlow:

    pip install transformers==4.48.3 tensorflow-cpu==2.18.1 tf-keras==2.18.0 'numpy<2.1'
    python tests/checkpoints/make_tf_model_data.py

All weights are random, so that swapped weights are detected. ``outputs.npz`` contains the inputs
and the model's outputs under their transformers names.
"""

import pathlib
import shutil

import numpy as np

DATA = pathlib.Path(__file__).parent / "data" / "tf_model"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "on", "mat"]
CONFIG = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
    "type_vocab_size": 3,
    "hidden_act": "gelu",
}
CLASSES = {
    "model": ("TFBertModel", {}),
    "pre_training": ("TFBertForPreTraining", {}),
    "masked_lm": ("TFBertForMaskedLM", {"num_hidden_layers": 1}),
    "next_sentence": ("TFBertForNextSentencePrediction", {"num_hidden_layers": 1}),
    "sequence_classification": (
        "TFBertForSequenceClassification",
        {"num_hidden_layers": 1, "id2label": {0: "bad", 1: "fine", 2: "good"}},
    ),
    "token_classification": (
        "TFBertForTokenClassification",
        {"num_hidden_layers": 1, "num_labels": 4},
    ),
    "question_answering": ("TFBertForQuestionAnswering", {"num_hidden_layers": 1}),
    "multiple_choice": ("TFBertForMultipleChoice", {"num_hidden_layers": 1}),
}
# Other file formats: the model and its save options (saved with transformers 4.46.3).
FORMS = {
    "safetensors": ("pre_training", {"safe_serialization": True}),
    "shards": ("model", {"max_shard_size": "4KB"}),
    "safetensors_shards": ("model", {"max_shard_size": "4KB", "safe_serialization": True}),
}


def make_inputs(seed, choices):
    rng = np.random.default_rng(seed)
    shape = (2, 3, 9) if choices else (3, 9)
    lengths = np.array([9, 6, 3, 2, 8, 5])[: np.prod(shape[:-1])].reshape(shape[:-1])
    mask = (np.arange(9) < lengths[..., None]).astype("int32")
    return {
        "input_ids": rng.integers(0, CONFIG["vocab_size"], shape).astype("int32") * mask,
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 3, shape).astype("int32") * mask,
    }


def randomize(model, seed):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.normal(size=weight.shape) * 0.4
        weight.assign(values + 1.0 if "gamma" in weight.name else values)


def main():
    import transformers  # version 4; tests that import this file do not need it

    shutil.rmtree(DATA, ignore_errors=True)
    for seed, (name, (class_name, changes)) in enumerate(CLASSES.items()):
        model = getattr(transformers, class_name)(transformers.BertConfig(**{**CONFIG, **changes}))
        inputs = make_inputs(seed, choices=name == "multiple_choice")
        model(inputs)
        randomize(model, seed + 100)
        outputs = model(inputs, training=False, output_hidden_states=name == "model")
        arrays = {key: np.asarray(value) for key, value in outputs.items()}
        others = {form: options for form, (base, options) in FORMS.items() if base == name}
        for form, options in {name: {}, **others}.items():
            model.save_pretrained(DATA / form, **options)
            np.savez_compressed(DATA / form / "outputs.npz", **inputs, **arrays)
        folder = DATA / name
        if name in ("model", "sequence_classification"):
            (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))


if __name__ == "__main__":
    main()
