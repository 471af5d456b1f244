"""What comes before TensorFlow loads: a check of what is installed, and a quiet screen.

tensorflow-text is compiled against one minor version of TensorFlow; beside another one its
libraries fail to load with a message about undefined symbols, which the check comes before.

Log levels keep information off the screen: TF_CPP_MIN_LOG_LEVEL=1, which the package sets, and
absl's for Python. Two kinds of lines come in spite of them: what the C++ side writes while its
libraries load, before it reads a level, and warnings and errors that mean nothing, whose level real
ones have, too. File descriptor 2, which child processes inherit, is therefore led through a small
child process that drops these lines, and lets every real warning through. A child, not a thread:
what the C++ side says last before it aborts still reaches the screen. Python's own ``sys.stderr``
keeps writing to the terminal directly.
"""

import contextlib
import glob
import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from importlib import metadata

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
    """Checks that one TensorFlow is installed, and the tensorflow-text of the same minor version.

    An ``ImportError`` says in one sentence what is wrong, with the command that mends it.
    """
    found = {name: _installed(name) for name in _TENSORFLOW_DISTRIBUTIONS}
    installed = {name: version for name, version in found.items() if version is not None}
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
    wanted = SUPPORTED_MINORS[0] if name == "tensorflow-tpu" else SUPPORTED_MINORS[-1]
    if minor not in SUPPORTED_MINORS:
        raise ImportError(
            f"{name} {version} is installed, and bert_tf runs with {' and '.join(SUPPORTED_MINORS)}"
            f": run pip install --no-deps '{name}=={wanted}.*' 'tensorflow-text~={wanted}.1'."
        )
    text = _installed("tensorflow-text")
    if text is None or ".".join(text.split(".")[:2]) != minor:
        raise ImportError(
            f"{name} {version} needs tensorflow-text {minor}, and "
            f"{'none' if text is None else text} is installed: run "
            f"pip install --no-deps 'tensorflow-text~={minor}.1'."
        )
    if text in _BROKEN_TEXTS:
        raise ImportError(
            f"tensorflow-text {text} is installed, and is broken: run "
            f"pip install --no-deps 'tensorflow-text~={minor}.1'."
        )


_NO_READER = 141  # what a shell gives a program that SIGPIPE ended

# Said while libraries load, of oneDNN (port.cc) and of a missing CUDA (cudart_stub.cc).
_INFORMATION = re.compile(rb"^(I0000 |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: I )")
_KNOWN_NOISE = re.compile(
    # Printed before these.
    rb"^WARNING: All log messages before absl::InitializeLog"
    # Said of an integer operation that another kernel then computes; nothing is lost.
    rb"|oneDNN supports DT_INT64 only"
    # Said of every dataset that a host reads for its own devices.
    rb"|Input of GeneratorDatasetOp::Dataset will not be optimized"
    # What the network layer says, in several lines, where another worker ended; told in Python.
    rb"|(base_collective_executor|ring_alg|preemption_notifier|coordination_service\w*)\.cc:\d+\]"
    rb"|^Additional GRPC error information|^:\{?\"?(created|UNKNOWN)|^/job:worker/replica:"
    rb"|^The tasks have crashed\.|^The error could be from a previous operation\."
    # Written beside an error that is raised in Python too, and told there.
    rb"|op_kernel\.cc:\d+\] OP_REQUIRES failed|local_rendezvous\.cc:\d+\] Local rendezvous"
    rb"|^\t \[\[\{\{node "
)
_NO_GPU = re.compile(rb"failed call to cuInit")


def _is_noise(line: bytes, has_gpu: bool) -> bool:
    """Whether a line of the native log tells a user nothing."""
    if _INFORMATION.match(line) or _KNOWN_NOISE.search(line):
        return True
    return not has_gpu and bool(_NO_GPU.search(line))


def _forward(source: int, target: int, has_gpu: bool) -> None:
    with os.fdopen(source, "rb", buffering=0) as stream:
        rest = b""
        while chunk := stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not _is_noise(line, has_gpu):
                    os.write(target, line + b"\n")
        if rest and not _is_noise(rest, has_gpu):
            os.write(target, rest)


def has_reader() -> bool:
    """Whether standard output is no pipe, or one that somebody reads."""
    output = select.poll()
    output.register(1, 0)
    return not output.poll(0)


@contextlib.contextmanager
def quiet_without_reader() -> Iterator[None]:
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


def filter_native_log() -> None:
    """Leads file descriptor 2 through the filter, for the rest of the process.

    Call it once, before TensorFlow is imported and while the process has a single thread. Does
    nothing where processes cannot fork.
    """
    if not hasattr(os, "fork"):
        return
    has_gpu = bool(glob.glob("/dev/nvidia[0-9]*"))
    sys.stderr.flush()
    terminal = os.dup(2)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # The child lives until the pipe's last writer closes, an interrupt or not, so that it
            # forwards what the parent says at its very end.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(write_end)
            os.dup2(terminal, 2)
            _forward(read_end, terminal, has_gpu)
        finally:
            os._exit(0)
    os.close(read_end)
    os.dup2(write_end, 2)
    os.close(write_end)
    sys.stderr = os.fdopen(terminal, "w", buffering=1, encoding="utf-8", errors="replace")
