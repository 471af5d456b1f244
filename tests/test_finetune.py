"""The finetune command resumes after being killed at any write."""

import pytest

from tests.finetuning.small_runs import arguments, assert_ends_as, finetune, write_inputs
from tests.killed_processes import kill_at_write


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("finished") / "run"
    done = finetune(inputs, model_dir)
    assert done.returncode == 0, done.stderr
    return model_dir


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_result(finished, inputs, tmp_path):
    """All runs except the last are killed when they rename a temporary file."""
    for moment, target in (
        ("before", "flags.json"),
        ("before", "checkpoints/step-00000006/manifest.json"),
        ("before", "last/step-00000006/manifest.json"),
        ("after", "last/step-00000006/manifest.json"),
        ("after", "last/step-00000018/manifest.json"),
        ("before", "dev/dev.tsv"),
        ("before", "export/1"),
        ("before", "results.json"),
    ):
        flags = arguments(inputs, tmp_path / "run", export=target == "export/1")
        kill_at_write("bert_tf.finetune", flags, moment, target)
    done = finetune(inputs, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert_ends_as(finished, tmp_path / "run")
    # A finished run has no state to resume from; the run had one at the fourth kill.
    assert not (tmp_path / "run" / "last").exists()
    # The export that was killed is written if it is requested again.
    assert finetune(inputs, tmp_path / "run", export=True).returncode == 0
    assert (tmp_path / "run/export/1/saved_model.pb").is_file()
