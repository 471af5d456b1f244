"""Models and requests of ``benchmarks.serve``.

    python benchmarks/serve_models.py KIND DIRECTORY TARGET

Writes the model of a kind, with the bert_tf version of the interpreter.
"""

import csv
import dataclasses
import io
import json
import os
import random
import sys
import zipfile
from typing import Any

# Minimum and maximum number of words; about 150 are typical for question answering.
_PARAGRAPH_WORDS = (130, 170)
_TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model created from all-MiniLM-L6-v2, and the outputs that a client requests."""

    model_class: str
    outputs: tuple[str, ...] = ()  # empty for all
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()


VECTORS = "vectors"
KINDS = {
    VECTORS: Kind("BertEncoder", ("sentence_embedding",)),
    "tagger": Kind("BertTokenClassifier", (), {"num_classes": len(_TAGS)}, _TAGS),
    "reader": Kind("BertSpanPredictor"),
    "classifier": Kind("BertClassifier", (), {"num_classes": 2}, ("negative", "positive")),
}


def write_checkpoint(name: str, source: str, target: str) -> None:
    """Writes the model of a kind; a new head is initialized with a fixed seed."""
    import keras

    import bert_tf

    kind = KINDS[name]
    keras.utils.set_random_seed(1)
    model = bert_tf.load(source, getattr(bert_tf, kind.model_class), **kind.arguments)
    model.labels = kind.labels
    bert_tf.save(model, target)


def read_sentences() -> list[str]:
    """Returns the sentences of the dev set of SST-2, with 25 tokens on average."""
    path = os.path.join(_data_folder(), "glue", "SST-2", "dev.tsv")
    with open(path, encoding="utf-8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file, delimiter="\t", quoting=3)]


def read_questions() -> list[tuple[str, str]]:
    """Returns questions of SQuAD about paragraphs of about 150 words, shuffled."""
    path = os.path.join(_data_folder(), "squad", "dev-v1.1.json.zip")
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        articles = json.load(io.TextIOWrapper(file, encoding="utf-8"))["data"]
    min_words, max_words = _PARAGRAPH_WORDS
    found = [
        (qa["question"], paragraph["context"])
        for article in articles
        for paragraph in article["paragraphs"]
        if min_words <= len(paragraph["context"].split()) <= max_words
        for qa in paragraph["qas"]
    ]
    random.Random(1).shuffle(found)
    return found


def make_requests(name: str, count: int, rows: int) -> list[dict[str, list[str]]]:
    """Returns distinct requests to a model, each with the inputs of ``rows`` examples."""
    if name == "reader":
        pairs = read_questions()
        values = [dict(zip(("question", "context"), pair, strict=True)) for pair in pairs]
    else:
        values = [{"text": text} for text in read_sentences()]
    chosen = [[values[(n * rows + i) % len(values)] for i in range(rows)] for n in range(count)]
    return [{key: [row[key] for row in each] for key in each[0]} for each in chosen]


def mixed_requests(count: int, seed: int = 1) -> list[dict[str, list[str]]]:
    """Returns requests of one to 16 texts of one to eight sentences, most of them short."""
    texts, draw = read_sentences(), random.Random(seed)
    return [
        {
            "text": [
                " ".join(draw.choices(texts, k=draw.choice((1, 1, 1, 2, 8))))
                for _ in range(draw.choice((1, 1, 1, 1, 2, 4, 16)))
            ]
        }
        for _ in range(count)
    ]


def _data_folder() -> str:
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        raise ValueError("Set BERT_TF_DATA to the folder that contains glue/ and squad/.")
    return folder


if __name__ == "__main__":
    write_checkpoint(*sys.argv[1:])
