"""The environment variable TF_CONFIG, as clusters' managers write it.

TensorFlow's own reader is ``tf.distribute.cluster_resolver.TFConfigClusterResolver``. It takes an
index that is a string, and leaves ``environment``, ``job`` and a task's ``trial`` alone, which
Vertex AI and Kubeflow write.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.told import tell
from bert_tf.untrusted import parse_json_object, quote

JOBS = ("chief", "worker")
_EXPECTED = 'TF_CONFIG: expected a cluster such as {"worker": ["HOST:PORT", "HOST:PORT"]}'


def read_tf_config() -> tuple[dict[str, Sequence[str]], Any]:
    """The addresses of each of ``JOBS``, and the type and number of the own task, as it is given.

    What TensorFlow would not read is told; a ``ValueError`` refuses what cannot be run.
    """
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
    if "master" in cluster and "chief" in cluster:
        raise ValueError(f"{_EXPECTED}, got both a chief and a master, which is its older name.")
    tell(_differences(config, cluster))
    jobs = {job: cluster[job] for job in JOBS if job in cluster}
    if "master" in cluster:
        jobs["chief"] = cluster["master"]
    return jobs, _own(task)


def _own(task: Any) -> Any:
    if not isinstance(task, dict):
        return task
    kind, index = task.get("type"), task.get("index", 0)
    if kind == "evaluator":
        raise ValueError(
            "TF_CONFIG: this task is the evaluator, and a run's chief evaluates: start none."
        )
    is_number = isinstance(index, str) and index.isdecimal()
    return {
        **task,
        "type": "chief" if kind == "master" else kind,
        "index": int(index) if is_number else index,
    }


def _differences(config: Mapping[str, Any], cluster: Mapping[str, Any]) -> Iterator[str]:
    if "master" in cluster:
        yield "TF_CONFIG: master is read as chief, which is TensorFlow's name for it."
    if cluster.get("evaluator"):
        yield "TF_CONFIG: the evaluator takes no part, and is not waited for: the chief evaluates."
    if (layer := config.get("rpc_layer") or "grpc") != "grpc":
        yield f"TF_CONFIG: rpc_layer={quote(layer)} has no effect: workers speak grpc."
