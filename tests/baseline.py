"""Records what one build of the library answers for every task type, and compares another with it.

    python -m tests.baseline record FOLDER              # with the build to compare with
    python -m tests.baseline compare FOLDER             # with the build after a change
    python -m tests.baseline compare FOLDER --only=squad_1,tags

``record`` trains one model per task type from real data (``BERT_TF_DATA``) and keeps its directory.
``compare`` trains each again (the weights must be bit-equal), and predicts again with the recorded
ones.

| path                     | content                                                            |
|--------------------------|--------------------------------------------------------------------|
| data/NAME.*              | the training, dev and unlabeled tables                             |
| runs/NAME                | the trained model's directory                                      |
| answers/NAME.json        | scores, dev predictions, the records of ``predict``, the answers   |
|                          | of every signature of the export and of ``serve``                  |

Strings and integers must be equal, floats within 2e-6 absolute plus 2e-6 relative. Times, rates and
paths are left out by name. The exit status is 1 if anything differs.
"""

import argparse
import csv
import gzip
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import sys
import tempfile
import zipfile

from tests.served import Served

ABSOLUTE = RELATIVE = 2e-6
NUM_TEXTS = 200
_IGNORED = {"seconds", "examples_per_second", "files", "export"}


# === Data ===


def _data(name):
    return pathlib.Path(os.environ["BERT_TF_DATA"], name)


def _glue(name):
    path = _data(f"glue/{name}")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _film_rows():
    rows = _glue("SST-2/train.tsv.gz")[1:]
    return [[text.strip(), "good" if label == "1" else "bad"] for text, label in rows]


def _several_labels(row):
    text, label = row
    found = [label, *(word for word in ("film", "movie") if word in text.split())]
    return found + ["long"] * (len(text.split()) > 12)


def _pairs():
    return [[row[5], row[6], float(row[4])] for row in _glue("STS-B/sts-train.csv")]


def _sentences(language, tag):
    """Yields the words and tags (column ``tag``) of the sentences of CoNLL-2002."""
    with zipfile.ZipFile(_data("ner/conll2002.zip")) as file:
        text = file.read(f"conll2002/{language}.testa").decode()
    for block in text.split("\n\n"):
        rows = [line.split(" ") for line in block.splitlines() if not line.startswith("-DOCSTART-")]
        if rows:
            yield [row[0] for row in rows], [row[tag] for row in rows]


def _entities(words, tags):
    text, spans, offset = " ".join(words), [], 0
    for word, tag in zip(words, tags, strict=True):
        end = offset + len(word)
        if tag.startswith("I-") and spans and spans[-1]["end"] == offset - 1:
            spans[-1]["end"] = end
        elif tag != "O":
            spans.append({"start": offset, "end": end, "label": tag[2:]})
        offset = end + 1
    return {"text": text, "entities": spans}


