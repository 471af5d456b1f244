"""A checkout of an earlier version against this one, in paired rounds.

    git worktree add ../earlier 50b70a9
    python -m benchmarks.versions --old=../earlier [--work=train_step,...] [--rounds=11]

| work                | a round; its time is divided by the number in it                         |
|---------------------|--------------------------------------------------------------------------|
| train_step          | pre-training steps of a bert-tiny, batches of 32 rows of 128 tokens      |
| train_step_base     | steps of a bert-base, batches of 8 rows of 128 tokens                    |
| train_step_bfloat16 | the same in bfloat16                                                     |
| pipeline            | gzip files to batches of pre-training rows                               |
| tokenizer           | lines to ids                                                             |
| embed               | requests of 32 sentences to the export of a bert-mini                    |
| embed_sorted        | the same with sentences sorted by length, requests of 64                 |
| answer              | requests of a question about 700 characters to the export of a bert-mini |
| predict_sst2        | ``Predictor`` of a bert-mini on the dev set of SST-2                     |
| predict_squad       | ``Predictor`` of a bert-mini on 200 questions of SQuAD's dev set         |
| finetune            | ``python -m bert_tf.finetune``, two epochs of some rows of MRPC          |

Each version is a process that imports its own checkout, including its ``benchmarks``. The two
processes make their rounds in turn, never at the same time. The ratio is the old time divided by
the new time, above 1 if this version is faster: the geometric mean of the rounds' ratios with its
95% interval, for wall time and for processor time.
"""

import argparse
import csv
import functools
import glob
import gzip
import importlib
import itertools
import json
import math
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from typing import Any

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_T_95 = {5: 2.78, 7: 2.45, 9: 2.31, 11: 2.23, 15: 2.14, 21: 2.09, 31: 2.04}
_MRPC_ROWS = 1280
_FINETUNE = "finetune"

# Runs a round and returns its amount of work, which may differ between the versions.
Round = Callable[[], float]


# === Rounds ===


def _train_step(size: str, precision: str, folder: str, scratch: str) -> Round:
    import numpy as np

    bench = importlib.import_module("benchmarks.train_step")
    path = os.path.join(scratch, "batches.npz")
    _, batch_size, steps = bench.SIZES[size]
    bench.make_batches(folder, path, batch_size)
    with np.load(path) as file:
        step = bench.our_stepper(size, precision, dict(file))

    def one_round() -> float:
        step(steps)
        return float(steps)

    return one_round


def _pipeline(folder: str, scratch: str) -> Round:
    bench = importlib.import_module("benchmarks.pipeline")
    files = bench.corpus_files(folder, "enwiki", 60)
    return lambda: float(bench.run_bert_tf(folder, files)["tokens"]) / 1e6


def _tokenizer(folder: str, scratch: str) -> Round:
    bench = importlib.import_module("benchmarks.tokenizer")
    run = bench.our_runner(folder, bench.read_batches(folder, 2), 2)

    def one_round() -> float:
        for _ in run(10):
            pass
        return 10.0

    return one_round


def _sentences(folder: str) -> list[str]:
    path = sorted(glob.glob(os.path.join(folder, "corpora", "enwiki", "*.gz")))[0]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if not line.startswith("<")]
    sentences = itertools.chain.from_iterable(line.split(". ") for line in lines)
    return [sentence for sentence in sentences if 40 < len(sentence) < 300]


def _signature(model_class: str, folder: str, scratch: str) -> Callable[..., Any]:
    import keras
    import tensorflow as tf

    import bert_tf
    from bert_tf.pipelines.vocabulary import load_vocabulary
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.saved_models import export

    keras.utils.set_random_seed(1)
    model = getattr(bert_tf, model_class)(bert_tf.BertConfig.from_preset("bert-mini"))
    vocabulary = load_vocabulary(os.path.join(folder, "vocab", "bert-base-uncased.txt"))
    path = os.path.join(scratch, model_class, "1")
    export(model, path, tokenizer=BertTokenizer(vocabulary))
    loaded = tf.saved_model.load(path)
    # A signature alone does not keep the variables of its export.
    return lambda **request: loaded.signatures["serving_default"](**request)


def _embed(is_sorted: bool, folder: str, scratch: str) -> Round:
    import tensorflow as tf

    signature = _signature("BertEncoder", folder, scratch)
    sentences, size = _sentences(folder)[:640], 64 if is_sorted else 32
    if is_sorted:
        sentences.sort(key=len)
    requests = [tf.constant(sentences[begin : begin + size]) for begin in range(0, 640, size)]

    def one_round() -> float:
        for request in requests:
            signature(text=request)
        return float(len(requests))

    return one_round


