"""What is mutated: the originals of each format, how they are mutated, and how they are read."""

import contextlib
import csv
import dataclasses
import fnmatch
import glob
import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import bert_tf
from bert_tf.interchange import (
    google,
    hugging_face,
    keras_files,
    model_directory,
    sentence_transformers,
)
from bert_tf.interchange.load import make_preprocessor, select
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines import sources
from bert_tf.readers import choices as multiple_choice
from bert_tf.readers import conll, own_data, squad
from bert_tf.readers.squad import read_null_odds, read_predictions, read_references
from bert_tf.tasks.task_file import TaskFile
from tests.interchange import hugging_face_files
from tests.interchange.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.predicting import prediction_models

from . import containers, requests
from .mutations import (
    Mutator,
    mutate_bytes,
    mutate_json,
    mutate_json_lines,
    mutate_lines,
    mutate_yaml,
)

_DATA = os.path.join(os.path.dirname(os.path.dirname(__file__)), "interchange", "data")
Files = dict[str, bytes]
# A file's new contents; or what stands in its place: "missing", "folder", "fifo", or a link's end.
Change = bytes | str
Changes = dict[str, Change]


class Told(NamedTuple):
    """What was read, and what its reader says was assumed or left out."""

    value: Any
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of file, or of files that belong together.

    Attributes:
        make: writes the originals of each variant below a folder.
        read: reads those of a variant from a folder, to a value to compare; it knows the variant
            by the folder's name. What is told in notes comes in a ``Told``.
        mutators: by pattern of the paths that they change.
        joint: change several files at once, such as an index and what it is of.
        sealed: whether the format can tell every change: a silent difference is a fault.
        named: whether the user names the very file, so that what stands in its place is meant.
    """

    make: Callable[[str], None]
    read: Callable[[str], Any]
    mutators: Mapping[str, Mutator]
    joint: Sequence[Callable[[Random, Files], Changes]] = ()
    sealed: bool = False
    named: bool = False


def mutate(form: Format, rng: Random, files: Files) -> Changes:
    """Some changes to a variant's files."""
    if form.joint and rng.random() < 0.3:
        return rng.choice(form.joint)(rng, files)
    names = sorted(name for name in files if any(fnmatch.fnmatch(name, p) for p in form.mutators))
    name = rng.choice(names)
    kind = rng.random()
    if kind < 0.04 and not form.named:
        return {name: rng.choice(("missing", "folder", "fifo", "/dev/zero", "nowhere", name))}
    if kind < 0.06:
        return {name: files[rng.choice(names)]}
    if kind < 0.07:
        return {name: b""}
    pattern = next(p for p in form.mutators if fnmatch.fnmatch(name, p))
    mutator = mutate_bytes if kind < 0.15 else form.mutators[pattern]
    return {name: mutator(rng, files[name])}


def files_below(folder: str) -> Files:
    """The contents of all files, by their paths below a folder."""
    found = {}
    for path in sorted(glob.glob(f"{folder}/**", recursive=True, include_hidden=True)):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


# === Checkpoints ===

_SPANS = dataclasses.replace(MODELS["span predictor"])
_VARIANTS = {
    "pretrainer": ("pretrainer", {}),
    "classifier": ("classifier", {"labels": ("bad", "fine", "good"), "multi_label": True,
                                  "thresholds": {"probability": 0.25}}),
    "encoder": ("encoder without pooler", {}),
}  # fmt: skip


def _make_checkpoints(write: Callable[[Any, str], Any], folder: str) -> None:
    for variant, (name, fields) in _VARIANTS.items():
        path = os.path.join(folder, variant)
        os.makedirs(path)
        write(make_checkpoint(MODELS[name], tokenization=UNCASED, **fields), path)


def _read_checkpoint(path: str, *, inner: str = "") -> Any:
    checkpoint = open_checkpoint(os.path.join(path, inner), allow_pickle=True)
    tensors, _ = select(checkpoint, checkpoint.model, may_be_new=False)
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.asarray(tensors[name].read())
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    tokenization = checkpoint.tokenization
    value = (
        dataclasses.astuple(checkpoint.config),
        checkpoint.model.class_name,
        sorted(map(repr, checkpoint.model.arguments.items())),
        digest.hexdigest(),
        tokenization and (tokenization.vocabulary, tokenization.do_lower_case),
        (checkpoint.labels, checkpoint.multi_label, sorted(checkpoint.thresholds.items())),
        (checkpoint.sentence_embedding, checkpoint.not_computed),
    )
    return Told(value, checkpoint.notes)