def _squad(path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as file:
            return json.loads(file.read(file.namelist()[0]))
    return json.loads(gzip.open(path, "rt").read())


def _paragraphs(squad, first, last):
    """Returns articles of a SQuAD file, with three paragraphs each."""
    articles = [{**a, "paragraphs": a["paragraphs"][:3]} for a in squad["data"][first:last]]
    return json.dumps({"version": squad["version"], "data": articles})


def _columns(names, rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in (names, *rows))


def _lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def _conll(sentences):
    return "\n".join("".join(f"{w} {t}\n" for w, t in zip(*s, strict=True)) for s in sentences)


def _split(make, rows, num_train, num_dev):
    rows = list(itertools.islice(rows, num_train + num_dev))
    return make(rows[:num_train]), make(rows[num_train:])


def _tables():
    """Returns, for each name, the suffix, the training table and the dev table."""
    films, pairs = _film_rows(), _pairs()
    choices = [
        {"context": row[1], "choices": row[2:6], "label": int(row[6])}
        for row in _glue("../multiple_choice/codah.tsv")
    ]
    one, two = (_squad(_data(f"squad/{n}")) for n in ("dev-v1.1.json.zip", "half-dev-v2.0.json.gz"))
    texts, pair_columns = ("text", "label"), ("one", "other", "label")
    entities = list(_sentences("esp", 2))
    tagged = ({"words": w, "tags": t} for w, t in _sentences("ned", 1))
    return {
        "texts": (".tsv", *_split(lambda r: _columns(texts, r), films, 400, 100)),
        "labels": (
            ".jsonl",
            *_split(
                lambda r: _lines({"text": t, "labels": _several_labels((t, y))} for t, y in r),
                films, 400, 100,
            ),
        ),
        "pairs": (".tsv", *_split(lambda r: _columns(pair_columns, r), pairs, 400, 100)),
        "choices": (".jsonl", *_split(_lines, choices, 200, 60)),
        "tags": (".jsonl", *_split(_lines, tagged, 200, 60)),
        "entities": (".conll", *_split(_conll, entities, 200, 60)),
        "spans": (
            ".jsonl",
            *_split(lambda r: _lines(_entities(*s) for s in r), entities, 200, 60),
        ),
        "squad_1": (".json", _paragraphs(one, 0, 6), _paragraphs(one, 6, 8)),
        "squad_2": (".json", _paragraphs(two, 0, 6), _paragraphs(two, 6, 8)),
    }  # fmt: skip


# By name: the table and the settings of the run.
_TEXT = {"text_columns": "text", "label_column": "label"}
_TWO = {"text_columns": "one,other", "label_column": "label"}
_QUESTIONS = {"task": "squad", "max_seq_length": 96, "doc_stride": 32, "max_query_length": 24}
RUNS = {
    "classification": ("texts", {"task": "classification", **_TEXT}),
    "pooled": ("texts", {"task": "classification", **_TEXT, "pooling": "mean"}),
    "long_texts": ("texts", {"task": "classification", **_TEXT, "long_text": "windows",
                             "max_seq_length": 12}),
    "multilabel": ("labels", {"task": "multilabel", "text_columns": "text",
                              "label_column": "labels"}),
    "regression": ("pairs", {"task": "regression", **_TWO}),
    "similarity": ("pairs", {"task": "similarity", **_TWO}),
    "choices": ("choices", {"task": "multiple_choice", "text_columns": "context,choices",
                            "label_column": "label"}),
    "tags": ("tags", {"task": "tagging", "text_columns": "words", "label_column": "tags"}),
    "entities": ("entities", {"task": "ner"}),
    "documents": ("entities", {"task": "ner", "document_context": True}),
    "spans": ("spans", {"task": "tagging", "text_columns": "text", "label_column": "entities",
                        "character_spans": True}),
    "features": ("entities", {"task": "ner", "feature_based": "last", "lstm_units": 16}),
    "squad_1": ("squad_1", _QUESTIONS),
    "squad_2": ("squad_2", _QUESTIONS),
}  # fmt: skip
# Models without a run: the shipped pre-trained weights, which predict masked words.
MODELS = {"masked_words": "tiny"}


def unlabeled_texts():
    """Returns texts of Wikipedia, and texts that are empty, very long or unusual."""
    with gzip.open(sorted(_data("corpora/enwiki").glob("*.gz"))[-1], "rt") as file:
        lines = [line.strip() for line in file if len(line) > 40 and line[0] != "<"]
    special = [
        *("", " ", "\t\n", "a", ".", "[MASK]", "[SEP] [CLS]", "\x00\x07", "\u200b", "\ufffd"),
        *("caf\xe9 na\xefve", "e\u0301", "\u4f60\u597d world", "\u0391\u03b8\u03ae\u03bd\u03b1"),
        *("\u0645\u0631\u062d\u0628\u0627", "\U0001f600 ok", "a" * 300, "x " * 600, "\xad\u2028b"),
        *("<b>bold</b> &amp; more", "1.000,00 \u20ac", "don't -- stop...", "\uff21\uff22", "\xdf"),
    ]
    very_long = [" ".join(lines[n : n + 12]) for n in range(0, 240, 12)]
    kept = special + very_long
    return (kept + [line[:400] for line in lines[240:]])[:NUM_TEXTS]


# === Answers ===


def _json(value):
    """Converts a value to JSON types, and non-finite floats to strings."""

    def plain(item):
        if isinstance(item, dict):
            return {str(key): plain(each) for key, each in item.items() if key not in _IGNORED}
        if isinstance(item, list | tuple):
            return [plain(each) for each in item]
        if isinstance(item, bytes):
            return item.decode("utf-8", "backslashreplace")
        if hasattr(item, "tolist"):
            return plain(item.tolist())
        if isinstance(item, float) and not math.isfinite(item):
            return str(item)
        return item

    return plain(value)


def weights_digest(model):
    """Returns the digest of all weights, sorted by path."""
    digest = hashlib.sha256()
    for variable in sorted(model.weights, key=lambda variable: variable.path):
        digest.update(variable.path.encode() + variable.numpy().tobytes())
    return digest.hexdigest()


def _cells(text):
    """Returns the rows of a table, with numeric cells as floats."""

    def value(cell):
        try:
            return float(cell)
        except ValueError:
            return cell

    return [[value(cell) for cell in line.split("\t")] for line in text.splitlines()]


def _train(name, folder, model_dir):
    from bert_tf import api

    table, flags = RUNS[name]
    suffix = _suffix(folder, table)
    files = {part: folder / "data" / f"{table}.{part}{suffix}" for part in ("train", "dev")}
    common = {"max_seq_length": 64, "train_batch_size": 16, "num_train_epochs": 2, "init": "tiny"}
    tuned = api.fine_tune(
        **{**common, **files, **flags}, model_dir=model_dir, export=False, verbose=False
    )
    written = sorted(itertools.chain(*tuned.results["files"].values()))
    contents = {
        str(pathlib.Path(path).relative_to(model_dir)): _read_written(pathlib.Path(path))
        for path in written
        if not path.endswith(".html")
    }
    return {
        "results": _json(tuned.results),
        "weights": weights_digest(tuned.model),
        "written": contents,
    }


def _read_written(path):
    text = path.read_text()
    if path.suffix in (".jsonl", ".json"):
        return (
            [json.loads(line) for line in text.splitlines()]
            if path.suffix == ".jsonl"
            else (json.loads(text))
        )
    return _cells(text)


def _suffix(folder, table):
    return next(folder.glob(f"data/{table}.train.*")).suffix


def _rows_to_predict(name, texts):
    """Returns input rows for a model."""
    others = texts[1:] + texts[:1]
    flags = RUNS[name][1]
    if flags["task"] == "squad":
        return [{"question": o[:60], "context": t} for t, o in zip(texts, others, strict=True)]
    if flags["task"] == "multiple_choice":
        return [{"context": t, "choices": [o, t[:30], "none"][: 2 + n % 2]}
                for n, (t, o) in enumerate(zip(texts, others, strict=True))]  # fmt: skip
    if flags["task"] == "ner" or flags["text_columns"] == "words":
        return [{"words": t.split()} for t in texts]
    if flags["text_columns"] == "one,other":
        return [{"one": t, "other": o} for t, o in zip(texts, others, strict=True)]
    return [{"text": t} for t in texts]


def _predictions(name, run, texts, scratch):
    """The records of ``Predictor`` and those that ``predict`` writes to .jsonl and .tsv."""
    from bert_tf import Predictor, api

    rows = _rows_to_predict(name, texts)
    source = scratch / "input.jsonl"
    source.write_text(_lines(rows))
    found = {"Predictor": _json(Predictor(run)(rows, skip_bad_rows=True))}
    # Only CoNLL files can contain any word.
    is_tagged = name in RUNS and RUNS[name][1]["task"] in ("ner", "tagging")
    for suffix in (".jsonl", ".conll" if is_tagged else ".tsv"):
        output = scratch / f"predictions{suffix}"
        api.predict(run, source, output, text_columns=[*rows[0]], skip_bad_rows=True)
        found[suffix] = _read_written(output)
    return found


def _request(signature, texts):
    """Returns a value for each input of a signature, by name."""
    import numpy as np
    import tensorflow as tf

    others = texts[1:] + texts[:1]
    ids = tf.constant(
        [[2 + (7 * row + 3 * column) % 500 for column in range(20)] for row in range(8)]
    )
    columns = {
        "text": texts, "context": texts, "inputs": None, "text_pair": others,
        "question": [text[:60] for text in others],
        "others": [[other, text[:50]] for text, other in zip(texts, others, strict=True)],
        "words": [(text.split() + [""] * 30)[:30] for text in texts],
        "choices": [[other[:80], text[:30], "none" if n % 2 else ""]
                    for n, (text, other) in enumerate(zip(texts, others, strict=True))],
    }  # fmt: skip
    request = {}
    for name, spec in signature.structured_input_signature[1].items():
        if name in columns:
            request[name] = columns[name] and tf.constant(columns[name])
        elif spec.dtype == tf.string:
            request[name] = tf.constant(texts)
        else:
            values = ids if "word_ids" in name else tf.ones_like(ids) if "mask" in name else 0 * ids
            values = np.arange(1, 4) + 0 * values[:, :1] if "positions" in name else values
            if spec.shape.rank == 3:
                values = tf.stack([values, values[:, ::-1]], 1)
            request[name] = tf.cast(values, spec.dtype)
    return request


def _signatures(export, texts):
    """Answers of all signatures except those of serialized examples, for several request sizes."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(export))
    found = {}
    for name, signature in sorted(loaded.signatures.items()):
        request = _request(signature, texts)
        if any(value is None for value in request.values()):
            continue
        num_rows = min(len(value) for value in request.values())
        answers = []
        for begin, end in ((0, 1), (1, 8), (8, 40), (40, num_rows)):
            part = {key: value[begin:end] for key, value in request.items()}
            if begin < num_rows:
                answers.append(_json({k: v.numpy() for k, v in signature(**part).items()}))
        found[name] = answers
    return found


def _served_answers(export, texts):
    """Answers of ``serve`` from the default signature, for requests of one and of many rows."""
    import tensorflow as tf

    signature = tf.saved_model.load(str(export)).signatures["serving_default"]
    request = _json({k: v.numpy() for k, v in _request(signature, texts).items()})
    rows = [dict(zip(request, row, strict=True)) for row in zip(*request.values(), strict=True)]
    server = Served(f"--model={export}")
    try:
        parts = ([row] for row in rows[:20]), (rows[n : n + 60] for n in range(20, len(rows), 60))
        path = f"{_model_path(server)}:predict"
        return [server.ask(path, {"instances": part}) for part in itertools.chain(*parts)]
    finally:
        server.process.terminate()
        server.process.communicate()


def _model_path(server):
    """Returns the path of the model in the URLs of a server."""
    return "/v1/models/" + re.search(r"/v1/models/([^ :]+)", "".join(server.output))[1]


def all_answers(name, folder, texts, *, trains):
    """Returns all answers of a model; ``trains`` also trains it in a new directory."""
    from bert_tf import api

    with tempfile.TemporaryDirectory() as scratch:
        scratch, run = pathlib.Path(scratch), MODELS.get(name, folder / "runs" / name)
        found = {}
        if name in RUNS:
            if trains:
                found["training"] = _train(name, folder, scratch / "run")
            if not run.exists():
                shutil.copytree(scratch / "run", run)
            predictions = json.dumps(_predictions(name, run, texts, scratch))
            # Errors contain the path of the file, which changes.
            found["predictions"] = json.loads(predictions.replace(str(scratch), ""))
        api.export(run, scratch / "export" / "1", verbose=False)
        found["signatures"] = _signatures(scratch / "export" / "1", texts)
        found["serve"] = _served_answers(scratch / "export" / "1", texts)
    return found


# === The comparison ===


def differences(before, now, path=""):
    """Yields (path, before, now) for each value that is not equal."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from differences(before.get(key), now.get(key), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield path, f"{len(before)} items", f"{len(now)} items"
            return
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, f"{path}/{number}")
    elif isinstance(before, float) and isinstance(now, float):
        if not abs(before - now) <= ABSOLUTE + RELATIVE * abs(before):
            yield path, before, now
    elif before != now:
        yield path, before, now


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", help="Names of models, separated by commas.")
    parser.add_argument("--no_training", action="store_true", help="Skip the trainings.")
    flags = parser.parse_args()
    names = flags.only.split(",") if flags.only else [*RUNS, *MODELS]
    if flags.action == "record":
        for part in ("data", "runs", "answers"):
            (flags.folder / part).mkdir(parents=True, exist_ok=True)
        for table, (suffix, train, dev) in _tables().items():
            (flags.folder / "data" / f"{table}.train{suffix}").write_text(train)
            (flags.folder / "data" / f"{table}.dev{suffix}").write_text(dev)
    texts, num_different = unlabeled_texts(), 0
    for name in names:
        path = flags.folder / "answers" / f"{name}.json"
        answers = all_answers(name, flags.folder, texts, trains=not flags.no_training)
        now = json.loads(json.dumps(answers))
        if flags.action == "record":
            path.write_text(json.dumps(now))
            print(f"{name}: recorded, {path.stat().st_size:,} bytes", flush=True)
            continue
        before = json.loads(path.read_text())
        if flags.no_training:
            before.pop("training", None)
        found = list(differences(before, now))
        num_different += len(found)
        print(f"{name}: {len(found)} differences" if found else f"{name}: equal", flush=True)
        for where, one, other in found[:10]:
            print(f"  {where}: {str(one)[:80]} -> {str(other)[:80]}", flush=True)
    sys.exit(bool(num_different))


if __name__ == "__main__":
    main()
