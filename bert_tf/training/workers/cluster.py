"""Which workers there are, and which of them this process is."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.io.untrusted import parse_json_object
from bert_tf.io.wording import quote, warn


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
                f"{source}: expected HOST:PORT of every worker, each another, got {quote(address)}."
            )
    return Cluster(addresses, tasks.index(own_task))


def check_one_worker() -> None:
    """Checks, for what runs on one machine, that ``TF_CONFIG`` does not name several tasks."""
    count = sum(map(len, read_tf_config()[0].values()))
    if count > 1:
        raise ValueError(
            f"TF_CONFIG names a cluster of {count} tasks, and each of them would do the whole work "
            "alone: several workers pre-train together, and all else runs on one machine. Start it "
            "with TF_CONFIG unset; it takes every GPU of that machine."
        )


# === TF_CONFIG, as TensorFlow, Vertex AI, AI Platform and Kubeflow write it ===

# Like ``tf.distribute.cluster_resolver.TFConfigClusterResolver`` this takes an index that is a
# string, and passes over ``environment``, ``job`` and a task's ``trial``.

JOBS = ("chief", "worker")
_EXPECTED = 'TF_CONFIG: expected a cluster such as {"worker": ["HOST:PORT", "HOST:PORT"]}'


def read_tf_config() -> tuple[dict[str, Sequence[str]], Any]:
    """The addresses of each of ``JOBS``, and the own task's type and index."""
    text = os.environ.get("TF_CONFIG")
    config = parse_json_object(text, "the environment variable TF_CONFIG") if text else {}
    cluster, task = config.get("cluster") or {}, config.get("task")
    if not isinstance(cluster, dict):
        raise ValueError(f"{_EXPECTED}, got {quote(cluster)}.")
    for job, addresses in cluster.items():
        if addresses and job not in (*JOBS, "master", "evaluator"):
            raise ValueError(
                f"{_EXPECTED}, of the jobs chief and worker, got the job {quote(job)}: parameter "
                "servers take no part in a run."
            )
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise ValueError(f"{_EXPECTED}, got {quote(addresses)} for {job}.")
    if "master" in cluster:
        warn(["TF_CONFIG: master is read as chief, which is TensorFlow's name for it."])
    if cluster.pop("evaluator", None):
        warn(
            ["TF_CONFIG: the evaluator takes no part, and is not waited for: the chief evaluates."]
        )
    if isinstance(task, dict):
        kind, index = task.get("type"), task.get("index", 0)
        if kind == "evaluator":
            raise ValueError(
                "TF_CONFIG: this task is the evaluator: the chief evaluates, start none."
            )
        is_text = isinstance(index, str) and index.isdecimal()
        task = {"type": _job(kind), "index": int(index) if is_text else index}
    return {_job(job): addresses for job, addresses in cluster.items()}, task


def _job(name: Any) -> Any:
    return "chief" if name == "master" else name  # AI Platform's name


# === What Slurm and Open MPI say, by environment variables, to the processes that they start ===

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


def uncoordinated_processes() -> Iterator[str]:
    """A sentence where this is one of several processes that know nothing of each other."""
    for name, flags in _TOGETHER.items():
        count = os.environ.get(name, "1")
        if count != "1":
            yield (
                f"{name}={count}: each of the {count} processes trains alone, and needs a "
                f"--model_dir of its own; {flags} lets them train one model together."
            )
