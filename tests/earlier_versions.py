"""Files that an earlier version of the library writes, to be read by this version.

``make`` builds a wheel of a commit from the repository's history, installs it in an environment
with the packages of this one, and runs this file there. It therefore imports nothing from the
tests, and calls only functions that exist in all versions.

| path          | content                                                                     |
|---------------|-----------------------------------------------------------------------------|
| data/         | the tables and the corpus                                                   |
| stopped/NAME  | a run that was interrupted in the middle                                    |
| runs/NAME     | a copy of it, resumed and finished                                          |
| exports/NAME  | its SavedModel                                                              |
| models/FORM   | a classifier in the formats of bert_tf, Keras and Hugging Face, and a       |
|               | pre-training model in Google's format                                       |
| answers.json  | answers of all runs and models, and results of all runs                     |
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import venv

# Short name to commit: the first two versions whose files users may have.
COMMITS = {
    "97594add": "97594add5bac1585e06518ff48fb3625c9afc334",
    "a2a6c31a": "a2a6c31a0d38e71ce52ee14ee553cc2b256681a4",
}
ROOT = pathlib.Path(__file__).parents[1]

# === The runs ===

_GOOD, _BAD = ("a fine film", "a good plot", "so good"), ("a poor film", "the plot was bad", "dull")
_CITIES = ("Rome", "Paris", "London", "Berlin")
_TEXTS = [f"{end} {number}" for number in range(8) for end in (*_GOOD, *_BAD)]
_LABELS = ["good" if text.rpartition(" ")[0] in _GOOD else "bad" for text in _TEXTS]
_SPANS = [(f"Anna lives in {city}.", city) for city in _CITIES]


def _table(*columns, rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in (columns, *rows))


def _lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def _columns(cities):
    sentences = (f"Anna NNP B-NP B-PER\nsees VBZ B-VP O\n{p} NNP B-NP B-LOC\n" for p in cities)
    return "-DOCSTART- -X- -X- O\n\n" + "\n".join(sentences)


def _questions(version, impossible):
    questions = []
    for number, (context, city) in enumerate(_SPANS * 3):
        answers = [{"text": city, "answer_start": context.index(city)}]
        question = {"id": f"q{number}", "question": "Where does Anna live?", "answers": answers}
        if impossible:
            question["is_impossible"] = bool(number % 3 == 2)
            question["answers"] = [] if question["is_impossible"] else answers
        questions.append({"context": context, "qas": [question]})
    return json.dumps({"version": version, "data": [{"title": "Anna", "paragraphs": questions}]})


def _corpus():
    words = [f"{one}{two}" for one, two in itertools.product(("ba", "do", "ki", "lu"), repeat=2)]
    documents = (
        "\n".join(
            " ".join(words[(document * 7 + sentence * 5 + word) % 16] for word in range(6)) + "."
            for sentence in range(5)
        )
        for document in range(40)
    )
    return "\n\n".join(documents) + "\n"


_TEXT_ROWS = list(zip(_TEXTS, _LABELS, strict=True))
_NUMBERS = [(text, 70 if label == "bad" else 90) for text, label in _TEXT_ROWS]
_PAIRS = [(*pair, label) for pair, label in zip(itertools.pairwise(_TEXTS), _LABELS, strict=False)]
_ALIKE = [(*pair, n % 3 / 2) for n, pair in enumerate(itertools.pairwise(_TEXTS))]
DATA = {
    "texts.tsv": _table("text", "label", rows=_TEXT_ROWS),
    "classes.jsonl": _lines(
        {"text": t, "labels": [y, "even"][: 1 + n % 2]} for n, (t, y) in enumerate(_TEXT_ROWS)
    ),
    "numbers.tsv": _table("text", "label", rows=_NUMBERS),
    "pairs.tsv": _table("one", "other", "label", rows=_PAIRS),
    "alike.tsv": _table("one", "other", "label", rows=_ALIKE),
    "choices.jsonl": _lines(
        {"context": "The film is", "choices": ["fine", "bad", t][n % 2 :], "label": n % 2}
        for n, t in enumerate(_TEXTS)
    ),
    "tags.conll": _columns(_CITIES * 6),
    "entities.jsonl": _lines(
        {"text": t, "entities": [{"start": t.index(p), "end": t.index(p) + len(p), "label": "LOC"}]}
        for t, p in _SPANS * 6
    ),
    "train-v1.1.json": _questions("1.1", impossible=False),
    "train-v2.0.json": _questions("v2.0", impossible=True),
    "corpus.txt": _corpus(),
}  # fmt: skip
_WORDS = {"text_columns": "text", "label_column": "label"}
_TWO = {"text_columns": "one,other", "label_column": "label"}
_NEW_TEXTS = [{"text": text} for text in ("a fine film", "The plot was DULL, so poor.", "caf\xe9")]
_NEW_PAIRS = [{"one": "a fine film", "other": "so good"}, {"one": "so good", "other": "dull"}]
_NEW_WORDS = [
    {"words": ["Anna", "sees", "Rome"]},
    {"words": ["Oslo", "sees", "unaffable", "Paris"]},
]
_NEW_QUESTIONS = [
    {"question": "Where does Anna live?", "context": "Anna lives in Rome, and not in Paris."},
    {"question": "Who lives in Oslo?", "context": "Nobody lives there."},
]
_LENGTHS = {"max_query_length": 12, "doc_stride": 6, "max_seq_length": 20}
# Name to data, flags and examples to predict.
RUNS = {
    "classification": ("texts.tsv", {"task": "classification", **_WORDS}, _NEW_TEXTS),
    "multilabel": (
        "classes.jsonl",
        {"task": "multilabel", "text_columns": "text", "label_column": "labels", "pooling": "mean"},
        _NEW_TEXTS,
    ),
    "regression": (
        "numbers.tsv",
        {"task": "regression", **_WORDS, "long_text": "windows", "max_seq_length": 8},
        _NEW_TEXTS,
    ),
    "pairs": ("pairs.tsv", {"task": "classification", **_TWO}, _NEW_PAIRS),
    "similarity": ("alike.tsv", {"task": "similarity", **_TWO}, _NEW_PAIRS),
    "choices": (
        "choices.jsonl",
        {"task": "multiple_choice", "text_columns": "context,choices", "label_column": "label"},
        [{"context": "The film is", "choices": ["fine", "bad", "so dull"]}],
    ),
    "tags": ("tags.conll", {"task": "ner"}, _NEW_WORDS),
    "features": (
        "tags.conll",
        {"task": "ner", "feature_based": "last", "lstm_units": 8, "num_train_epochs": 2},
        _NEW_WORDS,
    ),
    "entities": (
        "entities.jsonl",
        {
            "task": "tagging", "text_columns": "text", "label_column": "entities",
            "character_spans": True,
        },
        _NEW_TEXTS,
    ),
    "squad 1.1": ("train-v1.1.json", {"task": "squad", **_LENGTHS}, _NEW_QUESTIONS),
    "squad 2.0": ("train-v2.0.json", {"task": "squad", **_LENGTHS}, _NEW_QUESTIONS),
}  # fmt: skip
_SIZES = {
    "config_overrides": [
        *("hidden_size=16", "intermediate_size=32", "num_attention_heads=2"),
        *("num_hidden_layers=1", "max_position_embeddings=32"),
    ],
    "vocab_size": 120, "train_batch_size": 8, "eval_batch_size": 8, "num_train_steps": 8,
    "save_checkpoints_steps": 4, "max_eval_steps": 1,
}  # fmt: skip
PRETRAININGS = {
    "pretraining": {"max_seq_length": 32, **_SIZES},
    # The settings that the recipe implies are part of the run.
    "recipe": {"recipe": "five_minutes", "phases": "12:0.5,32:0.5", **_SIZES},
}
# One run for each type of head.
EXPORTED = (
    *("classification", "multilabel", "regression", "similarity", "choices", "tags", "features"),
    *("squad 2.0", "pretraining"),
)
FORMS = ("saved", "model.keras", "huggingface", "google_tf1")


def train(folder, name, model_dir, callbacks=()):
    """Starts or resumes a run and returns its results."""
    from bert_tf import api

    given = {"model_dir": model_dir, "callbacks": callbacks, "verbose": False, "export": False}
    data = folder / "data"
    if name in PRETRAININGS:
        return api.pretrain(data / "corpus.txt", **PRETRAININGS[name], **given).results
    table, flags, _ = RUNS[name]
    files = {"train": data / table, "dev": data / table}
    defaults = {"max_seq_length": 32, "train_batch_size": 8, "num_train_epochs": 2, "init": "tiny"}
    return api.fine_tune(**{**defaults, **files, **flags, **given}).results


def answers(model, name):
    """Returns the answers of a run, its export or its model as JSON values."""
    import bert_tf

    if name in PRETRAININGS:
        import tensorflow as tf

        pretrainer = bert_tf.load(model)
        rows = dict(pretrainer.preprocessor(["bado kilu bado.", "dodo"]))
        rows["masked_lm_positions"] = tf.constant([[1, 2], [1, 2]])
        outputs = pretrainer(rows, training=False)
        found = {key: value.numpy().tolist() for key, value in sorted(outputs.items())}
    else:
        found = bert_tf.Predictor(model)(RUNS[name][2])
    return json.loads(json.dumps(found, default=float))


def _some_ids():
    import numpy as np

    ids = np.array([[2, 20, 35, 30, 3], [2, 40, 3, 0, 0]], "int32")
    return {
        "input_word_ids": ids,
        "input_mask": (ids > 0).astype("int32"),
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": np.ones((2, 1), "int32"),
    }


def _fit_a_step(model):
    import numpy as np

    rows = {key: value for key, value in _some_ids().items() if key in model.input}
    model.fit(rows, np.array([0, 1]), verbose=0)


def logits(path):
    """Returns the logits of a model file; for a .keras file also those after a training step."""
    import keras
    import numpy as np

    import bert_tf

    is_keras_file = path.suffix == ".keras"
    model = keras.saving.load_model(path) if is_keras_file else bert_tf.load(path)
    outputs = model(_some_ids(), training=False)
    found = list(outputs.values()) if isinstance(outputs, dict) else [outputs]
    if is_keras_file:
        _fit_a_step(model)
        found.append(model(_some_ids(), training=False))
    return [np.array(each).tolist() for each in found]


# === Writing with the earlier version ===


def _interrupt_after(steps):
    import keras

    made = itertools.count(1)

    def count(batch, logs=None):
        if next(made) == steps:
            os.kill(os.getpid(), signal.SIGINT)

    return keras.callbacks.LambdaCallback(on_train_batch_end=count)


def _write_run(folder, name):
    """Writes an interrupted run, its resumed copy and an export; returns the results."""
    from bert_tf import api

    stopped, run = folder / "stopped" / name, folder / "runs" / name
    with contextlib.suppress(KeyboardInterrupt):
        train(folder, name, stopped, [_interrupt_after(3 if name in RUNS else 6)])
    assert not (stopped / "results.json").exists(), f"{name} was not stopped"
    shutil.copytree(stopped, run)
    results = train(folder, name, run)
    if name in EXPORTED:
        api.export(run, folder / "exports" / name / "1", verbose=False)
    return results


def _write_models(folder):
    """Writes the classifier in three formats and the pre-training model in Google's."""
    import keras

    import bert_tf
    from bert_tf.checkpoints import conversion

    classifier, pretrainer = folder / "runs" / "classification", folder / "runs" / "pretraining"
    models = folder / "models"
    models.mkdir()
    model = bert_tf.load(classifier)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    _fit_a_step(model)
    model.save(models / "model.keras")
    bert_tf.save(model, models / "saved")
    conversion.convert(str(classifier), str(models / "huggingface"), "huggingface")
    conversion.convert(str(pretrainer), str(models / "google_tf1"), "google_tf1")


