import pytest

from bert_tf import startup


@pytest.mark.parametrize(
    "installed, message",
    [
        ({}, "none is installed: run pip install 'tensorflow==2.21"),
        ({"tensorflow": "2.21.0", "tensorflow-tpu": "2.20.0"},
         "overwrite each other's files: run pip uninstall -y tensorflow tensorflow-tpu"),
        ({"tensorflow": "2.19.1", "tensorflow-text": "2.19.0"},
         r"tensorflow 2.19.1 is installed, and bert_tf runs with 2.20 and 2.21"),
        ({"tensorflow-tpu": "2.19.1", "tensorflow-text": "2.19.0"},
         r"run pip install --no-deps 'tensorflow-tpu==2.20.\*' 'tensorflow-text~=2.20.1'"),
        ({"tensorflow": "2.21.0"}, "needs tensorflow-text 2.21, and none is installed"),
        ({"tensorflow": "2.20.0", "tensorflow-text": "2.21.1"},
         r"needs tensorflow-text 2.20, and 2.21.1 is installed: run pip install --no-deps "
         r"'tensorflow-text~=2.20.1'"),
        ({"tensorflow-cpu": "2.20.0", "tensorflow-text": "2.20.0"},
         r"text 2.20.0 is installed, and is broken: run pip .* 'tensorflow-text~=2.20.1'"),
        ({"tensorflow": "2.21.0", "tensorflow-text": "2.21.0"},
         r"text 2.21.0 is installed, and is broken: run pip .* 'tensorflow-text~=2.21.1'"),
    ],
)  # fmt: skip
def test_a_mismatch_is_told_with_the_command_that_mends_it(installed, message, monkeypatch):
    monkeypatch.setattr(startup, "_installed", installed.get)
    with pytest.raises(ImportError, match=message):
        startup.check_versions()


def test_tpu_builds_count_as_tensorflow(monkeypatch):
    installed = {"tensorflow-tpu": "2.20.0", "tensorflow-text": "2.20.1"}
    monkeypatch.setattr(startup, "_installed", installed.get)
    startup.check_versions()
    assert startup.SUPPORTED_MINORS == ("2.20", "2.21")


@pytest.mark.parametrize(
    "line, has_gpu, noise",
    [
        (b"I0000 00:00:17.68 5278 port.cc:153] oneDNN custom operations are on.", True, True),
        (b"2026-01-01 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN", True, True),
        (b"WARNING: All log messages before absl::InitializeLog() is called are", True, True),
        (b"W0000 00:00:1 2 local_rendezvous.cc:412] Local rendezvous is aborting", True, True),
        (b"E0000 00:00:1 2 cuda_platform.cc:52] failed call to cuInit: INTERNAL", False, True),
        (b"E0000 00:00:1 2 util.cc:131] oneDNN supports DT_INT64 only on platforms", True, True),
        # Where there is a GPU, that it cannot be used is news.
        (b"E0000 00:00:1 2 cuda_platform.cc:52] failed call to cuInit: INTERNAL", True, False),
        (b"W0000 00:00:1 2 gpu_device.cc:9] Cannot dlopen some GPU libraries.", True, False),
        (b"F0000 00:00:1 2 check.cc:9] Check failed", False, False),
        (b"Traceback (most recent call last):", False, False),
        (b"", False, False),
    ],
)
def test_only_what_tells_nothing_is_dropped(line, has_gpu, noise):
    assert startup._is_noise(line, has_gpu) is noise