def load_whole(path: str) -> None:
    """Makes the model of a checkpoint that reads otherwise than its original."""
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "model.keras")):
        path = os.path.join(path, "model.keras")
    if not {"model.json", "config.json", "bert_config.json", "checkpoint"} & {*_names(path)}:
        return
    checkpoint = open_checkpoint(path, allow_pickle=True)
    make_preprocessor(checkpoint)
    bert_tf.load(path, allow_pickle=True)


def _names(path: str) -> list[str]:
    return os.listdir(path) if os.path.isdir(path) else ["model.json"]


def _joint(function: Callable[..., tuple[bytes, bytes]]) -> Callable[[Random, Files], Changes]:
    def change(rng: Random, files: Files) -> Changes:
        index = next(name for name in files if name.endswith(".index"))
        data = index.removesuffix(".index") + ".data-00000-of-00001"
        indexed, stored = function(rng, files[index], files[data])
        return {index: indexed, data: stored}

    return change


def _resealed(rng: Random, files: Files) -> Changes:
    """Our own checkpoint as a crafty stranger writes it: the manifest's hashes are right again."""
    manifest = next(name for name in files if name.endswith("manifest.json"))
    folder = os.path.dirname(manifest)
    if rng.random() < 0.5:
        index = f"{folder}/variables.index"
        changes: Changes = {index: containers.mutate_index(rng, files[index])}
    else:
        changes = _joint(containers.mutate_data)(rng, files)
    values = json.loads(files[manifest])
    for name, content in changes.items():
        assert isinstance(content, bytes)
        values["files"][os.path.basename(name)] = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    return {**changes, manifest: json.dumps(values).encode()}


def _crafted_manifest(rng: Random, files: Files) -> Changes:
    manifest = next(name for name in files if name.endswith("manifest.json"))
    values = json.loads(files[manifest])
    kind = rng.randrange(5)
    if kind == 0:
        name = rng.choice(("/dev/zero", "../../vocab.txt", "/etc/passwd", ".", "", "a" * 5000))
        values["files"][name] = {"bytes": rng.choice((0, 1, 10**12)), "sha256": "0" * 64}
    elif kind == 1:
        values["files"] = rng.choice(({}, [], None, {"variables.index": {}}, 1))
    elif kind == 2:
        values["files"]["variables.index"] = rng.choice(({}, [], None, {"bytes": "1"}, 5))
    elif kind == 3:
        values["step"] = rng.choice((-1, 1e300, "0", None, 10**30, [], True))
    else:
        values["extra"] = rng.choice((None, [], 1, "x", {"a": [[]] * 1000}))
    return {manifest: json.dumps(values).encode()}


_BUNDLE: dict[str, Mutator] = {"*.index": containers.mutate_index, "*.data-*": mutate_bytes}


def _write_torch(checkpoint: Any, path: str) -> None:
    import torch  # of the parity extra

    hugging_face.write(checkpoint, path)
    weights = os.path.join(path, "model.safetensors")
    names = _hugging_face_tensors(weights)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in names.items()}
    torch.save(tensors, os.path.join(path, "pytorch_model.bin"))
    os.remove(weights)


def _hugging_face_tensors(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header, body = json.loads(file.read(length)), file.read()
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in header.items()
    }


def _write_sharded(checkpoint: Any, path: str) -> None:
    hugging_face.write(checkpoint, path)
    tensors = _hugging_face_tensors(os.path.join(path, "model.safetensors"))
    os.remove(os.path.join(path, "model.safetensors"))
    shards = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    where = {name: shards[number % 3] for number, name in enumerate(sorted(tensors))}
    for shard in shards:
        part = {name: array for name, array in tensors.items() if where[name] == shard}
        hugging_face_files.write_weights(os.path.join(path, shard), part)
    total = sum(array.nbytes for array in tensors.values())
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)


def _write_sentence_transformers(checkpoint: Any, path: str) -> None:
    embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=8)
    sentence_transformers.write(dataclasses.replace(checkpoint, sentence_embedding=embedding), path)


def _write_tokenizer_alone(checkpoint: Any, path: str) -> None:
    hugging_face.write(checkpoint, path)
    os.remove(os.path.join(path, "vocab.txt"))


def _copy_data(kind: str, folder: str) -> None:
    for source in glob.glob(os.path.join(_DATA, kind, "*")):
        target = os.path.join(folder, os.path.basename(source))
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("outputs.npz"))


def _make_model_garden(folder: str) -> None:
    _copy_data("model_garden", folder)
    config = os.path.join(folder, "encoder", "bert_config.json")
    for variant in os.listdir(folder):
        if not {"params.yaml", "bert_config.json"} & {*os.listdir(os.path.join(folder, variant))}:
            shutil.copy(config, os.path.join(folder, variant))


