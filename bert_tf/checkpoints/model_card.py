"""Model cards: the ``README.md`` of a run, of a conversion and of an export.

The texts are the templates in ``cards/``, which are Markdown. That of a model that a hub may hold
begins with the header that hubs read, whose keys are those of the Hugging Face hub's documentation,
"Model Cards".
"""

import importlib.resources
import json
import os
import re
import shlex
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.io.checkpoint_formats import FORMATS
from bert_tf.io.files import atomic_write, read_bounded
from bert_tf.io.wording import markdown_code, one_line

from .checkpoint import Checkpoint

README = "README.md"
_MAX_BYTES = 4 << 20
_MAX_CLASSES = 50
# Library that reads a directory, by its format; the other formats are not for a hub.
_LIBRARIES = {form.name: form.library for form in FORMATS if form.library}
_SENTENCE_TRANSFORMERS = "sentence-transformers"
_LIBRARY_NAME = re.compile(
    rf'^library_name: "?({"|".join((*_LIBRARIES.values(), _SENTENCE_TRANSFORMERS))})"?(?=\r?$)',
    re.MULTILINE,
)
_HEADER = re.compile(r"\A---\r?\n.*?^---\r?$", re.MULTILINE | re.DOTALL)

# === Markdown ===


def fill(template: str, **fields: Any) -> str:
    """Fills a template of ``cards/``; a line with an empty field is left out."""
    file = importlib.resources.files(__package__) / "cards" / template
    paragraphs = []
    for paragraph in file.read_text("utf-8").rstrip("\n").split("\n\n"):
        lines = (_filled(line, fields) for line in paragraph.split("\n"))
        paragraphs.append("\n".join(filter(None, lines)))
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _filled(line: str, fields: Mapping[str, Any]) -> str:
    names = [name for _, name, _, _ in string.Formatter().parse(line) if name is not None]
    return line.format(**fields) if all(fields[name] for name in names) else ""


def bullets(lines: Iterable[str]) -> str:
    """A list, of the lines that are not empty."""
    return "\n".join(f"- {line}" for line in lines if line)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell may hold code, in which a bar would end it."""
    rule = ["---"] * len(head)
    cells = ([cell.replace("|", "\\|") for cell in row] for row in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def header_value(value: Any) -> str:
    """A value in YAML, which is JSON but for small numbers: ``1e-05`` would be a text.

    >>> header_value(["no", {"a": 1e-05}])
    '["no", {"a": 1.0e-05}]'
    """
    if isinstance(value, Mapping):
        pairs = (f"{header_value(key)}: {header_value(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(header_value, value))}]"
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))
    return json.dumps(one_line(value) if isinstance(value, str) else value, ensure_ascii=False)


def write(path: str, text: str) -> None:
    """Writes a card where there is none; one that is there is somebody's, and stays."""
    if not tf.io.gfile.exists(path):
        with atomic_write(path) as file:
            file.write(text.encode(errors="surrogateescape"))


# === Of every model ===


def pipeline_tag(checkpoint: Checkpoint) -> str:
    """Name of the model's task on model hubs; "" if it has none."""
    spec = checkpoint.model
    task = spec.model_class.get_hub_task(checkpoint.config, spec.arguments)
    return "sentence-similarity" if checkpoint.sentence_embedding else task


def facts(checkpoint: Checkpoint) -> Iterator[str]:
    """A model's sizes, its text's form and what it answers."""
    config, tokenization = checkpoint.config, checkpoint.tokenization
    yield (
        f"Layers: {config.num_hidden_layers}; hidden size: {config.hidden_size}; heads of "
        f"attention: {config.num_attention_heads}; positions: {config.max_position_embeddings}."
    )
    if tokenization is not None:
        lower = tokenization.do_lower_case
        case = "lower-cased, and accents are stripped" if lower else "cased"
        yield f"A vocabulary of {len(tokenization.vocabulary):,} pieces; text is {case}."
    if (pooling := checkpoint.model.pooling) != "cls":
        yield f"The head reads the {pooling} over a text's tokens."
    if (embedding := checkpoint.sentence_embedding) is not None:
        scaled = ", scaled to length 1" if embedding.normalize else ""
        cut = f", cut to {embedding.dims} numbers" if embedding.dims else ""
        yield f"A text's vector is trained: pooling by {embedding.pooling}{cut}{scaled}."
        prefixes = (embedding.query_prefix, embedding.document_prefix)
        if any(prefixes):
            codes = ", ".join(map(markdown_code, prefixes))
            yield f"The prefixes of queries and of documents: {codes}."
    if labels := checkpoint.labels:
        left = len(labels) - _MAX_CLASSES
        more = f" and {left:,} more" if left > 0 else ""
        several = ", any number of which may hold at once" if checkpoint.multi_label else ""
        codes = ", ".join(map(markdown_code, labels[:_MAX_CLASSES]))
        yield f"{len(labels):,} classes: {codes}{more}{several}."


