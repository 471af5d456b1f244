"""bert_tf's side of ``benchmarks.embeddings``, with ``api.fine_tune``."""

import importlib.metadata
import json
import os
import sys
import time
from typing import Any

import keras
import numpy as np

from bert_tf import api, load
from bert_tf.evaluation.evaluation import Inference
from bert_tf.pipelines.classification import similarity_examples
from bert_tf.tasks.similarity.task import normalize_rows

_PACKAGES = ("bert_tf", "tensorflow", "keras")


class _Clock(keras.callbacks.Callback):
    """Records wall and processor seconds at the start of training and after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[float, float]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.times = [(time.perf_counter(), time.process_time())]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append((time.perf_counter(), time.process_time()))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Trains as requested, and writes the vectors or predicted classes of the texts."""
    clock, model = _Clock(), None
    options: dict[str, Any] = {"task": "similarity"}
    if request["is_few_shot"]:
        # The texts to predict are passed as a test set, which does not affect training.
        texts = [[text] for text in request["texts"]]
        options = {"task": "classification", "few_shot": True, "few_shot_pairs": request["pairs"]}
        options["test"] = texts or None
    if request["steps"]:
        fine_tuned = api.fine_tune(
            [tuple(row) for row in request["rows"]],
            init=request["start"],
            callbacks=[clock],
            dev_fraction=0,
            max_steps=request["steps"],
            verbose=False,
            **{name: request[name] for name in ("seed", "learning_rate", "weight_decay")},
            **{name: request[name] for name in ("max_seq_length", "warmup_proportion")},
            train_batch_size=request["batch_size"],
            **options,
        )
        model = fine_tuned.model
    if request["texts"] and request["is_few_shot"]:
        predictions = [int(record["prediction"]) for record in fine_tuned.predictions["test"]]
        np.save(request["output"], predictions)
    elif request["texts"]:
        model = model or load(request["start"])
        tokenizer, length = model.preprocessor.tokenizer, request["max_seq_length"]
        examples = similarity_examples(tokenizer, [request["texts"]], max_seq_length=length)
        inference = Inference(model, tokenizer, length, 64)
        np.save(request["output"], normalize_rows(inference.ordered_outputs(examples)[:, 0]))
    return {"times": clock.times, "threads": os.cpu_count()}


def main() -> None:
    """Answers requests until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    print(json.dumps(versions), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
