import pytest

from bert_tf import versions


@pytest.mark.parametrize(
    "installed, message",
    [
        ({}, "none is installed: run pip install 'tensorflow==2.21"),
        ({"tensorflow": "2.21.0", "tensorflow-tpu": "2.20.0"},
         "overwrite each other's files: run pip uninstall -y tensorflow tensorflow-tpu"),
        ({"tensorflow": "2.19.1", "tensorflow-text": "2.19.0"},
         r"tensorflow 2.19.1 is installed, and bert_tf runs with 2.20 and 2.21"),
        ({"tensorflow-tpu": "2.19.1", "tensorflow-text": "2.19.0"},
         r"run pip install --no-deps 'tensorflow-tpu==2.20.\*' 'tensorflow-text==2.20.\*'"),
        ({"tensorflow": "2.21.0"}, "needs tensorflow-text 2.21, and none is installed"),
        ({"tensorflow": "2.20.0", "tensorflow-text": "2.21.1"},
         r"needs tensorflow-text 2.20, and 2.21.1 is installed: run pip install --no-deps "
         r"'tensorflow-text==2.20.\*'"),
    ],
)  # fmt: skip
def test_a_mismatch_is_told_with_the_command_that_mends_it(installed, message, monkeypatch):
    monkeypatch.setattr(versions, "_installed", installed.get)
    with pytest.raises(ImportError, match=message):
        versions.check_versions()


def test_tpu_builds_count_as_tensorflow(monkeypatch):
    installed = {"tensorflow-tpu": "2.20.0", "tensorflow-text": "2.20.1"}
    monkeypatch.setattr(versions, "_installed", installed.get)
    versions.check_versions()
    assert versions.SUPPORTED_MINORS == ("2.20", "2.21")
