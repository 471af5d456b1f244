"""Lists the keys that other libraries declare for their files or read when loading them.

    python -m tests.checkpoints.make_config_keys

writes the library versions and the keys of each file to ``data/config_keys.json``. It requires the
``parity`` extra. With ``--page`` it only writes the tables of docs/reference/compatibility.md and
has no extra requirements. Declared keys are the fields of a config, the arguments of a constructor
and the keys that a module saves. Keys that a library reads are recorded with a dict subclass.
"""

import collections
import contextlib
import dataclasses
import importlib.metadata
import inspect
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest.mock
from collections.abc import Iterator
from typing import Any

from bert_tf.checkpoints.config_keys import FILES, NO_EFFECT, REJECTED, SUPPORTED, WARNED, Answer

LIST = pathlib.Path(__file__).parent / "data" / "config_keys.json"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
BEGIN = "<!-- What follows is written by python -m tests.checkpoints.make_config_keys --page -->"
# Names of the statuses on the page, in row order.
STATUSES = {SUPPORTED: "supported", WARNED: "warned", REJECTED: "rejected", NO_EFFECT: "no effect"}
# Files that share keys with another file. The page lists only their own keys.
COMMON_KEYS = {
    "config.json of a DistilBERT": "config.json",
    "tokenizer.json of class BertTokenizer": "tokenizer.json",
    **dict.fromkeys(
        (f"{name}.json of KerasHub" for name in ("tokenizer", "preprocessor", "task")),
        "config.json of KerasHub",
    ),
}
MAX_KEYS = 5  # in a row of keys without effect
SAME_EFFECT = FILES["modules.json"]["type"]  # the meaning of "supported" on the page
LIBRARIES = ("transformers", "tokenizers", "sentence-transformers", "keras-hub", "setfit", "peft")


class Recording(dict[str, Any]):
    """A parsed file that records the requested keys."""

    requested: set[str]

    def __getitem__(self, key: str) -> Any:
        self.requested.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.requested.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.requested.add(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self.requested.add(key)
        return super().pop(key, *default)


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, set[str]]]:
    """Yields the keys requested from JSON files, by file name."""
    requested: dict[str, set[str]] = collections.defaultdict(set)
    load = json.load

    def recording(file: Any, *arguments: Any, **options: Any) -> Any:
        name = pathlib.Path(getattr(file, "name", "")).name
        within = pathlib.Path(getattr(file, "name", "")).parent.name
        if name == "config.json" and within[:1].isdecimal():
            name = "N_*/config.json"

        def wrap(value: Any) -> Any:
            if isinstance(value, list):
                return [wrap(each) for each in value]
            if not isinstance(value, dict):
                return value
            mapping = Recording(value)
            mapping.requested = requested[name]
            return mapping

        return wrap(load(file, *arguments, **options))

    with unittest.mock.patch.object(json, "load", recording):
        yield requested


def write_directories(folder: pathlib.Path) -> None:
    """Saves one directory of each type with its library."""
    import sentence_transformers
    import transformers
    from sentence_transformers.sentence_transformer import modules

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    sizes = {
        **{"vocab_size": len(pieces), "hidden_size": 8, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16},
    }
    tokenizer = transformers.BertTokenizer(vocab={piece: at for at, piece in enumerate(pieces)})
    for name, kind, labels in (
        ("encoder", transformers.BertModel, 2),
        ("pairs", transformers.BertForSequenceClassification, 1),
    ):
        kind(transformers.BertConfig(**sizes, num_labels=labels)).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    body = sentence_transformers.SentenceTransformer(str(folder / "encoder"), device="cpu")
    body.append(modules.Dense(8, 8))
    body.append(modules.Normalize())
    body.save_pretrained(str(folder / "sentences"))
    cross = sentence_transformers.CrossEncoder(str(folder / "pairs"), device="cpu")
    cross.save_pretrained(str(folder / "cross"))


def arguments_of(function: Any) -> list[str]:
    """Returns the named arguments of a function except ``self``."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.items()
    return [name for name, each in parameters if name != "self" and each.kind not in kinds]


def keys_of_presets(folder: pathlib.Path) -> Iterator[tuple[str, set[str]]]:
    """Yields the keys in KerasHub's files and the constructor arguments of its classes."""
    from keras_hub import models

    tokenizer = models.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    backbone = models.BertBackbone(5, 1, 2, 8, 8)
    for name, kind, preprocessor, options in (
        ("masked", models.BertMaskedLM, models.BertMaskedLMPreprocessor, {}),
        (
            "text",
            models.BertTextClassifier,
            models.BertTextClassifierPreprocessor,
            {"num_classes": 2},
        ),
    ):
        task = kind(backbone, preprocessor=preprocessor(tokenizer), **options)
        task.save_to_preset(str(folder / name))
        for file, each in (
            *(("config.json", backbone), ("tokenizer.json", tokenizer)),
            *(("preprocessor.json", task.preprocessor), ("task.json", task)),
        ):
            own = [base for base in type(each).__mro__ if base.__module__.startswith("keras_hub")]
            declared = {key for base in own for key in arguments_of(base.__init__)}
            saved = json.loads((folder / name / file).read_text())["config"]
            yield f"{file} of KerasHub", {*saved, *declared} - {"args", "kwargs", "compile"}


