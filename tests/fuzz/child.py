"""A process that runs mutations: a line of JSON asks for one, a line of JSON says what came of it.

    python -m tests.fuzz.child FOLDER

The process may die of a mutation; ``__main__`` starts another. The originals lie below FOLDER,
where the first child that is asked for a format puts them.
"""

import contextlib
import dataclasses
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from typing import Any

_SPARE_BYTES = 6 << 30  # what a mutation may take before the system refuses more
_MOST_BYTES = 2 << 30
_SHOWN = 400


class Workplace:
    """A format's originals, what they read as, and a copy to put changes into."""

    def __init__(self, folder: str, name: str) -> None:
        from . import formats

        self.form = formats.FORMATS[name]
        originals = os.path.join(folder, "originals", name)
        if not os.path.isdir(originals):
            made = tempfile.mkdtemp(dir=folder)
            with contextlib.suppress(OSError):  # another child was sooner
                self.form.make(made)
                os.rename(made, originals)
        self.variants = sorted(os.listdir(originals))
        self.requests = not self.form.mutators
        self.folder = originals if self.requests else tempfile.mkdtemp(dir=folder)
        self.files, self.read = {}, {}
        for variant in () if self.requests else self.variants:
            path = os.path.join(self.folder, variant)
            shutil.copytree(os.path.join(originals, variant), path)
            self.files[variant] = formats.files_below(path)
            self.read[variant] = self.form.read(path)

    def run(self, rng: random.Random) -> tuple[str, str]:
        """Runs a mutation; gives the outcome and a line about it."""
        from . import formats

        variant = rng.choice(self.variants)
        path = os.path.join(self.folder, variant)
        if self.requests:
            self.form.read(path, rng)
            return "equal", variant
        files = self.files[variant]
        changes = formats.mutate(self.form, rng, files)
        about = f"{variant}: {', '.join(changes)}"
        try:
            for name, change in changes.items():
                _put(os.path.join(path, name), change)
            if all(files[name] == change for name, change in changes.items()):
                return "equal", about
            read, original = self.form.read(path), self.read[variant]
            if repr(read) == repr(original):
                return "equal", about
            if isinstance(read, formats.Told):
                for note in read.notes:
                    formats.check_sentence(note)
                if read.value == original.value or read.notes != original.notes:
                    _load_some(rng, path)
                    return "told", about
            if self.form.read is not formats.FORMATS["fine_tuned"].read:
                _load_some(rng, path)
            return "different", about
        except Exception as error:
            error.add_note(about)
            raise
        finally:
            for name in changes:
                _put(os.path.join(path, name), files[name])


def _load_some(rng: random.Random, path: str) -> None:
    """Makes some of the models that read otherwise than they were: it takes long."""
    from . import formats

    if rng.random() < 0.2:
        formats.load_whole(path)


def _put(path: str, change: bytes | str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)
    if isinstance(change, bytes):
        with open(path, "wb") as file:
            file.write(change)
    elif change == "folder":
        os.makedirs(path)
    elif change == "fifo":
        os.mkfifo(path)
    elif change != "missing":
        os.symlink(change, path)


def _outcome_of(error: Exception) -> tuple[str, str]:
    """A refusal, where a command would print it as one good sentence; else a traceback."""
    import tensorflow as tf

    from bert_tf.untrusted import reason

    from . import formats

    notes = " ".join(getattr(error, "__notes__", []))
    if isinstance(error, AssertionError):
        return "traceback", f"{notes}: {error}"
    if isinstance(error, MemoryError):
        return "memory", f"MemoryError {notes}"
    if isinstance(error, ValueError | OSError | tf.errors.OpError):
        try:
            formats.check_sentence(reason(error))
            formats.check_length(str(error))  # what catches it in Python sees
        except AssertionError as wrong:
            return "traceback", f"{type(error).__name__}, {notes}: {wrong}"
        return "refused", f"{type(error).__name__}, {notes}: {reason(error)}"
    where = list(traceback.extract_tb(error.__traceback__))[-1]
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return "traceback", f"{type(error).__name__} at {place}, {notes}: {error}"


def _memory() -> tuple[int, int]:
    """The memory held now, and the most since it was last asked for; bytes."""
    with open("/proc/self/status") as file:
        status = file.read()
    held, most = (
        int(match[1]) << 10 if (match := re.search(rf"{key}:\s+(\d+)", status)) else 0
        for key in ("VmRSS", "VmHWM")
    )
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return held, most


@dataclasses.dataclass
class Answer:
    """What came of a mutation."""

    outcome: str
    detail: str
    seconds: float
    bytes: int


def _serve(folder: str) -> None:
    # What the library prints is not for the one who asks.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    workplaces: dict[str, Workplace] = {}
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        name = asked["format"]
        if name not in workplaces:
            workplaces[name] = Workplace(folder, name)
            _guard()
            print(json.dumps({"ready": name}), file=answers, flush=True)
        rng = random.Random(f"{asked['seed']}:{name}:{asked['number']}")
        held, _ = _memory()
        began = time.process_time()  # other processes may hold the processors
        try:
            outcome, detail = workplaces[name].run(rng)
        except (Exception, RecursionError) as error:
            outcome, detail = _outcome_of(error)
        seconds = time.process_time() - began
        _, most = _memory()
        if most - held > _MOST_BYTES:
            outcome = "memory"
        if workplaces[name].form.sealed and outcome == "different":
            outcome = "unsealed"
        shown = detail.encode("ascii", "backslashreplace").decode()[:_SHOWN]
        answer = Answer(outcome, shown, seconds, max(0, most - held))
        print(json.dumps(dataclasses.asdict(answer)), file=answers, flush=True)


def _guard() -> None:
    """Has the system refuse memory far beyond what is held."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + _SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    _serve(sys.argv[1])
