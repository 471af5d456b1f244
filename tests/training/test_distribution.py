"""The choice of devices, and what is said where they are not there."""

import re

import pytest
import tensorflow as tf

from bert_tf.training import distribution
from bert_tf.training.workers.cluster import Cluster

NO_TPU = (
    r"^No TPU was found at '{}' \({}.*\): check the name, and that tensorflow-tpu is installed on "
    r"a TPU VM, or leave the TPU out to run on the CPU or GPU\.$"
)
CLUSTER = Cluster(("a:1", "b:1"), 0)


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
    alone = "the CPU alone, as TensorFlow finds no GPU"
    where = f"{count} logical CPU devices" if count > 1 else alone
    assert chosen.description.startswith(f"MirroredStrategy on {where}")


def test_mirrored_without_a_gpu_is_told(capsys):
    distribution.open_devices("mirrored", "float32")
    assert "Devices: MirroredStrategy on " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("horovod", {}, "Unknown strategy 'horovod': expected one of auto, one_device, mirrored, "
         "multi_worker"),
        ("mirrored", {"tpu": "local"}, "A TPU .'local'. was given with strategy 'mirrored'"),
        ("auto", {"tpu": ""}, "No TPU was named: give its name, 'local' or grpc://host:port"),
        *(("auto", {"tpu": tpu}, f"The TPU's address '{tpu}' is not of the form grpc://host:port")
          for tpu in ("http://there", "grpc://:8470", "grpc://a:b")),
        *(("auto", {"tpu": tpu}, NO_TPU.format(tpu, reason)) for tpu, reason in (
            ("grpc://localhost:99999", ""), ("local", "TPUs not found in the cluster"))),
        ("mirrored", {"cluster": CLUSTER}, "2 workers were named, .* and strategy 'mirrored', on "
         "which each of them would train alone"),
        ("auto", {"cluster": CLUSTER, "tpu": "t"}, "2 workers were named, .* and a TPU"),
        ("multi_worker", {}, "'multi_worker' needs two workers or more"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(strategy, options, message):
    with pytest.raises(ValueError, match=message):
        distribution.choose_strategy(strategy, **options)
