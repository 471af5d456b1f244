"""Contenders of ``benchmarks.inference``, each in a separate process.

    python -m benchmarks.inference_contenders NAME DIRECTORY

Reads requests from standard input, one JSON object per line, with the texts, the batch size and an
optional path for the vectors. Prints the seconds of each request.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

FLOAT32, BFLOAT16 = "float32", "bfloat16"
OURS, TORCH, COMPILED, ONNX = "bert_tf", "torch", "torch.compile", "onnxruntime"
LIBRARY = "sentence-transformers"
CONTENDERS = [
    f"{OURS} {FLOAT32}",
    f"{OURS} {BFLOAT16}",
    f"{TORCH} {FLOAT32}",
    f"{COMPILED} {FLOAT32}",
    f"{TORCH} {BFLOAT16}",
    f"{COMPILED} {BFLOAT16}",
    f"{ONNX} {FLOAT32}",
    f"{LIBRARY} {FLOAT32}",
    f"{LIBRARY} {BFLOAT16}",
]

# Function from texts and batch size to vectors in the order of the texts.
Encode = Callable[[list[str], int], np.ndarray]


# === Worker process ===


def bert_tf_encoder(directory: str) -> Encode:
    """Returns a client of the exported model, which sends strings.

    Texts that fill more than one batch are sorted by their number of tokens, as counted by the
    tokenizer of bert_tf. Sorting by bytes or words would leave a quarter of each batch as padding.
    """
    import tensorflow as tf

    from bert_tf.pipelines.wordpiece import BertTokenizer

    from .finetune import minilm_directory

    model = tf.saved_model.load(directory)
    embed = model.signatures["serving_default"]
    tokenizer = BertTokenizer(os.path.join(minilm_directory(), "vocab.txt"))
    count_tokens = tf.function(
        lambda texts: tokenizer.tokenize(texts).row_lengths(),
        [tf.TensorSpec([None], tf.string)],
        autograph=False,
    )

    def encode(texts: list[str], batch_size: int) -> np.ndarray:
        data = np.array([text.encode() for text in texts], object)
        if len(data) <= batch_size:
            return embed(text=tf.constant(data))["mean_output"].numpy()
        order = np.argsort(-count_tokens(tf.constant(data)).numpy(), kind="stable")
        batches = []
        for start in range(0, len(order), batch_size):
            batch = tf.constant(data[order[start : start + batch_size]])
            batches.append(embed(text=batch)["mean_output"].numpy())
        vectors = np.concatenate(batches)
        vectors[order] = vectors.copy()
        return vectors

    return encode


def serve(name: str, directory: str) -> None:
    """Answers requests from standard input."""
    library, precision = name.split()
    if library == OURS:
        encode = bert_tf_encoder(directory)
    else:
        from . import inference_peers

        if library == ONNX:
            encode = inference_peers.onnx_encoder(directory)
        elif library == LIBRARY:
            encode = inference_peers.sentence_transformers_encoder(directory, precision)
        else:
            encode = inference_peers.torch_encoder(directory, precision, library == COMPILED)
    print("ANSWER 0", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        seconds = []
        for texts in request["requests"]:
            start = time.perf_counter()
            vectors = encode(texts, request["batch_size"])
            seconds.append(time.perf_counter() - start)
        if request["path"]:
            np.save(request["path"], vectors)
        print(f"ANSWER {json.dumps(seconds)}", flush=True)


# === Parent process ===


@dataclasses.dataclass
class Contender:
    """A worker process and its measurements.

    Attributes:
        name: Library and precision.
        process: The worker process.
        passes: Seconds of each pass over all sentences.
        unsorted: Seconds of each unsorted request, by size. The first request runs twice; its first
            time does not count.
        singles: Seconds of each single sentence.
        cosine: Minimum cosine to the vectors of the reference.
    """

    name: str
    process: subprocess.Popen[str]
    passes: list[float] = dataclasses.field(default_factory=list)
    unsorted: dict[int, list[float]] = dataclasses.field(default_factory=dict)
    singles: list[float] = dataclasses.field(default_factory=list)
    cosine: float = 1.0

    @classmethod
    def start(cls, name: str, directory: str) -> "Contender":
        """Starts the process and waits until its model is loaded."""
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.inference_contenders", name, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"},
        )
        contender = cls(name, process)
        contender.answer()
        return contender

    def answer(self) -> Any:
        """Returns the next answer of the process.

        Raises:
            ValueError: If the process has ended.
        """
        for line in self.process.stdout or ():
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise ValueError(f"The process of {self.name} ended. See its messages above.")

    def seconds(self, requests: list[list[str]], batch_size: int, path: str = "") -> list[float]:
        """Returns the seconds that the process takes for each request."""
        if self.process.stdin is None:
            raise ValueError(f"The process of {self.name} has no standard input.")
        request = {"requests": requests, "batch_size": batch_size, "path": path}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def figures(self, num_sentences: int) -> dict[str, Any]:
        """Returns the results: sentences per second, and milliseconds per single sentence."""
        return {
            "name": self.name,
            "sentences_per_second": num_sentences / statistics.median(self.passes),
            "passes": self.passes,
            **{
                unsorted(size): size * len(seconds[1:]) / sum(seconds[1:])
                for size, seconds in self.unsorted.items()
            },
            "single_median_ms": 1e3 * float(np.median(self.singles)),
            "single_p99_ms": 1e3 * float(np.percentile(self.singles, 99)),
            "min_cosine": self.cosine,
        }


def unsorted(size: int) -> str:
    """Returns the key of the speed of unsorted requests of a size."""
    return f"unsorted_{size}_per_second"


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
