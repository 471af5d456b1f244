"""Packages that do not match, quiet imports, flags of the compiler, and the cores of a process."""

import os

import pytest

from bert_tf.io import runtime
from bert_tf.io.runtime import usable_cores
from tests.anew import run_python


@pytest.mark.parametrize(
    "installed, message",
    [
        ({}, "TensorFlow is not installed. Run pip install 'tensorflow==2.21"),
        ({"tensorflow": "2.21.0", "tensorflow-tpu": "2.20.0"},
         "overwrite each other's files. Run pip uninstall -y tensorflow tensorflow-tpu, then "
         r"reinstall one of them: docs/install\.md"),
        ({"tensorflow": "2.19.1", "tensorflow-text": "2.19.0"},
         r"expected tensorflow 2.20 or 2.21, got 2.19.1. Run "),
        ({"tensorflow-tpu": "2.19.1", "tensorflow-text": "2.19.0"},
         r"Run pip install --no-deps 'tensorflow-tpu==2.20.\*' 'tensorflow-text~=2.20.1'"),
        ({"tensorflow": "2.21.0"}, "expected tensorflow-text 2.21.1 or later, got none"),
        ({"tensorflow": "2.20.0", "tensorflow-text": "2.21.1"},
         r"expected tensorflow-text 2.20.1 or later, got 2.21.1. Run pip install --no-deps "
         r"'tensorflow-text~=2.20.1'"),
        ({"tensorflow-cpu": "2.20.0", "tensorflow-text": "2.20.0"},
         r"text 2.20.1 or later, got 2.20.0. Run pip .* 'tensorflow-text~=2.20.1'"),
        ({"tensorflow": "2.21.0", "tensorflow-text": "2.21.0"},
         r"text 2.21.1 or later, got 2.21.0. Run pip .* 'tensorflow-text~=2.21.1'"),
    ],
)  # fmt: skip
def test_a_mismatch_is_told_with_the_command_that_mends_it(installed, message, monkeypatch):
    monkeypatch.setattr(runtime, "_installed", installed.get)
    with pytest.raises(ImportError, match=message):
        runtime.check_versions()


def test_tpu_builds_count_as_tensorflow(monkeypatch):
    installed = {"tensorflow-tpu": "2.20.0", "tensorflow-text": "2.20.1"}
    monkeypatch.setattr(runtime, "_installed", installed.get)
    runtime.check_versions()
    assert runtime.SUPPORTED_MINORS == ("2.20", "2.21")


@pytest.mark.parametrize("value, status, said", [("1", 0, "a warning"), ("x", 1, "a notice\n")])
def test_what_loading_says_is_shown_only_where_it_fails(value, status, said, tmp_path):
    fake = f"import os; os.write(2, b'a notice\\n'); int({value!r})"
    (tmp_path / "tensorflow.py").write_text(fake)
    script = "import os; from bert_tf.io import runtime; runtime.load_quietly()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_python(f"{script}; os.write(2, b'a warning')", env=environment)
    assert done.returncode == status and done.stderr.startswith(said)
    assert ("ValueError" in done.stderr) == bool(status)


@pytest.mark.parametrize(
    "cards, before, after",
    [
        (["/dev/nvidia0"], None, "--xla_gpu_enable_triton_gemm=false"),
        (["/dev/nvidia0"], "--xla_a=1", "--xla_a=1 --xla_gpu_enable_triton_gemm=false"),
        (["/dev/nvidia0"], *["--xla_gpu_enable_triton_gemm=true"] * 2),
        (["/dev/nvidia0"], "flags.txt", "flags.txt"),
        ([], None, None),
    ],
    ids=["none", "others", "the user's own", "a file of the user's", "no card"],
)
def test_tritons_products_are_off_on_a_gpu_unless_the_user_names_them(
    cards, before, after, monkeypatch
):
    monkeypatch.setattr(runtime.glob, "glob", lambda pattern: cards)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if before is not None:
        monkeypatch.setenv("XLA_FLAGS", before)
    runtime.set_compiler_flags()
    assert os.environ.get("XLA_FLAGS") == after


# === Cores: the affinity, and the cgroup's quota as the kernel shows it ===


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
