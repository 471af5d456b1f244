"""How a preparation is divided into units of work, and the file that each unit writes."""

import dataclasses
import math
import os

import numpy as np

from bert_tf.pipelines.sources import Corpus, save_part

from .near_duplicates import NUM_BANDS
from .settings import PreparationSettings

WORK = "work"
# A corpus is divided into this many groups at least, unless they would be smaller than a few MB.
_LEAST_GROUPS = 64
_LEAST_GROUP_BYTES = 4 << 20
# Bytes that a document has in each of its buckets.
_BUCKET_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Plan:
    """The units of each stage, and what all of them need to know.

    A *group* is consecutive blocks of the input; a *shard*, a file of the output; a *partition*,
    a share of the buckets in which near duplicates meet.
    """

    settings: PreparationSettings
    num_groups: int
    num_shards: int
    num_partitions: int

    def path(self, kind: str, number: int) -> str:
        """A unit's file of a kind, in the folder of what is needed until all is finished."""
        return os.path.join(self.settings.output, WORK, f"{kind}-{number:05d}")

    def output_path(self, kind: str, number: int, count: int) -> str:
        """A file of the output."""
        name = f"{kind}-{number:05d}-of-{count:05d}.txt"
        return os.path.join(self.settings.output, name)


def make_plan(settings: PreparationSettings, corpus: Corpus) -> Plan:
    """Divides a corpus, always the same way, and writes down where each group's blocks are."""
    lengths = corpus.bytes_per_block
    total = float(lengths.sum())
    shard_bytes = settings.shard_mb << 20
    group_bytes = min(shard_bytes, max(_LEAST_GROUP_BYTES, total / _LEAST_GROUPS))
    group = ((np.cumsum(lengths) - lengths) // group_bytes).astype(np.int64)
    borders = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), len(lengths)]
    plan = Plan(
        settings,
        num_groups=len(borders) - 1,
        num_shards=max(1, math.ceil(total / shard_bytes)),
        num_partitions=math.ceil(corpus.num_documents * NUM_BANDS * _BUCKET_BYTES / shard_bytes),
    )
    for number in range(plan.num_groups):
        save_part(corpus, borders[number], borders[number + 1], plan.path("blocks", number))
    return plan
