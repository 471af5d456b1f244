"""The peer's side of ``benchmarks.hour``: transformers' BertForPreTraining, in PyTorch.

    python -m benchmarks.hour_transformers RUNS SECONDS

A plain loop with the peer's own parts: its model from the config of RUNS/bert_tf, its collator,
which masks as many tokens as the recipe does, torch's AdamW, fused. Rate, betas, batch and clipping
are the recipe's, and so many of its first steps are of short rows; the rate falls to 0 with the
time. bert_tf's pipeline makes the rows before the clock starts; their order is random, another in
every epoch. Matrix products are in bfloat16 if that is quicker.
"""

import contextlib
import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
import transformers

from bert_tf.pretraining.recipes import RECIPES

from .hour import BATCH, HELD_OUT, OURS, PEER, PHASES, ROW, TRAIN, held_out_loss

CLIP_NORM, WARMUP = 1.0, 500
TRIED, LOOKED_AT = 20, [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0]
Batch = dict[str, torch.Tensor]


class Training:
    """The model and its optimizer, and a step."""

    def __init__(self, config: str) -> None:
        recipe = RECIPES["hour"]
        self.model = transformers.BertForPreTraining(
            transformers.BertConfig.from_pretrained(config)
        )
        self.peak = recipe["learning_rate"]
        plain = [weight for weight in self.model.parameters() if weight.ndim < 2]
        decayed = [weight for weight in self.model.parameters() if weight.ndim > 1]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        betas = (0.9, recipe["adam_beta_2"])
        self.optimizer = torch.optim.AdamW(groups, self.peak, betas, eps=1e-6, fused=True)
        self.is_bfloat16 = False

    def arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16's, where that is asked for."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.is_bfloat16)

    def step(self, batch: Batch, rate: float) -> None:
        """An update; the next sentence has no part in it, as in the recipe."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self.arithmetic():
            logits = self.model(
                batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]
            ).prediction_logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), batch["labels"].flatten()
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self, path: str) -> float:
        """That of the held-out rows, in float32."""

        def logits_of(rows: dict[str, np.ndarray]) -> np.ndarray:
            names = ("input_word_ids", "input_mask", "input_type_ids")
            given = (torch.tensor(rows[name], dtype=torch.long) for name in names)
            logits = self.model(*given).prediction_logits.numpy()
            return np.take_along_axis(logits, rows["masked_lm_positions"][..., None], 1)

        with torch.no_grad():
            return held_out_loss(path, logits_of)


class Batches:
    """Rows of a length in a random order, masked; BATCH of 128 tokens, and more of shorter ones."""

    def __init__(self, rows: np.ndarray, tokenizer: Any, share: float) -> None:
        self.rows, self.size = torch.tensor(rows.astype(np.int64)), BATCH * ROW // rows.shape[-1]
        self.collate = transformers.DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=share
        )
        self.random, self.order = np.random.default_rng(0), np.zeros(0, np.int64)
        names = ("cls_token_id", "sep_token_id", "pad_token_id")
        self.special = torch.tensor([getattr(tokenizer, name) for name in names])
        self.padding = tokenizer.pad_token_id

    def next(self) -> Batch:
        """B rows and their labels."""
        if len(self.order) < self.size:
            self.order = self.random.permutation(len(self.rows))
        chosen, self.order = self.order[: self.size], self.order[self.size :]
        given = [self._row(*self.rows[number]) for number in chosen]
        found: Batch = self.collate(given)
        return found

    def _row(self, ids: torch.Tensor, segments: torch.Tensor) -> Batch:
        return {
            "input_ids": ids,
            "token_type_ids": segments,
            "attention_mask": (ids != self.padding).long(),
            "special_tokens_mask": torch.isin(ids, self.special).long(),
        }


def train(runs: str, seconds: float) -> list[dict[str, Any]]:
    """Trains for so many seconds; gives the curve, and leaves the weights."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    rows, ours = os.path.join(runs, HELD_OUT), os.path.join(runs, OURS)
    tokenizer = transformers.BertTokenizer(os.path.join(ours, "vocab.txt"))
    recipe, text = RECIPES["hour"], np.load(os.path.join(runs, TRAIN))
    ends = recipe["num_train_steps"] * np.cumsum([share for _, share in PHASES])[:-1]
    batches = [
        Batches(text[str(length)], tokenizer, recipe["masked_lm_prob"]) for length, _ in PHASES
    ]
    config = os.path.join(ours, "bert_config.json")
    is_bfloat16 = _is_quicker_in_bfloat16(Training(config), batches[-1])
    training = Training(config)
    training.is_bfloat16 = is_bfloat16
    curve, step, tokens, spent = [], 0, 0, 0.0
    for share in LOOKED_AT:
        training.model.train()
        began = time.perf_counter()
        while (now := spent + time.perf_counter() - began) < share * seconds:
            warm = min(1.0, (step + 1) / WARMUP)
            batch = batches[int(np.searchsorted(ends, step, "right"))].next()
            training.step(batch, training.peak * warm * (1 - now / seconds))
            step, tokens = step + 1, tokens + batch["input_ids"].numel()
        spent = now
        training.model.eval()
        curve.append(
            {"library": PEER, "step": step, "seconds": spent, "tokens": tokens}
            | {"held_out_loss": training.loss(rows)}
        )
        print(curve[-1], "bfloat16" if training.is_bfloat16 else "float32", flush=True)
    training.model.save_pretrained(os.path.join(runs, PEER))
    tokenizer.save_pretrained(os.path.join(runs, PEER))
    return curve


def _is_quicker_in_bfloat16(training: Training, batches: Batches) -> bool:
    """Whether steps are, on this machine, behind the first few."""
    took = {}
    for training.is_bfloat16 in (False, True):
        for number in range(TRIED):
            if number == TRIED // 4:
                began = time.perf_counter()
            training.step(batches.next(), 1e-4)
        took[training.is_bfloat16] = time.perf_counter() - began
    print(f"{TRIED} steps: {took[False]:.2f} s in float32, {took[True]:.2f} s in bfloat16.")
    return took[True] < took[False]


if __name__ == "__main__":
    found = train(sys.argv[1], float(sys.argv[2]))
    with open(os.path.join(sys.argv[1], "peer.json"), "w") as file:
        json.dump(found, file)
