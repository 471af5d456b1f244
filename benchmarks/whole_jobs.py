r"""Complete jobs, from the command to the written file, compared with other libraries.

    python -m benchmarks.whole_jobs [--jobs=vocabulary,few,many,finetune,embeddings,records]
        [--peers=PYTHON] [--before=PYTHON] [--rounds=3] [--text_mb=60] [--rows=20000]
        [--train_rows=2000] [--sentences=4000] [--record_mb=10]

| job        | work                                                     | peers                   |
|------------|----------------------------------------------------------|-------------------------|
| vocabulary | 30,000 pieces from 60 MB of English Wikipedia            | tokenizers              |
| few        | classes of ten sentences of SST-2, from a .csv to a .tsv | transformers, optimum   |
| many       | the same for 20,000 sentences                            | transformers, optimum   |
| finetune   | three epochs of 2,000 rows of SST-2, with evaluation     | Trainer of transformers |
| embeddings | vectors of 4,000 sentences of Wikipedia                  | sentence-transformers   |
| records    | pre-training records of 10 MB in 1, 10 and 100 files     |                         |

All models start from all-MiniLM-L6-v2 (see ``benchmarks.finetune``). The classifier of few and many
is trained before the measurements, converted to the format of transformers and exported to ONNX.

--before is the interpreter of an older version of bert_tf. It trains that classifier, which both
versions read, and runs the same commands.

--peers is the interpreter of an environment for optimum's ONNX classifier and for
sentence-transformers with ONNX and OpenVINO. These need an older version of transformers:

    python -m venv peers
    peers/bin/pip install "optimum-onnx[onnxruntime]==0.1.0" "optimum-intel[openvino]==1.27.0" \
        "sentence-transformers[onnx,openvino]==5.7.0" transformers==4.57.6 torch==2.13.0 \
        onnxruntime==1.32.0 openvino==2026.4.1

The other peers run in the current environment, which needs tokenizers, torch, transformers,
accelerate, datasets and sentence-transformers.

Each contender is a new process in each round, and contenders take turns. Times are from the start
of the process to its end. They include imports, loading and writing. The table contains medians of
the rounds. A ratio is the median of the ratios to the first contender in each round, above 1 if the
first is faster. Processor time includes the processes that a contender starts. Peak memory is that
of its largest process. The results of the last round are compared after each table.
"""

import argparse
import dataclasses
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from . import whole_jobs_data as data
from .finetune import minilm_directory
from .finetune_tasks import (
    BATCH_SIZE,
    CLIP_NORM,
    EVALUATION_BATCH_SIZE,
    LEARNING_RATE,
    WARMUP_PROPORTION,
)
from .machine import processor

_PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "whole_jobs_peers.py")
_OURS, _BEFORE = "bert_tf", "bert_tf before"
_VOCABULARY_SIZE = 30_000
_FEW_ROWS = 10
_CLASSIFIER_ROWS, _EPOCHS, _WEIGHT_DECAY = 2000, 3, 0.01
_RECORD_FILES = (1, 10, 100)
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TOKENIZERS_PARALLELISM": "true",
}


@dataclasses.dataclass(frozen=True)
class Contender:
    """A command that writes results into a new directory.

    Attributes:
        name: Display name.
        command: The command; ``{output}`` in an argument is replaced by the directory.
    """

    name: str
    command: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Usage:
    """Resources that a process used.

    Attributes:
        seconds: Wall time.
        processor_seconds: Processor time, of the process and those that it started.
        peak: Peak resident memory of the largest of these processes, in MiB.
    """

    seconds: float
    processor_seconds: float
    peak: float


@dataclasses.dataclass(frozen=True)
class Job:
    """The contenders of a job, and the comparison of their results.

    Attributes:
        contenders: The contenders; ratios are to the first one.
        compare: Function from the output directories by contender to lines; raises ``ValueError``
            if the results differ.
        summarize: Function from the usages by contender to lines, if the table is not enough.
    """

    contenders: Sequence[Contender]
    compare: Callable[[Mapping[str, str]], Iterator[str]]
    summarize: Callable[[Mapping[str, Sequence[Usage]]], Iterator[str]] | None = None


