"""The peers' side of ``benchmarks.embeddings``: sentence-transformers and SetFit.

    PEER_PYTHON benchmarks/embeddings_peers.py

Runs in a separate environment without bert_tf. Requests and answers are lines of JSON. Each library
uses its own ``Trainer`` with the settings of bert_tf: AdamW that decays only matrices and
embeddings, Google's schedule, gradients clipped to a norm of 1, and the lengths, learning rates and
losses of the request.
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
    """Records wall and processor seconds at the start of training and after each step."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.times = [(time.perf_counter(), time.process_time())]

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.times.append((time.perf_counter(), time.process_time()))


def _optimizer(model: torch.nn.Module, request: dict[str, Any], total: int) -> tuple[Any, Any]:
    """Returns AdamW without decay of biases and LayerNorm, and Google's schedule over all steps."""
    weights = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    not_decayed = [
        weight for name, weight in weights if name.endswith("bias") or "LayerNorm" in name
    ]
    decayed = [weight for _, weight in weights if not any(weight is other for other in not_decayed)]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": request["weight_decay"]},
            {"params": not_decayed, "weight_decay": 0.0},
        ],
        lr=request["learning_rate"],
        eps=1e-8,
        fused=True,
    )
    warmup = int(request["warmup_proportion"] * total)

    def factor(step: int) -> float:
        return step / warmup if step < warmup else 1 - step / total

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _pairs(request: dict[str, Any], folder: str) -> tuple[Any, _Clock]:
    """Trains sentence-transformers on pairs, with or without scores."""
    model = SentenceTransformer(request["start"], device="cpu")
    model.max_seq_length = request["max_seq_length"]
    clock, steps = _Clock(), request["steps"]
    if not steps:
        return model, clock
    columns = dict(
        zip(("anchor", "other", "score"), zip(*request["rows"], strict=True), strict=False)
    )
    data = Dataset.from_dict({name: list(column) for name, column in columns.items()})
    is_scored = "score" in columns
    loss = losses.CoSENTLoss(model) if is_scored else losses.MultipleNegativesRankingLoss(model)
    # The documentation recommends NO_DUPLICATES for losses with in-batch negatives.
    sampler = BatchSamplers.BATCH_SAMPLER if is_scored else BatchSamplers.NO_DUPLICATES
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=request["batch_size"],
        seed=request["seed"],
        batch_sampler=sampler,
        **_QUIET,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=loss,
        callbacks=[clock],
        optimizers=_optimizer(model, request, request["total_steps"]),
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


def _few_shot(request: dict[str, Any], folder: str) -> tuple[Any, _Clock]:
    """Trains SetFit on few labeled texts, with its own head."""
    import setfit

    transformers.set_seed(request["seed"])
    model = setfit.SetFitModel.from_pretrained(request["start"], device="cpu")
    model.model_body.max_seq_length = request["max_seq_length"]
    texts, labels = (list(column) for column in zip(*request["rows"], strict=True))
    arguments = setfit.TrainingArguments(
        output_dir=folder,
        batch_size=(request["batch_size"], 16),
        num_epochs=(1, 1),
        num_iterations=request["pairs"],
        body_learning_rate=(request["learning_rate"], 1e-5),
        warmup_proportion=request["warmup_proportion"],
        l2_weight=request["weight_decay"],
        max_steps=request["steps"] if request["steps"] < request["total_steps"] else -1,
        seed=request["seed"],
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
    inner.optimizer, inner.lr_scheduler = _optimizer(
        model.model_body, request, request["total_steps"]
    )
    trainer.train()
    return model, clock


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Trains as requested, and writes the vectors or predicted classes of the texts."""
    with tempfile.TemporaryDirectory() as folder:
        train = _few_shot if request["is_few_shot"] else _pairs
        model, clock = train(request, folder)
    if request["texts"] and request["is_few_shot"]:
        np.save(request["output"], np.asarray(model.predict(request["texts"]), np.int64))
    elif request["texts"]:
        np.save(request["output"], model.encode(request["texts"], batch_size=64))
    return {"times": clock.times, "threads": torch.get_num_threads()}


def main() -> None:
    """Answers requests until the input ends."""
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    # Redirects the output of the libraries to stderr, so that it does not mix with the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    print(json.dumps(versions), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
