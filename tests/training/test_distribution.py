"""The choice of devices, precision and workers, and what is said where they are not there."""

import contextlib
import json
import re
import socket
import time
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.cli import command
from bert_tf.told import DifferenceWarning
from bert_tf.training import distribution, launchers

NO_TPU = (
    r"^No TPU was found at '{}' \({}.*\): check the name, and that tensorflow-tpu is installed on "
    r"a TPU VM, or leave the TPU out to run on the CPU or GPU\.$"
)
CLUSTER = distribution.Cluster(("a:1", "b:1"), 0)


@pytest.fixture
def restore_precision():
    yield
    distribution.set_precision("float32", "CPU")


def test_without_a_gpu_auto_is_the_cpu():
    chosen = distribution.choose_strategy()
    assert chosen.device_type == "CPU"
    assert re.fullmatch(r"one device: the CPU \(\d+ cores\)", chosen.description)
    assert chosen.strategy.num_replicas_in_sync == 1


def test_mirrored_takes_every_logical_cpu():
    chosen = distribution.choose_strategy("mirrored")
    assert distribution.choose_strategy("mirrored").strategy is chosen.strategy
    count = len(tf.config.list_logical_devices("CPU"))
    assert chosen.strategy.num_replicas_in_sync == count
    where = f"{count} logical CPU devices" if count > 1 else "the CPU alone, as TensorFlow finds no"
    assert chosen.description.startswith(f"MirroredStrategy on {where}")


def test_mirrored_without_a_gpu_is_told(capsys):
    distribution.open_devices("mirrored", "float32")
    assert "Devices: MirroredStrategy on " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("horovod", {}, "Unknown strategy 'horovod': expected one of auto, one_device, mirrored"),
        ("mirrored", {"tpu": "local"}, "A TPU .'local'. was given with strategy 'mirrored'"),
        ("auto", {"tpu": ""}, "No TPU was named: give its name, 'local' or grpc://host:port"),
        *(("auto", {"tpu": tpu}, f"The TPU's address '{tpu}' is not of the form grpc://host:port")
          for tpu in ("http://there", "grpc://:8470", "grpc://a:b")),
        *(("auto", {"tpu": tpu}, NO_TPU.format(tpu, reason)) for tpu, reason in (
            ("grpc://localhost:99999", ""), ("local", "TPUs not found in the cluster"))),
        ("mirrored", {"cluster": CLUSTER}, "2 workers were named, .* and strategy 'mirrored', on"),
        ("auto", {"cluster": CLUSTER, "tpu": "t"}, "2 workers were named, .* and a TPU"),
        ("multi_worker", {}, "'multi_worker' needs two workers or more"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(strategy, options, message):
    with pytest.raises(ValueError, match=message):
        distribution.choose_strategy(strategy, **options)


@pytest.fixture
def server():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening, f"grpc://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("silent", ["_find_tpu", "_initialise_tpu"])
def test_what_is_not_answered_is_left_behind(monkeypatch, silent):
    monkeypatch.setattr(distribution, "_LOOK_UP_SECONDS", 0.05)
    monkeypatch.setattr(distribution, "_TPU_SECONDS", 0.05)
    monkeypatch.setattr(distribution, "_find_tpu", lambda tpu: (tpu, ""))
    monkeypatch.setattr(distribution, silent, lambda given: time.sleep(1))
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", "no answer in 0 seconds")):
        distribution.choose_strategy(tpu="my-tpu")


def test_a_slice_takes_its_time_and_a_missing_one_does_not(server, monkeypatch):
    """Its initialisation would take a minute."""
    listening, address = server
    limits = []

    def within(work, seconds):
        limits.append(seconds)
        if len(limits) % 2 == 0 and seconds < 60:
            raise TimeoutError
        return work()

    monkeypatch.setattr(distribution, "within", within)
    monkeypatch.setattr(distribution, "_find_tpu", lambda tpu: (tpu, address))
    monkeypatch.setattr(distribution, "_initialise_tpu", lambda resolver: 1 / 0)
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", "division by zero")):
        distribution.choose_strategy(tpu="my-tpu")
    assert limits == [10, 600]
    with pytest.raises(ValueError, match=NO_TPU.format(address, "division by zero")):
        distribution.choose_strategy(tpu=address.removeprefix("grpc://"))
    # Nothing listens there any more: that is told before the initialisation.
    listening.close()
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", r"\[Errno 111\] Connection")):
        distribution.choose_strategy(tpu="my-tpu")
    assert limits == [10, 600, 10, 600, 10]


@pytest.mark.parametrize(
    ("precision", "device", "policy", "rewrite"),
    [
        ("float32", "GPU", "float32", False),
        ("bfloat16", "GPU", "mixed_bfloat16", False),
        ("bfloat16", "TPU", "mixed_bfloat16", False),
        ("bfloat16", "CPU", "float32", True),
    ],
)
def test_precision_is_a_policy_or_a_graph_rewrite(
    precision, device, policy, rewrite, restore_precision
):
    assert distribution.set_precision(precision, device) == policy
    # XLA does not see what is rewritten.
    assert distribution.set_precision("bfloat16", device, jit_compile=True) == "mixed_bfloat16"
    assert distribution.set_precision(precision, device) == policy
    assert keras.config.dtype_policy().name == policy
    options = tf.config.optimizer.get_experimental_options()
    assert options["auto_mixed_precision_onednn_bfloat16"] is rewrite


def test_a_tensorflow_without_the_rewrite_is_told(restore_precision, monkeypatch):
    monkeypatch.setattr(distribution, "_REWRITE", "auto_mixed_precision_of_another_name")
    with pytest.raises(ImportError, match="no graph rewrite auto_mixed_precision_of_another_name"):
        distribution.set_precision("bfloat16", "CPU")


@pytest.mark.parametrize(("capability", "told"), [((7, 5), 1), ((8, 0), 0), (None, 0)])
def test_a_gpu_that_has_no_bfloat16_is_told(capability, told, restore_precision, monkeypatch):
    details = {"device_name": "Tesla T4", "compute_capability": capability}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [None])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: details)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        distribution.set_precision("float32", "GPU")
        distribution.set_precision("bfloat16", "GPU")
    sentences = [str(each.message) for each in found if each.category is DifferenceWarning]
    assert len(sentences) == told
    start = "--precision=bfloat16: Tesla T4 has compute capability 7.5, and bfloat16 takes 8.0"
    assert all(sentence.startswith(start) for sentence in sentences)


