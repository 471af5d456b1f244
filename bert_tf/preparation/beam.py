"""Units of work on Apache Beam, in a process of its own that reports how it went.

Beam runs in a session of its own: its runners start processes and threads that neither end with
Ctrl-C nor are quiet about it, and all of them are ended together. The units hand each other files;
nothing but their numbers passes through Beam, whose Direct runner holds in memory what it groups:
GroupByKey on 1 GB of text took 7.0 GB, on 300 MB 2.3 GB (Beam 2.77, two processes).
"""

import collections
import contextlib
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from bert_tf.untrusted import one_line

_POLL_SECONDS = 0.5
_END_SECONDS = 10.0
# What Beam's processes wrote last, for an end without a reason.
_KEPT_LINES = 20


class Step(NamedTuple):
    """Units from 0 to before ``num_units``, in any order, in any process: ``work`` is pickled."""

    name: str
    num_units: int
    work: Callable[[int], None]


class BeamProcess:
    """The process that runs Beam; ``started`` gives one."""

    def __init__(self, process: subprocess.Popen[bytes], shows_log: bool) -> None:
        self._process = process
        self._last: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._reader = threading.Thread(target=self._read_log, args=(shows_log,), daemon=True)
        self._reader.start()

    def _read_log(self, shows: bool) -> None:
        for line in _opened(self._process.stderr):
            text = line.decode("utf-8", "replace").rstrip()
            self._last.append(text)
            if shows:
                print(text, file=sys.stderr, flush=True)

    def send(self, message: Any) -> None:
        """Sends what the process waits for; that it has ended is told by what it answers."""
        stream = _opened(self._process.stdin)
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, stream)
            stream.flush()

    def answer(self) -> None:
        """Waits for the answer to what was sent; a ``ValueError`` says what went wrong."""
        line = _opened(self._process.stdout).readline()
        if not line:
            status = self._process.wait()
            self._reader.join(_POLL_SECONDS)
            last = next((text for text in reversed(self._last) if text.strip()), "nothing")
            raise ValueError(
                f"Apache Beam's process ended with status {status}; its last output was: "
                f"{one_line(last)}"
            )
        error = json.loads(line)["error"]
        if error:
            raise ValueError(error)

    def run(self, steps: Sequence[Step], on_wait: Callable[[], None]) -> None:
        """Runs the units of step after step; ``on_wait`` is called now and then."""
        # Only the workers unpickle the work, and import what it needs.
        self.send([(step.name, step.num_units, pickle.dumps(step.work)) for step in steps])
        answered = threading.Event()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                self.answer()
            except Exception as error:
                errors.append(error)
            answered.set()

        threading.Thread(target=wait, daemon=True).start()
        while not answered.wait(_POLL_SECONDS):
            on_wait()
        if errors:
            raise errors[0]
        # It ends by itself, and removes what TensorFlow left in the temporary folder.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise TypeError("The process was started without this stream.")
    return stream


@contextlib.contextmanager
def started(flags: Sequence[str]) -> Iterator[BeamProcess]:
    """Starts Beam with its own flags, such as ``--runner=DataflowRunner``; ends all of it."""
    if importlib.util.find_spec("apache_beam") is None:
        raise ImportError(
            "This command runs on Apache Beam, which is not installed: run pip install "
            "'bert_tf[beam]', or pip install apache-beam."
        )
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_tf.preparation.beam_process"],
        # No unit computes on one, and each of many workers would take all of its memory.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        beam = BeamProcess(process, shows_log=not is_local(flags))
        beam.send(list(flags))
        beam.answer()
        yield beam
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_local(flags: Sequence[str]) -> bool:
    """Whether Beam's flags leave it to its Direct runner, on this machine."""
    given = [flag.removeprefix("--runner=") for flag in flags if flag.startswith("--runner=")]
    # As Beam reads the name.
    return [name.lower().removesuffix("runner") for name in given] in ([], ["direct"])
