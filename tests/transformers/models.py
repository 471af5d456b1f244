"""Small BERT models in the format of transformers' PyTorch classes, with random NumPy weights.

``make(folder)`` writes one folder for each head: ``config.json``, ``vocab.txt``,
``tokenizer_config.json`` and ``model.safetensors``. Every number follows from a seed, so that what
one environment recorded with them, another can compare. Nothing here needs bert_tf, which the
environment of the recordings has not.
"""

import json
import pathlib
import string
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS, TYPES = 32, 2, 2, 64, 128, 2

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;?@")
#: Words and pieces of the scripts' sentences.
WORDS = pathlib.Path(__file__).with_name("words.txt").read_text().split()


def vocabulary() -> list[str]:
    """Returns the pieces in the order of their ids, including letters and digits."""
    letters = list(string.digits + string.ascii_lowercase)
    pieces = SPECIAL + PUNCTUATION + letters + [f"##{c}" for c in letters] + WORDS
    return list(dict.fromkeys(pieces))


def _labels(names: str) -> dict[str, object]:
    labels = names.split()
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }


def _dense(name: str, outputs: int, inputs: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.LayerNorm.weight": (HIDDEN,), f"{name}.LayerNorm.bias": (HIDDEN,)}


_VOCABULARY = vocabulary()
_LANGUAGE = {
    "cls.predictions.bias": (len(_VOCABULARY),),
    **_dense("cls.predictions.transform.dense", HIDDEN),
    **_norm("cls.predictions.transform"),
}
_CLASSIFIER = "BertForSequenceClassification"


class Folder(NamedTuple):
    """Contents of a folder, with a seed for which the predictions of the head vary."""

    seed: int
    architecture: str
    head: dict[str, tuple[int, ...]]
    config: dict[str, object]


FOLDERS = {
    "bert-encoder": Folder(0, "BertModel", {}, {}),
    "bert-uncased": Folder(
        1, "BertForPreTraining", _LANGUAGE | _dense("cls.seq_relationship", 2), {}
    ),
    "bert-reviews": Folder(42, _CLASSIFIER, _dense("classifier", 2), _labels("negative positive")),
    "bert-news": Folder(
        263, _CLASSIFIER, _dense("classifier", 4), _labels("World Sports Business Science")
    ),
    "bert-similarity": Folder(5, _CLASSIFIER, _dense("classifier", 1), _labels("LABEL_0")),
    "bert-tags": Folder(
        26,
        _CLASSIFIER,
        _dense("classifier", 5),
        _labels("food service price place staff") | {"problem_type": "multi_label_classification"},
    ),
    "bert-entities": Folder(
        147,
        "BertForTokenClassification",
        _dense("classifier", 7),
        _labels("O B-PER I-PER B-ORG I-ORG B-LOC I-LOC"),
    ),
    "bert-questions": Folder(8, "BertForQuestionAnswering", _dense("qa_outputs", 2), {}),
}


def _encoder_shapes(pooler: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(_VOCABULARY), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (TYPES, HIDDEN),
        **_norm("embeddings"),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"encoder.layer.{layer}.{name}": shape
            for name, shape in {
                **_dense("attention.self.query", HIDDEN),
                **_dense("attention.self.key", HIDDEN),
                **_dense("attention.self.value", HIDDEN),
                **_dense("attention.output.dense", HIDDEN),
                **_norm("attention.output"),
                **_dense("intermediate.dense", INTERMEDIATE),
                **_dense("output.dense", HIDDEN, INTERMEDIATE),
                **_norm("output"),
            }.items()
        }
    return shapes | (_dense("pooler.dense", HIDDEN) if pooler else {})


def _values(name: str, shape: tuple[int, ...], random: np.random.RandomState) -> np.ndarray:
    if name.endswith("LayerNorm.weight"):
        values = 1.0 + 0.1 * random.normal(size=shape)
    elif name.endswith("bias"):
        values = 0.1 * random.normal(size=shape)
    elif name.startswith(("classifier", "qa_outputs", "cls.seq_relationship")):
        values = 0.4 * random.normal(size=shape)
    else:
        values = (0.3 if "word_embeddings" in name else 0.2) * random.normal(size=shape)
    return values.astype("<f4")


def make(folder: pathlib.Path) -> None:
    """Writes all ``FOLDERS`` into ``folder``."""
    for name, (seed, architecture, head, config) in FOLDERS.items():
        random = np.random.RandomState(seed)
        # As in PyTorch, token-level heads have no pooler.
        pooler = architecture not in ("BertForTokenClassification", "BertForQuestionAnswering")
        prefix = "" if architecture == "BertModel" else "bert."
        shapes = {prefix + key: shape for key, shape in _encoder_shapes(pooler).items()} | head
        directory = folder / name
        directory.mkdir(parents=True)
        tensors = {key: _values(key, shape, random) for key, shape in shapes.items()}
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        settings = {
            "architectures": [architecture],
            "model_type": "bert",
            "vocab_size": len(_VOCABULARY),
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "intermediate_size": INTERMEDIATE,
            "max_position_embeddings": POSITIONS,
            "type_vocab_size": TYPES,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "initializer_range": 0.02,
            "layer_norm_eps": 1e-12,
            "pad_token_id": 0,
            **config,
        }
        (directory / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
        (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in _VOCABULARY))
        tokenizer = {
            **{"do_lower_case": True, "model_max_length": POSITIONS},
            "tokenizer_class": "BertTokenizer",
        }
        (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer) + "\n")
