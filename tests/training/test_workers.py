import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.cli import command
from bert_tf.training import distribution
from bert_tf.training.distribution import (
    Cluster,
    LostWorkerError,
    Workers,
    check_one_worker,
    find_cluster,
)


@pytest.mark.parametrize(
    ("jobs", "task", "expected"),
    [
        ({"worker": ["a:1", "b:2"]}, {"type": "worker", "index": 1}, (("a:1", "b:2"), 1)),
        (
            {"worker": ["b:2"], "chief": ["a:1"]},
            {"type": "worker", "index": 0},
            (("a:1", "b:2"), 1),
        ),
        ({"worker": ["b:2"], "chief": ["a:1"]}, {"type": "chief"}, (("a:1", "b:2"), 0)),
        ({"worker": ["a:1"]}, None, None),
        ({}, None, None),
    ],
)
def test_tf_config(monkeypatch, jobs, task, expected):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": task}))
    assert find_cluster() == expected
    # Flags come before it.
    assert find_cluster(["c:1", "d:1"], 0) == (("c:1", "d:1"), 0)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ([], "the environment variable TF_CONFIG: expected a JSON object"),
        ({"cluster": ["a:1"]}, "TF_CONFIG: expected a cluster such as"),
        ({"cluster": {"worker": {"0": "b:1"}}}, "got {'0': 'b:1'} for worker"),
        ({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}, "got the job 'ps': parameter servers"),
        ({"cluster": {"worker": ["a:1", "b:1"]}}, "cluster.s 2 tasks, .*, got None"),
        (
            {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}},
            "TF_CONFIG: expected one of the .* tasks, .* got {.*: 2,",
        ),
        (
            {"cluster": {"worker": ["a:1", "b"]}, "task": {"type": "worker"}},
            "expected HOST:PORT of every worker, each another, got 'b'",
        ),
        (
            {"cluster": {"worker": ["a:1", "a:1"]}, "task": {"type": "worker"}},
            "each another, got 'a:1'",
        ),
    ],
)
def test_a_wrong_tf_config(monkeypatch, config, sentence):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match=sentence):
        find_cluster()


@pytest.mark.parametrize(
    ("hosts", "task", "sentence"),
    [
        (["a:1", "b:1"], None, "--worker_hosts and --task_index go together"),
        ([], 1, "--worker_hosts and --task_index go together"),
        (["a:1", "b:1"], 2, "--worker_hosts and --task_index: expected one of the cluster's 2 ta"),
        (["a:1", "b"], 0, "expected HOST:PORT of every worker, each another, got 'b'"),
    ],
)
def test_wrong_flags(hosts, task, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_cluster(hosts, task)


def test_what_runs_on_one_machine_refuses_a_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}}')
    with pytest.raises(ValueError, match="TF_CONFIG names a cluster of 3 tasks"):
        check_one_worker()
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"]}}')
    check_one_worker()


def test_strategies_that_contradict_a_cluster():
    cluster = Cluster(("a:1", "b:1"), 0)
    with pytest.raises(
        ValueError, match="2 workers were named, .* and strategy 'mirrored', on whi"
    ):
        distribution.choose_strategy("mirrored", cluster=cluster)
    with pytest.raises(ValueError, match="2 workers were named, .* and a TPU"):
        distribution.choose_strategy(tpu="t", cluster=cluster)
    with pytest.raises(ValueError, match="'multi_worker' needs two workers or more"):
        distribution.choose_strategy("multi_worker")


def test_one_process_agrees_with_itself():
    alone = Workers()
    assert alone.gather([1.0, 2.0]).tolist() == [[1.0, 2.0]]
    alone.check_same(3, "step")
    alone.wait()


def test_workers_that_differ():
    mine = Workers(None, Cluster(("a:1", "b:1"), 0))
    mine.gather = lambda values: np.array([values, [4]], float)
    mine.check_same(4, "newest checkpoint")
    with pytest.raises(ValueError, match=r"workers differ in the newest checkpoint .\[3.0, 4.0\]"):
        mine.check_same(3, "newest checkpoint")


def test_a_lost_worker_is_told_in_the_sentence_that_a_command_ends_with():
    of_two = Workers(cluster=Cluster(("one:1", "two:2"), 0))
    with pytest.raises(
        LostWorkerError, match="^Another of the 2 workers ended or cannot be"
    ) as error:
        with of_two.connected():
            raise tf.errors.UnavailableError(None, None, "gone")
    # Which knows it without importing TensorFlow.
    assert command._is_user_error(error.value) and error.type.__name__ == "LostWorkerError"