def differences(notes: Iterable[str], path: str) -> str:
    """Section of what was told of the model at ``path``, which it does not name; "" of nothing."""
    lines = [note.replace(f"{path}/", "").replace(path, "the source") for note in notes]
    return f"## Differences from the source\n\n{bullets(lines)}" if lines else ""


def use(checkpoint: Checkpoint) -> str:
    """Section of the card that loads the model, in each form of its directory."""
    spec, config, elsewhere = checkpoint.model, checkpoint.config, ""
    if spec.has_portable_format and not spec.pools_last_token(config):
        name = spec.model_class.hugging_face_class(config, spec.arguments)
        names = [*(("AutoTokenizer",) if checkpoint.tokenization else ()), name]
        calls = "\n".join(f'{name}.from_pretrained("path/of/this/directory")' for name in names)
        elsewhere = (
            "In the form of Hugging Face, which `python -m bert_tf.convert --format=huggingface` "
            f"writes:\n\n```python\nfrom transformers import {', '.join(names)}\n\n{calls}\n```"
        )
    return fill("use.md", elsewhere=elsewhere).rstrip("\n")


# === A conversion ===


def write_converted(
    checkpoint: Checkpoint, folder: str, form: str, notes: Sequence[str] = ()
) -> None:
    """Writes the card of what was converted: the source's own, or what is known without one.

    A source's card is copied as it is, but for the library that reads the directory; what was told
    of the conversion, ``notes``, stands at the end.
    """
    if form not in _LIBRARIES:
        return
    path = os.path.join(checkpoint.path, README)
    if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
        # Keep bytes that are not UTF-8.
        text = read_bounded(path, "model card", _MAX_BYTES).decode(errors="surrogateescape")
    else:
        text = fill(
            "converted.md",
            pipeline_tag=pipeline_tag(checkpoint),
            model_class=checkpoint.model.class_name,
            format=checkpoint.format,
            facts=bullets(facts(checkpoint)),
            use=use(checkpoint),
        )
    header = _HEADER.match(text)
    end = header.end() if header else 0
    embeds = form == "huggingface" and checkpoint.sentence_embedding
    library = _SENTENCE_TRANSFORMERS if embeds else _LIBRARIES[form]
    text = _LIBRARY_NAME.sub(f'library_name: "{library}"', text[:end]) + text[end:]
    if notes_section := differences(notes, checkpoint.path):
        text = f"{text}\n{notes_section}\n"
    write(os.path.join(folder, README), text)


# === An export ===


def export_card(
    checkpoint: Checkpoint,
    name: str,
    limits: Sequence[str],
    signatures: Mapping[str, Any],
    traced: Mapping[str, Any],
    example: Any,
    notes_section: str = "",
) -> str:
    """The card of an export, which shows how ``serving_default`` is asked.

    ``signatures`` are ``answering.signatures``'s, ``traced`` their concrete functions, for the
    outputs' shapes; ``example`` is a sample, ``notes_section`` the section of ``differences``.
    """
    return fill(
        "export.md",
        name=name,
        model_class=checkpoint.model.class_name,
        summary=signatures["serving_default"].summary,
        facts=bullets([*facts(checkpoint), *limits]),
        differences=notes_section,
        arguments=_arguments(example),
        request=shlex.quote(json.dumps(example.rest_request(rows=1), ensure_ascii=False)),
        signatures="\n\n".join(
            f"### `{key}`\n\n{signature.summary}\n\n"
            f"- Inputs: {_specs(signature.inputs)}\n"
            f"- Outputs: {_specs(traced[key].structured_outputs)}"
            for key, signature in signatures.items()
        ),
    )


def _arguments(sample: Any) -> str:
    """A call's arguments in Python, of a sample's first row."""
    parts = []
    for name, value in sample.inputs.items():
        row = value[:1].tolist()
        text = row[0].decode(errors="replace") if isinstance(row[0], bytes) else row[0]
        parts.append(f"{name}=tf.constant([{text!r}])")
    return ", ".join(parts)


def _specs(specs: Mapping[str, tf.TensorSpec]) -> str:
    """Tensors for people: the batch by its letter, other open sizes by a question mark."""
    texts = []
    for name, spec in specs.items():
        sizes = ["?" if size is None else str(size) for size in spec.shape.as_list()[1:]]
        shape = f"(B, {', '.join(sizes)})" if sizes else "(B,)"
        texts.append(f"`{name}` {shape} {spec.dtype.name}")
    return ", ".join(texts)
