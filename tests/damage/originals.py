"""What is mutated: the originals of each format, how they are mutated, and how they are read."""

import contextlib
import csv
import dataclasses
import glob
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import h5py
import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 by it)
import numpy as np

from bert_tf.interchange import (
    bundles,
    google,
    hdf5_files,
    hugging_face,
    keras_files,
    model_directory,
    safetensors,
)
from bert_tf.interchange import sentence_transformers as modules
from bert_tf.interchange.load import select
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines import sources
from bert_tf.readers import choices, conll, own_data, squad
from bert_tf.tasks.task_file import TaskFile
from tests.interchange import hugging_face_files, recorded
from tests.interchange.small_checkpoints import MODELS, UNCASED, make_checkpoint, stored
from tests.predicting import prediction_models

from . import containers
from .mutations import Mutator, mutate_bytes, mutate_json, mutate_json_lines, mutate_lines


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of file, or of files that belong together.

    Attributes:
        make: writes the originals of each variant below a folder, in a folder of its name.
        read: reads a variant from its folder; gives a value to compare, and sentences about it.
        mutators: by pattern of the paths that they change; each takes one file's contents, or by
            the pattern "" those of all files, and gives the contents of some.
        sealed: whether the format can tell every change: a silent difference is a fault.
        named: whether the user names the very file, so that what stands in its place is meant.
        times: how many times as many mutations as usual, where reading takes no time.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], tuple[Any, tuple[str, ...]]]
    mutators: Mapping[str, Any]
    sealed: bool = False
    named: bool = False
    times: int = 1


# === Files of tensors ===


def _make_containers(folder: Path) -> None:
    tensors = [
        stored(name, array)
        for name, array in (
            ("a", np.ones((2, 3), "float16")),
            ("b", np.float32([1])),
            ("c", np.zeros((0, 2), bool)),
            ("d", np.asarray(7)),
        )
    ]
    for name in ("safetensors", "hdf5", "bundle"):
        (folder / name).mkdir()
    safetensors.write_file(str(folder / "safetensors" / "a.safetensors"), tensors, {"format": "pt"})
    bundles.write(str(folder / "bundle" / "a"), [(tensor.name, tensor) for tensor in tensors])
    with h5py.File(folder / "hdf5" / "a.h5", "w") as file:
        file["layers/dense/vars/0"] = np.arange(6, dtype="float32").reshape(2, 3)


def _read_container(path: Path) -> Any:
    if path.name == "bundle":
        bundle = bundles.Bundle(str(path / "a"))
        tensors = {name: bundle.tensor(name) for name in bundle.shapes}
    else:
        is_hdf5 = path.name == "hdf5"
        opened = hdf5_files.open_file if is_hdf5 else safetensors.open_file
        tensors = dict(opened(str(path / ("a.h5" if is_hdf5 else "a.safetensors"))))
    for tensor in tensors.values():
        array = tensor.read()
        assert (array.shape, array.dtype) == (tensor.shape, np.dtype(tensor.dtype))
        assert array.nbytes < 200
    return len(tensors), ()


# === Checkpoints ===

_CHECKPOINTS = {
    "pretrainer": ("pretrainer", {}),
    "classifier": ("classifier", {"labels": ("bad", "fine", "good"), "multi_label": True,
                                  "thresholds": {"probability": 0.25}}),
    "encoder": ("encoder without pooler", {}),
}  # fmt: skip


def _read_checkpoint(path: Path) -> tuple[Any, tuple[str, ...]]:
    inner = path / "model.keras"
    checkpoint = open_checkpoint(inner if inner.exists() else path, allow_pickle=True)
    tensors, _ = select(checkpoint, checkpoint.model, may_be_new=False)
    arrays = [(name, tensors[name].read()) for name in sorted(tensors)]
    value = dataclasses.replace(checkpoint, path="", tensors={}, unused=(), notes=())
    return (value, [(name, a.shape, a.tobytes()) for name, a in arrays]), checkpoint.notes


def _checkpoints(write: Callable[[Any, str], Any], mutators: Any, **more: Any) -> Format:
    def make(folder: Path) -> None:
        for variant, (name, fields) in _CHECKPOINTS.items():
            (folder / variant).mkdir()
            checkpoint = make_checkpoint(MODELS[name], tokenization=UNCASED, **fields)
            write(checkpoint, str(folder / variant))

    return Format(make, _read_checkpoint, mutators, **more)


