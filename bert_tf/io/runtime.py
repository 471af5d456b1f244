"""Process setup: package checks, environment variables, quiet imports, CPU cores and forks."""

import contextlib
import gc
import glob
import importlib
import math
import multiprocessing
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

# ``bert_tf.load``, which ``modeling`` cannot import; importing ``bert_tf`` sets this variable.
load_hook: Callable[..., Any]

# === Packages ===

# Distributions that all install the files of the package ``tensorflow``.
_TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-tpu", "tensorflow-cpu")
SUPPORTED_MINORS = ("2.20", "2.21")
# In 2.20.0, the tokenizer does not find [UNK]. Version 2.21.0 has an undefined symbol.
_BROKEN_TEXTS = ("2.20.0", "2.21.0")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_versions() -> None:
    """Checks the installed versions of TensorFlow and tensorflow-text.

    Raises:
        ImportError: If TensorFlow is missing, installed twice or not supported, or if the version
            of tensorflow-text does not match.
    """
    versions = {name: _installed(name) for name in _TENSORFLOW_DISTRIBUTIONS}
    installed = {name: version for name, version in versions.items() if version is not None}
    if not installed:
        raise ImportError(
            "TensorFlow is not installed. Run "
            "pip install 'tensorflow==2.21.*' 'tensorflow-text~=2.21.1'."
        )
    if len(installed) > 1:
        both = " and ".join(f"{name} {version}" for name, version in installed.items())
        raise ImportError(
            f"{both} are both installed and overwrite each other's files. Run "
            f"pip uninstall -y {' '.join(installed)}, then reinstall one (see docs/install.md)."
        )
    ((name, version),) = installed.items()
    minor = ".".join(version.split(".")[:2])
    # tensorflow-tpu ends at 2.20. Without --no-deps, tensorflow-text would install tensorflow.
    newest = SUPPORTED_MINORS[0] if name == "tensorflow-tpu" else SUPPORTED_MINORS[-1]
    if minor not in SUPPORTED_MINORS:
        raise ImportError(
            f"expected {name} {' or '.join(SUPPORTED_MINORS)}, got {version}. Run "
            f"pip install --no-deps '{name}=={newest}.*' 'tensorflow-text~={newest}.1'."
        )
    text = _installed("tensorflow-text") or "none"
    if not text.startswith(f"{minor}.") or text in _BROKEN_TEXTS:
        raise ImportError(
            f"{name} {version}: expected tensorflow-text {minor}.1 or later, got {text}. Run "
            f"pip install --no-deps 'tensorflow-text~={minor}.1'."
        )


# === Environment and output ===

_BACKEND = "KERAS_BACKEND"
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_XLA_FLAGS = "XLA_FLAGS"


def set_environment() -> None:
    """Sets the environment variables of Keras and TensorFlow for a command's process."""
    os.environ[_BACKEND] = "tensorflow"
    # Level 0 prints start-up notices. A level that the user set is kept.
    os.environ.setdefault(_LOG_LEVEL, "1")
    enable_onednn()
    set_compiler_flags()


