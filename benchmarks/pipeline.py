"""Text to pre-training batches compared with transformers and datasets, on real text.

    python -m benchmarks.pipeline [--corpora=enwiki,books] [--files=60] [--rounds=3] [--json=FILE]

The input is gzip files; the output is batches of 256 rows of 128 tokens. bert_tf creates sentences,
next-sentence pairs and masks. Its time runs from opening the first file to the last batch of one
epoch, with an existing index of the corpus; the time to build the index is printed separately. The
peer follows ``run_mlm.py`` of transformers: it tokenizes lines with the Rust tokenizer, joins them,
cuts blocks of 128 tokens, and masks them with ``DataCollatorForLanguageModeling``, without
sentences and pairs. It runs in one process with the threads of the tokenizer, and with ``num_proc``
and ``num_workers`` of all cores; the faster one counts. Each round is a separate process, and
imports are not timed. The rounds of the contenders alternate; the result is the median. Padding is
not counted as tokens. The output also has tokens per second of processor time, which ignore idle
cores but are reliable on a busy machine.
"""

import argparse
import glob
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from .machine import processor

BATCH_SIZE, SEQUENCE = 256, 128
TARGET = 10.0
CORES = os.cpu_count() or 1
CONTENDERS = {"bert_tf": 0, "transformers, 1 process": 1, f"transformers, {CORES} processes": CORES}


def corpus_files(folder: str, corpus: str, count: int) -> list[str]:
    files = sorted(glob.glob(os.path.join(folder, "corpora", corpus, "*.gz")))[:count]
    if not files:
        sys.exit(f"No .gz file in {folder}/corpora/{corpus}.")
    return files


def vocabulary_file(folder: str) -> str:
    return os.path.join(folder, "vocab", "bert-base-uncased.txt")


# === One round per contender ===


class Clock:
    """Measures wall seconds and processor seconds (with child processes) since its creation."""

    def __init__(self) -> None:
        self.begin, self.cpu_begin = time.perf_counter(), sum(os.times()[:4])

    def read(self) -> dict[str, float]:
        """Returns the wall seconds and the processor seconds."""
        return {
            "seconds": time.perf_counter() - self.begin,
            "cpu_seconds": sum(os.times()[:4]) - self.cpu_begin,
        }


def run_bert_tf(folder: str, files: list[str]) -> dict[str, float]:
    from bert_tf import features
    from bert_tf.pipelines.corpora.sources import open_corpus
    from bert_tf.pipelines.pretraining.dataset import pretraining_dataset
    from bert_tf.pipelines.wordpiece import BertTokenizer

    clock = Clock()
    corpus = open_corpus(files)
    opening = clock.read()["seconds"]
    dataset = pretraining_dataset(
        corpus,
        BertTokenizer(vocabulary_file(folder)),
        batch_size=BATCH_SIZE,
        max_seq_length=SEQUENCE,
        num_epochs=1,
        drop_remainder=False,
    )
    clock = Clock()
    tokens = sum(int(batch[features.INPUT_MASK].numpy().sum()) for batch in dataset)
    return {**clock.read(), "tokens": tokens, "opening": opening}


def run_transformers(folder: str, files: list[str], processes: int) -> dict[str, float]:
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if processes == 1 else "false"
    import datasets
    import torch
    import transformers

    datasets.disable_progress_bars()
    datasets.disable_caching()
    with open(vocabulary_file(folder), encoding="utf-8") as file:
        vocabulary = {line.rstrip("\n"): number for number, line in enumerate(file)}
    tokenizer = transformers.BertTokenizerFast(vocab=vocabulary, do_lower_case=True)
    if tokenizer("Hello, world!")["input_ids"] != [101, 7592, 1010, 2088, 999, 102]:
        raise ValueError("The tokenizer of transformers does not use the vocabulary file.")
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def tokenize(examples: dict[str, list[str]]) -> transformers.BatchEncoding:
        return tokenizer(examples["text"], return_special_tokens_mask=True)

    def group(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = {key: [one for row in rows for one in row] for key, rows in examples.items()}
        length = len(joined["input_ids"]) // SEQUENCE * SEQUENCE
        return {
            key: [values[at : at + SEQUENCE] for at in range(0, length, SEQUENCE)]
            for key, values in joined.items()
        }

    workers = processes if processes > 1 else None
    clock = Clock()
    lines = []
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines += [
                line for line in file if line.strip() and not line.startswith(("<doc ", "</doc>"))
            ]
    text = datasets.Dataset.from_dict({"text": lines})
    rows = text.map(tokenize, batched=True, num_proc=workers, remove_columns=["text"])
    rows = rows.map(group, batched=True, num_proc=workers)
    loader = torch.utils.data.DataLoader(
        rows, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate, num_workers=workers or 0
    )
    tokens = sum(int(batch["attention_mask"].sum()) for batch in loader)
    del loader  # waits for the workers, so that their processor time counts
    return {**clock.read(), "tokens": tokens}


# === Comparison ===


def run_round(contender: str, corpus: str, files: int) -> dict[str, float]:
    """Runs ``run_bert_tf`` or ``run_transformers`` in a new process, and returns the result."""
    command = [sys.executable, "-m", "benchmarks.pipeline", f"--round={contender}"]
    command += [f"--corpora={corpus}", f"--files={files}"]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "HF_DATASETS_CACHE": cache, "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def compare(corpus: str, files: int, rounds: int) -> dict[str, float]:
    """Returns the median tokens per second of each contender."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name in CONTENDERS:
            measured[name].append(run_round(name, corpus, files))
    medians = {}
    for name, results in measured.items():
        speeds = [result["tokens"] / result["seconds"] / 1e6 for result in results]
        per_cpu = [result["tokens"] / result["cpu_seconds"] / 1e6 for result in results]
        print(
            f"{corpus:7} {name:26} {statistics.median(speeds):6.2f} M tokens/s "
            f"({min(speeds):.2f} to {max(speeds):.2f}), "
            f"{statistics.median(per_cpu):.2f} M per second of processor time"
        )
        medians[name] = statistics.median(speeds) * 1e6
    opening = statistics.median(result["opening"] for result in measured["bert_tf"])
    print(f"{corpus:7} opening the corpus for the first time: {opening:.1f} s", flush=True)
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", default="enwiki,books")
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="")
    parser.add_argument("--round", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        sys.exit("Set BERT_TF_DATA to the folder that contains corpora/ and vocab/.")
    if arguments.round:
        files = corpus_files(folder, arguments.corpora, arguments.files)
        processes = CONTENDERS[arguments.round]
        print(
            json.dumps(
                run_transformers(folder, files, processes)
                if processes
                else run_bert_tf(folder, files)
            )
        )
        return
    print(processor(), flush=True)
    figures = []
    for corpus in arguments.corpora.split(","):
        speeds = compare(corpus, arguments.files, arguments.rounds)
        figures += [
            {"corpus": corpus, "name": name, "tokens_per_second": speed}
            for name, speed in speeds.items()
        ]
        mine = speeds.pop("bert_tf")
        times = mine / max(speeds.values())
        print(f"{corpus:7} {times:.1f} times the best peer (target: {TARGET:.0f})", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