def _recorded(kind: str, mutators: Any) -> Format:
    def make(folder: Path) -> None:
        for source in (recorded.DATA / kind).iterdir():
            shutil.copytree(source, folder / source.name)
        for path in folder.iterdir():
            if kind == "model_garden" and not {*glob.glob("*.*", root_dir=path)} & _SETTINGS:
                shutil.copy(folder / "encoder" / "bert_config.json", path)

    return Format(make, _read_checkpoint, mutators)


_SETTINGS = {"params.yaml", "bert_config.json"}


def _arrays(path: str) -> dict[str, Any]:
    tensors = hugging_face.open_tensors(path, allow_pickle=False)
    arrays = {name: tensor.read() for name, tensor in tensors.items()}
    os.remove(os.path.join(path, "model.safetensors"))
    return arrays


def _write_torch(checkpoint: Any, path: str) -> None:
    import torch  # of the parity extra

    hugging_face.write(checkpoint, path)
    tensors = {name: torch.from_numpy(array) for name, array in _arrays(path).items()}
    torch.save(tensors, os.path.join(path, "pytorch_model.bin"))


def _write_sharded(checkpoint: Any, path: str) -> None:
    hugging_face.write(checkpoint, path)
    hugging_face_files.write_shards(Path(path), _arrays(path))


def _write_sentence_transformers(checkpoint: Any, path: str) -> None:
    embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=8)
    modules.write(dataclasses.replace(checkpoint, sentence_embedding=embedding), path)


def _write_tokenizer_alone(checkpoint: Any, path: str) -> None:
    hugging_face.write(checkpoint, path)
    os.remove(os.path.join(path, "vocab.txt"))


def _write_keras(checkpoint: Any, path: str) -> None:
    keras_files.write(checkpoint, os.path.join(path, "model.keras"))


# === Files of tasks ===

_TEXTS = ["good film", "the plot was so bad", "fine, and good", "a poor plot", "is", "so so é"]
# By variant: the columns, the reader's arguments, and the cells of a text.
_TABLES: dict[str, tuple[Any, dict[str, Any], dict[str, Callable[[int, str], Any]]]] = {
    "classes": (own_data.read_classification, {}, {"label": lambda n, _: ("pos", "neg")[n % 2]}),
    "multilabel": (own_data.read_multilabel, {}, {"label": lambda n, _: ("a,b", "b", "")[n % 3]}),
    "numbers": (own_data.read_regression, {}, {"label": lambda n, _: str(n / 2)}),
    "tagging": (own_data.read_tagging, {"words_column": "text", "tags_column": "label"},
                {"label": lambda _, text: " ".join("O" for _ in text.split())}),
    "choices": (choices.read_choices,
                {"context_column": "text", "choice_columns": ["one", "two"],
                 "label_column": "label"},
                {"one": lambda *_: "yes", "two": lambda *_: "no", "label": lambda n, _: n % 2}),
    "questions": (squad.read_questions,
                  {"context_column": "text", "answers_column": "label", "id_column": "id",
                   "answer_start_column": "start"},
                  {"question": lambda *_: "what?", "label": lambda _, text: text[:2],
                   "start": lambda *_: 0}),
}  # fmt: skip
_COLUMNS = {"text_columns": ["text"], "label_column": "label", "id_column": "id"}


def _tables(suffix: str) -> Format:
    def make(folder: Path) -> None:
        for variant, (_, _, cells) in _TABLES.items():
            rows = [
                {"id": f"i{n}", "text": text, **{key: cell(n, text) for key, cell in cells.items()}}
                for n, text in enumerate(_TEXTS)
            ]
            (folder / variant).mkdir()
            with open(folder / variant / f"table.{suffix}", "w", newline="") as file:
                if suffix == "jsonl":
                    file.writelines(json.dumps(row) + "\n" for row in rows)
                else:
                    mark = {"delimiter": "\t"} if suffix == "tsv" else {}
                    writer = csv.DictWriter(file, rows[0], lineterminator="\n", **mark)
                    writer.writeheader()
                    writer.writerows(rows)

    def read(path: Path) -> Any:
        reader, given, _ = _TABLES[path.name]
        table = str(path / f"table.{suffix}")
        return _read_and_skip(reader, table, **(given or _COLUMNS))

    mutate = mutate_json_lines if suffix == "jsonl" else mutate_lines
    return Format(make, read, {"table.*": mutate}, named=True)