def _write_keras(checkpoint: Any, path: str) -> None:
    keras_files.write(checkpoint, os.path.join(path, "model.keras"))


def _mutate_keras(rng: Random, content: bytes) -> bytes:
    return containers.mutate_zip(rng, content, {"json": mutate_json, "h5": containers.mutate_hdf5})


def _checkpoints(
    write: Callable[[Any, str], Any], mutators: Mapping[str, Mutator], **fields: Any
) -> Format:
    fields = {"read": _read_checkpoint, **fields}
    return Format(lambda folder: _make_checkpoints(write, folder), mutators=mutators, **fields)


_OWN = {"*.json": mutate_json, "vocab.txt": mutate_lines, **_BUNDLE}
_TOKENIZER = {"tokenizer*.json": mutate_json, "vocab.txt": mutate_lines}

# === Files of tasks ===

_TEXTS = ["good film", "the plot was so bad", "fine, and good", 'a "poor" plot', "is", "so so é"]


def _write_tables(folder: str, suffix: str) -> None:
    """A table of each kind: classes, several classes, numbers, words, choices and questions."""
    tables: dict[str, tuple[list[str], list[list[Any]]]] = {
        "classes": (["id", "text", "label"],
                    [[f"i{n}", text, ("pos", "neg")[n % 2]] for n, text in enumerate(_TEXTS)]),
        "multilabel": (["id", "text", "label"],
                       [[f"i{n}", text, ("a,b", "b", "")[n % 3]] for n, text in enumerate(_TEXTS)]),
        "numbers": (["id", "text", "label"],
                    [[f"i{n}", text, str(n / 2)] for n, text in enumerate(_TEXTS)]),
        "tagging": (["id", "text", "label"],
                    [[f"i{n}", text, " ".join("O" for _ in text.split())]
                     for n, text in enumerate(_TEXTS)]),
        "choices": (["id", "text", "one", "two", "label"],
                    [[f"i{n}", text, "yes", "no", n % 2] for n, text in enumerate(_TEXTS)]),
        "questions": (["id", "question", "text", "label", "start"],
                      [[f"i{n}", "what?", text, text[:2], 0] for n, text in enumerate(_TEXTS)]),
    }  # fmt: skip
    for variant, (header, rows) in tables.items():
        os.makedirs(os.path.join(folder, variant))
        with open(os.path.join(folder, variant, f"table.{suffix}"), "w", newline="") as file:
            if suffix == "csv":
                csv.writer(file, lineterminator="\n").writerows([header, *rows])
            elif suffix == "tsv":
                lines = [[str(cell).replace('"', "") for cell in row] for row in [header, *rows]]
                file.writelines("\t".join(line) + "\n" for line in lines)
            else:
                lists = [dict(zip(header, row, strict=True)) for row in rows]
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in lists)


def _read_table(path: str) -> Any:
    (table,) = glob.glob(f"{glob.escape(path)}/table.*")
    variant = os.path.basename(path)
    texts = {"text_columns": ["text"], "label_column": "label", "id_column": "id"}
    readers: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "classes": (own_data.read_classification, texts),
        "multilabel": (own_data.read_multilabel, texts),
        "numbers": (own_data.read_regression, texts),
        "tagging": (own_data.read_tagging, {"words_column": "text", "tags_column": "label"}),
        "choices": (multiple_choice.read_choices,
                    {"context_column": "text", "choice_columns": ["one", "two"],
                     "label_column": "label"}),
        "questions": (squad.read_questions,
                      {"context_column": "text", "answers_column": "label",
                       "answer_start_column": "start", "id_column": "id"}),
    }  # fmt: skip
    reader, given = readers[variant]
    with contextlib.suppress(ValueError):
        _check_skipped(reader(table, **given, skip_bad_rows=True))
    return reader(table, **given)


def _check_skipped(examples: Any) -> None:
    """What is left out is said in sentences too, and no more rows come than there may be."""
    for sentence in examples.skipped:
        check_sentence(sentence)
    if len(examples.items) > 10_000:
        raise AssertionError(f"{len(examples.items)} rows were made of a handful")


def check_length(sentence: str) -> None:
    """What is said of a stranger's file is not long.

    Raises:
        AssertionError: it is, or nothing is said.
    """
    if not sentence.strip() or len(sentence) > 4000:
        raise AssertionError(f"a sentence of {len(sentence)} characters: {sentence[:100]!r}")


