"""Model cards: ``README.md`` of runs, conversions and exports.

The Markdown templates are in ``cards/``. Cards for a model hub start with a metadata header, which
the Hugging Face Hub's documentation describes under "Model Cards".
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
from bert_tf.io.messages import markdown_code, one_line

from .checkpoint import Checkpoint

README = "README.md"
_MAX_BYTES = 4 << 20
_MAX_CLASSES = 50
# Libraries by format, for formats that can be uploaded to a hub.
_LIBRARIES = {form.name: form.library for form in FORMATS if form.library}
_SENTENCE_TRANSFORMERS = "sentence-transformers"
_LIBRARY_NAME = re.compile(
    rf'^library_name: "?({"|".join((*_LIBRARIES.values(), _SENTENCE_TRANSFORMERS))})"?(?=\r?$)',
    re.MULTILINE,
)
_HEADER = re.compile(r"\A---\r?\n.*?^---\r?$", re.MULTILINE | re.DOTALL)

# === Markdown ===


def fill(template: str, **fields: Any) -> str:
    """Fills a template in ``cards/`` and drops lines with an empty field."""
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
    """Returns a Markdown list of the non-empty lines."""
    return "\n".join(f"- {line}" for line in lines if line)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table, with ``|`` escaped in cells."""
    rule = ["---"] * len(head)
    cells = ([cell.replace("|", "\\|") for cell in row] for row in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def header_value(value: Any) -> str:
    """Encodes a value as JSON that is also valid YAML, where ``1e-05`` would be a string.

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
    """Writes a card unless the file exists."""
    if not tf.io.gfile.exists(path):
        with atomic_write(path) as file:
            file.write(text.encode(errors="surrogateescape"))


# === All models ===


def pipeline_tag(checkpoint: Checkpoint) -> str:
    """Returns the name of the model's task on model hubs, or an empty string."""
    spec = checkpoint.model
    task = spec.model_class.get_hub_task(checkpoint.config, spec.arguments)
    return "sentence-similarity" if checkpoint.sentence_embedding else task


def facts(checkpoint: Checkpoint) -> Iterator[str]:
    """Yields descriptions of a model's sizes, tokenizer and outputs."""
    config, tokenization = checkpoint.config, checkpoint.tokenization
    yield (
        f"Layers: {config.num_hidden_layers}; hidden size: {config.hidden_size}; attention heads: "
        f"{config.num_attention_heads}; maximum length: {config.max_position_embeddings}."
    )
    if tokenization is not None:
        casing = "uncased, without accents" if tokenization.do_lower_case else "cased"
        yield f"Vocabulary: {len(tokenization.vocabulary):,} pieces, {casing}."
    if (pooling := checkpoint.model.pooling) != "cls":
        yield f"The head reads the {pooling} of the token embeddings."
    if (embedding := checkpoint.sentence_embedding) is not None:
        scaled = ", normalized" if embedding.normalize else ""
        cut = f", truncated to {embedding.dims} dimensions" if embedding.dims else ""
        yield f"Trained sentence embeddings: {embedding.pooling} pooling{cut}{scaled}."
        prefixes = (embedding.query_prefix, embedding.document_prefix)
        if any(prefixes):
            codes = ", ".join(map(markdown_code, prefixes))
            yield f"Prefixes of queries and documents: {codes}."
    if labels := checkpoint.labels:
        left = len(labels) - _MAX_CLASSES
        more = f" and {left:,} more" if left > 0 else ""
        several = ", multi-label" if checkpoint.multi_label else ""
        codes = ", ".join(map(markdown_code, labels[:_MAX_CLASSES]))
        yield f"{len(labels):,} classes: {codes}{more}{several}."


def differences(notes: Iterable[str], path: str) -> str:
    """Returns a section with the warnings about the model at ``path``, omitting the path."""
    lines = [note.replace(f"{path}/", "").replace(path, "the source") for note in notes]
    return f"## Differences from the source\n\n{bullets(lines)}" if lines else ""


def use(checkpoint: Checkpoint) -> str:
    """Returns the section of a model card on loading the model."""
    spec, config, elsewhere = checkpoint.model, checkpoint.config, ""
    if spec.has_portable_format and not spec.pools_last_token(config):
        name = spec.model_class.hugging_face_class(config, spec.arguments)
        names = [*(("AutoTokenizer",) if checkpoint.tokenization else ()), name]
        calls = "\n".join(f'{name}.from_pretrained("path/of/this/directory")' for name in names)
        elsewhere = (
            "With transformers, after `python -m bert_tf.convert --format=huggingface`:\n\n"
            f"```python\nfrom transformers import {', '.join(names)}\n\n{calls}\n```"
        )
    return fill("use.md", elsewhere=elsewhere).rstrip("\n")


# === A conversion ===


def write_converted(
    checkpoint: Checkpoint, folder: str, form: str, notes: Sequence[str] = ()
) -> None:
    """Writes the card of a conversion.

    Copies the source's card with an updated library name, or generates a card if there is none.
    Appends the warnings ``notes``.
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
    """Returns the card of an export, with an example request to ``serving_default``.

    Args:
        checkpoint: The exported model.
        name: Name of the model on the server.
        limits: Additional facts, such as limits on requests.
        signatures: Signatures by name.
        traced: Concrete functions of the signatures, for the shapes of the outputs.
        example: Sample whose first row becomes the example request.
        notes_section: Result of ``differences``.
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
    """Returns a sample's first row as the arguments of a Python call."""
    parts = []
    for name, value in sample.inputs.items():
        row = value[:1].tolist()
        text = row[0].decode(errors="replace") if isinstance(row[0], bytes) else row[0]
        parts.append(f"{name}=tf.constant([{text!r}])")
    return ", ".join(parts)


def _specs(specs: Mapping[str, tf.TensorSpec]) -> str:
    """Describes tensors by name, shape and dtype, with B for the batch and ? for unknown sizes."""
    texts = []
    for name, spec in specs.items():
        sizes = ["?" if size is None else str(size) for size in spec.shape.as_list()[1:]]
        shape = f"(B, {', '.join(sizes)})" if sizes else "(B,)"
        texts.append(f"`{name}` {shape} {spec.dtype.name}")
    return ", ".join(texts)
