"""Workers that flags, TF_CONFIG and Slurm define."""

import json
import re

import pytest

from bert_tf.io.messages import DifferenceWarning
from bert_tf.training import cluster

CHIEF_AND_WORKER = {"worker": ["b:2"], "chief": ["a:1"]}
EVALUATOR = "TF_CONFIG: the evaluator is ignored, because the chief runs evaluations."


def worker(index, **more):
    return {"type": "worker", "index": index, **more}


@pytest.mark.parametrize(
    ("jobs", "task", "expected", "messages"),
    [
        ({"worker": ["a:1", "b:2"]}, worker(1), (("a:1", "b:2"), 1), []),
        (CHIEF_AND_WORKER, worker(0), (("a:1", "b:2"), 1), []),
        (CHIEF_AND_WORKER, {"type": "chief"}, (("a:1", "b:2"), 0), []),
        ({"worker": ["a:1"]}, None, None, []),
        ({}, None, None, []),
        # The index of Vertex AI and Kubeflow is a string; a single worker joins no cluster.
        (CHIEF_AND_WORKER, worker("0", trial="1"), (("a:1", "b:2"), 1), []),
        ({"chief": ["a:1"]}, {"type": "chief", "index": "0", "cloud": "x"}, None, []),
        ({**CHIEF_AND_WORKER, "ps": []}, {"type": "chief", "index": 0}, (("a:1", "b:2"), 0), []),
        # Variants that TensorFlow reads.
        ({"worker": ["b:2"], "master": ["a:1"]}, {"type": "master", "index": 0},
         (("a:1", "b:2"), 0), ["TF_CONFIG: master is treated as chief."]),
        ({**CHIEF_AND_WORKER, "evaluator": ["e:1"]}, worker(0), (("a:1", "b:2"), 1), [EVALUATOR]),
        ({"chief": ["a:1"], "evaluator": ["e:1"]}, {"type": "chief", "index": 0}, None,
         [EVALUATOR]),
    ],
)  # fmt: skip
def test_tf_config_defines_cluster(monkeypatch, recwarn, jobs, task, expected, messages):
    config = {"cluster": jobs, "task": task, "environment": "cloud", "job": {"region": "x"}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert cluster.find_cluster() == expected
    assert [(each.category, str(each.message)) for each in recwarn] == [
        (DifferenceWarning, message) for message in messages
    ]
    # Flags take precedence.
    assert cluster.find_cluster(["c:1", "d:1"], 0) == (("c:1", "d:1"), 0)


def tf_config(config):
    return {"TF_CONFIG": json.dumps(config)}


def worker_config(workers, task):
    return tf_config({"cluster": {"worker": workers}, "task": worker(task)})


def slurm(nodes, tasks, rank="0"):
    names = ("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    return dict(zip(names, (nodes, tasks, rank), strict=True))


def _set(monkeypatch, environment):
    for name in (*slurm("", ""), "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


WRONG_CONFIGS = [
    (tf_config([]), "the environment variable TF_CONFIG: expected a JSON object, got list"),
    (tf_config({"cluster": ["a:1"]}), r'TF_CONFIG: expected a cluster such as \{"worker": '
     r"""\["HOST:PORT", "HOST:PORT"\]\}, got \['a:1'\]"""),
    (tf_config({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}), "got the job 'ps'. Remove "
     "parameter servers, which are not supported"),
    (tf_config({"cluster": {"worker": ["a:1", "b:1"]}}), "cluster.s 2 tasks, .*, got None"),
    (worker_config({"0": "b:1"}, 0), "got {'0': 'b:1'} for worker"),
    (worker_config(["a:1", "b:1"], "one"), "expected one of the .* tasks, .* got {.*: 'one', "
     r"'type': 'worker'\}"),
    (tf_config({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}),
     "TF_CONFIG: evaluator tasks are not supported, because the chief runs evaluations. Do not "
     "start this task."),
    (worker_config(["a:1", "b:1"], 2),
     """TF_CONFIG: expected one of the cluster's 2 tasks, such as {"type": "worker", "index": """
     r"0}, got {'index': 2, 'type': 'worker'\}"),
    (worker_config(["a:1", "b"], 0), "expected distinct HOST:PORT addresses, got 'b'"),
    (worker_config(["a:1", "a:1"], 0), "expected distinct HOST:PORT addresses, got 'a:1'"),
]  # fmt: skip
TWO_WORKERS = "=2: expected 0 to 1, because --worker_hosts has 2 workers."


@pytest.mark.parametrize(
    ("environment", "hosts", "task", "message"),
    [
        *((environment, [], None, message) for environment, message in WRONG_CONFIGS),
        ({}, ["a:1", "b:1"], None, "--worker_hosts and --task_index require each other"),
        ({}, [], 1, "--worker_hosts and --task_index require each other"),
        ({}, ["a:1", "b:1"], 2, f"^--task_index{TWO_WORKERS}"),
        ({}, ["a:1"], 1, "^--task_index=1: expected 0, because --worker_hosts has 1 worker."),
        ({}, ["slurm"], None, "the environment variable SLURM_STEP_NODELIST is not set"),
        (slurm("n[1-2]", "4"), ["slurm"], None, "expected one task per node, got 4 tasks on 2 "
         r"nodes \(n\[1-2\]\)\. Pass --ntasks-per-node=1"),
        (slurm("n[1-2]", "2"), ["slurm"], 0, "--worker_hosts=slurm determines --task_index. Remove "
         "--task_index"),
        (slurm("n[1-2]", "2", "2"), ["slurm"], None, f"^SLURM_PROCID{TWO_WORKERS}"),
    ],
)  # fmt: skip
def test_invalid_cluster_raises_error(monkeypatch, environment, hosts, task, message):
    _set(monkeypatch, environment)
    with pytest.raises(ValueError, match=message):
        cluster.find_cluster(hosts, task)


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("n[1-2]", ["n1", "n2"]),
        ("n[9-11]", ["n9", "n10", "n11"]),  # not in alphabetical order
        ("n[08-10,12],login,gpu-[7]", ["n08", "n09", "n10", "n12", "login", "gpu-7"]),
        ("a,b", ["a", "b"]),
        ("a", None),
    ],
)
def test_slurm_defines_workers(monkeypatch, nodes, hosts):
    count = len(hosts or "1")
    _set(monkeypatch, slurm(nodes, str(count), str(count - 1)))
    for word, port in (("slurm", 2222), ("slurm:20001", 20001)):
        addresses = tuple(f"{host}:{port}" for host in hosts or ())
        expected = (addresses, len(hosts) - 1) if hosts else None
        assert cluster.find_cluster([word]) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, None),
        ({"SLURM_STEP_NUM_TASKS": "1", "OMPI_COMM_WORLD_SIZE": "1"}, None),
        (
            {"SLURM_STEP_NUM_TASKS": "2"},
            "SLURM_STEP_NUM_TASKS=2: each of the 2 .*To train one model, pass --worker_hosts=slurm",
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "4"},
            "OMPI_COMM_WORLD_SIZE=4: each of the 4 .*To train one model, pass "
            ".*OMPI_COMM_WORLD_RANK",
        ),
    ],
)
def test_uncoordinated_processes_cause_warning(monkeypatch, environment, message):
    _set(monkeypatch, environment)
    messages = list(cluster.uncoordinated_processes())
    assert len(messages) == (message is not None) and all(
        re.match(message, each) for each in messages
    )


def test_single_machine_command_rejects_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}}')
    with pytest.raises(
        ValueError,
        match="TF_CONFIG contains 3 tasks, but only pretrain supports several workers",
    ):
        cluster.check_one_worker()
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"]}}')
    cluster.check_one_worker()
