"""``python -m tests.fuzz``: starts the processes, counts, prints the table."""

import argparse
import collections
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

_OUTCOMES = (
    "refused",
    "equal",
    "told",
    "different",
    "unsealed",
    "traceback",
    "crash",
    "hang",
    "memory",
)
FAULTS = ("unsealed", "traceback", "crash", "hang", "memory")
_HANG_SECONDS = 30
_START_SECONDS = 300
_MUTATIONS_OF_A_CHILD = 1500
_PROGRESS_SECONDS = 30
_TURN = 20  # mutations


class _Child:
    """A process of ``child``, started again when it dies or has served long."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.served = 0
        self.known: set[str] = set()
        self.left = b""
        self.errors = os.path.join(folder, f"stderr-{os.urandom(4).hex()}")

    def start(self) -> None:
        self.stop()
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child", self.folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
            )
        self.served, self.known, self.left = 0, set(), b""

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            assert self.process.stdin and self.process.stdout
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def ask(self, name: str, number: int, seed: int) -> dict[str, Any]:
        """What came of a mutation."""
        if self.process is None or self.served >= _MUTATIONS_OF_A_CHILD:
            self.start()
        assert self.process and self.process.stdin
        self.served += 1
        line = json.dumps({"format": name, "number": number, "seed": seed}).encode() + b"\n"
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
            if name not in self.known:
                self.known.add(name)
                self._line(_START_SECONDS)  # the originals of a format are made and read
            answer = self._line(_HANG_SECONDS)
        except TimeoutError:
            self.stop()
            return {"outcome": "hang", "detail": "", "seconds": _HANG_SECONDS, "bytes": 0}
        except (BrokenPipeError, EOFError):
            return self._died()
        if answer["seconds"] > _HANG_SECONDS:
            answer["outcome"] = "hang"
        return answer

    def _line(self, seconds: float) -> dict[str, Any]:
        assert self.process and self.process.stdout
        began, used = time.monotonic(), self._processor_seconds()
        while b"\n" not in self.left:
            readable, _, _ = select.select([self.process.stdout], [], [], 1.0)
            if not readable:
                # On a busy machine the clock says little; a process that waits for ever uses none.
                waited = time.monotonic() - began
                if waited > 4 * seconds or self._processor_seconds() - used > seconds:
                    raise TimeoutError
                continue
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError
            self.left += chunk
        line, self.left = self.left.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def _processor_seconds(self) -> float:
        assert self.process
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _died(self) -> dict[str, Any]:
        assert self.process
        status = self.process.wait()
        self.stop()
        with open(self.errors, "rb") as file:
            said = file.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        words = next((line for line in said if "F0000" in line or "Check failed" in line), "")
        detail = f"status {status}: {words or (said or [''])[-1]}"
        return {"outcome": "crash", "detail": detail[:400], "seconds": 0.0, "bytes": 0}


def fuzz(
    formats: list[str],
    *,
    mutations: int,
    seed: int,
    seconds: float | None = None,
    children: int = 1,
    only: list[tuple[str, int]] | None = None,
    failures: str | None = None,
    say: Any = print,
) -> dict[str, collections.Counter[str]]:
    """Runs mutations and counts what came of them.

    Args:
        formats: their names; each gets its share of the mutations.
        mutations: how many in all.
        seed: of everything.
        seconds: stop after these.
        children: processes at once.
        only: these (format, number) alone.
        failures: the file that failing mutations are written to, a line of JSON each.
        say: prints a line.
    """
    share = -(-mutations // len(formats))
    # In turns, so that the time suffices for some of each.
    turns = [range(n, min(n + _TURN, share)) for n in range(0, share, _TURN)]
    left = collections.deque(only or [(f, n) for turn in turns for f in formats for n in turn])
    total, began, told = len(left), time.monotonic(), time.monotonic()
    counts: dict[str, collections.Counter[str]] = {f: collections.Counter() for f in formats}
    slowest: dict[str, float] = collections.Counter()
    folder = tempfile.mkdtemp(prefix="fuzz-")
    os.makedirs(os.path.join(folder, "originals"))
    log = open(failures, "a") if failures else None  # noqa: SIM115

    def work(child: _Child) -> None:
        nonlocal began, told
        while left and (seconds is None or time.monotonic() - began < seconds):
            name, number = left.popleft()
            answer = child.ask(name, number, seed)
            outcome = answer["outcome"]
            if not any(row.total() for row in counts.values()):
                began = time.monotonic()  # what came before was the child's start
            counts[name][outcome] += 1
            slowest[name] = max(slowest[name], answer["seconds"])
            if outcome in FAULTS:
                say(f"{outcome}: --only={name}:{number} --seed={seed}  {answer['detail']}")
                if log:
                    print(json.dumps({"format": name, "number": number, "seed": seed, **answer}),
                          file=log, flush=True)  # fmt: skip
            elif only:
                say(f"{outcome}: {answer['detail']}")
            now = time.monotonic()
            if now - told >= _PROGRESS_SECONDS:
                told = now
                done = total - len(left)
                remaining = (now - began) / done * len(left)
                faults = sum(c[o] for c in counts.values() for o in FAULTS)
                say(f"{done:,} of {total:,}, {faults} faults, {remaining / 60:.0f} min left")
        child.stop()

    try:
        _in_threads([_Child(folder) for _ in range(children)], work)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if log:
            log.close()
    _print_table(counts, slowest, say)
    return counts


def _in_threads(children: list[_Child], work: Any) -> None:
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(len(children)) as pool:
        for future in [pool.submit(work, child) for child in children]:
            future.result()


def _print_table(counts: Any, slowest: Any, say: Any) -> None:
    say(
        f"{'format':<26}{'mutations':>10}"
        + "".join(f"{o:>11}" for o in _OUTCOMES)
        + f"{'slowest':>10}"
    )
    rows = {**counts, "all": sum(counts.values(), collections.Counter())}
    for name, row in rows.items():
        slow = slowest[name] if name in slowest else max(slowest.values(), default=0.0)
        cells = "".join(f"{row[o]:>11,}" for o in _OUTCOMES)
        say(f"{name:<26}{row.total():>10,}{cells}{slow:>8.1f} s")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000, help="how many in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default="all", help="names with commas")
    parser.add_argument("--seconds", type=float, help="stop after these")
    parser.add_argument("--children", type=int, default=1, help="processes at once")
    parser.add_argument("--only", help="FORMAT:NUMBER with commas: run these again")
    parser.add_argument("--failures", help="a file to add failing mutations to, as JSON lines")
    given = parser.parse_args(arguments)
    from .formats import FORMATS

    only = [
        (n, int(k)) for n, _, k in (o.partition(":") for o in (given.only or "").split(",") if o)
    ]
    names = list(FORMATS) if given.formats == "all" else given.formats.split(",")
    names = list(dict.fromkeys(name for name, _ in only)) or names
    if unknown := sorted({*names} - {*FORMATS}):
        parser.error(f"unknown formats: {', '.join(unknown)}; there are {', '.join(FORMATS)}")
    counts = fuzz(names, mutations=given.mutations, seed=given.seed, seconds=given.seconds,
                  children=given.children, only=only, failures=given.failures,
                  say=lambda line: print(line, flush=True))  # fmt: skip
    return int(any(row[outcome] for row in counts.values() for outcome in FAULTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
