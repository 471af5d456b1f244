"""Package versions, quiet imports, compiler flags, and the number of usable cores."""

import os

import pytest

from bert_tf.io import runtime
from bert_tf.io.runtime import usable_cores
from tests.processes import run_python


@pytest.mark.parametrize(
    "installed, message",
    [
        ({}, "TensorFlow is not installed. Run pip install 'tensorflow==2.21"),
        ({"tensorflow": "2.21.0", "tensorflow-tpu": "2.20.0"},
         "overwrite each other's files. Run pip uninstall -y tensorflow tensorflow-tpu, then "
         r"reinstall one \(see docs/install\.md\)"),
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
def test_version_mismatch_raises_error_with_command(installed, message, monkeypatch):
    monkeypatch.setattr(runtime, "_installed", installed.get)
    with pytest.raises(ImportError, match=message):
        runtime.check_versions()


def test_tpu_package_is_accepted(monkeypatch):
    installed = {"tensorflow-tpu": "2.20.0", "tensorflow-text": "2.20.1"}
    monkeypatch.setattr(runtime, "_installed", installed.get)
    runtime.check_versions()
    assert runtime.SUPPORTED_MINORS == ("2.20", "2.21")


def _load_quietly(folder, code, after=""):
    """Runs ``load_quietly`` with a fake TensorFlow, and then further code."""
    (folder / "tensorflow.py").write_text(code)
    script = f"import gc, os, sys; from bert_tf.io import runtime; runtime.load_quietly(); {after}"
    return run_python(script, env={**os.environ, "PYTHONPATH": str(folder)})


@pytest.mark.parametrize("value, status, stderr", [("1", 0, "a warning"), ("x", 1, "a notice\n")])
def test_output_of_import_is_shown_only_on_failure(value, status, stderr, tmp_path):
    fake = f"import os; os.write(2, b'a notice\\n'); int({value!r})"
    done = _load_quietly(tmp_path, fake, "os.write(2, b'a warning')")
    assert done.returncode == status and done.stderr.startswith(stderr)
    assert ("ValueError" in done.stderr) == bool(status)


def test_import_pauses_garbage_collection_and_excludes_its_objects(tmp_path):
    fake = "import gc; assert not gc.isenabled(); OBJECTS = [[]]"
    enabled = "import tensorflow; assert gc.isenabled(); gc.collect()"
    listed = "assert not any(found is tensorflow.OBJECTS for found in gc.get_objects())"
    done = _load_quietly(tmp_path, fake, f"{enabled}; {listed}")
    assert done.returncode == 0, done.stderr


def test_import_does_not_find_unused_packages(tmp_path):
    """They can be imported later, and TensorFlow can ask whether they are installed."""
    for name in ("pandas", "matplotlib"):
        (tmp_path / f"{name}.py").touch()
    fake = (
        "import importlib.util\n"
        "assert importlib.util.find_spec('pandas') is None\n"
        "try:\n    import matplotlib.pyplot\nexcept ImportError:\n    FAILED = True\n"
    )
    later = "import tensorflow; assert tensorflow.FAILED; import pandas, matplotlib"
    done = _load_quietly(tmp_path, fake, later)
    assert done.returncode == 0, done.stderr


def test_failed_import_leaves_the_process_as_it_was(tmp_path):
    script = (
        "import gc, sys\nfrom bert_tf.io import runtime\nbefore = {*sys.modules}\n"
        "try:\n    runtime.load_quietly()\nexcept ValueError:\n"
        "    assert gc.isenabled() and before == {*sys.modules}\nelse:\n    assert False\n"
    )
    (tmp_path / "tensorflow.py").write_text("int('x')")
    done = run_python(script, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "gpus, before, after",
    [
        (["/dev/nvidia0"], None, "--xla_gpu_enable_triton_gemm=false"),
        (["/dev/nvidia0"], "--xla_a=1", "--xla_a=1 --xla_gpu_enable_triton_gemm=false"),
        (["/dev/nvidia0"], *["--xla_gpu_enable_triton_gemm=true"] * 2),
        (["/dev/nvidia0"], "flags.txt", "flags.txt"),
        ([], None, None),
    ],
    ids=["no flags", "other flags", "flag is set", "file of flags", "no GPU"],
)
def test_triton_gemm_is_disabled_on_gpus_unless_set_by_user(gpus, before, after, monkeypatch):
    monkeypatch.setattr(runtime.glob, "glob", lambda pattern: gpus)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if before is not None:
        monkeypatch.setenv("XLA_FLAGS", before)
    runtime.set_compiler_flags()
    assert os.environ.get("XLA_FLAGS") == after


@pytest.mark.parametrize(
    ("machine", "before", "after"),
    [("x86_64", None, "1"), ("AMD64", None, "1"), ("x86_64", "0", "0"), ("aarch64", None, None)],
)
def test_commands_enable_onednn_on_x86_unless_set_by_user(machine, before, after, monkeypatch):
    # Also restores the variables that set_environment changes.
    for name in ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(runtime.platform, "machine", lambda: machine)
    if before is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", before)
    runtime.set_environment()
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == after


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 fma\n", False),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx_ne_convert\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd\n", True),
        (None, True),
    ],
    ids=["AVX2", "AVX-512", "AVX-NE-CONVERT", "ARM", "no file"],
)
def test_bfloat16_support_is_found(text, expected, tmp_path):
    _write_files(tmp_path, {} if text is None else {"proc/cpuinfo": text})
    assert runtime.supports_bfloat16(str(tmp_path)) is expected


# === Usable cores: affinity and cgroup quota ===


def _write_files(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        pytest.param(None, {}, 64, id="no cgroups"),
        pytest.param("0::/\n", {}, 64, id="no quota"),
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="quota of own cgroup"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 2, id="rounded up"),
        pytest.param("0::/\n", {"cpu.max": "10000 100000\n"}, 1, id="at least one"),
        pytest.param("0::/a\n", {"a/cpu.max": "max 100000\n"}, 64, id="version 2, no quota"),
        pytest.param(
            "0::/a/b\n",
            {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "800000 100000\n"},
            3,
            id="quota of parent cgroup",
        ),
        pytest.param("0::/a/b\n", {"c/cpu.max": "300000 100000\n"}, 64, id="quota of other cgroup"),
        pytest.param(
            "4:cpu,cpuacct:/docker/12ab\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "50000\n"},
            5,
            id="version 1, quota",
        ),
        pytest.param(
            "4:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "50000\n"},
            64,
            id="version 1, no quota",
        ),
        pytest.param("3:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "9\n"}, 64, id="no cpu controller"),
    ],
)
def test_cgroup_quota_limits_cores(monkeypatch, tmp_path, cgroup, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(64), raising=False)
    _write_files(tmp_path, {} if cgroup is None else {"proc/self/cgroup": cgroup})
    _write_files(tmp_path / "sys/fs/cgroup", files)
    assert usable_cores(str(tmp_path)) == cores


def test_affinity_limits_cores_if_available(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert usable_cores(str(tmp_path)) == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores(str(tmp_path)) == 9
