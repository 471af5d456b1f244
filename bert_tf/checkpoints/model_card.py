"""Model cards: the ``README.md`` of a run, of a conversion and of an export, by one template.

A card is Markdown. That of a model that a hub may hold begins with the header that hubs read, whose
keys are those of the Hugging Face hub's documentation, "Model Cards".
"""

import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoint_formats import FORMATS
from bert_tf.files import read_bounded, replace_whole
from bert_tf.paths import HUB_SCHEME
from bert_tf.wording import markdown_code, one_line

from .checkpoint import Checkpoint

README = "README.md"
_MOST_BYTES = 4 << 20
_MOST_CLASSES = 50
# Library that reads a directory, by its format; the other formats are not for a hub.
_LIBRARIES = {form.name: form.library for form in FORMATS if form.library}
_OF_SENTENCES = "sentence-transformers"
_NAMED = re.compile(
    rf'^library_name: "?({"|".join((*_LIBRARIES.values(), _OF_SENTENCES))})"?(?=\r?$)', re.MULTILINE
)
_HEADER = re.compile(r"\A---\r?\n.*?^---\r?$", re.MULTILINE | re.DOTALL)
_TEST = "test"

# === The template ===


def card(title: str, *parts: str, header: Mapping[str, Any] | None = None) -> str:
    """A card in Markdown: the ``header`` in YAML, the title, and the parts that are not empty."""
    lines = [f"{key}: {_yaml(value)}" for key, value in (header or {}).items() if value]
    begin = ["\n".join(["---", *lines, "---"])] if lines else []
    return _joined([*begin, f"# {title}", *parts]) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """A part under a title of its own."""
    return _joined([f"{'#' * level} {title}", *parts])


def bullets(lines: Iterable[str]) -> str:
    """A list, of the lines that are not empty."""
    return "\n".join(f"- {line}" for line in lines if line)


