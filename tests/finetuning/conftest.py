"""A tiny checkpoint and tables, and a finished run on them, for all tests of this folder."""

import pytest

from bert_tf.finetuning.run import run

from .small_runs import sentences, settings, write_checkpoint, write_table


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with ``tiny``, a checkpoint, and ``train.tsv``, ``dev.tsv`` and ``test.tsv``."""
    folder = tmp_path_factory.mktemp("inputs")
    write_checkpoint(folder / "tiny")
    write_table(folder / "train.tsv", sentences(46))
    write_table(folder / "dev.tsv", sentences(20, seed=1))
    (folder / "test.tsv").write_text(
        "text\n" + "".join(f"{text}\n" for text, _ in sentences(9, seed=2))
    )
    return folder


@pytest.fixture(scope="session")
def finished(inputs, tmp_path_factory):
    """A run of 3 epochs of 6 steps that nothing interrupted: its directory."""
    model_dir = tmp_path_factory.mktemp("finished") / "run"
    run(settings(inputs, model_dir, eval_steps=4, test_file=inputs / "test.tsv"))
    return model_dir