def test_an_unknown_precision_is_refused():
    message = r"Unknown precision 'float16': expected one of float32, bfloat16\."
    with pytest.raises(ValueError, match=message):
        distribution.set_precision("float16", "GPU")


CHIEF_AND_WORKER = {"worker": ["b:2"], "chief": ["a:1"]}


@pytest.mark.parametrize(
    ("jobs", "task", "expected"),
    [
        ({"worker": ["a:1", "b:2"]}, {"type": "worker", "index": 1}, (("a:1", "b:2"), 1)),
        (CHIEF_AND_WORKER, {"type": "worker", "index": 0}, (("a:1", "b:2"), 1)),
        (CHIEF_AND_WORKER, {"type": "chief"}, (("a:1", "b:2"), 0)),
        ({"worker": ["a:1"]}, None, None),
        ({}, None, None),
        # Vertex AI's and Kubeflow's index is a string; without other workers there is none to join.
        (CHIEF_AND_WORKER, {"type": "worker", "index": "0", "trial": "1"}, (("a:1", "b:2"), 1)),
        ({"chief": ["a:1"]}, {"type": "chief", "index": "0", "cloud": "x"}, None),
        ({**CHIEF_AND_WORKER, "ps": []}, {"type": "chief", "index": 0}, (("a:1", "b:2"), 0)),
    ],
)
def test_tf_config(monkeypatch, jobs, task, expected):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": task}))
    assert distribution.find_cluster() == expected
    # Flags come before it.
    assert distribution.find_cluster(["c:1", "d:1"], 0) == (("c:1", "d:1"), 0)


@pytest.mark.parametrize(
    ("jobs", "task", "expected", "sentence"),
    [
        (
            {"worker": ["b:2"], "master": ["a:1"]},
            {"type": "master", "index": 0},
            (("a:1", "b:2"), 0),
            "TF_CONFIG: master is read as chief, which is TensorFlow's name for it.",
        ),
        (
            {**CHIEF_AND_WORKER, "evaluator": ["e:1"]},
            {"type": "worker", "index": 0},
            (("a:1", "b:2"), 1),
            "TF_CONFIG: the evaluator takes no part, and is not waited for: the chief evaluates.",
        ),
        (
            {"chief": ["a:1"], "evaluator": ["e:1"]},
            {"type": "chief", "index": 0},
            None,
            "TF_CONFIG: the evaluator takes no part, and is not waited for: the chief evaluates.",
        ),
    ],
)
def test_what_tensorflow_reads_otherwise_is_told(monkeypatch, jobs, task, expected, sentence):
    config = {"cluster": jobs, "task": task, "environment": "cloud", "job": {"region": "x"}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.warns(DifferenceWarning) as told:
        assert distribution.find_cluster() == expected
    assert [str(each.message) for each in told] == [sentence]


def of_workers(workers, task):
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": task}}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ([], "the environment variable TF_CONFIG: expected a JSON object"),
        ({"cluster": ["a:1"]}, "TF_CONFIG: expected a cluster such as"),
        ({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}, "got the job 'ps': parameter servers"),
        ({"cluster": {"worker": ["a:1", "b:1"]}}, "cluster.s 2 tasks, .*, got None"),
        (of_workers({"0": "b:1"}, 0), "got {'0': 'b:1'} for worker"),
        (of_workers(["a:1", "b:1"], "one"), "expected one of the .* tasks, .* got {.*: 'one'"),
        ({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}},
         "TF_CONFIG: this task is the evaluator: the chief evaluates, start none."),
        (of_workers(["a:1", "b:1"], 2),
         "TF_CONFIG: expected one of the .* tasks, .* got {.*: 2,"),
        (of_workers(["a:1", "b"], 0), "expected HOST:PORT of every worker, each another, got 'b'"),
        (of_workers(["a:1", "a:1"], 0), "each another, got 'a:1'"),
    ],
)  # fmt: skip
def test_a_wrong_tf_config(monkeypatch, config, sentence):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match=sentence):
        distribution.find_cluster()


