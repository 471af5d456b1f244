"""What the card of any model says of it, and the card of a conversion."""

import os
import re
from typing import Any

import tensorflow as tf

from bert_tf.files import read_bounded
from bert_tf.reports import cards

from .checkpoint import Checkpoint

_MOST_BYTES = 4 << 20
_MOST_CLASSES = 50
# What reads a directory, by its format; the others are not for a hub.
_LIBRARIES = {"bert_tf": "bert_tf", "huggingface": "transformers"}
_OF_SENTENCES = "sentence-transformers"
_NAMED = re.compile(
    rf"^library_name: ({'|'.join((*_LIBRARIES.values(), _OF_SENTENCES))})(?=\r?$)", re.MULTILINE
)
_HEADER = re.compile(r"\A---\r?\n.*?^---\r?$", re.MULTILINE | re.DOTALL)


def about(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the header says of any model that is in a directory of this library."""
    spec = checkpoint.model
    task = spec.model_class.hub_task_of(checkpoint.config, spec.arguments)
    return {
        "library_name": _LIBRARIES["bert_tf"],
        "pipeline_tag": "sentence-similarity" if checkpoint.sentence_embedding else task,
        "tags": ["bert"],
    }


def description(checkpoint: Checkpoint) -> str:
    """A model's sizes and its text's form, as a list."""
    config, tokenization = checkpoint.config, checkpoint.tokenization
    lines = [
        f"Layers: {config.num_hidden_layers}; hidden size: {config.hidden_size}; heads of "
        f"attention: {config.num_attention_heads}; positions: {config.max_position_embeddings}."
    ]
    if tokenization is not None:
        lines.append(cards.vocabulary(len(tokenization.vocabulary), tokenization.do_lower_case))
    lines.append(cards.pooling(checkpoint.model.arguments.get("pooling", "cls")))
    if labels := checkpoint.labels:
        left = len(labels) - _MOST_CLASSES
        more = f" and {left:,} more" if left > 0 else ""
        lines.append(f"{len(labels):,} classes: {cards.names(labels[:_MOST_CLASSES])}{more}.")
    return cards.bullets(lines)


def use(checkpoint: Checkpoint) -> str:
    """How the model is loaded, in both forms of its directory where there are two."""
    spec = checkpoint.model
    parts = [
        cards.code('import bert_tf\n\nmodel = bert_tf.load("path/of/this/directory")', "python")
    ]
    config = checkpoint.config
    if spec.known_elsewhere and not spec.pools_last_token(config):
        name = spec.model_class.hugging_face_class(config, spec.arguments)
        names = [*(("AutoTokenizer",) if checkpoint.tokenization else ()), name]
        calls = "\n".join(f'{name}.from_pretrained("path/of/this/directory")' for name in names)
        parts += [
            "In the form of Hugging Face, which `python -m bert_tf.convert --format=huggingface` "
            "writes:",
            cards.code(f"from transformers import {', '.join(names)}\n\n{calls}", "python"),
        ]
    return cards.section("Use", *parts)


def write_converted(checkpoint: Checkpoint, folder: str, form: str) -> None:
    """Writes the card of what was converted: the source's own, or what is known without one.

    A source's card is copied as it is, but for the library that reads the directory.
    """
    if form not in _LIBRARIES:
        return
    path = os.path.join(checkpoint.path, cards.README)
    if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
        # What is not UTF-8 stays as it is.
        text = read_bounded(path, "model card", _MOST_BYTES).decode(errors="surrogateescape")
    else:
        text = _known(checkpoint)
    found = _HEADER.match(text)
    end = found.end() if found else 0
    embeds = form == "huggingface" and checkpoint.sentence_embedding
    library = _OF_SENTENCES if embeds else _LIBRARIES[form]
    text = _NAMED.sub(f"library_name: {library}", text[:end]) + text[end:]
    cards.write(os.path.join(folder, cards.README), text)


def _known(checkpoint: Checkpoint) -> str:
    return cards.card(
        checkpoint.model.class_name,
        f"Converted by `bert_tf` from a checkpoint in the format `{checkpoint.format}`, every "
        "weight bit for bit. The source had no model card: what it was trained on, in which "
        "languages, how good it is and what its licence allows is not recorded here.",
        description(checkpoint),
        use(checkpoint),
        header=about(checkpoint),
    )