def check_sentence(sentence: str) -> None:
    """What is printed of a stranger's file is one line, not long, without control characters.

    Raises:
        AssertionError: it is not.
    """
    check_length(sentence)
    odd = [c for c in sentence if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000]
    if odd or "\u202e" in sentence:
        raise AssertionError(f"control characters in {sentence[:300]!r}")


def _make_conll(folder: str) -> None:
    path = os.path.join(folder, "conll")
    os.makedirs(path)
    sentences = [
        [("Anna", "NNP", "B-PER"), ("saw", "VB", "O"), ("New", "NNP", "B-LOC"),
         ("York", "NNP", "I-LOC"), (".", ".", "O")],
        [("-DOCSTART-", "-X-", "O")],
        [("Otto", "NNP", "B-PER"), ("slept", "VB", "O")],
        [("é", "X", "O"), ("Paris", "NNP", "B-LOC")],
    ]  # fmt: skip
    with open(os.path.join(path, "names.conll"), "w") as file:
        for sentence in sentences:
            file.writelines(f"{word} {other} {tag}\n" for word, other, tag in sentence)
            file.write("\n")


def _read_conll(path: str) -> Any:
    file = os.path.join(path, "names.conll")
    with contextlib.suppress(ValueError):
        _check_skipped(conll.read_conll(file, skip_bad_rows=True))
    with contextlib.suppress(ValueError):
        conll.read_conll(file, labelled=False)
    return conll.read_conll(file)


def _make_squad(folder: str) -> None:
    path = os.path.join(folder, "squad")
    os.makedirs(path)
    questions = [
        {"id": f"q{n}", "question": "What was it?", "is_impossible": n == 2,
         "answers": [] if n == 2 else [{"text": "film", "answer_start": 5}]}
        for n in range(4)
    ]  # fmt: skip
    paragraphs = [{"context": "good film, bad plöt", "qas": questions[:2]},
                  {"context": "fine film. And so", "qas": questions[2:]}]  # fmt: skip
    files = {
        "squad.json": {"version": "v2.0", "data": [{"title": "One", "paragraphs": paragraphs}]},
        "predictions.json": {f"q{n}": "film" for n in range(4)},
        "null_odds.json": {f"q{n}": n / 2 for n in range(4)},
    }
    for name, value in files.items():
        with open(os.path.join(path, name), "w") as file:
            json.dump(value, file)


def _read_squad(path: str) -> Any:
    files = [os.path.join(path, f"{name}.json") for name in ("squad", "predictions", "null_odds")]
    with contextlib.suppress(ValueError):
        _check_skipped(squad.read_squad(files[0], skip_bad_rows=True))
    examples = squad.read_squad(files[0])
    references = read_references(files[0])
    answers = read_predictions(files[1], references)
    return examples, references, answers, read_null_odds(files[2], sorted(answers))


# === Corpora ===

_DOCUMENTS = [["It rained. We stayed in.", "The sun shone!"], ["So was it.", "Ärger in Paris?"]]


def _make_corpora(folder: str) -> None:
    lines = [f"{line}\n" for document in _DOCUMENTS for line in (*document, "")]
    texts = {
        "google.txt": "".join(lines),
        "prose.md": "\n\n".join(" ".join(document) for document in _DOCUMENTS) + "\n",
        "wikiextractor.txt": "".join(
            f'<doc id="{n}" url="u" title="t">\nt\n\n{" ".join(document)}\n</doc>\n'
            for n, document in enumerate(_DOCUMENTS)
        ),
        "lines.jsonl": "".join(json.dumps({"text": " ".join(d)}) + "\n" for d in _DOCUMENTS),
    }
    for name, text in texts.items():
        path = os.path.join(folder, name.split(".")[0])
        os.makedirs(path)
        with open(os.path.join(path, name), "wb") as file:
            file.write(text.encode())
    os.makedirs(os.path.join(folder, "packed"))
    with open(os.path.join(folder, "packed", "google.txt.gz"), "wb") as file:
        file.write(gzip.compress(texts["google.txt"].encode(), mtime=0))


def _read_corpus(path: str) -> Any:
    with tempfile.TemporaryDirectory() as cache:
        corpus = sources.open_corpus(f"{glob.escape(path)}/*", cache_dir=cache)
        return corpus.describe(), list(corpus.sentences())


# === A fine-tuned model's directory ===