def enable_onednn() -> None:
    """Enables oneDNN on x86 processors, unless the user disabled it; call before TensorFlow starts.

    By default, TensorFlow does not use it on processors without instructions for neural networks,
    such as AVX-512 VNNI. Pre-training then takes up to 1.5 times as long.
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        os.environ.setdefault(_ONEDNN, "1")


def supports_bfloat16(root: str = "/") -> bool:
    """Whether oneDNN supports bfloat16 on this processor.

    Returns ``True`` if this is unknown, for example on other architectures. ``root`` is the root of
    the file system that contains ``/proc``.
    """
    lines = _read(Path(root) / "proc/cpuinfo").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), None)
    return flags is None or not {"avx512f", "avx_ne_convert"}.isdisjoint(flags.split())


def check_backend() -> None:
    """Checks that Keras runs on TensorFlow, which training, predictions and exports require.

    Raises:
        ImportError: If Keras runs on another backend.
    """
    backend = importlib.import_module("keras").config.backend()
    if backend != "tensorflow":
        raise ImportError(
            f"Keras' backend: expected tensorflow, got {backend}. Set the environment variable "
            f"{_BACKEND}=tensorflow before Keras is imported."
        )


@contextlib.contextmanager
def compiler_flags() -> Iterator[None]:
    """Sets ``XLA_FLAGS`` within the context; XLA reads this variable once per process."""
    before = os.environ.get(_XLA_FLAGS)
    set_compiler_flags()
    is_changed = os.environ.get(_XLA_FLAGS) != before
    try:
        yield
    finally:
        if is_changed and before is not None:
            os.environ[_XLA_FLAGS] = before
        elif is_changed:
            del os.environ[_XLA_FLAGS]


def set_compiler_flags() -> None:
    """Disables Triton matrix products in ``XLA_FLAGS`` on NVIDIA GPUs, unless the user set them.

    For BERT, XLA would compile about 1,700 Triton kernels to select 30, which takes a minute or
    more. The kernels of cuBLASLt need no compilation.
    """
    flags = os.environ.get(_XLA_FLAGS, "")
    names_file = bool(flags.strip()) and not flags.lstrip().startswith("-")
    if glob.glob("/dev/nvidia[0-9]*") and "triton_gemm" not in flags and not names_file:
        os.environ[_XLA_FLAGS] = f"{flags} {COMPILER_FLAGS}".strip()


COMPILER_FLAGS = "--xla_gpu_enable_triton_gemm=false"
_SIGPIPE_STATUS = 141  # the shell's exit status for a program that SIGPIPE ended


def is_stdout_open() -> bool:
    """Whether standard output is not a pipe, or is a pipe with a reader."""
    output = select.poll()
    output.register(1, 0)
    return not output.poll(0)


@contextlib.contextmanager
def exit_quietly_on_broken_pipe() -> Iterator[None]:
    """Exits without an error message if the reader of standard output has closed the pipe."""
    try:
        try:
            yield
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        # At exit Python flushes the remaining output again, which would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(_SIGPIPE_STATUS)


# Keras imports these packages if they are installed. No command uses the functions that need them.
# The four for notebooks, plots, data frames and estimators take 1.3 s and 150 MiB.
_UNUSED_PACKAGES = frozenset({"IPython", "matplotlib", "pandas", "sklearn", "cv2", "jax"})


@contextlib.contextmanager
def _faster_import() -> Iterator[None]:
    """Hides unused packages and pauses garbage collection within the context.

    Imports of these packages raise a ModuleNotFoundError. The objects that exist at the end of the
    context are excluded from garbage collection: importing TensorFlow creates 270,000 or more that
    are used until the process ends. Searching them for garbage takes a third of the import, and
    more time when the process exits.
    """
    hidden = _UNUSED_PACKAGES - sys.modules.keys()
    modules: dict[str, Any] = sys.modules
    modules |= dict.fromkeys(hidden)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
        for name in hidden:
            modules.pop(name, None)


@_faster_import()
def load_quietly() -> None:
    """Imports TensorFlow for a command or a worker, without the notices of its libraries.

    The notices are printed if the import fails. Without a GPU, the log level is also raised,
    because the libraries would report missing hardware; every error that they log is also raised in
    Python.
    """
    # Any other level was set by the user.
    if os.environ.get(_LOG_LEVEL) == "1" and not glob.glob("/dev/nvidia[0-9]*"):
        os.environ[_LOG_LEVEL] = "3"
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        try:
            os.dup2(notices.fileno(), 2)
            importlib.import_module("tensorflow")
        except Exception:
            notices.seek(0)
            os.write(terminal, notices.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def initialize_worker(scratch: str | None = None) -> None:
    """Initializes a worker process: ignores signals, hides GPUs and imports TensorFlow.

    If the parent process ends, this process removes the directory ``scratch`` and exits.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end() -> None:
        if parent is not None:
            parent.join()
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Each process would reserve all GPU memory.
    set_environment()
    load_quietly()


# === Cores ===


def usable_cores(root: str = "/") -> int:
    """Returns the number of CPU cores in the process's affinity, or the cgroup quota if lower.

    In a container that is limited to 2 of 64 cores, the affinity contains 64 and the quota is 2.
    ``root`` is the root of the file system that contains ``/proc`` and ``/sys``.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _quotas(Path(root)))]))


def _quotas(root: Path) -> Iterator[float]:
    """Yields the quotas, in cores, of the process's cgroup and its parents (versions 1 and 2)."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top = mounted
        elif "cpu" in controllers.split(","):
            top = mounted / "cpu"
        else:
            continue
        # In a container, the root may be the container's cgroup, but the path is the host's path.
        inner = top / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(top):
                text = _read(folder / "cpu.max") or " ".join(
                    _read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")
                )
                quota, period = (text.split() or ["max", ""])[:2]
                if quota not in ("max", "-1"):
                    yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# === Forks ===

# A fork copies TensorFlow's state without its threads, so the child would wait for them forever.
_has_lost_threads = False


def check_fork() -> None:
    """Checks that TensorFlow can run in this process.

    Raises:
        RuntimeError: If the process was forked after TensorFlow had run.
    """
    if _has_lost_threads:
        raise RuntimeError(
            "TensorFlow ran in the parent process before the fork, so it cannot run in this "
            "process. Load the model only in the child process, or start processes with spawn."
        )


def record_fork() -> None:
    """Records in a forked process whether TensorFlow had run before the fork."""
    global _has_lost_threads
    _has_lost_threads = _has_lost_threads or _has_run()


def _has_run() -> bool:
    """Whether TensorFlow has started its threads; their number cannot change afterwards."""
    try:
        threads = sys.modules["tensorflow"].config.threading
        number = threads.get_intra_op_parallelism_threads()
        threads.set_intra_op_parallelism_threads(number + 1)
        threads.set_intra_op_parallelism_threads(number)
    except RuntimeError:
        return True
    except (KeyError, AttributeError):  # TensorFlow is not imported, or only partially.
        pass
    return False