def _answer(folder: str, scratch: str) -> Round:
    import tensorflow as tf

    signature = _signature("BertSpanPredictor", folder, scratch)
    text = " ".join(_sentences(folder))
    contexts = [tf.constant([text[begin : begin + 700]]) for begin in range(0, 40 * 700, 700)]
    question = tf.constant(["When did the library open?"])

    def one_round() -> float:
        for context in contexts:
            signature(question=question, context=context)
        return float(len(contexts))

    return one_round


def _predictor(model_class: str, folder: str, **arguments: Any) -> Any:
    import keras

    import bert_tf
    from bert_tf.pipelines.vocabulary import load_vocabulary

    keras.utils.set_random_seed(1)
    model = getattr(bert_tf, model_class)(bert_tf.BertConfig.from_preset("bert-mini"), **arguments)
    vocabulary = load_vocabulary(os.path.join(folder, "vocab", "bert-base-uncased.txt"))
    model.preprocessor = bert_tf.BertPreprocessor(vocabulary)
    return bert_tf.Predictor(model)


def _predict_sst2(folder: str, scratch: str) -> Round:
    predictor = _predictor("BertClassifier", folder, num_classes=2)
    with open(os.path.join(folder, "glue", "SST-2", "dev.tsv"), encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in itertools.islice(file, 1, None)]
    return lambda: float(len(predictor(texts)))


def _predict_squad(folder: str, scratch: str) -> Round:
    predictor = _predictor("BertSpanPredictor", folder)
    with zipfile.ZipFile(os.path.join(folder, "squad", "dev-v1.1.json.zip")) as file:
        squad = json.loads(file.read(file.namelist()[0]))
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    rows = [
        {"question": question["question"], "context": paragraph["context"]}
        for paragraph in paragraphs
        for question in paragraph["qas"]
    ][:200]
    return lambda: float(len(predictor(rows)))


_IN_PROCESS = {
    "train_step": functools.partial(_train_step, "tiny", "float32"),
    "train_step_base": functools.partial(_train_step, "base", "float32"),
    "train_step_bfloat16": functools.partial(_train_step, "base", "bfloat16"),
    "pipeline": _pipeline,
    "tokenizer": _tokenizer,
    "embed": functools.partial(_embed, False),
    "embed_sorted": functools.partial(_embed, True),
    "answer": _answer,
    "predict_sst2": _predict_sst2,
    "predict_squad": _predict_squad,
}


def _serve(work: str, folder: str) -> None:
    """Prepares the work, then runs a round for each line of the input and prints its two times."""
    with tempfile.TemporaryDirectory() as scratch:
        one_round = _IN_PROCESS[work](folder, scratch)
        one_round()
        one_round()
        print("READY", flush=True)
        for _ in sys.stdin:
            began, cpu_began = time.perf_counter(), time.process_time()
            done = one_round()
            times = time.perf_counter() - began, time.process_time() - cpu_began
            print("TIMES", *(seconds / done for seconds in times), flush=True)


# === The versions ===


class _Version:
    """Process of a checkout that runs rounds of one kind of work."""

    def __init__(self, root: str, work: str, folder: str) -> None:
        self._process = _start(root, ["--serve", work], folder, stdin=subprocess.PIPE)
        self._read("READY")

    def round(self) -> tuple[float, float]:
        """Returns the wall time and the processor time of a unit of work, in seconds."""
        print(file=self._process.stdin, flush=True)
        wall, cpu = self._read("TIMES")
        return float(wall), float(cpu)

    def close(self) -> None:
        self._process.communicate()

    def _read(self, word: str) -> list[str]:
        for line in self._process.stdout or ():
            if line.startswith(word):
                return line.split()[1:]
        raise ValueError("The process ended early. See its messages above.")


class _FineTuning:
    """Command of a checkout, which is started again for each round."""

    def __init__(self, root: str, folder: str, scratch: str) -> None:
        self._root, self._folder, self._scratch = root, folder, scratch

    def round(self) -> tuple[float, float]:
        """Returns the wall time and the processor time of the whole command, in seconds."""
        # Each run has its own folder, because a finished run would only print its results.
        run = os.path.join(tempfile.mkdtemp(dir=self._scratch), "run")
        before = os.times()
        _start(self._root, ["--finetune", self._scratch, "--run", run], self._folder).communicate()
        after = os.times()
        if not os.path.exists(os.path.join(run, "results.json")):
            raise ValueError("The fine-tuning failed. See its messages above.")
        cpu = after.children_user + after.children_system
        before_cpu = before.children_user + before.children_system
        return after.elapsed - before.elapsed, cpu - before_cpu

    def close(self) -> None:
        """Does nothing, because no process is left."""


def _start(root: str, arguments: list[str], folder: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--root", root, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "BERT_TF_DATA": folder, "TF_CPP_MIN_LOG_LEVEL": "3"},
        **options,
    )