def run(command: Sequence[str], folder: str) -> Usage:
    """Runs a command in a folder and returns its usage.

    Raises:
        ValueError: If the command fails.
    """
    log = os.path.join(folder, "log.txt")
    with open(log, "wb") as file:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_ENVIRONMENT},
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        with open(log, encoding="utf-8", errors="replace") as file:
            messages = file.read()[-4000:]
        raise ValueError(f"{' '.join(command)}: exit status {process.returncode}.\n{messages}")
    return Usage(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


# === Jobs ===


class Jobs:
    """Jobs with their input files and models, which are written when a job first needs them."""

    def __init__(self, arguments: argparse.Namespace, folder: str) -> None:
        self._arguments = arguments
        self._folder = folder
        self._data = arguments.data
        self._start = minilm_directory()

    def vocabulary(self) -> Job:
        """Returns the job that learns a vocabulary from plain text."""
        texts = data.write_texts(self._path("texts"), self._data, self._arguments.text_mb)
        size = str(_VOCABULARY_SIZE)
        flags = [f"--input={texts}", f"--vocab_size={size}", "--output={output}/vocab.txt"]
        peer = self._peer("tokenizers", "vocabulary", texts, size)
        return Job([*self._ours("vocab", *flags), *peer], data.compare_vocabularies)

    def few(self) -> Job:
        """Returns the job that predicts ten rows."""
        table = data.write_table(self._path("few.csv"), self._data, "train", _FEW_ROWS)
        pipeline = self._peer("transformers pipeline", "pipeline", self._converted, table, "1")
        return self._predictions(table, pipeline)

    def many(self) -> Job:
        """Returns the job that predicts many short rows."""
        table = data.write_table(self._path("many.csv"), self._data, "train", self._arguments.rows)
        model = self._converted
        peers = self._peer("transformers sorted, 64", "sorted_batches", model, table)
        peers += self._peer("transformers pipeline, 32", "pipeline", model, table, "32")
        return self._predictions(table, peers)

    def _predictions(self, table: str, peers: Sequence[Contender]) -> Job:
        flags = [f"--model={self._classifier}", f"--input={table}"]
        ours = self._ours("predict", *flags, "--output={output}/predictions.tsv")
        onnx = []
        if self._has_peers("optimum ONNX"):
            exported = self._export("export_classifier", self._converted)
            onnx = self._peer(
                "optimum ONNX sorted, 64", "onnx_batches", exported, table, other=True
            )
        return Job([*ours, *peers, *onnx], data.compare_predictions)

    def finetune(self) -> Job:
        """Returns the job that trains a classifier, evaluates each epoch and saves the best."""
        train = data.write_table(
            self._path("train.csv"), self._data, "train", self._arguments.train_rows
        )
        dev = data.write_table(self._path("dev.csv"), self._data, "dev")
        flags = [*self._training_flags(train), f"--dev_file={dev}", "--model_dir={output}"]
        settings = {
            "num_train_epochs": _EPOCHS,
            "per_device_train_batch_size": BATCH_SIZE,
            "per_device_eval_batch_size": EVALUATION_BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
            "lr_scheduler_type": "linear",
            "warmup_steps": WARMUP_PROPORTION,
            "weight_decay": _WEIGHT_DECAY,
            "max_grad_norm": CLIP_NORM,
            "use_cpu": True,
        }
        peer = self._peer(
            "transformers Trainer", "fine_tune", self._start, train, dev, json.dumps(settings)
        )
        return Job([*self._ours("finetune", *flags), *peer], data.compare_accuracies)

    def embeddings(self) -> Job:
        """Returns the job that embeds a file of sentences."""
        texts = data.write_sentences(
            self._path("sentences.txt"), self._data, self._arguments.sentences
        )
        flags = [f"--model={self._start}", f"--input={texts}", "--format=numpy"]
        contenders = self._ours("extract_features", *flags, "--output={output}")
        name = "sentence-transformers"
        contenders += self._peer(f"{name} torch", "embed", "torch", self._start, texts)
        for backend in ("onnx", "openvino"):
            if self._has_peers(f"{name} {backend}"):
                exported = self._export("export_encoder", backend, self._start)
                contenders += self._peer(
                    f"{name} {backend}", "embed", backend, exported, texts, other=True
                )
        return Job(contenders, data.compare_vectors)

    def records(self) -> Job:
        """Returns the job that writes pre-training records into one or more files."""
        inputs = data.wikipedia_files(self._data, self._arguments.record_mb)
        vocabulary = os.path.join(self._data, "vocab", "bert-base-uncased.txt")
        contenders = []
        for count in _RECORD_FILES:
            flags = [f"--input={','.join(inputs)}", f"--vocab_file={vocabulary}", "--num_epochs=1"]
            flags.append(f"--output_file={{output}}/examples.tfrecord@{count}")
            contenders += [
                dataclasses.replace(each, name=_files(each.name, count))
                for each in self._ours("create_pretraining_data", *flags)
            ]
        return Job(contenders, data.compare_records, per_file)

    # --- Contenders ---

    def _ours(self, command: str, *flags: str) -> list[Contender]:
        """Returns the current version of bert_tf and the older one, if any."""
        pythons = ((_OURS, sys.executable), (_BEFORE, self._arguments.before))
        return [
            Contender(name, [python, "-m", f"bert_tf.{command}", *flags])
            for name, python in pythons
            if python
        ]

    def _peer(self, name: str, function: str, *values: str, other: bool = False) -> list[Contender]:
        """Returns a peer; ``other`` selects the environment of --peers."""
        python = self._arguments.peers if other else sys.executable
        return [Contender(name, [python, _PEERS, function, *values, "{output}"])]

    def _has_peers(self, name: str) -> bool:
        if not self._arguments.peers:
            print(f"Skipping {name}: pass --peers.", flush=True)
        return bool(self._arguments.peers)

    # --- Files and models ---

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _training_flags(self, table: str) -> list[str]:
        """Returns the flags of a classifier with the pooler, as in transformers."""
        return [
            "--task=classification",
            f"--train_file={table}",
            "--text_columns=sentence",
            "--label_column=label",
            f"--init_checkpoint={self._start}",
            "--pooling=cls",
            f"--num_train_epochs={_EPOCHS}",
            f"--train_batch_size={BATCH_SIZE}",
            f"--eval_batch_size={EVALUATION_BATCH_SIZE}",
            f"--learning_rate={LEARNING_RATE}",
            f"--weight_decay={_WEIGHT_DECAY}",
        ]

    @functools.cached_property
    def _classifier(self) -> str:
        """Directory of a trained classifier, which both versions of bert_tf can read."""
        table = data.write_table(
            self._path("classifier.csv"), self._data, "train", _CLASSIFIER_ROWS
        )
        target = self._path("classifier")
        python = self._arguments.before or sys.executable
        flags = [*self._training_flags(table), "--dev_fraction=0", f"--model_dir={target}"]
        run([python, "-m", "bert_tf.finetune", *flags], self._folder)
        return target

    @functools.cached_property
    def _converted(self) -> str:
        """Directory of the same classifier for transformers."""
        target = self._path("converted")
        flags = [f"--model={self._classifier}", f"--output={target}", "--format=huggingface"]
        run([sys.executable, "-m", "bert_tf.convert", *flags], self._folder)
        return target

    def _export(self, function: str, *values: str) -> str:
        """Returns the directory of a model that a peer exported, once for all jobs."""
        target = self._path("-".join((function, *values[:-1])))
        if not os.path.exists(target):
            os.makedirs(target)
            run([self._arguments.peers, _PEERS, function, *values, target], self._folder)
        return target


NAMES = ("vocabulary", "few", "many", "finetune", "embeddings", "records")


# === Measurement ===


def measure(name: str, job: Job, rounds: int, folder: str) -> Iterator[str]:
    """Runs the contenders in turn; yields the lines of a table and of the comparison.

    Raises:
        ValueError: If a contender fails, or results differ.
    """
    usages: dict[str, list[Usage]] = {each.name: [] for each in job.contenders}
    outputs: dict[str, str] = {}
    for number in range(rounds):
        for position, each in enumerate(job.contenders):
            if each.name in outputs:
                shutil.rmtree(outputs[each.name])
            outputs[each.name] = os.path.join(folder, f"{name}-{number}-{position}")
            os.makedirs(outputs[each.name])
            command = [part.replace("{output}", outputs[each.name]) for part in each.command]
            usages[each.name].append(run(command, folder))
    yield "| job | contender | s | ratio | processor s | peak MiB |"
    yield "|---|---|---|---|---|---|"
    first = usages[job.contenders[0].name]
    for contender, found in usages.items():
        columns = zip(*map(dataclasses.astuple, found), strict=True)
        seconds, processor_seconds, peak = map(statistics.median, columns)
        ratio = statistics.median(b.seconds / a.seconds for a, b in zip(first, found, strict=True))
        yield (
            f"| {name} | {contender} | {seconds:.1f} | {ratio:.2f} | {processor_seconds:.1f} | "
            f"{peak:,.0f} |"
        )
    yield ""
    if job.summarize:
        yield from job.summarize(usages)
    yield from job.compare(outputs)


def per_file(usages: Mapping[str, Sequence[Usage]]) -> Iterator[str]:
    """Yields the seconds per file in addition to the first, from the medians of the rounds."""
    for version in (_OURS, _BEFORE):
        if _files(version, 1) not in usages:
            continue
        for field in ("seconds", "processor_seconds"):
            one, many = (
                statistics.median(getattr(usage, field) for usage in usages[_files(version, count)])
                for count in (_RECORD_FILES[0], _RECORD_FILES[-1])
            )
            cost = (many - one) / (_RECORD_FILES[-1] - _RECORD_FILES[0])
            yield f"{version}: {cost:.3f} {field.replace('_', ' ')} per additional file"


def _files(version: str, count: int) -> str:
    return f"{version}, files: {count}"


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=[*NAMES])
    parser.add_argument("--peers", help="Interpreter with optimum and OpenVINO.")
    parser.add_argument("--before", help="Interpreter of another version of bert_tf.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000, help="Number of rows of the job many.")
    parser.add_argument(
        "--train_rows", type=int, default=2000, help="Number of rows of the job finetune."
    )
    parser.add_argument(
        "--sentences", type=int, default=4000, help="Number of sentences of the job embeddings."
    )
    parser.add_argument(
        "--text_mb", type=int, default=60, help="Size of the text of the job vocabulary, in MB."
    )
    parser.add_argument(
        "--record_mb", type=int, default=10, help="Size of the text of the job records, in MB."
    )
    arguments = parser.parse_args()
    if not set(arguments.jobs) <= set(NAMES):
        parser.error(
            f"--jobs: expected some of {', '.join(NAMES)}, got {', '.join(arguments.jobs)}"
        )
    return arguments


def main() -> None:
    """Measures the requested jobs."""
    arguments = parse_arguments()
    for name in ("peers", "before"):  # commands run in another folder
        path = getattr(arguments, name)
        setattr(arguments, name, os.path.abspath(path) if path else None)
    arguments.data = os.environ.get("BERT_TF_DATA")
    if not arguments.data:
        sys.exit("Set BERT_TF_DATA to the folder that contains corpora/, glue/ and vocab/.")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(arguments, folder)
        for name in arguments.jobs:
            print(f"\n{processor()}; load average {os.getloadavg()[0]:.2f}\n", flush=True)
            try:
                job = getattr(jobs, name)()
                for line in measure(name, job, arguments.rounds, folder):
                    print(line, flush=True)
            except ValueError as error:  # so that the other jobs are still measured
                print(f"{name}: {error}", flush=True)
                failed.append(name)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
