"""The peers' side of ``benchmarks.embeddings``: sentence-transformers and SetFit.

    PEER_PYTHON benchmarks/embeddings_peers.py

It runs in an environment of its own, without this library: a request on each line of its input, an
answer on a line of its output, both JSON. Each library trains by its own ``Trainer``. What they are
given is what this library has: AdamW that decays matrices and embeddings alone, Google's schedule,
gradients clipped to a norm of 1, the lengths, rates and losses of the request.
"""

import importlib.metadata
import json
import os
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
)
from sentence_transformers.training_args import BatchSamplers

_PACKAGES = ("sentence-transformers", "setfit", "transformers", "torch")


class _Clock(transformers.TrainerCallback):
    """Wall and processor seconds at the beginning and at the end of each step."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.times = [(time.perf_counter(), time.process_time())]

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.times.append((time.perf_counter(), time.process_time()))


def _optimizer(model: torch.nn.Module, asked: dict[str, Any], total: int) -> tuple[Any, Any]:
    """AdamW, whose decay leaves out biases and LayerNorm, and Google's line over all steps."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    plain = [weight for name, weight in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [weight for _, weight in named if not any(weight is other for other in plain)]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": asked["weight_decay"]},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=asked["learning_rate"],
        eps=1e-8,
        fused=True,
    )
    warmup = int(asked["warmup_proportion"] * total)

    def share(step: int) -> float:
        return step / warmup if step < warmup else 1 - step / total

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def _pairs(asked: dict[str, Any], folder: str) -> tuple[Any, _Clock]:
    """sentence-transformers on pairs, with scores or without."""
    model = SentenceTransformer(asked["start"], device="cpu")
    model.max_seq_length = asked["max_seq_length"]
    clock, steps = _Clock(), asked["steps"]
    if not steps:
        return model, clock
    columns = dict(
        zip(("anchor", "other", "score"), zip(*asked["rows"], strict=True), strict=False)
    )
    data = Dataset.from_dict({name: list(column) for name, column in columns.items()})
    is_scored = "score" in columns
    loss = losses.CoSENTLoss(model) if is_scored else losses.MultipleNegativesRankingLoss(model)
    # Its pages advise it where texts of a batch are each other's wrong answers.
    sampler = BatchSamplers.BATCH_SAMPLER if is_scored else BatchSamplers.NO_DUPLICATES
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=asked["batch_size"],
        seed=asked["seed"],
        batch_sampler=sampler,
        **_QUIET,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=loss,
        callbacks=[clock],
        optimizers=_optimizer(model, asked, asked["total_steps"]),
    )
    trainer.train()
    return model, clock


_QUIET: dict[str, Any] = {
    "max_grad_norm": 1.0,
    "save_strategy": "no",
    "logging_strategy": "no",
    "eval_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
}


def _few_shot(asked: dict[str, Any], folder: str) -> tuple[Any, _Clock]:
    """SetFit on a few labelled texts, with its own head."""
    import setfit

    transformers.set_seed(asked["seed"])
    model = setfit.SetFitModel.from_pretrained(asked["start"], device="cpu")
    model.model_body.max_seq_length = asked["max_seq_length"]
    texts, labels = (list(column) for column in zip(*asked["rows"], strict=True))
    arguments = setfit.TrainingArguments(
        output_dir=folder,
        batch_size=(asked["batch_size"], 16),
        num_epochs=(1, 1),
        num_iterations=asked["pairs"],
        body_learning_rate=(asked["learning_rate"], 1e-5),
        warmup_proportion=asked["warmup_proportion"],
        l2_weight=asked["weight_decay"],
        max_steps=asked["steps"] if asked["steps"] < asked["total_steps"] else -1,
        seed=asked["seed"],
        save_strategy="no",
        logging_strategy="no",
        eval_strategy="no",
        report_to="none",
    )
    trainer = setfit.Trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"text": texts, "label": labels}),
    )
    clock, inner = _Clock(), trainer.st_trainer
    inner.add_callback(clock)
    inner.args.disable_tqdm = True
    inner.optimizer, inner.lr_scheduler = _optimizer(model.model_body, asked, asked["total_steps"])
    trainer.train()
    return model, clock


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Trains as is asked for, and writes the texts' vectors, or the classes that are predicted."""
    with tempfile.TemporaryDirectory() as folder:
        train = _few_shot if asked["is_few_shot"] else _pairs
        model, clock = train(asked, folder)
    if asked["texts"] and asked["is_few_shot"]:
        np.save(asked["output"], np.asarray(model.predict(asked["texts"]), np.int64))
    elif asked["texts"]:
        np.save(asked["output"], model.encode(asked["texts"], batch_size=64))
    return {"times": clock.times, "threads": torch.get_num_threads()}


def main() -> None:
    """Answers until the input ends."""
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    # What the libraries print does not come between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    print(json.dumps(versions), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
