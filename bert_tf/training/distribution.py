"""The devices that a command runs on, of this process or of several workers.

Workers are processes on several machines: each runs the same command with a number of its own.
Worker 0 is the *chief*: it prepares what the others read, and it alone writes.
"""

import functools
import sys
from typing import NamedTuple

import tensorflow as tf

from bert_tf import choices
from bert_tf.cores import usable_cores

from .precision import set_precision
from .progress import print_progress
from .tpu import open_tpu
from .workers.agreement import Workers
from .workers.cluster import Cluster, check_one_worker
from .workers.joining import connect

STRATEGIES = (*choices.STRATEGIES, "multi_worker")


class Distribution(NamedTuple):
    """The devices of a training."""

    strategy: tf.distribute.Strategy
    device_type: str  # CPU, GPU or TPU
    description: str
    workers: Workers = Workers()
    hosts: int = 1  # the machines that read for them


def choose_strategy(
    strategy: str = "auto",
    *,
    tpu: str | None = None,
    cluster: Cluster | None = None,
    wait_minutes: float = 10.0,
) -> Distribution:
    """Chooses the ``tf.distribute`` strategy, before any variable is built.

    ``auto`` takes the TPU if ``tpu`` names one (on Google Cloud, ``local`` on a TPU VM, or
    ``grpc://host:port``), else the workers of ``cluster``, else every GPU, else the CPU.
    ``one_device`` takes the first GPU, or the CPU without one. ``mirrored`` takes every GPU;
    without GPUs it takes logical CPU devices, which make nothing faster but run the code of several
    devices. ``multi_worker`` takes every GPU of each worker, or its CPU, and waits ``wait_minutes``
    for the others.

    Raises:
        ValueError: the name is unknown, the options contradict each other, the workers cannot join,
            no TPU answers (told within 20 seconds), or it is not ready within ten minutes.
        TimeoutError: a worker does not come.

    >>> choose_strategy("one_device").strategy.num_replicas_in_sync
    1
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"Unknown strategy {strategy!r}: expected one of {', '.join(STRATEGIES)}.")
    if tpu is not None and strategy != "auto":
        raise ValueError(f"A TPU ({tpu!r}) was given with strategy {strategy!r}: expected 'auto'.")
    if cluster is not None and (tpu is not None or strategy not in ("auto", "multi_worker")):
        raise ValueError(
            f"{len(cluster.addresses)} workers were named, by --worker_hosts or TF_CONFIG, and "
            f"{f'a TPU ({tpu!r})' if tpu else f'strategy {strategy!r}'}, on which each of them "
            "would train alone: name one of the two."
        )
    if strategy == "multi_worker" and cluster is None:
        raise ValueError(
            "Strategy 'multi_worker' needs two workers or more: name them by --worker_hosts and "
            "--task_index, or by TF_CONFIG."
        )
    if tpu is not None:
        opened, description, hosts = open_tpu(tpu)
        return Distribution(opened, "TPU", description, hosts=hosts)
    gpus = tf.config.list_physical_devices("GPU")
    own_device = "GPU" if gpus else "CPU"
    if cluster is not None:
        print_progress(f"Waiting for all {len(cluster.addresses)} workers.", flush=True)
        multi_worker, partners = connect(cluster, wait_minutes)
        return Distribution(
            multi_worker,
            own_device,
            f"MultiWorkerMirroredStrategy of {len(cluster.addresses)} workers, "
            f"{multi_worker.num_replicas_in_sync} {'GPUs' if gpus else 'CPUs'} in all",
            Workers(multi_worker, cluster, partners),
            len(cluster.addresses),
        )
    if strategy == "auto":
        strategy = "mirrored" if len(gpus) > 1 else "one_device"
    if strategy == "one_device":
        # The default strategy places operations on the first GPU by itself.
        return Distribution(
            tf.distribute.get_strategy(),
            own_device,
            "one device: " + ("the first GPU" if gpus else f"the CPU ({usable_cores()} cores)"),
        )
    return _mirrored_distribution(len(gpus))


def device_type() -> str:
    """``"GPU"`` where there is one, else ``"CPU"``; a TPU has to be asked for by name."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def open_devices(
    strategy: str, precision: str, *, jit_compile: bool = False
) -> tf.distribute.Strategy:
    """Chooses the devices of what runs on one machine, and sets their arithmetic.

    Models are to be built in the scope of the strategy that is returned. ``jit_compile``: XLA is to
    compile on a CPU, too.
    """
    check_one_worker()
    devices = choose_strategy(strategy)
    set_precision(precision, devices.device_type, jit_compile)
    replicas = devices.strategy.num_replicas_in_sync
    if jit_compile and replicas > 1:
        raise ValueError(
            f"--jit_compile=true is for one device, and {replicas} are to share each batch: leave "
            "it out, or add --strategy=one_device."
        )
    if strategy == "mirrored" or replicas > 1:
        # Predictions may be on standard output.
        print(f"Devices: {devices.description}.", file=sys.stderr, flush=True)
    return devices.strategy


def _mirrored_distribution(num_gpus: int) -> Distribution:
    if num_gpus:
        return Distribution(_mirrored(), "GPU", f"MirroredStrategy on {num_gpus} GPUs")
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    description = f"MirroredStrategy on {len(devices)} logical CPU devices"
    if len(devices) == 1:
        description = "MirroredStrategy on the CPU alone, as TensorFlow finds no GPU"
    return Distribution(_mirrored(*devices), "CPU", description)


@functools.cache
def _mirrored(*devices: str) -> tf.distribute.MirroredStrategy:
    """The process' only strategy of some devices, or of all GPUs: a second mixes up their sums."""
    return tf.distribute.MirroredStrategy(devices or None)
