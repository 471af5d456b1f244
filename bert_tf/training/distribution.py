"""Devices of this process or of several workers.

Workers are processes on several machines, which run the same command with different indices. Worker
0, the *chief*, prepares the data and writes all files.
"""

import functools
import socket
import sys
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tensorflow as tf

from bert_tf import choices
from bert_tf.io.runtime import usable_cores

from .cluster import Cluster, check_one_worker
from .precision import set_precision
from .progress import print_progress
from .workers import Workers, connect, run_in_thread

STRATEGIES = (*choices.STRATEGIES, "multi_worker")


class Distribution(NamedTuple):
    """Devices of a training run."""

    strategy: tf.distribute.Strategy
    device_type: str  # CPU, GPU or TPU
    description: str
    workers: Workers = Workers()
    hosts: int = 1  # number of machines that read data


def choose_strategy(
    strategy: str = "auto",
    *,
    tpu: str | None = None,
    cluster: Cluster | None = None,
    wait_minutes: float = 10.0,
) -> Distribution:
    """Chooses the ``tf.distribute`` strategy. Call this function before creating variables.

    Args:
        strategy: ``auto`` uses ``tpu`` if given, else ``cluster`` if given, else all GPUs, else the
            CPU. ``one_device`` uses the first GPU, or the CPU if there is no GPU. ``mirrored`` uses
            all GPUs; without GPUs, it uses the logical CPU devices, for tests. ``multi_worker``
            uses all GPUs, or the CPU, of each worker of ``cluster``.
        tpu: Name of a TPU on Google Cloud, ``local`` on a TPU VM, or ``grpc://host:port``.
        cluster: Addresses of the workers.
        wait_minutes: Maximum number of minutes to wait for the other workers.

    Returns:
        The strategy and its devices.

    Raises:
        ValueError: If the arguments are invalid, the workers cannot connect, the TPU does not
            respond within 20 seconds, or it is not ready within ten minutes.
        TimeoutError: If a worker does not connect within ``wait_minutes``.

    >>> choose_strategy("one_device").strategy.num_replicas_in_sync
    1
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"Unknown strategy {strategy!r}: expected one of {', '.join(STRATEGIES)}.")
    if tpu is not None and strategy != "auto":
        raise ValueError(f"Strategy {strategy!r} with a TPU ({tpu!r}): expected 'auto'.")
    if cluster is not None and (tpu is not None or strategy not in ("auto", "multi_worker")):
        raise ValueError(
            f"{len(cluster.addresses)} workers (--worker_hosts, TF_CONFIG) cannot be combined with "
            f"{f'a TPU ({tpu!r})' if tpu else f'strategy {strategy!r}'}. Remove one of the two."
        )
    if strategy == "multi_worker" and cluster is None:
        raise ValueError(
            "Strategy 'multi_worker' requires at least two workers. Pass --worker_hosts and "
            "--task_index, or set TF_CONFIG."
        )
    if tpu is not None:
        opened, description, hosts = open_tpu(tpu)
        return Distribution(opened, "TPU", description, hosts=hosts)
    gpus = tf.config.list_physical_devices("GPU")
    own_device = device_type()
    if cluster is not None:
        print_progress(f"Waiting for {len(cluster.addresses)} workers.", flush=True)
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
        # The default strategy places operations on the first GPU.
        return Distribution(
            tf.distribute.get_strategy(),
            own_device,
            "one device: " + ("the first GPU" if gpus else f"the CPU ({usable_cores()} cores)"),
        )
    if gpus:
        return Distribution(_mirrored(), "GPU", f"MirroredStrategy on {len(gpus)} GPUs")
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    description = f"MirroredStrategy on {len(devices)} logical CPU devices"
    if len(devices) == 1:
        description = "MirroredStrategy on the CPU, because TensorFlow finds no GPU"
    return Distribution(_mirrored(*devices), "CPU", description)


def device_type() -> str:
    """Returns ``"GPU"`` if there is one, else ``"CPU"``; TPUs must be requested by name."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def open_devices(strategy: str, precision: str) -> tf.distribute.Strategy:
    """Returns the strategy for commands that run on one machine."""
    return open_distribution(strategy, precision).strategy


def open_distribution(strategy: str, precision: str, *, jit_compile: bool = False) -> Distribution:
    """Chooses the devices and sets the precision, for commands that run on one machine.

    ``jit_compile`` specifies whether ``--jit_compile=true`` was passed.
    """
    check_one_worker()
    devices = choose_strategy(strategy)
    set_precision(precision, devices.device_type, jit_compile)
    replicas = devices.strategy.num_replicas_in_sync
    if jit_compile and replicas > 1:
        raise ValueError(
            f"--jit_compile=true requires one device, but the strategy uses {replicas}. Remove "
            "--jit_compile=true, or pass --strategy=one_device."
        )
    if strategy == "mirrored" or replicas > 1:
        # Print to standard error, because standard output may contain predictions.
        print(f"Devices: {devices.description}.", file=sys.stderr, flush=True)
    return devices


@functools.cache
def _mirrored(*devices: str) -> tf.distribute.MirroredStrategy:
    """Returns a cached strategy, because a second one in the process would corrupt sums."""
    return tf.distribute.MirroredStrategy(devices or None)


# === TPUs ===

T = TypeVar("T")

# Time limits for connecting to the address and for looking up the name of a TPU.
_CONNECT_SECONDS = 5.0
_LOOK_UP_SECONDS = 10.0
# TPUs with several hosts may take minutes to start.
_TPU_SECONDS = 600.0


def open_tpu(tpu: str) -> tuple[tf.distribute.Strategy, str, int]:
    """Returns the strategy of a TPU, its description and the number of its hosts.

    Raises:
        ValueError: If the TPU does not respond within 20 seconds, or is not ready within ten
            minutes.
    """
    if not tpu:
        raise ValueError("--tpu is empty: expected a name, 'local' or grpc://host:port.")
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
    except Exception as error:  # URLError, NotFoundError and many others
        raise _tpu_error(tpu, str(error)) from error


def _tpu_error(tpu: str, reason: str) -> ValueError:
    reason = " ".join(reason.split()).rstrip(".")
    reason = reason if len(reason) <= 120 else reason[:120] + "..."
    return ValueError(
        f"No TPU was found at {tpu!r} ({reason}). Check the name, install tensorflow-tpu on a TPU "
        "VM, or remove --tpu."
    )


def _check_address(tpu: str, address: str) -> None:
    """Checks that the address can be reached; if not, TensorFlow would wait forever."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not host:
        raise ValueError(f"TPU address {tpu!r}: expected the format grpc://host:port.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _tpu_error(tpu, str(error)) from error


def _find_tpu(tpu: str) -> tuple[tf.distribute.cluster_resolver.TPUClusterResolver, str]:
    """Looks up the TPU; also returns the address of the TPU's first host, "" on a TPU VM."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
    return resolver, resolver.master()


def _initialize_tpu(resolver: tf.distribute.cluster_resolver.TPUClusterResolver) -> None:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
