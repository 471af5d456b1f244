"""The choice of devices, and errors and warnings if they are unavailable."""

import re
import socket
import time

import pytest
import tensorflow as tf

from bert_tf.training import distribution
from bert_tf.training.cluster import Cluster

NO_TPU = (
    r"^No TPU was found at '{}' \({}.*\)\. Check the name, install tensorflow-tpu on a TPU VM, or "
    r"remove --tpu\.$"
)
CLUSTER = Cluster(("a:1", "b:1"), 0)


def test_auto_without_gpu_uses_cpu():
    chosen = distribution.choose_strategy()
    assert chosen.device_type == "CPU"
    assert re.fullmatch(r"one device: the CPU \(\d+ cores\)", chosen.description)
    assert chosen.strategy.num_replicas_in_sync == 1


def test_mirrored_uses_all_logical_cpus():
    chosen = distribution.choose_strategy("mirrored")
    assert distribution.choose_strategy("mirrored").strategy is chosen.strategy
    count = len(tf.config.list_logical_devices("CPU"))
    assert chosen.strategy.num_replicas_in_sync == count
    alone = "the CPU, because TensorFlow finds no GPU"
    where = f"{count} logical CPU devices" if count > 1 else alone
    assert chosen.description.startswith(f"MirroredStrategy on {where}")


def test_mirrored_without_gpu_is_reported(capsys):
    distribution.open_devices("mirrored", "float32")
    assert "Devices: MirroredStrategy on " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("horovod", {}, "Unknown strategy 'horovod': expected one of auto, one_device, mirrored, "
         "multi_worker"),
        ("mirrored", {"tpu": "local"}, "Strategy 'mirrored' with a TPU .'local'.: expected 'auto'"),
        ("auto", {"tpu": ""}, "--tpu is empty: expected a name, 'local' or grpc://host:port"),
        *(("auto", {"tpu": tpu}, f"TPU address '{tpu}': expected the format grpc://host:port")
          for tpu in ("http://there", "grpc://:8470", "grpc://a:b")),
        *(("auto", {"tpu": tpu}, NO_TPU.format(tpu, reason)) for tpu, reason in (
            ("grpc://localhost:99999", ""), ("local", "TPUs not found in the cluster"))),
        ("mirrored", {"cluster": CLUSTER}, "2 workers .* cannot be combined with strategy "
         "'mirrored'"),
        ("auto", {"cluster": CLUSTER, "tpu": "t"}, "2 workers .* cannot be combined with a TPU"),
        ("multi_worker", {}, "'multi_worker' requires at least two workers"),
    ],
)  # fmt: skip
def test_contradictory_options_raise_error(strategy, options, message):
    with pytest.raises(ValueError, match=message):
        distribution.choose_strategy(strategy, **options)


# === A TPU that is unavailable or slow to start ===


@pytest.mark.parametrize("silent", ["_find_tpu", "_initialize_tpu"])
def test_unresponsive_connection_is_abandoned(monkeypatch, silent):
    monkeypatch.setattr(distribution, "_LOOK_UP_SECONDS", 0.05)
    monkeypatch.setattr(distribution, "_TPU_SECONDS", 0.05)
    monkeypatch.setattr(distribution, "_find_tpu", lambda name: (name, ""))
    monkeypatch.setattr(distribution, silent, lambda given: time.sleep(1))
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", "no answer in 0 seconds")):
        distribution.choose_strategy(tpu="my-tpu")


def test_slow_slice_is_awaited_and_missing_slice_fails_fast(monkeypatch):
    """The initialization would take a minute."""
    listening, limits = socket.create_server(("127.0.0.1", 0)), []
    address = f"grpc://127.0.0.1:{listening.getsockname()[1]}"

    def run_in_thread(work, seconds):
        limits.append(seconds)
        if len(limits) % 2 == 0 and seconds < 60:
            raise TimeoutError
        return work()

    monkeypatch.setattr(distribution, "run_in_thread", run_in_thread)
    monkeypatch.setattr(distribution, "_find_tpu", lambda name: (name, address))
    monkeypatch.setattr(distribution, "_initialize_tpu", lambda resolver: 1 / 0)
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", "division by zero")):
        distribution.choose_strategy(tpu="my-tpu")
    assert limits == [10, 600]
    with pytest.raises(ValueError, match=NO_TPU.format(address, "division by zero")):
        distribution.choose_strategy(tpu=address.removeprefix("grpc://"))
    # Nothing listens there anymore, which is reported before the initialization.
    listening.close()
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", r"\[Errno 111\] Connection")):
        distribution.choose_strategy(tpu="my-tpu")
    assert limits == [10, 600, 10, 600, 10]
