"""The flags of ``python -m bert_tf.reproduce``."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_tf.flag_fields import integer, nearest, string, switch, words

from .tables import TABLES

_NO_PLAN = {"table", "cells", "page", "checkpoint", "data_dir", "output_dir", "dry_run"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The flags; the defaults are the paper's."""

    table: Sequence[str] | None = words(None, f"Of {', '.join(TABLES)}, some; by default all.")
    size: str = string("bert-base", "The preset that is pre-trained.")
    input: Sequence[str] | None = words(None, "The text to pre-train on, as pretrain takes it.")
    steps: int = integer(1_000_000, "Steps of each pre-training.", least=10)
    output_dir: str = string("runs/reproduce", "Where the runs and their logs are kept.")
    data_dir: str = string("data", "The tasks' files: glue/TASK/, squad/, swag/, ner/.")
    max_seq_length: int = integer(
        128, "Tokens of SQuAD's rows, and of pre-training's without --phases.", least=32
    )
    train_batch_size: int = integer(256, "Rows of a step of pre-training.", least=1)
    vocab_size: int = integer(30522, "Pieces of the vocabulary, learned from --input.", least=100)
    seeds: int = integer(3, "Seeds of each fine-tuning.", least=2, most=10)
    max_examples: int | None = integer(
        None, "Examples that a fine-tuning sees, over its epochs; by default all.", least=32
    )
    pretrain_flags: str = string("", "More flags for each pre-training, separated by spaces.")
    finetune_flags: str = string("", "More flags for each fine-tuning.")
    feature_flags: str = string("", "The same for the table features.")
    checkpoint: str | None = string(None, "Weights for the table features.")
    cells: str | None = string(None, "Finished cells, read and added to: OUTPUT_DIR/cells.csv.")
    page: str | None = string(None, "The page to write: OUTPUT_DIR/reproduction.md.")
    dry_run: bool = switch(False, "List the runs, their hours and disk; write nothing.")

    @property
    def plan(self) -> dict[str, Any]:
        """What makes a plan another one: all but the tables and where files are."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in _NO_PLAN}

    def __post_init__(self) -> None:
        for field, name in (("cells", "cells.csv"), ("page", "reproduction.md")):
            if getattr(self, field) is None:
                object.__setattr__(self, field, f"{self.output_dir}/{name}")
        for table in self.table or ():
            if table not in TABLES:
                raise ValueError(
                    f"--table={table} is unknown{nearest(table, TABLES)}: expected some of "
                    f"{', '.join(TABLES)}."
                )