def _read_and_skip(reader: Callable[..., Any], path: str, **given: Any) -> Any:
    """Whole examples; and what is said of those that ``skip_bad_rows`` leaves out."""
    said: tuple[str, ...] = ()
    with contextlib.suppress(ValueError):
        skipping = reader(path, **given, skip_bad_rows=True)
        said = tuple(skipping.skipped)
        assert len(skipping.items) < 10_000, "many rows were made of a handful"
    return reader(path, **given), said


def _make_conll(folder: Path) -> None:
    (folder / "conll").mkdir()
    (folder / "conll" / "names.conll").write_text(
        "Anna NNP B-PER\nsaw VB O\nNew NNP B-LOC\nYork NNP I-LOC\n. . O\n\n-DOCSTART- -X- O\n\n"
        "Otto NNP B-PER\nslept VB O\n\né X O\nParis NNP B-LOC\n\n"
    )


def _read_conll(path: Path) -> Any:
    file = str(path / "names.conll")
    with contextlib.suppress(ValueError):
        conll.read_conll(file, labelled=False)
    return _read_and_skip(conll.read_conll, file)


def _make_squad(folder: Path) -> None:
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
    (folder / "squad").mkdir()
    for name, value in files.items():
        (folder / "squad" / name).write_text(json.dumps(value))


def _read_squad(path: Path) -> Any:
    examples, said = _read_and_skip(squad.read_squad, str(path / "squad.json"))
    references = squad.read_references(str(path / "squad.json"))
    answers = squad.read_predictions(str(path / "predictions.json"), references)
    odds = squad.read_null_odds(str(path / "null_odds.json"), sorted(answers))
    return (examples, references, answers, odds), said


_DOCUMENTS = [["It rained. We stayed in.", "The sun shone!"], ["So was it.", "Ärger in Paris?"]]


def _make_corpora(folder: Path) -> None:
    lines = "".join(f"{line}\n" for document in _DOCUMENTS for line in (*document, ""))
    texts = {
        "google.txt": lines,
        "prose.md": "\n\n".join(" ".join(document) for document in _DOCUMENTS) + "\n",
        "wikiextractor.txt": "".join(
            f'<doc id="{n}" url="u" title="t">\nt\n\n{" ".join(document)}\n</doc>\n'
            for n, document in enumerate(_DOCUMENTS)
        ),
        "lines.jsonl": "".join(json.dumps({"text": " ".join(d)}) + "\n" for d in _DOCUMENTS),
        "packed.txt.gz": lines,
    }
    for name, text in texts.items():
        path = folder / name.split(".")[0]
        path.mkdir()
        packed = name.endswith(".gz")
        (path / name).write_bytes(
            gzip.compress(text.encode(), mtime=0) if packed else text.encode()
        )


def _read_corpus(path: Path) -> Any:
    with tempfile.TemporaryDirectory() as cache:
        corpus = sources.open_corpus(f"{glob.escape(str(path))}/*", cache_dir=cache)
        return (corpus.describe(), list(corpus.sentences())), ()


# === A fine-tuned model's directory ===

_QUESTIONS = {"doc_stride": 4, "max_query_length": 6, "n_best_size": 3, "max_answer_length": 5}
_TASKS: dict[str, tuple[Any, ...]] = {
    "classification": ("BertClassifier", {"num_classes": 3},
                       prediction_models.text_task("classification"),
                       {"labels": prediction_models.LABELS}),
    "tagging": ("BertTokenClassifier", {"num_classes": 3},
                TaskFile("tagging", "own", 16, {"words_column": "text", "tags_column": "label"}),
                {"labels": ("O", "B-X", "I-X")}),
    "squad": ("BertSpanPredictor", {},
              TaskFile("squad", "squad", 24, {"question_column": "n", "context_column": "text"},
                       {**_QUESTIONS, "with_null": True}),
              {"thresholds": {"null": 0.5}}),
}  # fmt: skip


