"""Addresses of the workers, and the index of this process."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.io.messages import quote, warn
from bert_tf.io.untrusted import parse_json_object


class Cluster(NamedTuple):
    """Addresses (``host:port``) of the workers, the chief first, and the index of this process."""

    addresses: tuple[str, ...]
    task: int


def find_cluster(worker_hosts: Sequence[str] = (), task_index: int | None = None) -> Cluster | None:
    """Returns the cluster that the flags or ``TF_CONFIG`` define; None for a single process.

    ``["slurm"]`` and ``["slurm:PORT"]`` refer to the tasks that srun started.

    >>> find_cluster(["a:2222", "b:2222"], 1)
    Cluster(addresses=('a:2222', 'b:2222'), task=1)
    """
    if slurm := re.fullmatch(r"slurm(?::(\d+))?", ",".join(worker_hosts)):
        if task_index is not None:
            raise ValueError("--worker_hosts=slurm determines --task_index. Remove --task_index.")
        worker_hosts, task_index = slurm_workers(slurm[1] or "2222")
    if bool(worker_hosts) != (task_index is not None):
        raise ValueError(
            "--worker_hosts and --task_index require each other. Pass the HOST:PORT of each "
            "worker, separated by commas, and the index of this process, starting at 0."
        )
    if task_index is not None and not 0 <= task_index < len(worker_hosts):
        count, last = len(worker_hosts), len(worker_hosts) - 1
        raise ValueError(
            f"{'SLURM_PROCID' if slurm else '--task_index'}={task_index}: expected "
            f"{f'0 to {last}' if last else 0}, because --worker_hosts has {count} "
            f"worker{'s' if last else ''}."
        )
    jobs: Mapping[str, Sequence[str]] = {"worker": worker_hosts}
    task: Any = {"type": "worker", "index": task_index}
    source = "--worker_hosts and --task_index"
    if not worker_hosts:
        (jobs, task), source = read_tf_config(), "TF_CONFIG"
    tasks = [(job, number) for job in JOBS for number in range(len(jobs.get(job, ())))]
    if len(tasks) < 2:
        return None
    own_task = (task.get("type"), task.get("index", 0)) if isinstance(task, dict) else None
    if own_task not in tasks:
        raise ValueError(
            f"{source}: expected one of the cluster's {len(tasks)} tasks, such as "
            f'{{"type": "worker", "index": 0}}, got {quote(task)}.'
        )
    addresses = tuple(jobs[job][number] for job, number in tasks)
    for address in addresses:
        if not re.fullmatch(r".+:\d{1,5}", address) or addresses.count(address) > 1:
            raise ValueError(
                f"{source}: expected distinct HOST:PORT addresses, got {quote(address)}."
            )
    return Cluster(addresses, tasks.index(own_task))


def check_one_worker() -> None:
    """Checks that ``TF_CONFIG`` contains at most one task, as most commands require."""
    count = sum(map(len, read_tf_config()[0].values()))
    if count > 1:
        raise ValueError(
            f"TF_CONFIG contains {count} tasks, but only pretrain supports several workers. Unset "
            "TF_CONFIG; the command then uses all GPUs of this machine."
        )


# === TF_CONFIG, as TensorFlow, Vertex AI, AI Platform and Kubeflow write it ===

# Like ``tf.distribute.cluster_resolver.TFConfigClusterResolver``, this code accepts a string as
# ``index``, and ignores the keys ``environment`` and ``job``, and ``trial`` in ``task``.

JOBS = ("chief", "worker")
_EXPECTED = 'TF_CONFIG: expected a cluster such as {"worker": ["HOST:PORT", "HOST:PORT"]}'


def read_tf_config() -> tuple[dict[str, Sequence[str]], Any]:
    """Returns the addresses by job, and the type and index of this task."""
    text = os.environ.get("TF_CONFIG")
    config = parse_json_object(text, "the environment variable TF_CONFIG") if text else {}
    cluster, task = config.get("cluster") or {}, config.get("task")
    if not isinstance(cluster, dict):
        raise ValueError(f"{_EXPECTED}, got {quote(cluster)}.")
    for job, addresses in cluster.items():
        if addresses and job not in (*JOBS, "master", "evaluator"):
            raise ValueError(
                f"{_EXPECTED} with the jobs chief and worker, got the job {quote(job)}. Remove "
                "parameter servers, which are not supported."
            )
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise ValueError(f"{_EXPECTED}, got {quote(addresses)} for {job}.")
    if "master" in cluster:
        warn(["TF_CONFIG: master is treated as chief."])
    if cluster.pop("evaluator", None):
        warn(["TF_CONFIG: the evaluator is ignored, because the chief runs evaluations."])
    if isinstance(task, dict):
        kind, index = task.get("type"), task.get("index", 0)
        if kind == "evaluator":
            raise ValueError(
                "TF_CONFIG: evaluator tasks are not supported, because the chief runs evaluations. "
                "Do not start this task."
            )
        is_text = isinstance(index, str) and index.isdecimal()
        task = {"type": _job(kind), "index": int(index) if is_text else index}
    return {_job(job): addresses for job, addresses in cluster.items()}, task


def _job(name: Any) -> Any:
    return "chief" if name == "master" else name  # AI Platform's name


# === Environment variables of Slurm and Open MPI ===

# Variables that contain the number of processes, and the flags for training one model with all.
_TOGETHER = {
    "SLURM_STEP_NUM_TASKS": "--worker_hosts=slurm",
    "OMPI_COMM_WORLD_SIZE": "--worker_hosts=HOST:PORT,HOST:PORT --task_index=$OMPI_COMM_WORLD_RANK",
}


def slurm_workers(port: str) -> tuple[list[str], int]:
    """Returns the addresses of srun's tasks in rank order, and the rank of this process."""
    names = ("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    try:
        nodes, tasks, rank = (os.environ[name] for name in names)
    except KeyError as error:
        raise ValueError(
            f"--worker_hosts=slurm: the environment variable {error.args[0]} is not set. Start the "
            "command with srun, or pass --worker_hosts=HOST:PORT,HOST:PORT."
        ) from error
    hosts = [*_host_names(nodes)]
    if len(hosts) != int(tasks):
        raise ValueError(
            f"--worker_hosts=slurm: expected one task per node, got {tasks} tasks on {len(hosts)} "
            f"nodes ({nodes}). Pass --ntasks-per-node=1 to srun or sbatch."
        )
    return [f"{host}:{port}" for host in hosts], int(rank)


def _host_names(nodes: str) -> Iterator[str]:
    """Expands Slurm's short form of host names, such as ``m5,n[08-10,12]``."""
    # TensorFlow's SlurmClusterResolver would sort n10 before n9, which is not the order of ranks.
    for name in re.findall(r"(?:[^,[]|\[[^]]*\])+", nodes):
        prefix, _, ranges = name.removesuffix("]").partition("[")
        if not ranges:
            yield prefix
        for first, _, last in (numbers.partition("-") for numbers in ranges.split(",") if numbers):
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:0{len(first)}}"


def uncoordinated_processes() -> Iterator[str]:
    """Yields a warning if this process is one of several that each train their own model."""
    for name, flags in _TOGETHER.items():
        count = os.environ.get(name, "1")
        if count != "1":
            yield (
                f"{name}={count}: each of the {count} processes trains its own model and requires "
                f"its own --model_dir. To train one model, pass {flags}."
            )
