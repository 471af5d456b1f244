"""The flags, and the paper's experiments of ``experiments.toml``, which says what a key means."""

import dataclasses
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_tf.cli.flag_fields import integer, nearest, parse_words, string, switch, words
from bert_tf.cli.flag_rules import Given, Values, required
from bert_tf.paths import HUB_SCHEME
from bert_tf.tasks.kinds import PAPERS_F1

Column = tuple[str, str]  # a task, and the score as finetune names it
PERPLEXITY: Column = ("held-out text", "perplexity")  # of the pre-training itself


class Row(NamedTuple):
    """What a row changes, and the paper's figures, as far as it has any."""

    name: str
    paper: list[float | None]
    pretrain: str = ""
    finetune: str = ""
    backward: str = ""
    at: float = 1.0
    blocks: float = 1.0
    width: float = 1.0
    heads: float = 1.0
    equal_time: bool = False
    static_masks: bool = False


class Table(NamedTuple):
    """Columns, and the rows."""

    title: str
    columns: list[Column]
    rows: list[Row]
    note: str
    caveat: str = ""
    uses_checkpoint: bool = False
    one_file: bool = False
    average: bool = False
    published: Mapping[str, list[float]] = MappingProxyType({})


def _table(columns: list[list[str]], rows: list[dict[str, Any]], **values: Any) -> Table:
    layers = [row.get("finetune", "").removeprefix("--feature_based=") for row in rows]
    papers = [{"paper": [PAPERS_F1.get(each)]} for each in layers]
    found = [Row(**{**paper, **row}) for paper, row in zip(papers, rows, strict=True)]
    return Table(columns=[(task, score) for task, score in columns], rows=found, **values)


_VALUES = tomllib.loads((pathlib.Path(__file__).parent / "experiments.toml").read_text("utf-8"))
INTRODUCTIONS, CAVEAT = _VALUES["introductions"], _VALUES["caveat"]
TASKS: dict[str, list[dict[str, Any]]] = _VALUES["tasks"]  # each a list of sources
TABLES = {name: _table(**values) for name, values in _VALUES["tables"].items()}
_NO_PLAN = {"table", "cells", "page", "checkpoint", "data_dir", "output_dir", "dry_run"}


def _of_one_run(name: str, values: Values, given: Given) -> str:
    """The seeds are counted by ``--seeds``."""
    has_seeds = "restarts" in parse_words(values[name], f"--{name}")
    return f"--{name} has --restarts: give --seeds, from 2 to 10, instead." if has_seeds else ""


def _are_tables(name: str, values: Values, given: Given) -> str:
    """The names are those of tables."""
    wrong = next((each for each in values[name] or () if each not in TABLES), "")
    return wrong and (
        f"--{name}={wrong} is unknown{nearest(wrong, TABLES)}: expected some of "
        f"{', '.join(TABLES)}."
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """The flags; the defaults plan the paper's own experiments."""

    table: Sequence[str] | None = words(
        None, f"One or more of {', '.join(TABLES)}; by default all.", rules=[_are_tables]
    )
    size: str = string("bert-base", "The preset that is pre-trained.")
    input: Sequence[str] | None = words(None, "The text to pre-train on, as pretrain takes it.")
    steps: int = integer(1_000_000, "Steps of each pre-training.", least=10)
    output_dir: str = string(
        "runs/reproduce",
        "Where the runs and their logs are kept.",
        rules=[required("name the directory of the runs")],
    )
    data_dir: str = string("data", "The tasks' files: glue/TASK/, squad/, swag/, ner/.")
    max_seq_length: int | None = integer(
        None,
        "Tokens of SQuAD's rows, by default 384, and of pre-training's without --phases: by "
        "default 128, and of bert-base and bert-large the paper's 128, then 512.",
        least=32,
    )
    train_batch_size: int = integer(256, "Rows of a step of pre-training.", least=1)
    vocab_size: int = integer(30522, "Pieces of the vocabulary, learned from --input.", least=100)
    seeds: int = integer(3, "Seeds of each fine-tuning.", least=2, most=10)
    max_examples: int | None = integer(
        None,
        "Examples that a fine-tuning sees, over its epochs; by default, and with "
        "--num_train_epochs among its flags, all.",
        least=32,
    )
    pretrain_flags: str = string("", "More flags for each pre-training, separated by spaces.")
    finetune_flags: str = string(
        "",
        "More flags for each fine-tuning; without them and --max_examples, bert-base and "
        "bert-large take batch, rate and epochs of the paper's grid that are best on dev.",
        rules=[_of_one_run],
    )
    feature_flags: str = string(
        "", "More flags for each run on frozen features.", rules=[_of_one_run]
    )
    checkpoint: str | None = string(None, "Weights for the tables features and stability.")
    cells: str | None = string(None, "Finished cells, read and added to: OUTPUT_DIR/cells.csv.")
    page: str | None = string(None, "The page to write: OUTPUT_DIR/reproduction.md.")
    dry_run: bool = switch(False, "List the runs, their hours and disk; write nothing.")

    @property
    def plan(self) -> dict[str, Any]:
        """What makes a plan another one: all but the tables and where files are."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in _NO_PLAN}

    @property
    def weights(self) -> str:
        """``--checkpoint`` as any machine knows it: the hub's name, or a path's last two parts."""
        path = (self.checkpoint or "").rstrip("/")
        return path if path.startswith(HUB_SCHEME) else "/".join(path.split("/")[-2:])

    @property
    def words(self) -> dict[str, str]:
        """The flags that make this page again: those that are not the defaults."""
        usual = {**vars(Settings(output_dir=self.output_dir)), "output_dir": Settings().output_dir}
        given = {name: value for name, value in vars(self).items() if value != usual[name]}
        return {k: str(v) if isinstance(v, str | int) else ",".join(v) for k, v in given.items()}

    def __post_init__(self) -> None:
        for field, name in (("cells", "cells.csv"), ("page", "reproduction.md")):
            if getattr(self, field) is None:
                object.__setattr__(self, field, f"{self.output_dir}/{name}")