def _make_fine_tuned(folder: Path) -> None:
    for variant, (class_name, arguments, task, more) in _TASKS.items():
        prediction_models.write_model(folder / variant, class_name, arguments, task, **more)
        (folder / variant / "texts.tsv").write_text("n\ttext\n0\tgood film\n1\tso so é\n")


def _read_fine_tuned(path: Path) -> Any:
    output = path / "predicted.tsv"
    try:
        # It loads a variant's model once: what is mutated here are the files beside the weights.
        prediction_models.predict(path, path / "texts.tsv", output)
        return output.read_bytes(), ()
    finally:
        output.unlink(missing_ok=True)


_JSON = {"*.json": mutate_json}
_WORDS: dict[str, Mutator] = {**_JSON, "*.txt": mutate_lines}
_BUNDLE: dict[str, Any] = {
    "*.index": mutate_bytes, "*.data-*": mutate_bytes, "": containers.mutate_bundle,
}  # fmt: skip
_SAFETENSORS = {"*.safetensors": containers.mutate_safetensors}
_HDF5 = {"*.h5": containers.mutate_hdf5}

FORMATS: dict[str, Format] = {
    "containers": Format(_make_containers, _read_container, {
        **_SAFETENSORS, **_HDF5, **_BUNDLE, "a.*": mutate_bytes,
    }, times=60),
    "bert_tf": _checkpoints(model_directory.write, {**_WORDS, **_BUNDLE}, sealed=True),
    "bert_tf_resealed": _checkpoints(model_directory.write, {"": containers.resealed}),
    "google_tf1": _checkpoints(google.write, {**_WORDS, **_BUNDLE}),
    "safetensors": _checkpoints(hugging_face.write, {**_SAFETENSORS, "config.json": mutate_json}),
    "sharded": _checkpoints(_write_sharded, {**_SAFETENSORS, "*.index.json": mutate_json}),
    "pytorch": _checkpoints(_write_torch, {"pytorch_model.bin": containers.mutate_zip}),
    "tf_model": _recorded("tf_model", {**_HDF5, "config.json": mutate_json}),
    "sentence_transformers": _checkpoints(_write_sentence_transformers, _WORDS),
    "tokenizer": _checkpoints(_write_tokenizer_alone, {"tokenizer*.json": mutate_json}),
    "keras": _checkpoints(_write_keras, {"model.keras": containers.mutate_keras}),
    "keras_hub": _recorded("keras_hub", {**_WORDS, **_HDF5}),
    "model_garden": _recorded("model_garden", {
        **_WORDS, **_BUNDLE, "*.yaml": mutate_lines, "checkpoint": mutate_lines,
    }),
    "fine_tuned": Format(_make_fine_tuned, _read_fine_tuned, _JSON),
    "csv": _tables("csv"),
    "tsv": _tables("tsv"),
    "jsonl": _tables("jsonl"),
    "conll": Format(_make_conll, _read_conll, {"*.conll": mutate_lines}, named=True),
    "squad": Format(_make_squad, _read_squad, _JSON, named=True),
    "corpora": Format(_make_corpora, _read_corpus, {
        "*.jsonl": mutate_json_lines, "*.gz": mutate_bytes, "*.md": mutate_lines,
        "*.txt": mutate_lines,
    }, named=True),
}  # fmt: skip


def mutate(form: Format, rng: Random, files: dict[str, bytes]) -> dict[str, bytes | str]:
    """Some files' new contents; or what stands in a file's place: "folder", or a link's end."""
    pattern = rng.choice(list(form.mutators))
    mutator = form.mutators[pattern]
    names = sorted(name for name in files if Path(name).match(pattern or "*.index"))
    if not names:
        return mutate(form, rng, files)
    if not pattern:
        return mutator(rng, files)
    name = rng.choice(names)
    if rng.random() < 0.08 and not form.named:
        return {name: rng.choice(("missing", "folder", "fifo", "/dev/zero", "nowhere", name))}
    if rng.random() < 0.04:
        return {name: files[rng.choice(names)]}
    return {name: mutator(rng, files[name])}
