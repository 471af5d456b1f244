"""Which workers there are, and which of them this process is."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.wording import quote

from .launchers import slurm_workers
from .tf_config import JOBS, read_tf_config


class Cluster(NamedTuple):
    """The ``host:port`` of every worker, the chief's first, and which of them this process is."""

    addresses: tuple[str, ...]
    task: int


def find_cluster(worker_hosts: Sequence[str] = (), task_index: int | None = None) -> Cluster | None:
    """The cluster that flags or else ``TF_CONFIG`` name; None for one process.

    ``["slurm"]`` and ``["slurm:PORT"]`` stand for the tasks that srun started.

    >>> find_cluster(["a:2222", "b:2222"], 1)
    Cluster(addresses=('a:2222', 'b:2222'), task=1)
    """
    if slurm := re.fullmatch(r"slurm(?::(\d+))?", ",".join(worker_hosts)):
        if task_index is not None:
            raise ValueError("--worker_hosts=slurm finds the --task_index, too: leave it out.")
        worker_hosts, task_index = slurm_workers(slurm[1] or "2222")
    if bool(worker_hosts) != (task_index is not None):
        raise ValueError(
            "--worker_hosts and --task_index go together: HOST:PORT of every worker, by commas, "
            "and which of these this process is, from 0."
        )
    jobs: Mapping[str, Sequence[str]] = {"worker": worker_hosts}
    task: Any = {"type": "worker", "index": task_index}
    source = "--worker_hosts and --task_index"
    if not worker_hosts:
        (jobs, task), source = read_tf_config(), "TF_CONFIG"
    places = [(job, number) for job in JOBS for number in range(len(jobs.get(job, ())))]
    if len(places) < 2:
        return None
    own = (task.get("type"), task.get("index", 0)) if isinstance(task, dict) else None
    if own not in places:
        raise ValueError(
            f"{source}: expected one of the cluster's {len(places)} tasks, such as "
            f'{{"type": "worker", "index": 0}}, got {quote(task)}.'
        )
    addresses = tuple(jobs[job][number] for job, number in places)
    for address in addresses:
        if not re.fullmatch(r".+:\d{1,5}", address) or addresses.count(address) > 1:
            raise ValueError(
                f"{source}: expected HOST:PORT of every worker, each another, got {quote(address)}."
            )
    return Cluster(addresses, places.index(own))


def check_one_worker() -> None:
    """Checks, for what runs on one machine, that ``TF_CONFIG`` does not name several tasks."""
    count = sum(map(len, read_tf_config()[0].values()))
    if count > 1:
        raise ValueError(
            f"TF_CONFIG names a cluster of {count} tasks, and each of them would do the whole work "
            "alone: several workers pre-train together, and all else runs on one machine. Start it "
            "with TF_CONFIG unset; it takes every GPU of that machine."
        )
