"""What tests of this folder share: a tiny checkpoint and tables, a finished run."""

import pytest

from bert_tf.finetuning.run import run
from bert_tf.results.run_directory import FineTuningDirectory

from .small_runs import settings, write_inputs


@pytest.fixture(scope="session", autouse=True)
def delete_state():
    """Runs keep their last state here when they have finished, so that tests can compare it.

    Gives what deletes it.
    """
    before = FineTuningDirectory.delete_state
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FineTuningDirectory, "delete_state", lambda self: None)
        yield before


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder of inputs; see ``write_inputs``."""
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def finished(inputs, tmp_path_factory):
    """A run of 3 epochs of 6 steps that nothing interrupted: its directory."""
    model_dir = tmp_path_factory.mktemp("finished") / "run"
    run(settings(inputs, model_dir, eval_steps=4, test_file=inputs / "test.tsv"))
    return model_dir