def _prepare_finetuning(folder: str, scratch: str) -> None:
    """Writes a small checkpoint with a vocabulary, and some rows of MRPC as a table."""
    import keras

    import bert_tf
    from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, Tokenization
    from bert_tf.checkpoints.model_directory import write_description
    from bert_tf.pipelines.vocabulary import load_vocabulary
    from bert_tf.readers.glue import read_glue
    from bert_tf.training import saved_states

    keras.utils.set_random_seed(1)
    config = bert_tf.BertConfig.from_preset("bert-mini")
    encoder = bert_tf.BertEncoder(config, pooler=True)
    vocabulary = load_vocabulary(os.path.join(folder, "vocab", "bert-base-uncased.txt"))
    start = os.path.join(scratch, "start")
    spec = ModelSpec(bert_tf.BertEncoder, {"pooler": True})
    tokenization = Tokenization(tuple(vocabulary), True)
    described = Checkpoint(start, "bert_tf", config, spec, tokenization=tokenization)
    write_description(described, start)
    weights = {f"model/{weight.path}": weight for weight in encoder.weights}
    saved_states.save(os.path.join(start, "checkpoints"), 0, weights, {})
    rows = read_glue("MRPC", os.path.join(folder, "glue", "MRPC"), "train").items[:_MRPC_ROWS]
    with open(os.path.join(scratch, "train.csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["first", "second", "same"])
        writer.writerows((row.text_a, row.text_b, row.label) for row in rows)


def _finetune(scratch: str, run: str) -> None:
    values = {
        "task": "classification",
        "train_file": os.path.join(scratch, "train.csv"),
        "text_columns": "first,second",
        "label_column": "same",
        "init_checkpoint": os.path.join(scratch, "start"),
        "model_dir": run,
        "num_train_epochs": 2,
    }
    sys.argv = ["finetune.py", "--noexport", *(f"--{k}={v}" for k, v in values.items())]
    runpy.run_module("bert_tf.finetune", run_name="__main__")


# === The comparison ===


def _interval(ratios: list[float]) -> tuple[float, float, float]:
    """Returns the geometric mean and its 95% interval, from Student's t of the logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = _T_95[len(ratios)] * statistics.stdev(logs) / math.sqrt(len(ratios))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _compare(old: str, work: str, folder: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        versions: list[Any]
        if work == _FINETUNE:
            _prepare_finetuning(folder, scratch)
            versions = [_FineTuning(root, folder, scratch) for root in (old, _ROOT)]
            for version in versions:
                version.round()
        else:
            versions = [_Version(root, work, folder) for root in (old, _ROOT)]
        rounds_of = [[version.round() for version in versions] for _ in range(rounds)]
        for version in versions:
            version.close()
    for number, what in enumerate(("wall time", "processor time")):
        old_times, new_times = ([one[who][number] for one in rounds_of] for who in (0, 1))
        mean, low, high = _interval([o / n for o, n in zip(old_times, new_times, strict=True)])
        print(
            f"{work:19} {what:14} old {statistics.median(old_times):7.3f} s, "
            f"new {statistics.median(new_times):7.3f} s: {mean:.3f} times as fast "
            f"(95%: {low:.3f} to {high:.3f})",
            flush=True,
        )


def main() -> None:
    """Compares two versions and prints two lines per kind of work."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", help="Path to a checkout of the earlier version.")
    parser.add_argument("--work", default=",".join((*_IN_PROCESS, _FINETUNE)))
    parser.add_argument("--rounds", type=int, default=11, choices=sorted(_T_95))
    for hidden in ("--root", "--serve", "--finetune", "--run"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        sys.exit(
            "BERT_TF_DATA is not set: expected a folder with corpora/, glue/, squad/ and vocab/."
        )
    if arguments.root:
        _import_from(arguments.root)
        if arguments.serve:
            _serve(arguments.serve, folder)
        else:
            _finetune(arguments.finetune, arguments.run)
        return
    if not arguments.old:
        sys.exit("--old is required: pass the path to a checkout of the earlier version.")
    _import_from(_ROOT)
    for work in arguments.work.split(","):
        _compare(os.path.abspath(arguments.old), work, folder, arguments.rounds)


def _import_from(root: str) -> None:
    """Imports the library from a checkout instead of the installed one."""
    sys.path.insert(0, root)
    import bert_tf

    bert_tf.__path__.append(root)  # for pipelines and saved_models
    for name in ("bert_tf", "bert_tf.pipelines", "benchmarks"):
        found = importlib.import_module(name).__file__ or ""
        if not found.startswith(root + os.sep):
            sys.exit(f"{name}: expected the one in {root}, got {found}.")


if __name__ == "__main__":
    main()