@pytest.mark.parametrize(
    ("hosts", "task", "sentence"),
    [
        (["a:1", "b:1"], None, "--worker_hosts and --task_index go together"),
        ([], 1, "--worker_hosts and --task_index go together"),
        (["a:1", "b:1"], 2, "--worker_hosts and --task_index: expected one of the cluster's 2 ta"),
    ],
)
def test_wrong_flags(hosts, task, sentence):
    with pytest.raises(ValueError, match=sentence):
        distribution.find_cluster(hosts, task)


def set_slurm(monkeypatch, nodes, tasks, rank="0"):
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)
    monkeypatch.setenv("SLURM_PROCID", rank)


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("n[1-2]", ["n1", "n2"]),
        ("n[9-11]", ["n9", "n10", "n11"]),  # not by their letters
        ("n[08-10,12],login,gpu-[7]", ["n08", "n09", "n10", "n12", "login", "gpu-7"]),
        ("a,b", ["a", "b"]),
        ("a", None),
    ],
)
def test_slurm_names_the_workers(monkeypatch, nodes, hosts):
    count = len(hosts or "1")
    set_slurm(monkeypatch, nodes, str(count), str(count - 1))
    for word, port in (("slurm", 2222), ("slurm:20001", 20001)):
        addresses = tuple(f"{host}:{port}" for host in hosts or ())
        expected = (addresses, len(hosts) - 1) if hosts else None
        assert distribution.find_cluster([word]) == expected


@pytest.mark.parametrize(
    ("environment", "task", "sentence"),
    [
        (None, None, "the environment has no SLURM_STEP_NODELIST, which srun sets"),
        (
            ("n[1-2]", "4"),
            None,
            r"srun started 4 tasks on 2 nodes \(n\[1-2\]\), and a worker takes",
        ),
        (("n[1-2]", "2"), 0, "--worker_hosts=slurm finds the --task_index, too: leave it out"),
        (("n[1-2]", "2", "2"), None, "expected one of the cluster's 2 tasks"),
    ],
)
def test_a_wrong_step_of_slurm(monkeypatch, environment, task, sentence):
    monkeypatch.delenv("SLURM_STEP_NODELIST", raising=False)
    if environment:
        set_slurm(monkeypatch, *environment)
    with pytest.raises(ValueError, match=sentence):
        distribution.find_cluster(["slurm"], task)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, None),
        ({"SLURM_STEP_NUM_TASKS": "1", "OMPI_COMM_WORLD_SIZE": "1"}, None),
        (
            {"SLURM_STEP_NUM_TASKS": "2"},
            "SLURM_STEP_NUM_TASKS=2: each of the 2 .*--worker_hosts=slurm",
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "4"},
            "OMPI_COMM_WORLD_SIZE=4: each of the 4 .*OMPI_COMM_WORLD_RANK",
        ),
    ],
)
def test_processes_that_know_nothing_of_each_other_are_told(monkeypatch, environment, sentence):
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    told = list(launchers.lone_tasks())
    assert len(told) == (sentence is not None) and all(re.match(sentence, each) for each in told)


def test_what_runs_on_one_machine_refuses_a_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}}')
    with pytest.raises(ValueError, match="TF_CONFIG names a cluster of 3 tasks"):
        distribution.check_one_worker()
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"]}}')
    distribution.check_one_worker()


def test_workers_that_differ():
    mine = distribution.Workers(None, CLUSTER)
    mine.gather = lambda values: np.array([values, [4]], float)
    mine.check_same(4, "newest checkpoint")
    with pytest.raises(ValueError, match=r"workers differ in the newest checkpoint .\[3.0, 4.0\]"):
        mine.check_same(3, "newest checkpoint")


def test_a_lost_worker_is_told_in_the_sentence_that_a_command_ends_with():
    of_two = distribution.Workers(cluster=CLUSTER)
    with pytest.raises(
        distribution.LostWorkerError, match="^Another of the 2 workers ended or cannot be"
    ) as error:
        with of_two.connected():
            raise tf.errors.UnavailableError(None, None, "gone")
    # Which knows it without importing TensorFlow.
    assert command._is_user_error(error.value) and error.type.__name__ == "LostWorkerError"
