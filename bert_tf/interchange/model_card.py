"""The model card next to weights: a README.md with the YAML header that model hubs read.

Source of the header's keys: the Hugging Face hub's documentation, "Model Cards".
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import yaml

from bert_tf.files import read_bounded, replace_whole
from bert_tf.untrusted import markdown_code, one_line

from .checkpoint import Checkpoint

README = "README.md"
_MOST_BYTES = 4 << 20
_MOST_CLASSES = 50
# What reads a directory, by its format; the others are not for a hub.
_LIBRARIES = {"bert_tf": "bert_tf", "huggingface": "transformers"}
_OF_SENTENCES = "sentence-transformers"
_NAMED = re.compile(
    rf"^library_name: ({'|'.join((*_LIBRARIES.values(), _OF_SENTENCES))})(?=\r?$)", re.MULTILINE
)
_HEADER = re.compile(r"\A---\r?\n.*?^---\r?$", re.MULTILINE | re.DOTALL)


def header(values: Mapping[str, Any]) -> str:
    """The YAML header of a card: mappings, lists, texts and finite numbers, without what is empty.

    >>> print(header({"license": "", "language": "no", "tags": ["bert"], "seed": [{"a": 1e-05}]}))
    ---
    language: 'no'
    tags:
    - bert
    seed:
    - a: 1.0e-05
    ---
    """
    filled = {key: value for key, value in values.items() if value}
    text = yaml.dump(filled, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---"


class _Dumper(yaml.SafeDumper):
    """Writes out what is there twice, and each text on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_str(one_line(text)))


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
    """A model's sizes and its text's form, in lines of a list."""
    config, tokenization = checkpoint.config, checkpoint.tokenization
    lines = [
        f"- Layers: {config.num_hidden_layers}; hidden size: {config.hidden_size}; heads of "
        f"attention: {config.num_attention_heads}; positions: {config.max_position_embeddings}."
    ]
    if tokenization is not None:
        case = "lower-cased, and accents are stripped" if tokenization.do_lower_case else "cased"
        lines.append(f"- A vocabulary of {len(tokenization.vocabulary):,} pieces; text is {case}.")
    if (pooling := checkpoint.model.arguments.get("pooling", "cls")) != "cls":
        lines.append(f"- The head reads the {pooling} over a text's tokens.")
    if checkpoint.labels:
        lines.append(f"- {len(checkpoint.labels):,} classes: {_classes(checkpoint.labels)}.")
    return "\n".join(lines)


def _classes(labels: Sequence[str]) -> str:
    shown = ", ".join(map(markdown_code, labels[:_MOST_CLASSES]))
    left = len(labels) - _MOST_CLASSES
    return shown if left <= 0 else f"{shown} and {left:,} more"


def use(checkpoint: Checkpoint) -> str:
    """How the model is loaded, in both forms of its directory where there are two."""
    spec = checkpoint.model
    own = '```python\nimport bert_tf\n\nmodel = bert_tf.load("path/of/this/directory")\n```'
    if not spec.known_elsewhere or spec.pools_last_token(checkpoint.config):
        return f"## Use\n\n{own}"
    name = spec.model_class.hugging_face_class(checkpoint.config, spec.arguments)
    names = [*(("AutoTokenizer",) if checkpoint.tokenization else ()), name]
    calls = "\n".join(f'{name}.from_pretrained("path/of/this/directory")' for name in names)
    return (
        f"## Use\n\n{own}\n\nIn the form of Hugging Face, which `python -m bert_tf.convert "
        "--format=huggingface` writes:\n\n"
        f"```python\nfrom transformers import {', '.join(names)}\n\n{calls}\n```"
    )


def write_converted(checkpoint: Checkpoint, folder: str, form: str) -> None:
    """Writes the card of what was converted: the source's own, or what is known without one.

    A source's card is copied as it is, but for the library that reads the directory.
    """
    if form not in _LIBRARIES:
        return
    path = os.path.join(checkpoint.path, README)
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
    write(os.path.join(folder, README), text)


def write(path: str, text: str) -> None:
    """Writes a card where there is none; one that is there is somebody's, and stays."""
    if not tf.io.gfile.exists(path):
        with replace_whole(path) as file:
            file.write(text.encode(errors="surrogateescape"))


def _known(checkpoint: Checkpoint) -> str:
    return (
        f"{header(about(checkpoint))}\n\n# {checkpoint.model.class_name}\n\n"
        f"Converted by `bert_tf` from a checkpoint in the format `{checkpoint.format}`, every "
        "weight bit for bit. The source had no model card: what it was trained on, in which "
        "languages, how good it is and what its licence allows is not recorded here.\n\n"
        f"{description(checkpoint)}\n\n{use(checkpoint)}\n"
    )