def code(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell may hold code, in which a bar would end it."""
    rule = ["---"] * len(head)
    cells = ([cell.replace("|", "\\|") for cell in row] for row in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def write(path: str, text: str) -> None:
    """Writes a card where there is none; one that is there is somebody's, and stays."""
    if not tf.io.gfile.exists(path):
        with replace_whole(path) as file:
            file.write(text.encode(errors="surrogateescape"))


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _yaml(value: Any) -> str:
    """A value in YAML, which is JSON but for small numbers: ``1e-05`` would be a text.

    >>> _yaml(["no", {"a": 1e-05}])
    '["no", {"a": 1.0e-05}]'
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_yaml(key)}: {_yaml(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))
    return json.dumps(one_line(value) if isinstance(value, str) else value, ensure_ascii=False)


# === Of every model ===


def about(checkpoint: Checkpoint) -> dict[str, Any]:
    """Header lines of every model in a directory of this library."""
    spec = checkpoint.model
    task = spec.model_class.hub_task_of(checkpoint.config, spec.arguments)
    return {
        "library_name": _LIBRARIES["bert_tf"],
        "pipeline_tag": "sentence-similarity" if checkpoint.sentence_embedding else task,
        "tags": ["bert"],
    }


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
        left = len(labels) - _MOST_CLASSES
        more = f" and {left:,} more" if left > 0 else ""
        several = ", any number of which may hold at once" if checkpoint.multi_label else ""
        codes = ", ".join(map(markdown_code, labels[:_MOST_CLASSES]))
        yield f"{len(labels):,} classes: {codes}{more}{several}."


def differences(notes: Iterable[str], path: str) -> str:
    """Section of what was told of the model at ``path``, which it does not name; "" of nothing."""
    lines = [note.replace(f"{path}/", "").replace(path, "the source") for note in notes]
    return section("Differences from the source", bullets(lines)) if lines else ""


def use(checkpoint: Checkpoint) -> str:
    """Section of the card that loads the model, in each form of its directory."""
    spec, config = checkpoint.model, checkpoint.config
    parts = [code('import bert_tf\n\nmodel = bert_tf.load("path/of/this/directory")', "python")]
    if spec.known_elsewhere and not spec.pools_last_token(config):
        name = spec.model_class.hugging_face_class(config, spec.arguments)
        names = [*(("AutoTokenizer",) if checkpoint.tokenization else ()), name]
        calls = "\n".join(f'{name}.from_pretrained("path/of/this/directory")' for name in names)
        parts += [
            "In the form of Hugging Face, which `python -m bert_tf.convert --format=huggingface` "
            "writes:",
            code(f"from transformers import {', '.join(names)}\n\n{calls}", "python"),
        ]
    return section("Use", *parts)


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
        text = read_bounded(path, "model card", _MOST_BYTES).decode(errors="surrogateescape")
    else:
        text = card(
            checkpoint.model.class_name,
            f"Converted by `bert_tf` from a checkpoint in the format `{checkpoint.format}`, every "
            "weight bit for bit. The source had no model card: what it was trained on, in which "
            "languages, how good it is and what its licence allows is not recorded here.",
            bullets(facts(checkpoint)),
            use(checkpoint),
            header=about(checkpoint),
        )
    header = _HEADER.match(text)
    end = header.end() if header else 0
    embeds = form == "huggingface" and checkpoint.sentence_embedding
    library = _OF_SENTENCES if embeds else _LIBRARIES[form]
    text = _NAMED.sub(f'library_name: "{library}"', text[:end]) + text[end:]
    if told := differences(notes, checkpoint.path):
        text = f"{text}\n{told}\n"
    write(os.path.join(folder, README), text)


# === A fine-tuning ===


def run_card(
    checkpoint: Checkpoint,
    name: str,
    version: str,
    start: str,
    files: Mapping[str, str],
    settings: Mapping[str, Any],
    results: Mapping[str, Any],
    told: str = "",
) -> str:
    """The card of a run by a version of this library.

    ``files`` names each set's source, ``settings`` are those to be shown, ``told`` is the section
    of ``differences``.
    """
    scores, sizes = results["scores"], results["rows"]
    deciding = next((name for name in scores if name != _TEST), None)
    roles = dict.fromkeys(scores, "scored; nothing was decided on it")
    roles |= {"train": "trained on", deciding: "scored; its scores decided which weights were kept"}
    shown = [
        (set_name, markdown_code(metric), "undefined" if value is None else f"{value:.4g}")
        for set_name, own in scores.items()
        for metric, value in sorted(own.items(), key=lambda item: item[0] != results["headline"])
    ]
    sets = [
        (each, markdown_code(file), f"{sizes.get(each, 0):,}", roles.get(each, "predicted"))
        for each, file in files.items()
    ]
    thresholds = results["thresholds"].items()
    limits = [
        f"The training collapsed: {results['collapsed']}." if results["collapsed"] else "",
        "Nothing was measured on other texts than those of the sets above: of another source, "
        "subject or time.",
        "Which languages it serves is not recorded.",
        "The scores that decided are a little too good." if deciding else "",
        "It always answers one of its classes, also where none of them fits."
        if checkpoint.labels and not checkpoint.multi_label
        else "",
    ]
    return card(
        one_line(name),
        f"A {checkpoint.model.class_name}, fine-tuned by `bert_tf` {version} from "
        f"{markdown_code(start)} on {markdown_code(files['train'])}.",
        bullets(facts(checkpoint)),
        section("Data", table(("set", "from", "examples", "use"), sets)),
        section("Scores", table(("set", "score", "value"), shown) if shown else "None."),
        section(
            "Settings",
            table(
                ("setting", "value"),
                [(f"`{key}`", markdown_code(str(value))) for key, value in settings.items()]
                + [(f"threshold {markdown_code(key)}", f"{value:g}") for key, value in thresholds],
            ),
        ),
        section("Limits", bullets(limits)),
        told,
        use(checkpoint),
        header=_run_header(checkpoint, name, start, files, scores),
    )


def _run_header(
    checkpoint: Checkpoint,
    name: str,
    start: str,
    files: Mapping[str, str],
    scores: Mapping[str, Mapping[str, float | None]],
) -> dict[str, Any]:
    known = about(checkpoint)
    results = [
        {
            "task": {"type": known["pipeline_tag"]},
            "dataset": {"name": files[set_name], "type": files[set_name], "split": set_name},
            "metrics": [
                {"type": key, "value": value}
                for key, value in own.items()
                if value is not None and math.isfinite(value)
            ],
        }
        for set_name, own in scores.items()
    ]
    return {
        "base_model": start.removeprefix(HUB_SCHEME) if start.startswith(HUB_SCHEME) else "",
        **known,
        "model-index": [{"name": name, "results": results}] if results else (),
    }


# === An export ===

_LOADED = """\
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load("path/of/this/version")
answer = model.signatures["serving_default"]({arguments})
print({{name: value.numpy() for name, value in answer.items()}})"""
_LAYER = (
    'keras.layers.TFSMLayer("path/of/this/version", call_endpoint="encoder", '
    'call_training_endpoint="encoder_training")'
)
_DOCKER = (
    "docker run -p 8500:8500 -p 8501:8501 -v DIR:/models/{name} -e MODEL_NAME={name} "
    "tensorflow/serving"
)
_TRUNCATED = (
    "Where the output `truncated` is true, text that did not fit into a row has lost its end (of a "
    "pair, the longer one), and the answer is about what was left. Bytes that are not UTF-8 are "
    "left out; the output `invalid_utf8` is then true."
)


def export_card(
    checkpoint: Checkpoint,
    name: str,
    limits: Sequence[str],
    signatures: Mapping[str, Any],
    traced: Mapping[str, Any],
    example: Any,
    told: str = "",
) -> str:
    """The card of an export, which shows how ``serving_default`` is asked.

    ``signatures`` are ``saved_models.signature``'s, ``traced`` their concrete functions, for the
    outputs' shapes; ``example`` is a sample, ``told`` the section of ``differences``.
    """
    request = json.dumps(example.rest_request(rows=1), ensure_ascii=False)
    address = f"http://localhost:8501/v1/models/{name}:predict"
    return card(
        name,
        f"A {checkpoint.model.class_name}. {signatures['serving_default'].summary}",
        bullets([*facts(checkpoint), *limits]),
        told,
        _TRUNCATED,
        section(
            "In Python",
            "Loading needs `tensorflow`, and `tensorflow_text`, which is imported only for its "
            "operations:",
            code(_LOADED.format(arguments=_arguments(example)), "python"),
            "In Keras, the encoder is a layer:",
            code(_LAYER, "python"),
        ),
        section(
            "In TensorFlow Serving",
            "DIR is the directory above this version's:",
            code(_DOCKER.format(name=name)),
            "Append `--enable_batching --enable_per_model_batching_parameters` for many clients at "
            "once. Then ask it; `assets.extra/samples/` has more requests, with their answers:",
            code(f"curl {address} -d {shlex.quote(request)}"),
        ),
        section(
            "Signatures",
            "B is the batch, of any size; ? a size that depends on the request. Rows that are "
            'shorter than others of their batch are padded with "", -1 or 0, and a count says '
            "where that begins.",
            *(
                section(
                    f"`{key}`",
                    each.summary,
                    bullets(
                        f"{title}: {', '.join(map(_spec, specs, specs.values()))}"
                        for title, specs in (
                            ("Inputs", each.inputs),
                            ("Outputs", traced[key].structured_outputs),
                        )
                    ),
                    level=3,
                )
                for key, each in signatures.items()
            ),
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


def _spec(name: str, spec: tf.TensorSpec) -> str:
    """A tensor for people: the batch by its letter, other open sizes by a question mark."""
    sizes = ["B", *("?" if size is None else str(size) for size in spec.shape.as_list()[1:])]
    shape = f"({', '.join(sizes)})" if len(sizes) > 1 else "(B,)"
    return f"`{name}` {shape} {spec.dtype.name}"
