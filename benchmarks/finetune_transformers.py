"""The transformers side of ``benchmarks.finetune``, trained as in its examples.

A plain loop with the defaults of ``Trainer``: AdamW with bias correction, fused and without weight
decay, shuffling, batches padded to the longest row, linear warmup and decay, and gradients clipped
to a norm of 1. Rows are grouped by length, which is an option of ``Trainer``: on SST-2, it is about
twice as fast. Questions are prepared and answers selected as in ``run_qa``.
"""

import math
import time
from typing import Any

import numpy as np
import torch
import transformers
from transformers.trainer_pt_utils import LengthGroupedSampler

from bert_tf.readers.examples import QuestionExample

from .finetune_tasks import (
    BATCH_SIZE,
    CLIP_NORM,
    COMPARISONS,
    DOC_STRIDE,
    EVALUATION_BATCH_SIZE,
    LEARNING_RATE,
    MAX_ANSWER_LENGTH,
    N_BEST,
    WARMUP_PROPORTION,
    Outcome,
    Run,
    Stopwatch,
    text_columns,
)

Rows = list[dict[str, Any]]


def train(run: Run, train_items: list[Any], dev_items: list[Any]) -> Outcome:
    """Trains; predicts the dev examples unless training stops early."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    comparison = COMPARISONS[run.task]
    start_time = time.perf_counter()
    transformers.set_seed(run.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.checkpoint)
    if tokenizer("Hello, world!", padding=False)["input_ids"] != [101, 7592, 1010, 2088, 999, 102]:
        raise ValueError(
            "The tokenizer of transformers does not use the vocabulary of the checkpoint."
        )
    if comparison.glue:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            run.checkpoint, num_labels=2, dtype=torch.float32
        )
        rows = _text_rows(tokenizer, train_items, comparison.max_seq_length)
    else:
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(
            run.checkpoint, dtype=torch.float32
        )
        rows = _labeled_windows(tokenizer, train_items, comparison.max_seq_length)
    model.to(device)
    collate = transformers.DataCollatorWithPadding(tokenizer)
    preparation_seconds = time.perf_counter() - start_time
    stopwatch, positions = _fit(model, rows, collate, run, comparison.epochs)
    predictions: list[Any] = []
    if not run.stop_after:
        predictions = _predict(model, tokenizer, collate, dev_items, run)
    num_seen, first_batch = _num_rows_seen(len(rows), stopwatch.steps), min(BATCH_SIZE, len(rows))
    # A long context has several rows.
    examples_per_row = len(train_items) / len(rows)
    return Outcome(
        preparation_seconds=preparation_seconds,
        first_step_seconds=stopwatch.first,
        seconds=stopwatch.last,
        steps=stopwatch.steps,
        examples=num_seen * examples_per_row,
        first_step_examples=first_batch * examples_per_row,
        tokens=sum(len(row["input_ids"]) for row in rows),
        positions=positions,
        device=f"{device}, {torch.get_num_threads()} threads",
        predictions=predictions,
    )


def _num_rows_seen(num_rows: int, steps: int) -> int:
    epochs, remaining = divmod(steps, math.ceil(num_rows / BATCH_SIZE))
    return epochs * num_rows + min(remaining * BATCH_SIZE, num_rows)


def _fit(model: Any, rows: Rows, collate: Any, run: Run, epochs: int) -> tuple[Stopwatch, int]:
    """Trains; returns the times, and the number of positions (with padding) in all batches."""
    sampler = LengthGroupedSampler(
        BATCH_SIZE,
        lengths=[len(row["input_ids"]) for row in rows],
        generator=torch.Generator().manual_seed(run.seed),
    )
    loader = torch.utils.data.DataLoader(
        rows, batch_size=BATCH_SIZE, sampler=sampler, collate_fn=collate
    )
    total = epochs * len(loader)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, math.ceil(WARMUP_PROPORTION * total), total
    )
    steps = min(run.stop_after or total, total)
    model.train()
    stopwatch, positions = Stopwatch(), 0
    stopwatch.start()
    while stopwatch.steps < steps:
        for batch in loader:
            positions += batch["input_ids"].numel()
            with _autocast(model, run.precision):
                loss = model(**batch.to(model.device)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            last = stopwatch.steps + 1 == steps
            if model.device.type == "cuda" and (last or not stopwatch.steps):
                torch.cuda.synchronize()
            stopwatch.step()
            if last:
                break
    return stopwatch, positions


def _autocast(model: Any, precision: str) -> torch.autocast:
    return torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16")


@torch.no_grad()
def _outputs(model: Any, rows: Rows, collate: Any, precision: str) -> list[dict[str, np.ndarray]]:
    """Returns the logits of each row in float32."""
    model.eval()
    outputs = []
    for start in range(0, len(rows), EVALUATION_BATCH_SIZE):
        batch = collate(rows[start : start + EVALUATION_BATCH_SIZE]).to(model.device)
        with _autocast(model, precision):
            answer = model(**batch)
        columns = {
            key: value.float().cpu().numpy() for key, value in answer.items() if "logits" in key
        }
        outputs += [
            {key: column[row] for key, column in columns.items()}
            for row in range(len(batch["input_ids"]))
        ]
    return outputs


def _predict(model: Any, tokenizer: Any, collate: Any, items: list[Any], run: Run) -> list[Any]:
    comparison = COMPARISONS[run.task]
    if comparison.glue:
        rows = _text_rows(tokenizer, items, comparison.max_seq_length)
        outputs = _outputs(model, rows, collate, run.precision)
        return [int(output["logits"].argmax()) for output in outputs]
    encoded = _encode_windows(tokenizer, items, comparison.max_seq_length)
    outputs = _outputs(model, _model_rows(encoded), collate, run.precision)
    return _best_answers(encoded, outputs, items)


def _text_rows(tokenizer: Any, items: list[Any], max_seq_length: int) -> Rows:
    first, second, labels = text_columns(items)
    encoded = tokenizer(first, second, truncation=True, max_length=max_seq_length, padding=False)
    return [
        {**{key: column[row] for key, column in encoded.items()}, "labels": label}
        for row, label in enumerate(labels)
    ]


# === Questions ===


def _encode_windows(tokenizer: Any, items: list[QuestionExample], max_seq_length: int) -> Any:
    """Encodes questions with windows of their contexts.

    In transformers, ``stride`` is the overlap of two windows.
    """
    return tokenizer(
        [item.question.lstrip() for item in items],
        [item.context for item in items],
        truncation="only_second",
        max_length=max_seq_length,
        stride=DOC_STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=False,
    )


def _model_rows(encoded: Any) -> Rows:
    keys = ("input_ids", "token_type_ids", "attention_mask")
    return [{key: encoded[key][row] for key in keys} for row in range(len(encoded["input_ids"]))]


def _context_offsets(encoded: Any, row: int) -> tuple[int, np.ndarray]:
    """Returns the first context column of a window, and the offsets of its tokens, (tokens, 2)."""
    columns = [column for column, part in enumerate(encoded.sequence_ids(row)) if part == 1]
    return columns[0], np.array(encoded["offset_mapping"][row])[columns]


def _labeled_windows(tokenizer: Any, items: list[QuestionExample], max_seq_length: int) -> Rows:
    """Returns rows with the positions of the answer, or of [CLS] if it is cut off."""
    encoded = _encode_windows(tokenizer, items, max_seq_length)
    rows = _model_rows(encoded)
    for number, row in enumerate(rows):
        item = items[encoded["overflow_to_sample_mapping"][number]]
        answer = item.answers[0]
        begin = len(item.context.encode()[: answer.start].decode())
        end = begin + len(answer.text)
        first, offsets = _context_offsets(encoded, number)
        row["start_positions"] = row["end_positions"] = 0
        if offsets[0, 0] <= begin and offsets[-1, 1] >= end:
            row["start_positions"] = first + int(np.flatnonzero(offsets[:, 0] <= begin)[-1])
            row["end_positions"] = first + int(np.flatnonzero(offsets[:, 1] >= end)[0])
    return rows


def _best_answers(
    encoded: Any, outputs: list[dict[str, np.ndarray]], items: list[QuestionExample]
) -> list[str]:
    """Returns the span with the highest sum of logits in all windows of each question."""
    best = [(-math.inf, "")] * len(items)
    for row, output in enumerate(outputs):
        question = encoded["overflow_to_sample_mapping"][row]
        first, offsets = _context_offsets(encoded, row)
        starts = np.argsort(-output["start_logits"])[:N_BEST]
        ends = np.argsort(-output["end_logits"])[:N_BEST]
        for start in starts[(starts >= first) & (starts < first + len(offsets))]:
            for end in ends[(ends >= start) & (ends < first + len(offsets))]:
                score = float(output["start_logits"][start] + output["end_logits"][end])
                if end - start < MAX_ANSWER_LENGTH and score > best[question][0]:
                    text = items[question].context[
                        offsets[start - first, 0] : offsets[end - first, 1]
                    ]
                    best[question] = (score, text)
    return [text for _, text in best]
