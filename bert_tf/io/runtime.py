"""The process: checks of packages and of forks, its environment, a quiet screen, its cores."""

import contextlib
import glob
import importlib
import math
import multiprocessing
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

# === Packages ===

# Distributions that install the ``tensorflow`` package: each owns the same files.
_TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-tpu", "tensorflow-cpu")
SUPPORTED_MINORS = ("2.20", "2.21")
# 2.20.0's tokenizer does not find [UNK], 2.21.0 has an undefined symbol.
_BROKEN_TEXTS = ("2.20.0", "2.21.0")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_versions() -> None:
    """Checks that one TensorFlow is installed, and the tensorflow-text that is compiled against it.

    An ``ImportError`` says in one sentence what is wrong, with the command that mends it.
    """
    versions = {name: _installed(name) for name in _TENSORFLOW_DISTRIBUTIONS}
    installed = {name: version for name, version in versions.items() if version is not None}
    if not installed:
        raise ImportError(
            "bert_tf needs TensorFlow, and none is installed: run "
            "pip install 'tensorflow==2.21.*' 'tensorflow-text~=2.21.1'."
        )
    if len(installed) > 1:
        both = " and ".join(f"{name} {version}" for name, version in installed.items())
        raise ImportError(
            f"{both} are installed together and overwrite each other's files: run "
            f"pip uninstall -y {' '.join(installed)} and install one of them again, "
            "as docs/install.md shows."
        )
    ((name, version),) = installed.items()
    minor = ".".join(version.split(".")[:2])
    # TensorFlow for TPUs ends at 2.20; tensorflow-text would bring the other one along.
    newest = SUPPORTED_MINORS[0] if name == "tensorflow-tpu" else SUPPORTED_MINORS[-1]
    if minor not in SUPPORTED_MINORS:
        raise ImportError(
            f"{name} {version} is installed, and bert_tf runs with {' and '.join(SUPPORTED_MINORS)}"
            f": run pip install --no-deps '{name}=={newest}.*' 'tensorflow-text~={newest}.1'."
        )
    text = _installed("tensorflow-text") or "none"
    if not text.startswith(f"{minor}.") or text in _BROKEN_TEXTS:
        raise ImportError(
            f"{name} {version} needs tensorflow-text {minor}.1, and {text} is installed: run "
            f"pip install --no-deps 'tensorflow-text~={minor}.1'."
        )


# === Environment and screen ===

_BACKEND = "KERAS_BACKEND"
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_XLA_FLAGS = "XLA_FLAGS"


def set_environment() -> None:
    """Sets the variables that Keras and TensorFlow read when they load, for a command's process.

    Library calls in a user's process do not change the environment.
    """
    os.environ[_BACKEND] = "tensorflow"
    # The C++ side prints start-up notices (level 0: info). A level set by the user wins.
    os.environ.setdefault(_LOG_LEVEL, "1")
    set_compiler_flags()


def check_backend() -> None:
    """Checks that Keras runs on TensorFlow, which training, predictions and exports need.

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
    """Sets ``XLA_FLAGS`` within the context; XLA reads them once in a process."""
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
    """Sets what XLA reads when TensorFlow loads, where there is an NVIDIA GPU; a user's word wins.

    Of the products that BERT is made of XLA would compile some 1,700 kernels of Triton, to run each
    once and to keep thirty: a minute or more. cuBLASLt's kernels are only run.
    """
    flags = os.environ.get(_XLA_FLAGS, "")
    names_file = bool(flags.strip()) and not flags.lstrip().startswith("-")
    if glob.glob("/dev/nvidia[0-9]*") and "triton_gemm" not in flags and not names_file:
        os.environ[_XLA_FLAGS] = f"{flags} {COMPILER_FLAGS}".strip()


COMPILER_FLAGS = "--xla_gpu_enable_triton_gemm=false"
_NO_READER = 141  # what a shell gives a program that SIGPIPE ended


def is_stdout_open() -> bool:
    """True if standard output is no pipe, or one that somebody reads."""
    output = select.poll()
    output.register(1, 0)
    return not output.poll(0)


@contextlib.contextmanager
def exit_quietly_on_broken_pipe() -> Iterator[None]:
    """Ends the process where whoever reads standard output has gone, with no word, as tools do."""
    try:
        try:
            yield
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        # Python writes what is left once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(_NO_READER)


def load_quietly() -> None:
    """Imports TensorFlow; notices of its libraries are written only if the import fails.

    Without a GPU the libraries are silent afterwards, too: they report what the machine lacks, and
    every error that they log is raised in Python as well.
    """
    # Another level is a user's.
    if os.environ.get(_LOG_LEVEL) == "1" and not glob.glob("/dev/nvidia[0-9]*"):
        os.environ[_LOG_LEVEL] = "3"
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), 2)
        try:
            importlib.import_module("tensorflow")
        except Exception:
            notices.seek(0)
            os.write(terminal, notices.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def initialize_worker(scratch: str | None = None) -> None:
    """Begins a process of a pool: loads TensorFlow quietly, has no GPU, leaves signals to others.

    When the process that began the pool is gone, killed as well, this one ends and removes
    ``scratch``, a folder.
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
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # each process would take all of its memory
    set_environment()
    load_quietly()


# === Cores ===


def usable_cores(root: str = "/") -> int:
    """The cores of the process' affinity, or of its cgroup's quota, rounded up, if that is less.

    A container of two processors on a machine of 64 has a quota of two and sees 64. ``root`` holds
    the kernel's files.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _quotas(Path(root)))]))


def _quotas(root: Path) -> Iterator[float]:
    """The quotas, in cores, of the process' cgroup and of those around it, of versions 1 and 2."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top = mounted
        elif "cpu" in controllers.split(","):
            top = mounted / "cpu"
        else:
            continue
        # A container may see its own cgroup as the top, and its name as the machine has it.
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

# A fork copies TensorFlow's state without its threads: the child would wait for them forever.
_has_lost_threads = False


def check_fork() -> None:
    """Checks that TensorFlow can run in this process.

    Raises:
        RuntimeError: If the process was forked after TensorFlow had run.
    """
    if _has_lost_threads:
        raise RuntimeError(
            "TensorFlow ran in the parent process before the fork, so it cannot run here. Load the "
            "model in the child process only, or start processes with spawn."
        )


def record_fork() -> None:
    """Notes in a process that was just forked whether TensorFlow had run."""
    global _has_lost_threads
    _has_lost_threads = _has_lost_threads or _has_run()


def _has_run() -> bool:
    """Returns whether TensorFlow has started its threads, after which their number is fixed."""
    try:
        threads = sys.modules["tensorflow"].config.threading
        number = threads.get_intra_op_parallelism_threads()
        threads.set_intra_op_parallelism_threads(number + 1)
        threads.set_intra_op_parallelism_threads(number)
    except RuntimeError:
        return True
    except (KeyError, AttributeError):  # not imported, or not completely
        pass
    return False
