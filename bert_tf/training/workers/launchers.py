"""What Slurm and Open MPI say, by environment variables, to the processes that they start."""

import os
import re
from collections.abc import Iterator

# The number of processes that one command started, and how they train together.
_TOGETHER = {
    "SLURM_STEP_NUM_TASKS": "--worker_hosts=slurm",
    "OMPI_COMM_WORLD_SIZE": "--worker_hosts=HOST:PORT,HOST:PORT --task_index=$OMPI_COMM_WORLD_RANK",
}


def slurm_workers(port: str) -> tuple[list[str], int]:
    """The ``host:port`` of each task that srun started, in the order of ranks, and the own rank."""
    names = ("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    try:
        nodes, tasks, rank = (os.environ[name] for name in names)
    except KeyError as error:
        raise ValueError(
            f"--worker_hosts=slurm: the environment has no {error.args[0]}, which srun sets: start "
            "the command by srun, or name HOST:PORT of every worker, by commas."
        ) from error
    hosts = [*_host_names(nodes)]
    if len(hosts) != int(tasks):
        raise ValueError(
            f"--worker_hosts=slurm: srun started {tasks} tasks on {len(hosts)} nodes ({nodes}), "
            "and a worker takes all GPUs of its node: give srun, or sbatch, --ntasks-per-node=1."
        )
    return [f"{host}:{port}" for host in hosts], int(rank)


def _host_names(nodes: str) -> Iterator[str]:
    """The names behind Slurm's short form, such as ``m5,n[08-10,12]``."""
    # TensorFlow's SlurmClusterResolver sorts them as texts, n10 before n9, and ranks are not.
    for name in re.findall(r"(?:[^,[]|\[[^]]*\])+", nodes):
        prefix, _, ranges = name.removesuffix("]").partition("[")
        if not ranges:
            yield prefix
        for first, _, last in (numbers.partition("-") for numbers in ranges.split(",") if numbers):
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:0{len(first)}}"


def lone_tasks() -> Iterator[str]:
    """A sentence where this is one of several processes that know nothing of each other."""
    for name, flags in _TOGETHER.items():
        count = os.environ.get(name, "1")
        if count != "1":
            yield (
                f"{name}={count}: each of the {count} processes trains alone, and needs a "
                f"--model_dir of its own; {flags} lets them train one model together."
            )