def write(folder):
    """Writes everything with the installed version."""
    from bert_tf.training import loop

    loop._CALL_SECONDS = 0.0  # each step is reported and can be the last
    (folder / "data").mkdir()
    for name, content in DATA.items():
        (folder / "data" / name).write_text(content)
    names = (*RUNS, *PRETRAININGS)
    kept = {"results": {name: _write_run(folder, name) for name in names}}
    kept["answers"] = {name: answers(folder / "runs" / name, name) for name in names}
    _write_models(folder)
    kept["logits"] = {form: logits(folder / "models" / form) for form in FORMS}
    (folder / "answers.json").write_text(json.dumps(kept, default=float))


# === The earlier version ===


def is_in_history(commit):
    """Returns whether the repository contains a commit; a shallow clone does not."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", commit + "^{commit}"]
    return shutil.which("git") and subprocess.run(command, capture_output=True).returncode == 0


def _installed(folder, commit):
    """Returns a Python with the library of a commit and the packages of this environment."""
    source, python = folder / "source", folder / "environment" / "bin" / "python"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    others = [path for path in sys.path if path.endswith("-packages")]
    pathlib.Path(own, "others.pth").write_text("\n".join(others) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--ignore-installed", str(source)], check=True)
    # The earlier versions accept Keras 3.16 but cannot fine-tune with it.
    subprocess.run([*pip, "keras<3.16"], check=True)
    return python, own


def make(folder, commit):
    """Writes everything to an existing folder with the library of a commit."""
    python, own = _installed(folder / "earlier", commit)
    # Isolated mode, so that the installed library is imported, not a checkout.
    done = subprocess.run([python, "-I", __file__, own, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]


if __name__ == "__main__":
    import bert_tf

    assert bert_tf.__file__.startswith(sys.argv[1]), bert_tf.__file__
    write(pathlib.Path(sys.argv[2]))