def collect() -> dict[str, Any]:
    """Returns the library versions and the keys of each file."""
    import sentence_transformers
    import setfit
    import transformers
    from sentence_transformers.base import modules as base
    from sentence_transformers.sentence_transformer import modules

    transformers.logging.set_verbosity_error()
    generation = transformers.GenerationConfig._get_default_generation_params()
    keys: dict[str, set[str]] = collections.defaultdict(set)
    for file, kind in (
        ("config.json", transformers.BertConfig),
        ("config.json of a DistilBERT", transformers.DistilBertConfig),
    ):
        keys[file] |= {field.name for field in dataclasses.fields(kind)} | {*generation}
        keys[file] |= {*kind().to_dict(), *kind.attribute_map} - {"_name_or_path"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_directories(folder)
        for file, names in keys_of_presets(folder):
            keys[file] |= names
        with recorded() as requested:
            sentence_transformers.SentenceTransformer(str(folder / "sentences"), device="cpu")
            sentence_transformers.CrossEncoder(str(folder / "cross"), device="cpu")
            for kind in ("BertTokenizer", "PreTrainedTokenizerFast"):
                path = folder / "encoder" / "tokenizer_config.json"
                values = {**json.loads(path.read_text()), "tokenizer_class": kind}
                path.write_text(json.dumps(values))
                transformers.AutoTokenizer.from_pretrained(folder / "encoder")
        rows = json.loads((folder / "cross" / "tokenizer.json").read_text())
        keys["tokenizer.json"] |= {*rows}
        for path in folder.glob("*/*.json"):
            if path.name in ("modules.json", "config_sentence_transformers.json"):
                values = json.loads(path.read_text())
                for value in values if isinstance(values, list) else [values]:
                    keys[path.name] |= {*value}
    for file in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        keys[file] |= requested[file]
    keys["tokenizer_config.json"] |= requested["tokenizer_config.json"]
    arguments = arguments_of(transformers.BertTokenizer.__init__)
    keys["tokenizer_config.json"] |= {*arguments} - {"vocab"}
    keys["sentence_bert_config.json"] |= {*base.Transformer.config_keys}
    keys["sentence_bert_config.json"] |= {
        name
        for name in arguments_of(base.Transformer.__init__)
        if name not in ("model_name_or_path", "backend", "args", "kwargs")
    }
    keys["N_*/config.json"] |= requested["N_*/config.json"]
    for module in (modules.Pooling, modules.Dense, modules.Normalize):
        keys["N_*/config.json"] |= {*module.config_keys}
    for kind in (setfit.SetFitModel, setfit.AspectModel):
        keys["config_setfit.json"] |= kind().attributes_to_save
    return {
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "keys": {file: sorted(names) for file, names in sorted(keys.items())},
    }


def format_keys(answer: Answer, keys: list[str]) -> str:
    """Formats keys for a table cell. Long lists of keys without effect are truncated."""
    if answer.status == NO_EFFECT and len(keys) > MAX_KEYS + 2:
        return f"{', '.join(keys[:MAX_KEYS])} and {len(keys) - MAX_KEYS} others"
    return ", ".join(keys)


def table(file: str) -> str:
    """Returns the Markdown table of a file, with a row for each status and reason."""
    base = COMMON_KEYS.get(file, "")
    rows: dict[str, tuple[Answer, list[str]]] = {}
    for key, answer in FILES[file].items():
        if FILES.get(base, {}).get(key) != answer:
            rows.setdefault(repr(answer), (answer, []))[1].append(f"`{key}`")
    lines = [f"## {file}", ""]
    if base:
        anchor = re.sub(r"[^\w\- ]", "", base).lower().replace(" ", "-")
        lines += [f"Keys that also occur in [{base}](#{anchor}) are handled in the same way.", ""]
    lines += ["| Keys | Status | Details |", "|---|---|---|"]
    order = [*STATUSES]
    for answer, keys in sorted(rows.values(), key=lambda row: order.index(row[0].status)):
        neutral = " or ".join(f"`{json.dumps(value)}`" for value in answer.neutral_values)
        unless = f" unless {neutral}" if neutral else ""
        status = f"{STATUSES[answer.status]}{unless}"
        details = "" if answer == SAME_EFFECT else answer.reason
        lines.append(f"| {format_keys(answer, keys)} | {status} | {details} |")
    return "\n".join(lines)


def tables() -> str:
    """Returns the library versions and a table for each file."""
    versions = json.loads(LIST.read_text())["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n\n".join([f"Versions: {listed}.", *map(table, FILES)]) + "\n"


def page() -> str:
    """Returns the text of docs/reference/compatibility.md with updated tables."""
    return PAGE.read_text().partition(BEGIN)[0] + BEGIN + "\n\n" + tables()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "--page" not in sys.argv:
        LIST.write_text(json.dumps(collect(), indent=1) + "\n")
    PAGE.write_text(page())
