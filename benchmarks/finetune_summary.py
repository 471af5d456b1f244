"""What ``benchmarks.finetune`` prints: each run, means over the seeds, ratios, and the bars."""

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

# The fields of a ``Run``, those of its ``Outcome`` but the predictions, and ``scores`` in points,
# ``load_average`` when it began, ``date``.
Record = dict[str, Any]


def speeds(record: Record) -> tuple[float, float]:
    """Examples a second of a run: whole, and without the first step."""
    examples, seconds = record["examples"], record["seconds"]
    rest = seconds - record["first_step_seconds"]
    later = examples - record["first_step_examples"]
    return examples / seconds, later / rest if rest else 0.0


def line(record: Record) -> str:
    """A run's figures."""
    whole, later = speeds(record)
    scores = ", ".join(f"{name} {score:.2f}" for name, score in record["scores"].items())
    return (
        f"  {record['library']:12} {record['precision']:8} seed {record['seed']}: "
        f"{record['seconds']:7.1f} s for {record['steps']:4} steps, "
        f"{record['first_step_seconds']:4.1f} s for the first; "
        f"{whole:6.1f} examples/s, {later:6.1f} without the first; "
        f"{record['positions'] / record['examples']:5.1f} positions an example; "
        f"load {record['load_average'][0]:.1f}; {scores or 'not evaluated'}"
    )


def heading(comparison: Comparison, rows: int, dev_rows: int) -> str:
    """A comparison's name, and how it is trained."""
    cut = " (a cut: not what the bars are for)" if rows or dev_rows else ""
    count = rows or comparison.rows
    return (
        f"{comparison.title}, {f'the first {count:,} rows' if count else 'all rows'}{cut}; "
        f"epochs: {comparison.epochs}; batches of {BATCH_SIZE}; rate {LEARNING_RATE:g}; at most "
        f"{comparison.max_seq_length} tokens"
    )


def verdict(held: bool) -> str:
    return "held" if held else "MISSED"


def summarise(records: list[Record]) -> list[str]:
    """All runs by comparison, means over the seeds, ratios and bars, as lines to print."""
    newest: dict[tuple[Any, ...], Record] = {}
    for record in records:
        newest[tuple(record[field.name] for field in dataclasses.fields(Run))] = record
    groups: dict[tuple[str, int, int], list[Record]] = {}
    for record in newest.values():
        groups.setdefault((record["task"], record["rows"], record["dev_rows"]), []).append(record)
    lines = []
    for (task, rows, dev_rows), group in groups.items():
        comparison = COMPARISONS[task]
        lines.append(heading(comparison, rows, dev_rows))
        lines += [line(record) for record in group]
        lines += [f"  {text}" for text in compare_scores(comparison, group)]
        lines += [f"  {text}" for text in compare_speeds(comparison, group)]
    return lines


def compare_scores(comparison: Comparison, group: list[Record]) -> list[str]:
    """Means of the whole float32 trainings, over the seeds that both libraries have."""
    scores: dict[str, dict[int, float]] = {OURS: {}, PEER: {}}
    for record in group:
        if record["scores"] and record["precision"] == FLOAT32:
            scores[record["library"]][record["seed"]] = record["scores"][comparison.metric]
    seeds = sorted(scores[OURS].keys() & scores[PEER].keys())
    if not seeds:
        return ["No seed has been trained and evaluated in float32 by both."]
    mine, theirs = (
        statistics.mean(scores[library][seed] for seed in seeds) for library in (OURS, PEER)
    )
    return [
        f"{comparison.metric}, mean of seeds {', '.join(map(str, seeds))}: {OURS} {mine:.2f}, "
        f"{PEER} {theirs:.2f}: {mine - theirs:+.2f} points (wanted: no more than "
        f"{comparison.points:g} below) {verdict(mine - theirs >= -comparison.points)}"
    ]


def compare_speeds(comparison: Comparison, group: list[Record]) -> list[str]:
    """Means of examples a second, and ratios to the peer's float32."""
    means: dict[tuple[str, str], tuple[float, float]] = {}
    for library, precision in itertools.product((OURS, PEER), (FLOAT32, BFLOAT16)):
        pairs = [
            speeds(record)
            for record in group
            if (record["library"], record["precision"]) == (library, precision)
            # Of float32 only whole trainings count.
            and (precision == BFLOAT16 or not record["stop_after"])
        ]
        if pairs:
            whole, later = zip(*pairs, strict=True)
            means[library, precision] = statistics.mean(whole), statistics.mean(later)
    lines = []
    for precision in (FLOAT32, BFLOAT16):
        if (OURS, precision) not in means or (PEER, precision) not in means:
            continue
        (mine, mine_later), (theirs, theirs_later) = means[OURS, precision], means[PEER, precision]
        wanted = ""
        if comparison.speedup and precision == FLOAT32:
            held = mine / theirs >= comparison.speedup
            wanted = f" (wanted: {comparison.speedup:g}) {verdict(held)}"
        lines.append(
            f"examples/s, {precision}: {OURS} {mine:.1f}, {PEER} {theirs:.1f}: "
            f"{mine / theirs:.2f} times{wanted}; without the first step {mine_later:.1f} and "
            f"{theirs_later:.1f}: {mine_later / theirs_later:.2f} times"
        )
    if (OURS, BFLOAT16) in means and (PEER, FLOAT32) in means:
        ratio = means[OURS, BFLOAT16][1] / means[PEER, FLOAT32][1]
        lines.append(
            f"{OURS} bfloat16 to {PEER} float32, without the first step: {ratio:.2f} times"
        )
    return lines
