"""The models that ``benchmarks.serve`` has served, and what their clients ask.

    python benchmarks/serve_models.py KIND DIRECTORY TARGET

writes a kind's model, by whatever build of bert_tf the interpreter has.
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

# Paragraphs of some 150 words, which is what a question is usually asked about.
_PARAGRAPH_WORDS = (130, 170)
_TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model: how it is made of all-MiniLM-L6-v2, and which of its outputs a client wants."""

    model_class: str
    wanted: tuple[str, ...] = ()  # all
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
    """Writes a kind's model; a head that the source lacks is drawn, the same always."""
    import keras

    import bert_tf

    kind = KINDS[name]
    keras.utils.set_random_seed(1)
    model = bert_tf.load(source, getattr(bert_tf, kind.model_class), **kind.arguments)
    model.labels = kind.labels
    bert_tf.save(model, target)


def sentences() -> list[str]:
    """SST-2's development set, of 25 pieces on average."""
    path = os.path.join(_data_folder(), "glue", "SST-2", "dev.tsv")
    with open(path, encoding="utf-8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file, delimiter="\t", quoting=3)]


def questions() -> list[tuple[str, str]]:
    """SQuAD's questions and their paragraphs of some 150 words, in another order."""
    path = os.path.join(_data_folder(), "squad", "dev-v1.1.json.zip")
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        articles = json.load(io.TextIOWrapper(file, encoding="utf-8"))["data"]
    least, most = _PARAGRAPH_WORDS
    found = [
        (asked["question"], paragraph["context"])
        for article in articles
        for paragraph in article["paragraphs"]
        if least <= len(paragraph["context"].split()) <= most
        for asked in paragraph["qas"]
    ]
    random.Random(1).shuffle(found)
    return found


def requests_of(name: str, count: int, rows: int) -> list[dict[str, list[str]]]:
    """Different requests to a kind's model, of ``rows`` each: inputs by name."""
    if name == "reader":
        pairs = questions()
        values = [dict(zip(("question", "context"), pair, strict=True)) for pair in pairs]
    else:
        values = [{"text": text} for text in sentences()]
    chosen = [[values[(n * rows + i) % len(values)] for i in range(rows)] for n in range(count)]
    return [{key: [row[key] for row in each] for key in each[0]} for each in chosen]


def mixed_requests(count: int, seed: int = 1) -> list[dict[str, list[str]]]:
    """Requests of one to 16 texts of one to eight sentences, most of them small."""
    texts, draw = sentences(), random.Random(seed)
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
        raise ValueError("Set BERT_TF_DATA to the folder that holds glue/ and squad/.")
    return folder


if __name__ == "__main__":
    write_checkpoint(*sys.argv[1:])
