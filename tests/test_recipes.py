"""Commands in the recipes are valid, and every task has a recipe."""

import re

import pytest
from absl import flags

from bert_tf.cli import flag_fields
from bert_tf.finetuning.settings import declarations, settings_from_flags
from bert_tf.tasks.training_options import GLUE_NAMES
from tests.documents import ROOT, blocks, commands

FOLDER = ROOT / "docs" / "recipes"
RECIPES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs docs/ of a checkout")


def _trainings(path):
    """Returns the arguments of the finetune commands in a recipe."""
    return [
        arguments
        for block in blocks(path)
        for name, arguments in commands(block.text)
        if name == "finetune"
    ]


def _settings(arguments):
    values = flags.FlagValues()
    flag_fields.define_flags(values, *declarations())
    assert values(["finetune", *arguments]) == ["finetune"]  # no positional arguments
    return settings_from_flags(values)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_commands_have_valid_settings(path):
    trainings = _trainings(path)
    assert len(trainings) >= 2
    for arguments in trainings:
        settings = _settings(arguments)
        assert settings.init_checkpoint
        if settings.glue and path.stem in GLUE_NAMES:
            assert settings.task == path.stem


def test_every_task_has_a_recipe():
    tasks = {_settings(words).task for path in RECIPES for words in _trainings(path)}
    # AX has no training data; the recipe of MNLI predicts it.
    others = {"swag", "ner", "squad", "classification", "multilabel", "regression"}
    assert tasks == {*GLUE_NAMES, *others, "tagging", "multiple_choice"} - {"ax"}
    listed = re.findall(r"\((\w\S*\.md)\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == [path.name for path in RECIPES]