_LABELS = prediction_models.LABELS
_TASKS: dict[str, tuple[Any, ...]] = {
    "classification": ("BertClassifier", {"num_classes": 3},
                       prediction_models.text_task("classification"), {"labels": _LABELS}),
    "multilabel": ("BertClassifier", {"num_classes": 3}, prediction_models.text_task("multilabel"),
                   {"labels": _LABELS, "multi_label": True, "thresholds": {"probability": 0.5}}),
    "regression": ("BertRegressor", {}, prediction_models.text_task("regression"), {}),
    "tagging": ("BertTokenClassifier", {"num_classes": 3},
                TaskFile("tagging", "own", 16, {"words_column": "text", "tags_column": "label"}),
                {"labels": ("O", "B-X", "I-X")}),
    "squad": ("BertSpanPredictor", {},
              TaskFile("squad", "squad", 24, {"question_column": "n", "context_column": "text"},
                       {"doc_stride": 4, "max_query_length": 6, "n_best_size": 3,
                        "max_answer_length": 5, "with_null": True}),
              {"thresholds": {"null": 0.5}}),
}  # fmt: skip


def _make_fine_tuned(folder: str) -> None:
    for variant, (class_name, arguments, task, more) in _TASKS.items():
        path = os.path.join(folder, variant)
        prediction_models.write_model(Path(path), class_name, arguments, task, **more)
        with open(os.path.join(path, "texts.tsv"), "w") as file:
            file.write("n\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(_TEXTS[:3])))


def _read_fine_tuned(path: str) -> Any:
    output = os.path.join(path, "predicted.tsv")
    try:
        # It loads a variant's model once: what is mutated here are the files beside the weights.
        prediction_models.predict(path, os.path.join(path, "texts.tsv"), output)
        with open(output, "rb") as file:
            return file.read()
    finally:
        if os.path.lexists(output):
            os.remove(output)


# === All ===

_KERAS_HUB = {"*.json": mutate_json, "*.h5": containers.mutate_hdf5, "*.txt": mutate_lines}
FORMATS: dict[str, Format] = {
    "bert_tf": _checkpoints(model_directory.write, _OWN, sealed=True),
    "bert_tf_crafted": _checkpoints(
        model_directory.write, _OWN, joint=(_resealed, _resealed, _crafted_manifest)
    ),
    "google_tf1": _checkpoints(google.write, _OWN, joint=(_joint(containers.mutate_data),)),
    "safetensors": _checkpoints(
        hugging_face.write,
        {"model.safetensors": containers.mutate_safetensors, "config.json": mutate_json},
    ),
    "sharded": _checkpoints(
        _write_sharded,
        {"*.safetensors": containers.mutate_safetensors, "*.index.json": mutate_json},
    ),
    "pytorch": _checkpoints(
        _write_torch,
        {"pytorch_model.bin": lambda rng, content: containers.mutate_zip(rng, content, {})},
    ),
    "tf_model": Format(
        lambda folder: _copy_data("tf_model", folder),
        _read_checkpoint,
        {"*.h5": containers.mutate_hdf5, "config.json": mutate_json},
    ),
    "sentence_transformers": _checkpoints(
        _write_sentence_transformers,
        {"*.json": mutate_json, "vocab.txt": mutate_lines},
    ),
    "tokenizer": _checkpoints(_write_tokenizer_alone, _TOKENIZER),
    "keras": _checkpoints(
        _write_keras,
        {"model.keras": _mutate_keras},
        read=lambda path: _read_checkpoint(path, inner="model.keras"),
    ),
    "keras_hub": Format(
        lambda folder: _copy_data("keras_hub", folder), _read_checkpoint, _KERAS_HUB
    ),
    "model_garden": Format(
        _make_model_garden,
        _read_checkpoint,
        {**_BUNDLE, "*.json": mutate_json, "*.yaml": mutate_yaml, "checkpoint": mutate_lines},
        joint=(_joint(containers.mutate_object_graph), _joint(containers.mutate_data)),
    ),
    "fine_tuned": Format(
        _make_fine_tuned, _read_fine_tuned, {"task.json": mutate_json, "model.json": mutate_json}
    ),
    **{
        suffix: Format(
            lambda folder, suffix=suffix: _write_tables(folder, suffix),
            _read_table,
            {"table.*": mutate_json_lines if suffix == "jsonl" else mutate_lines},
            named=True,
        )
        for suffix in ("csv", "tsv", "jsonl")
    },
    "conll": Format(_make_conll, _read_conll, {"*.conll": mutate_lines}, named=True),
    "corpora": Format(
        _make_corpora,
        _read_corpus,
        {"*.jsonl": mutate_json_lines, "*.gz": mutate_bytes, "*": mutate_lines},
        named=True,
    ),
    "squad": Format(_make_squad, _read_squad, {"*.json": mutate_json}, named=True),
    **{
        f"requests_{head}": Format(
            lambda folder, head=head: requests.export(head, folder), requests.answer, {}
        )
        for head in requests.HEADS
    },
}
