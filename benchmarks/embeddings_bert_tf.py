"""This library's side of ``benchmarks.embeddings``: ``api.fine_tune``, as its users call it."""

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
    """Wall and processor seconds at the beginning and at the end of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[float, float]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.times = [(time.perf_counter(), time.process_time())]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append((time.perf_counter(), time.process_time()))


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Trains as is asked for, and writes the texts' vectors, or the classes that are predicted."""
    clock, model = _Clock(), None
    given: dict[str, Any] = {"task": "similarity"}
    if asked["is_few_shot"]:
        # The texts to predict are a test set, which decides nothing.
        texts = [[text] for text in asked["texts"]]
        given = {"task": "classification", "few_shot": True, "few_shot_pairs": asked["pairs"]}
        given["test"] = texts or None
    if asked["steps"]:
        fine_tuned = api.fine_tune(
            [tuple(row) for row in asked["rows"]],
            init=asked["start"],
            callbacks=[clock],
            dev_fraction=0,
            max_steps=asked["steps"],
            verbose=False,
            **{name: asked[name] for name in ("seed", "learning_rate", "weight_decay")},
            **{name: asked[name] for name in ("max_seq_length", "warmup_proportion")},
            train_batch_size=asked["batch_size"],
            **given,
        )
        model = fine_tuned.model
    if asked["texts"] and asked["is_few_shot"]:
        found = [int(record["prediction"]) for record in fine_tuned.predictions["test"]]
        np.save(asked["output"], found)
    elif asked["texts"]:
        model = model or load(asked["start"])
        tokenizer, length = model.preprocessor.tokenizer, asked["max_seq_length"]
        examples = similarity_examples(tokenizer, [asked["texts"]], max_seq_length=length)
        inference = Inference(model, tokenizer, length, 64)
        np.save(asked["output"], normalize_rows(inference.ordered_outputs(examples)[:, 0]))
    return {"times": clock.times, "threads": os.cpu_count()}


def main() -> None:
    """Answers until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    print(json.dumps(versions), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
