"""The paper's experiments, of ``experiments.toml``, which says what every key means."""

import pathlib
import tomllib
from typing import Any, NamedTuple

from bert_tf.finetuning.settings import PAPERS_F1

Column = tuple[str, str]  # a task, and the score as finetune names it
PERPLEXITY: Column = ("held-out text", "perplexity")  # of the pre-training itself


class Row(NamedTuple):
    """What a row changes, and the paper's figures, as far as it has any."""

    name: str
    paper: list[float | None]
    pretrain: str = ""
    finetune: str = ""
    at: float = 1.0
    blocks: float = 1.0
    equal_time: bool = False
    static_masks: bool = False


class Table(NamedTuple):
    """Columns, and the rows."""

    title: str
    columns: list[Column]
    rows: list[Row]
    note: str
    uses_checkpoint: bool = False
    one_file: bool = False


def _table(columns: list[list[str]], rows: list[dict[str, Any]], **values: Any) -> Table:
    layers = [row.get("finetune", "").removeprefix("--feature_based=") for row in rows]
    papers = [{"paper": [PAPERS_F1.get(each)]} for each in layers]
    found = [Row(**{**paper, **row}) for paper, row in zip(papers, rows, strict=True)]
    return Table(columns=[(task, score) for task, score in columns], rows=found, **values)


_VALUES = tomllib.loads((pathlib.Path(__file__).parent / "experiments.toml").read_text("utf-8"))
INTRODUCTION, CAVEAT = _VALUES["introduction"], _VALUES["caveat"]
TASKS: dict[str, list[dict[str, Any]]] = _VALUES["tasks"]  # each a list of sources
TABLES = {name: _table(**values) for name, values in _VALUES["tables"].items()}
