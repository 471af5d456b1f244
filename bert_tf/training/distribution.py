"""The devices that a command runs on, their precision, and the workers that share a training.

Workers are processes on several machines: each runs the same command with a number of its own.
Worker 0 is the *chief*: it prepares what the others read, and it alone writes. What they agree on
is summed by the strategy's own all-reduce.
"""

import contextlib
import functools
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf

from bert_tf import choices
from bert_tf.cores import usable_cores
from bert_tf.told import tell
from bert_tf.untrusted import quote, reason

from .launchers import slurm_workers
from .partners import present
from .tf_config import JOBS, read_tf_config

T = TypeVar("T")
STRATEGIES = (*choices.STRATEGIES, "multi_worker")
_REWRITE = "auto_mixed_precision_onednn_bfloat16"
_NOT_REWRITTEN = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE"

# A missing TPU is told within 20 seconds: its name is looked up, and its address connected to.
_CONNECT_SECONDS = 5.0
_LOOK_UP_SECONDS = 10.0
# One that is there may take minutes to start, if it has several hosts.
_TPU_SECONDS = 600.0

# TensorFlow's errors where another worker ended, or does not answer.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    # Where a collective operation breaks off, among others.
    tf.errors.InternalError,
)


# === Workers ===


class LostWorkerError(ConnectionError):
    """Another worker ended; ``command`` ends the process at once."""


class Cluster(NamedTuple):
    """The ``host:port`` of every worker, the chief's first, and which of them this process is."""

    addresses: tuple[str, ...]
    task: int


def find_cluster(worker_hosts: Sequence[str] = (), task_index: int | None = None) -> Cluster | None:
    """The cluster that flags or else ``TF_CONFIG`` name; None for one process.

    ``["slurm"]`` and ``["slurm:PORT"]`` stand for the tasks that srun started.

    >>> find_cluster(["a:2222", "b:2222"], 1)
    Cluster(addresses=('a:2222', 'b:2222'), task=1)
    """
    if slurm := re.fullmatch(r"slurm(?::(\d+))?", ",".join(worker_hosts)):
        if task_index is not None:
            raise ValueError("--worker_hosts=slurm finds the --task_index, too: leave it out.")
        worker_hosts, task_index = slurm_workers(slurm[1] or "2222")
    if bool(worker_hosts) != (task_index is not None):
        raise ValueError(
            "--worker_hosts and --task_index go together: HOST:PORT of every worker, by commas, "
            "and which of these this process is, from 0."
        )
    jobs: Mapping[str, Sequence[str]] = {"worker": worker_hosts}
    task: Any = {"type": "worker", "index": task_index}
    source = "--worker_hosts and --task_index"
    if not worker_hosts:
        (jobs, task), source = read_tf_config(), "TF_CONFIG"
    places = [(job, number) for job in JOBS for number in range(len(jobs.get(job, ())))]
    if len(places) < 2:
        return None
    own = (task.get("type"), task.get("index", 0)) if isinstance(task, dict) else None
    if own not in places:
        raise ValueError(
            f"{source}: expected one of the cluster's {len(places)} tasks, such as "
            f'{{"type": "worker", "index": 0}}, got {quote(task)}.'
        )
    addresses = tuple(jobs[job][number] for job, number in places)
    for address in addresses:
        if not re.fullmatch(r".+:\d{1,5}", address) or addresses.count(address) > 1:
            raise ValueError(
                f"{source}: expected HOST:PORT of every worker, each another, got {quote(address)}."
            )
    return Cluster(addresses, places.index(own))


def check_one_worker() -> None:
    """Checks, for what runs on one machine, that ``TF_CONFIG`` does not name several tasks."""
    count = sum(map(len, read_tf_config()[0].values()))
    if count > 1:
        raise ValueError(
            f"TF_CONFIG names a cluster of {count} tasks, and each of them would do the whole work "
            "alone: several workers pre-train together, and all else runs on one machine. Start it "
            "with TF_CONFIG unset; it takes every GPU of that machine."
        )


def connect(cluster: Cluster, wait_minutes: float) -> tf.distribute.Strategy:
    """Joins the cluster, when all of its workers have come, for which it waits so long."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.task,
        rpc_layer="grpc",
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )
    print(f"Waiting for all {len(cluster.addresses)} workers.", flush=True)
    with present(cluster.addresses, cluster.task, wait_minutes):
        return _join(resolver)


def _join(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> tf.distribute.Strategy:
    # TensorFlow holds Python's lock meanwhile, so that no handler of Python's is called; and it
    # takes SIGTERM.
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals}
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.OpError as error:
        raise ValueError(
            f"The workers could not join each other ({reason(error, 200)}): start every worker "
            "anew, each with a --task_index (or TF_CONFIG) of its own and a port that is free."
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def within(work: Callable[[], T], seconds: float | None = None) -> T:
    """Does work in a thread that is left behind by Ctrl-C, or after some time a TimeoutError."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)


