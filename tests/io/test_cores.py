"""The cores that a process may use: its affinity, and its cgroup's quota as the kernel shows it."""

import os

import pytest

from bert_tf.io.runtime import usable_cores


def _kernel(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        pytest.param(None, {}, 64, id="no cgroups"),
        pytest.param("0::/\n", {}, 64, id="no quota"),
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="a container's own"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 2, id="rounded up"),
        pytest.param("0::/\n", {"cpu.max": "10000 100000\n"}, 1, id="at least one"),
        pytest.param("0::/a\n", {"a/cpu.max": "max 100000\n"}, 64, id="none, of version 2"),
        pytest.param(
            "0::/a/b\n",
            {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "800000 100000\n"},
            3,
            id="that of a cgroup around it",
        ),
        pytest.param("0::/a/b\n", {"c/cpu.max": "300000 100000\n"}, 64, id="another's"),
        pytest.param(
            "4:cpu,cpuacct:/docker/12ab\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "50000\n"},
            5,
            id="version 1, by the machine's name of it",
        ),
        pytest.param(
            "4:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "50000\n"},
            64,
            id="none, of version 1",
        ),
        pytest.param("3:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "9\n"}, 64, id="no cpu controller"),
    ],
)
def test_a_quota_counts(monkeypatch, tmp_path, own, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(64), raising=False)
    _kernel(tmp_path, {} if own is None else {"proc/self/cgroup": own})
    _kernel(tmp_path / "sys/fs/cgroup", files)
    assert usable_cores(str(tmp_path)) == cores


def test_the_affinity_counts_where_the_system_has_one(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert usable_cores(str(tmp_path)) == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores(str(tmp_path)) == 9
