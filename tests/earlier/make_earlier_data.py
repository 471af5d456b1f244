"""Writes what a commit's commands leave: runs, conversions, exports, and what these answer.

    git worktree add /tmp/then 50b70a9
    PYTHONPATH=/tmp/then python tests/earlier/make_earlier_data.py 50b70a9

The result, ``tests/earlier/50b70a9.tar.xz``, is what ``tests/test_earlier_versions.py`` gives
to the present code. All texts are made up here. The commands run inside a temporary folder, so
that the paths that they record are relative ones.

| in the archive         | what                                                                   |
|------------------------|------------------------------------------------------------------------|
| commands.json          | the flags of each run, by its directory's name                         |
| machine.json           | the processor and the TensorFlow that computed                         |
| finished/NAME          | the directory of a run that nothing stopped                            |
| unfinished/NAME        | the same run, killed after a save                                      |
| conversions/FORMAT     | finished/pretraining in each format                                    |
| exports/NAME           | of finished runs, with the samples that exports record                 |
| predictions/NAME.tsv   | what ``predict`` writes with a finished run                            |
| answers/NAME.npz       | the outputs of the model that ``bert_tf.load`` makes                   |
"""

import importlib.util
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

import numpy as np

_HERE = pathlib.Path(__file__).resolve().parent
_WORDS = [
    "good",
    "fine",
    "bad",
    "poor",
    "the",
    "a",
    "film",
    "plot",
    "was",
    "is",
    "and",
    "so",
    "Paris",
    "Rome",
    "Anna",
    "Otto",
    "who",
    "where",
]
_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?", "##s", *_WORDS, "anna", "otto",
           "paris", "rome", *"0123456789")  # fmt: skip
TEXTS = ["The film was fine.", "Anna and Otto: so poor", "", "is the plot bad in Rome?"]
PREDICTED = {
    "classification": "texts.tsv",
    "regression": "texts.tsv",
    "tagging": "words.conll",
    "span": "asked.json",
}
# By name: the command, its flags, and the write after which the unfinished run is killed.
_FINE_TUNING = {
    "init_checkpoint": "finished/pretraining",
    "train_batch_size": 8,
    "learning_rate": 0.003,
    "max_seq_length": 24,
    "num_train_epochs": 3,
    "export": False,
}
_PRETRAINING = {
    "input": "inputs/corpus.txt",
    "bert_config": "inputs/config.json",
    "vocab_file": "inputs/vocab.txt",
    "max_seq_length": 24,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "num_train_steps": 12,
    "save_checkpoints_steps": 4,
    "learning_rate": 0.01,
}
RUNS = {
    "pretraining": (
        "pretrain",
        _PRETRAINING,
        "checkpoints/step-00000008/manifest.json",
    ),
    "continued": (
        "pretrain",
        {
            **{k: v for k, v in _PRETRAINING.items() if k not in ("vocab_file", "bert_config")},
            "init_checkpoint": "finished/pretraining",
            "input": "inputs/prose.jsonl",
            "masking": "whole_word",
            "nsp": False,
            "max_seq_length": None,
            "phases": "16:0.5,24:0.5",
        },
        "checkpoints/step-00000008/manifest.json",
    ),
    "classification": (
        "finetune",
        {
            **_FINE_TUNING,
            "task": "classification",
            "train_file": "inputs/reviews.tsv",
            "text_columns": "text",
            "label_column": "label",
            "export": True,
        },
        "last/step-00000010/manifest.json",
    ),
    "regression": (
        "finetune",
        {
            **_FINE_TUNING,
            "task": "regression",
            "train_file": "inputs/numbers.csv",
            "dev_file": "inputs/numbers.csv",
            "text_columns": "text",
            "label_column": "stars",
        },
        "last/step-00000010/manifest.json",
    ),
    "tagging": (
        "finetune",
        {
            **_FINE_TUNING,
            "task": "ner",
            "train_file": "inputs/names.conll",
            "dev_file": "inputs/names.conll",
        },
        "last/step-00000010/manifest.json",
    ),
    "span": (
        "finetune",
        {
            **_FINE_TUNING,
            "task": "squad",
            "train_file": "inputs/questions.json",
            "dev_file": "inputs/questions.json",
            "doc_stride": 8,
            "max_query_length": 8,
            "save_checkpoints_minutes": 0,
            "export": True,
        },
        "last/step-00000010/manifest.json",
    ),
    "span_without_dev": (
        "finetune",
        {
            **_FINE_TUNING,
            "task": "squad",
            "train_file": "inputs/questions.json",
            "dev_fraction": 0,
            "doc_stride": 8,
            "max_query_length": 8,
            "save_checkpoints_minutes": 0,
        },
        "last/step-00000010/manifest.json",
    ),
    "restarts": (
        "finetune",
        {
            **_FINE_TUNING,
            "task": "classification",
            "train_file": "inputs/reviews.tsv",
            "text_columns": "text",
            "label_column": "label",
            "num_train_epochs": 1,
            "restarts": 2,
        },
        "seed12345/results.json",
    ),
}
_EXPORTED = {"fill_mask": "pretraining", "classes": "classification", "spans": "span"}


