"""The number of processor cores that this process may use, where the machine may have more."""

import math
import os
from collections.abc import Iterator
from pathlib import Path


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