class Workers:
    """The workers of a strategy; without a cluster, this process alone."""

    def __init__(
        self, strategy: tf.distribute.Strategy | None = None, cluster: Cluster | None = None
    ) -> None:
        self._strategy = strategy or tf.distribute.get_strategy()
        self._addresses = cluster.addresses if cluster else ("",)
        self.index = cluster.task if cluster else 0
        self.count = len(self._addresses)
        self.is_chief = self.index == 0
        self._gather_replicas = tf.function(self._rows_of_replicas)

    def name(self, index: int) -> str:
        """A worker's name for a sentence."""
        return f"worker {index} ({self._addresses[index]})"

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Every worker's values, (workers, values) float64, the same on each of them."""
        mine = np.asarray(values, np.float64)
        if self.count == 1:
            return mine[None]
        with self.connected():
            replicas = within(lambda: self._gather_replicas(tf.constant(mine)).numpy())
        # A worker's replicas are neighbours and hold the same: take the first of each.
        return replicas[:: len(replicas) // self.count]

    def _rows_of_replicas(self, values: tf.Tensor) -> tf.Tensor:
        replicas = self._strategy.num_replicas_in_sync

        def of_replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            place = tf.one_hot(context.replica_id_in_sync_group, replicas, dtype=tf.float64)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, place[:, None] * values)

        return self._strategy.experimental_local_results(self._strategy.run(of_replica))[0]

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Says in a sentence that another worker ended."""
        try:
            yield
        except _LOST as error:
            if self.count == 1:
                raise
            raise LostWorkerError(
                f"Another of the {self.count} workers ended or cannot be reached: see what it "
                "printed, and start every worker again with the same command; the run goes on from "
                "its newest checkpoint."
            ) from error

    def wait(self) -> None:
        """Waits until every worker has come here."""
        self.gather([0.0])

    def check_same(self, number: float, what: str) -> None:
        """Checks that every worker has the same number; errors call it ``what``."""
        numbers = self.gather([number])[:, 0]
        if (numbers != numbers[0]).any():
            raise ValueError(
                f"The workers differ in the {what} ({numbers.tolist()}): start every worker with "
                "the same flags, on a disk that all of them share."
            )


# === Devices ===


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
        return _tpu_distribution(tpu)
    gpus = tf.config.list_physical_devices("GPU")
    own_device = "GPU" if gpus else "CPU"
    if cluster is not None:
        multi_worker = connect(cluster, wait_minutes)
        return Distribution(
            multi_worker,
            own_device,
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


def _tpu_distribution(tpu: str) -> Distribution:
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


def dtype_policy(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Keras' dtype policy of a precision; on a CPU without XLA, graphs are rewritten instead."""
    is_rewritten = device_type == "CPU" and not jit_compile
    return choices.DTYPE_POLICIES["float32" if is_rewritten else precision]


def _without_bfloat16() -> Iterator[str]:
    """A sentence for each GPU that is older than the units which compute in bfloat16."""
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        major, minor = details.get("compute_capability") or (8, 0)
        if major < 8:
            yield (
                f"--precision=bfloat16: {details.get('device_name', 'the GPU')} has compute "
                f"capability {major}.{minor}, and bfloat16 takes 8.0: it is slower than float32 "
                "there, or fails; give --precision=float32."
            )


def set_precision(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Sets the process' arithmetic, before the model is built; returns the Keras dtype policy.

    ``bfloat16`` keeps variables, gradients' sums, updates and losses in float32, and runs matrix
    products and most elementwise operations between them in bfloat16. On GPUs and TPUs, and where
    XLA compiles the gradients, it is Keras' ``mixed_bfloat16`` policy. On a CPU the model stays
    float32 and TensorFlow's graph optimiser rewrites the matrix products of every traced function
    for oneDNN, which measured 1.16 times the speed of the policy at base size; eager code is not
    affected, and a processor without AVX-512 keeps computing in float32.

    >>> set_precision("float32", "CPU")
    'float32'
    """
    if precision not in choices.PRECISIONS:
        raise ValueError(
            f"Unknown precision {precision!r}: expected one of {', '.join(choices.PRECISIONS)}."
        )
    policy = dtype_policy(precision, device_type, jit_compile)
    rewrite = policy != choices.DTYPE_POLICIES[precision]
    tf.config.optimizer.set_experimental_options({_REWRITE: rewrite})
    # In bfloat16 BiasAddGrad adds rows one by one, and of 4,096 ones makes 256; likewise AddN the
    # steps of a recurrent layer.
    kept = {*os.environ.get(_NOT_REWRITTEN, "AddN").split(","), "AddN", "BiasAddGrad"}
    os.environ[_NOT_REWRITTEN] = ",".join(sorted(kept))
    # TensorFlow takes any name, and heeds those that it knows.
    if tf.config.optimizer.get_experimental_options().get(_REWRITE) != rewrite:
        raise ImportError(
            f"TensorFlow {tf.__version__} has no graph rewrite {_REWRITE}: install the version "
            "that this library requires."
        )
    if precision == "bfloat16" and device_type == "GPU":
        tell(_without_bfloat16())
    keras.config.set_dtype_policy(policy)
    return policy