def machine():
    """What decides whether results are equal bit for bit: the processor, and TensorFlow."""
    import tensorflow as tf

    said = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    lines = dict(tuple(part.strip() for part in line.split(":", 1)) for line in said if ":" in line)
    flags = lines.get("flags", "").split()
    return {
        "processor": lines.get("model name", ""),
        "family": [lines.get("cpu family", ""), lines.get("model", "")],
        "flags": sorted(f for f in flags if f.startswith(("avx", "amx", "fma", "sse4"))),
        "tensorflow": tf.__version__,
    }


def answers_of(path):
    """The outputs of the model in a directory or file, by name; float32."""
    import bert_tf

    model = bert_tf.load(path)
    texts = (["Who is Anna?"] * len(TEXTS), TEXTS) if "span" in path else TEXTS
    # A pre-trained model's heads need positions that texts do not give.
    called = model.encoder if type(model).__name__ == "BertPretrainer" else model
    outputs = called(model.preprocessor(texts), training=False)
    if not isinstance(outputs, dict):
        outputs = {"output": outputs}
    return {
        name: np.asarray(value)
        for name, value in outputs.items()
        if not isinstance(value, list | tuple)
    }


def arguments(name, model_dir):
    """A run's flags as the command line has them."""
    _, values, _ = RUNS[name]
    values = {**values, "model_dir": model_dir}
    return [f"--{flag}={value}" for flag, value in values.items() if value is not None]


def _write_inputs():
    rng = random.Random(7)
    inputs = pathlib.Path("inputs")
    inputs.mkdir()
    (inputs / "vocab.txt").write_text("".join(f"{piece}\n" for piece in _PIECES))
    config = {"vocab_size": len(_PIECES), "hidden_size": 8, "num_hidden_layers": 2,
              "num_attention_heads": 2, "intermediate_size": 12,
              "max_position_embeddings": 24}  # fmt: skip
    (inputs / "config.json").write_text(json.dumps(config))

    def sentence():
        return " ".join(rng.choices(_WORDS, k=rng.randint(3, 9))).capitalize() + "."

    documents = [[sentence() for _ in range(rng.randint(3, 8))] for _ in range(40)]
    (inputs / "corpus.txt").write_text("\n".join("\n".join(d) + "\n" for d in documents))
    lines = [json.dumps({"text": " ".join(document)}) for document in documents]
    (inputs / "prose.jsonl").write_text("\n".join(lines) + "\n")
    rows = [(sentence(), rng.choice(("good", "bad")), rng.randint(1, 5)) for _ in range(40)]
    table = "".join(f"{text}\t{label}\n" for text, label, _ in rows)
    (inputs / "reviews.tsv").write_text("text\tlabel\n" + table)
    table = "".join(f'"{text}",{stars}\n' for text, _, stars in rows)
    (inputs / "numbers.csv").write_text("text,stars\n" + table)
    (inputs / "texts.tsv").write_text("text\n" + "".join(f"{text}\n" for text, _, _ in rows[:6]))
    tags = {"Paris": "B-LOC", "Rome": "B-LOC", "Anna": "B-PER", "Otto": "B-PER"}
    tagged = [rng.choices(_WORDS, k=rng.randint(3, 9)) for _ in range(40)]
    columns = ("".join(f"{word} {tags.get(word, 'O')}\n" for word in words) for words in tagged)
    (inputs / "names.conll").write_text("\n".join(columns))
    words = ("".join(f"{word}\n" for word in words) for words in tagged[:6])
    (inputs / "words.conll").write_text("\n".join(words))
    for name, count in (("questions.json", 40), ("asked.json", 6)):
        paragraphs = [_paragraph(rng, number) for number in range(count)]
        articles = [{"title": "Made up", "paragraphs": paragraphs}]
        document = {"version": "v2.0", "data": articles}
        (inputs / name).write_text(json.dumps(document))


