"""Finds a TPU by its name, and says in time that there is none."""

import socket
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from .workers.interruptible import within

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
    resolver, master = _in_time(tpu, lambda: _find_tpu(tpu), _LOOK_UP_SECONDS)
    if master and ":" not in address:
        _check_address(tpu, master.removeprefix("grpc://"))
    _in_time(tpu, lambda: _initialise_tpu(resolver), _TPU_SECONDS)
    strategy = tf.distribute.TPUStrategy(resolver)
    hosts = getattr(strategy.extended, "num_hosts", 1)
    cores = f"TPUStrategy on {strategy.num_replicas_in_sync} cores of TPU {tpu!r}"
    return strategy, cores + (f", of {hosts} hosts" if hosts > 1 else ""), hosts


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
