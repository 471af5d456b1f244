"""A corpus, and a finished run on it, for the tests of this folder."""

import json

import pytest

from .commands import TINY, pretrain, write_corpus


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_corpus(folder / "corpus.txt")
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


@pytest.fixture(scope="session")
def finished(inputs, tmp_path_factory):
    """Directory and output of an uninterrupted run of 12 steps."""
    model_dir = tmp_path_factory.mktemp("finished") / "run"
    return model_dir, pretrain(inputs, model_dir)
