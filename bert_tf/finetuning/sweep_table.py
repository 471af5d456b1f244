"""The table of a sweep: a row for each configuration, the best first."""

from collections.abc import Mapping
from typing import Any

from bert_tf.evaluation.scores import score_text

# The settings that a sweep varies, and the columns of its table.
VARIED = ("train_batch_size", "learning_rate", "num_train_epochs")
_COLUMNS = ("batch", "rate", "epochs", "runs", "mean", "std", "best", "best seed", "collapsed")


def table_rows(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table of a sweep, its header first: a row for each configuration, the best first."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    headline = results["headline"]
    for entry in results["configurations"]:
        scores = {
            name: "-" if entry[name] is None else score_text(headline, entry[name], entry["means"])
            for name in ("mean", "std", "best")
        }
        seed = "-" if entry["best_seed"] is None else entry["best_seed"]
        size, rate, epochs = (entry[name] for name in VARIED)
        cells = (size, f"{rate:g}", epochs, entry["runs"], *scores.values(), seed)
        rows.append((*map(str, cells), str(entry["collapsed"])))
    if not any(entry.get("feature_based") for entry in results["configurations"]):
        return rows
    layers = ("layers", *(entry["feature_based"] for entry in results["configurations"]))
    return [(name, *row) for name, row in zip(layers, rows, strict=True)]


def sweep_table(results: Mapping[str, Any]) -> str:
    """The table for people, and the collapsed runs by name."""
    rows = table_rows(results)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{results['headline']} on {results['dev_set']}:"]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {'  '.join(cells)}")
    collapsed = [run for run in results["runs"] if run["collapsed"]]
    if collapsed:
        lines.append("Collapsed:")
        lines += [f"  {run['name']}: {run['collapsed']}" for run in collapsed]
    return "\n".join(lines)
