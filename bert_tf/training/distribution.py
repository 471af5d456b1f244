"""Which devices a command runs on, and in which precision."""

import functools
import os
import socket
import sys
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import keras
import tensorflow as tf

from bert_tf import choices

from .workers import Cluster, Workers, check_one_worker, connect, within

T = TypeVar("T")
STRATEGIES = (*choices.STRATEGIES, "multi_worker")
_REWRITE = "auto_mixed_precision_onednn_bfloat16"

# A missing TPU is told within 20 seconds: its name is looked up, and its address connected to.
_CONNECT_SECONDS = 5.0
_LOOK_UP_SECONDS = 10.0
# One that is there may take minutes to start, if it has several hosts.
_TPU_SECONDS = 600.0


class Distribution(NamedTuple):
    """The devices of a training: their strategy, type (CPU, GPU or TPU), and a line to print.

    ``workers`` are the processes that share them, and ``hosts`` the machines that read for them.
    """

    strategy: tf.distribute.Strategy
    device_type: str
    description: str
    workers: Workers = Workers()
    hosts: int = 1


def choose_strategy(
    strategy: str = "auto", *, tpu: str | None = None, cluster: Cluster | None = None
) -> Distribution:
    """Chooses the ``tf.distribute`` strategy, before any variable is built.

    ``auto`` takes the TPU if ``tpu`` names one, else the workers of ``cluster``, else every GPU,
    else the CPU. ``one_device`` takes the first GPU, or the CPU without one. ``mirrored`` takes
    every GPU; without GPUs it takes logical CPU devices, which make nothing faster but run the code
    of several devices. ``multi_worker`` takes every GPU of each worker, or its CPU.

    Args:
        strategy: one of `STRATEGIES`.
        tpu: a TPU's name on Google Cloud, ``local`` on a TPU VM, or ``grpc://host:port``.
        cluster: the workers, of which this process is one, from `workers.find_cluster`.

    Returns:
        The strategy, its type of device and a line that describes it.

    Raises:
        ValueError: the name is unknown, the options contradict each other, the workers cannot join,
            no TPU answers (told within 20 seconds), or it is not ready within ten minutes.

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
        return _tpu_distribution(tpu)
    gpus = tf.config.list_physical_devices("GPU")
    if cluster is not None:
        multi_worker = connect(cluster)
        return Distribution(
            multi_worker,
            device_type(),
            f"MultiWorkerMirroredStrategy of {len(cluster.addresses)} workers, "
            f"{multi_worker.num_replicas_in_sync} {'GPUs' if gpus else 'CPUs'} in all",
            Workers(multi_worker, cluster),
            len(cluster.addresses),
        )
    if strategy == "auto":
        strategy = "mirrored" if len(gpus) > 1 else "one_device"
    if strategy == "one_device":
        # The default strategy places operations on the first GPU by itself.
        return Distribution(
            tf.distribute.get_strategy(),
            device_type(),
            "one device: " + ("the first GPU" if gpus else f"the CPU ({os.cpu_count()} cores)"),
        )
    return _mirrored_distribution(len(gpus))


def device_type() -> str:
    """``"GPU"`` where there is one, else ``"CPU"``; a TPU has to be asked for by name."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def open_devices(strategy: str, precision: str) -> tf.distribute.Strategy:
    """Chooses the devices of what runs on one machine, and sets their arithmetic.

    Models are to be built in the scope of the strategy that is returned. Errors are those of
    ``choose_strategy`` and ``set_precision``, and where ``TF_CONFIG`` names several workers.
    """
    check_one_worker()
    devices = choose_strategy(strategy)
    set_precision(precision, devices.device_type)
    if strategy == "mirrored" or devices.strategy.num_replicas_in_sync > 1:
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
    """The process' only strategy of some devices, or of all GPUs.

    A second one would number its sums as the first did, and TensorFlow would take them for those.
    """
    return tf.distribute.MirroredStrategy(devices or None)


def _tpu_distribution(tpu: str) -> Distribution:
    if not tpu:
        raise ValueError("No TPU was named: give its name, 'local' or grpc://host:port.")
    address = tpu.removeprefix("grpc://")
    if ":" in address:
        _check_address(tpu, address)
        tpu = "grpc://" + address
    resolver, found = _in_time(tpu, lambda: _find_tpu(tpu), _LOOK_UP_SECONDS)
    if found and ":" not in address:
        _check_address(tpu, found.removeprefix("grpc://"))
    _in_time(tpu, lambda: _initialise_tpu(resolver), _TPU_SECONDS)
    strategy = tf.distribute.TPUStrategy(resolver)
    hosts = getattr(strategy.extended, "num_hosts", 1)
    cores = f"TPUStrategy on {strategy.num_replicas_in_sync} cores of TPU {tpu!r}"
    return Distribution(
        strategy, "TPU", cores + (f", of {hosts} hosts" if hosts > 1 else ""), hosts=hosts
    )


def _in_time(tpu: str, work: Callable[[], T], seconds: float) -> T:
    try:
        return within(work, seconds)
    except TimeoutError:
        raise _no_tpu(tpu, f"no answer in {seconds:.0f} seconds") from None
    except Exception as error:  # each failure has a type of its own: URLError, NotFoundError...
        raise _no_tpu(tpu, str(error)) from error


def _no_tpu(tpu: str, reason: str) -> ValueError:
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
        raise _no_tpu(tpu, str(error)) from error


def _find_tpu(tpu: str) -> tuple[tf.distribute.cluster_resolver.TPUClusterResolver, str]:
    """Looks the TPU up; also gives its first host's address, empty on its own VM."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
    return resolver, resolver.master()


def _initialise_tpu(resolver: tf.distribute.cluster_resolver.TPUClusterResolver) -> None:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)


def set_precision(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Sets the arithmetic of everything that is built and traced from now on.

    ``bfloat16`` keeps variables, gradients' sums, updates and losses in float32, and runs matrix
    products and most elementwise operations between them in bfloat16. How depends on the device:

    * On GPUs and TPUs, and where XLA compiles the gradients, it is Keras' ``mixed_bfloat16``
      policy.
    * On a CPU the model stays float32 and TensorFlow's graph optimiser rewrites the matrix
      products of every traced function for oneDNN, which measured 1.16 times the speed of the
      policy at base size. Eager code is not affected; a processor without AVX-512 keeps computing
      in float32.

    Both settings are global to the process, so call it once, before the model is built.

    Args:
        precision: one of `PRECISIONS`.
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``, as `Distribution` has it.
        jit_compile: whether XLA compiles the gradients: it does not see what is rewritten.

    Returns:
        The name of the Keras dtype policy that is now set.

    Raises:
        ValueError: the precision is unknown.

    >>> set_precision("float32", "CPU")
    'float32'
    """
    if precision not in choices.PRECISIONS:
        raise ValueError(
            f"Unknown precision {precision!r}: expected one of {', '.join(choices.PRECISIONS)}."
        )
    rewrite = precision == "bfloat16" and device_type == "CPU" and not jit_compile
    tf.config.optimizer.set_experimental_options({_REWRITE: rewrite})
    # TensorFlow takes any name, and heeds those that it knows.
    if tf.config.optimizer.get_experimental_options().get(_REWRITE) != rewrite:
        raise ImportError(
            f"TensorFlow {tf.__version__} has no graph rewrite {_REWRITE}: install the version "
            "that this library requires."
        )
    policy = "mixed_bfloat16" if precision == "bfloat16" and not rewrite else "float32"
    keras.config.set_dtype_policy(policy)
    return policy