def _paragraph(rng, number):
    words = rng.choices(_WORDS, k=rng.randint(8, 30))
    place = rng.randrange(len(words))
    start = len(" ".join(words[:place])) + bool(place)
    answer = {"text": words[place], "answer_start": start}
    impossible = number % 4 == 0
    return {
        "context": " ".join(words),
        "qas": [
            {
                "id": f"q{number}",
                "question": rng.choice(("Who was Anna?", "Where is the film?")),
                "answers": [] if impossible else [answer],
                "is_impossible": impossible,
            }
        ],
    }


def _command(module, *flags):
    done = subprocess.run(
        [sys.executable, "-m", f"bert_tf.{module}", *flags], capture_output=True, text=True
    )
    if done.returncode:
        raise ValueError(f"{module} {' '.join(flags)}: {done.stdout}{done.stderr}")


def _killing():
    spec = importlib.util.spec_from_file_location("killing", _HERE.parent / "killing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _make_runs():
    """Writes the inputs, the runs and the exports into the working folder."""
    _write_inputs()
    flags = {}
    for name, (command, _, target) in RUNS.items():
        print(f"Run: {name}", flush=True)
        _command(command, *arguments(name, f"finished/{name}"))
        flags[name] = arguments(name, f"unfinished/{name}")
        _killing().kill_at_a_write(f"bert_tf.{command}", flags[name], "after", target)
        export = pathlib.Path("finished", name, "export")
        if export.exists():
            kept = [key for key, value in _EXPORTED.items() if value == name]
            for key in kept:
                shutil.copytree(export / "1", f"exports/{key}")
            shutil.rmtree(export)
        # TensorBoard's files are of no use to anyone here.
        for kind in ("finished", "unfinished"):
            shutil.rmtree(pathlib.Path(kind, name, "logs"), ignore_errors=True)
    pathlib.Path("commands.json").write_text(
        json.dumps({name: [RUNS[name][0], given] for name, given in flags.items()}, indent=1)
    )


def _record():
    """Writes what today's commands make of the finished runs."""
    from bert_tf.interchange.conversion import convert
    from bert_tf.predicting.prediction import predict_file

    for folder in ("answers", "predictions"):
        pathlib.Path(folder).mkdir()
    for name in ("bert_tf", "huggingface", "google_tf1", "keras"):
        suffix = ".keras" if name == "keras" else ""
        convert("finished/pretraining", f"conversions/{name}{suffix}", name)
    for name, file in PREDICTED.items():
        predict_file(f"finished/{name}", f"inputs/{file}", f"predictions/{name}.tsv")
    for path in (*pathlib.Path("finished").iterdir(), *pathlib.Path("conversions").iterdir()):
        np.savez(f"answers/{path.parent.name}_{path.stem}.npz", **answers_of(str(path)))
    pathlib.Path("machine.json").write_text(json.dumps(machine(), indent=1))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _make_runs()
        _record()
        with tarfile.open(_HERE / f"{sys.argv[1]}.tar.xz", "w:xz") as archive:
            for path in sorted(os.listdir("."), key=str):
                archive.add(path)
