"""The environment variable TF_CONFIG, as TensorFlow, Vertex AI, AI Platform and Kubeflow write it.

Like ``tf.distribute.cluster_resolver.TFConfigClusterResolver`` this takes an index that is a
string, and passes over ``environment``, ``job`` and a task's ``trial``.
"""

import os
from collections.abc import Sequence
from typing import Any

from bert_tf.differences import tell
from bert_tf.untrusted import parse_json_object
from bert_tf.wording import quote

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
        tell(["TF_CONFIG: master is read as chief, which is TensorFlow's name for it."])
    if cluster.pop("evaluator", None):
        tell(
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
