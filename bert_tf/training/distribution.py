"""The devices that a command runs on, of this process or of several workers.

Workers are processes on several machines: each runs the same command with a number of its own.
Worker 0 is the *chief*: it prepares what the others read, and it alone writes.
"""

import functools
import socket
import sys
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tensorflow as tf

from bert_tf import choices
from bert_tf.io.runtime import usable_cores

from .precision import set_precision
from .progress import print_progress
from .workers.agreement import Workers
from .workers.cluster import Cluster, check_one_worker
from .workers.interruptible import run_in_thread
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
    own_device = device_type()
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


def open_devices(strategy: str, precision: str) -> tf.distribute.Strategy:
    """Chooses the devices of what runs on one machine: the strategy to build models in."""
    return open_distribution(strategy, precision).strategy


def open_distribution(strategy: str, precision: str, *, jit_compile: bool = False) -> Distribution:
    """Chooses the devices of what runs on one machine, and sets their arithmetic.

    ``jit_compile``: XLA is to compile on a CPU, too.
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
    return devices


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


# === Finds a TPU by its name, and says in time that there is none ===

T = TypeVar("T")

# A missing TPU is told within 20 seconds: its name is looked up, and its address connected to.
_CONNECT_SECONDS = 5.0
_LOOK_UP_SECONDS = 10.0
# One that is there may take minutes to start, if it has several hosts.
_TPU_SECONDS = 600.0


def open_tpu(tpu: str) -> tuple[tf.distribute.Strategy, str, int]:
    """The strategy of a TPU, its description, and the number of its hosts.

    Raises:
        ValueError: none answers, within 20 seconds; or it is not ready within ten minutes.
    """
    if not tpu:
        raise ValueError("No TPU was named: give its name, 'local' or grpc://host:port.")
    address = tpu.removeprefix("grpc://")
    if ":" in address:
        _check_address(tpu, address)
        tpu = "grpc://" + address
    resolver, master = _with_timeout(tpu, lambda: _find_tpu(tpu), _LOOK_UP_SECONDS)
    if master and ":" not in address:
        _check_address(tpu, master.removeprefix("grpc://"))
    _with_timeout(tpu, lambda: _initialize_tpu(resolver), _TPU_SECONDS)
    strategy = tf.distribute.TPUStrategy(resolver)
    hosts = getattr(strategy.extended, "num_hosts", 1)
    cores = f"TPUStrategy on {strategy.num_replicas_in_sync} cores of TPU {tpu!r}"
    return strategy, cores + (f", of {hosts} hosts" if hosts > 1 else ""), hosts


def _with_timeout(tpu: str, work: Callable[[], T], seconds: float) -> T:
    try:
        return run_in_thread(work, seconds)
    except TimeoutError:
        raise _tpu_error(tpu, f"no answer in {seconds:.0f} seconds") from None
    except Exception as error:  # each failure has a type of its own: URLError, NotFoundError...
        raise _tpu_error(tpu, str(error)) from error


def _tpu_error(tpu: str, reason: str) -> ValueError:
    reason = " ".join(reason.split()).rstrip(".")
    reason = reason if len(reason) <= 120 else reason[:120] + "..."
    return ValueError(
        f"No TPU was found at {tpu!r} ({reason}): check the name, and that tensorflow-tpu is "
        "installed on a TPU VM, or leave the TPU out to run on the CPU or GPU."
    )


def _check_address(tpu: str, address: str) -> None:
    """Tries the address first: TensorFlow's own attempt at a dead one does not end."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not host:
        raise ValueError(f"The TPU's address {tpu!r} is not of the form grpc://host:port.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _tpu_error(tpu, str(error)) from error


def _find_tpu(tpu: str) -> tuple[tf.distribute.cluster_resolver.TPUClusterResolver, str]:
    """Looks the TPU up; also gives its first host's address, empty on its own VM."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
    return resolver, resolver.master()


def _initialize_tpu(resolver: tf.distribute.cluster_resolver.TPUClusterResolver) -> None:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
