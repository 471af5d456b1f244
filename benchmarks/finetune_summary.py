"""Summary of ``benchmarks.finetune``: runs, means over the seeds, ratios and targets."""

import dataclasses
import itertools
import statistics
from typing import Any

from .finetune_tasks import (
    BATCH_SIZE,
    BFLOAT16,
    COMPARISONS,
    FLOAT32,
    LEARNING_RATE,
    OURS,
    PEER,
    Comparison,
    Run,
)

# The fields of a ``Run`` and of its ``Outcome`` (except the predictions), ``scores`` in percent,
# ``load_average`` at the start, and ``date``.
Record = dict[str, Any]


def speeds(record: Record) -> tuple[float, float]:
    """Returns the examples per second of a run, with and without the first step."""
    examples, seconds = record["examples"], record["seconds"]
    rest = seconds - record["first_step_seconds"]
    later = examples - record["first_step_examples"]
    return examples / seconds, later / rest if rest else 0.0


def format_record(record: Record) -> str:
    """Formats the results of a run on one line."""
    overall, later = speeds(record)
    scores = ", ".join(f"{name} {score:.2f}" for name, score in record["scores"].items())
    return (
        f"  {record['library']:12} {record['precision']:8} seed {record['seed']}: "
        f"{record['seconds']:7.1f} s for {record['steps']:4} steps, "
        f"{record['first_step_seconds']:4.1f} s for the first; "
        f"{overall:6.1f} examples/s, {later:6.1f} without the first; "
        f"{record['positions'] / record['examples']:5.1f} positions per example; "
        f"load {record['load_average'][0]:.1f}; {scores or 'not evaluated'}"
    )


def format_heading(comparison: Comparison, rows: int, dev_rows: int) -> str:
    """Formats the name of a comparison and its training settings."""
    cut = " (a subset: the targets do not apply)" if rows or dev_rows else ""
    count = rows or comparison.rows
    return (
        f"{comparison.title}, {f'the first {count:,} rows' if count else 'all rows'}{cut}; "
        f"epochs: {comparison.epochs}; batch size: {BATCH_SIZE}; "
        f"learning rate: {LEARNING_RATE:g}; at most {comparison.max_seq_length} tokens"
    )


def verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def summarize(records: list[Record]) -> list[str]:
    """Returns lines to print: runs by comparison, means over the seeds, ratios and targets."""
    newest: dict[tuple[Any, ...], Record] = {}
    for record in records:
        newest[tuple(record[field.name] for field in dataclasses.fields(Run))] = record
    groups: dict[tuple[str, int, int], list[Record]] = {}
    for record in newest.values():
        groups.setdefault((record["task"], record["rows"], record["dev_rows"]), []).append(record)
    lines = []
    for (task, rows, dev_rows), group in groups.items():
        comparison = COMPARISONS[task]
        lines.append(format_heading(comparison, rows, dev_rows))
        lines += [format_record(record) for record in group]
        lines += [f"  {text}" for text in compare_scores(comparison, group)]
        lines += [f"  {text}" for text in compare_speeds(comparison, group)]
    return lines


def compare_scores(comparison: Comparison, group: list[Record]) -> list[str]:
    """Compares the means of complete float32 runs, over the seeds that both libraries have."""
    scores: dict[str, dict[int, float]] = {OURS: {}, PEER: {}}
    for record in group:
        if record["scores"] and record["precision"] == FLOAT32:
            scores[record["library"]][record["seed"]] = record["scores"][comparison.metric]
    seeds = sorted(scores[OURS].keys() & scores[PEER].keys())
    if not seeds:
        return ["No seed was trained and evaluated in float32 by both libraries."]
    mine, theirs = (
        statistics.mean(scores[library][seed] for seed in seeds) for library in (OURS, PEER)
    )
    return [
        f"{comparison.metric}, mean of seeds {', '.join(map(str, seeds))}: {OURS} {mine:.2f}, "
        f"{PEER} {theirs:.2f}: {mine - theirs:+.2f} points (target: at most "
        f"{comparison.points:g} below) {verdict(mine - theirs >= -comparison.points)}"
    ]


def compare_speeds(comparison: Comparison, group: list[Record]) -> list[str]:
    """Compares the means of examples per second, and the ratios to the peer's float32."""
    means: dict[tuple[str, str], tuple[float, float]] = {}
    for library, precision in itertools.product((OURS, PEER), (FLOAT32, BFLOAT16)):
        pairs = [
            speeds(record)
            for record in group
            if (record["library"], record["precision"]) == (library, precision)
            # In float32, only complete runs count.
            and (precision == BFLOAT16 or not record["stop_after"])
        ]
        if pairs:
            overall, later = zip(*pairs, strict=True)
            means[library, precision] = statistics.mean(overall), statistics.mean(later)
    lines = []
    for precision in (FLOAT32, BFLOAT16):
        if (OURS, precision) not in means or (PEER, precision) not in means:
            continue
        (mine, mine_later), (theirs, theirs_later) = means[OURS, precision], means[PEER, precision]
        target = ""
        if comparison.speedup and precision == FLOAT32:
            is_met = mine / theirs >= comparison.speedup
            target = f" (target: {comparison.speedup:g}) {verdict(is_met)}"
        lines.append(
            f"examples/s, {precision}: {OURS} {mine:.1f}, {PEER} {theirs:.1f}: "
            f"{mine / theirs:.2f} times{target}; without the first step {mine_later:.1f} and "
            f"{theirs_later:.1f}: {mine_later / theirs_later:.2f} times"
        )
    if (OURS, BFLOAT16) in means and (PEER, FLOAT32) in means:
        ratio = means[OURS, BFLOAT16][1] / means[PEER, FLOAT32][1]
        lines.append(
            f"{OURS} bfloat16 to {PEER} float32, without the first step: {ratio:.2f} times"
        )
    return lines
