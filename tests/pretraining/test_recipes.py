"""Flags that a recipe sets, flags that override them, and runs from older versions."""

import dataclasses

import pytest
from absl import flags

from bert_tf.pretraining.data import predictions_per_row
from bert_tf.pretraining.model import read_config
from bert_tf.pretraining.recipes import RECIPES, format_recipe, legacy_recipe_settings
from bert_tf.pretraining.settings import Phase, make_phases

from .commands import parse


def test_five_minute_recipe():
    settings = parse()[0]
    assert settings == parse("--recipe=five_minutes")[0]
    own = parse("--recipe=default")[0].to_dict()
    overrides = "num_attention_heads=4,initializer_range=0.05,hidden_dropout_prob=0"
    assert {name: value for name, value in settings.to_dict().items() if value != own[name]} == {
        "recipe": "five_minutes",
        "config_overrides": [*overrides.split(","), "attention_probs_dropout_prob=0"],
        "phases": "12:0.1,32:0.13,128:0.77",
        "equal_tokens": True,
        "num_train_steps": 3000,
        "num_warmup_steps": 300,
        "learning_rate": 2e-3,
        "adam_beta_2": 0.98,
    }
    assert make_phases(settings) == [
        Phase(12, 0, 300, 160), Phase(32, 300, 690, 64), Phase(128, 690, 3000, 16)
    ]  # fmt: skip


def test_hour_recipe():
    settings = parse("--recipe=hour", "--input=a")[0]
    assert make_phases(settings) == [
        Phase(12, 0, 360, 160), Phase(32, 360, 1440, 64), Phase(128, 1440, 36_000, 16)
    ]  # fmt: skip
    assert (settings.num_warmup_steps, settings.learning_rate) == (500, 2e-3)
    assert (settings.nsp, settings.pairs, settings.masked_lm_prob) == (False, True, 0.3)
    config = read_config(settings)
    assert (config.max_position_embeddings, config.hidden_dropout_prob) == (128, 0)
    with pytest.raises(ValueError, match="at most 128, .*, or set it in --config_overrides"):
        read_config(parse("--recipe=hour", "--input=a", "--max_seq_length=256")[0])
    # Another number of steps has its own warm-up.
    assert parse("--recipe=hour", "--input=a", "--num_train_steps=100")[0].num_warmup_steps == 10


@pytest.mark.parametrize("recipe", RECIPES)
def test_printed_flags_reproduce_run(recipe):
    settings = parse(f"--recipe={recipe}", "--input=a")[0]
    printed = [f"--{flag}" for flag in format_recipe(recipe, settings.to_dict()).split("--")[1:]]
    again = parse("--recipe=default", "--input=a", *map(str.strip, printed))[0]
    assert dataclasses.replace(again, recipe=recipe) == settings


@pytest.mark.parametrize("recipe", RECIPES)
def test_old_runs_keep_settings_of_recipe(recipe):
    now = parse(f"--recipe={recipe}", "--input=a")[0].to_dict()
    before = {name: now[name] for name in now.keys() - {"adam_beta_2", "equal_tokens"}}
    assert {**before, **legacy_recipe_settings(before)} == now
    assert legacy_recipe_settings({}) == legacy_recipe_settings(now) == {}


def test_defaults_suit_custom_corpus():
    own = parse("--input=a")[0]
    assert dataclasses.replace(own, input=[]) == parse("--recipe=default")[0]
    assert parse("--tfds=a")[0].recipe == parse("--init_checkpoint=a")[0].recipe == "default"
    assert parse("--input=a", "--recipe=five_minutes")[0].recipe == "five_minutes"


@pytest.mark.parametrize(("name", "sizes"), [("base", (12, 768)), ("large", (24, 1024))])
def test_recipes_of_the_paper(name, sizes):
    settings = parse(f"--recipe=bert_{name}", "--input=a")[0]
    config = read_config(settings)
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (*sizes, 30522)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    expected = [Phase(128, 0, 900_000, 256, 20), Phase(512, 900_000, 1_000_000, 256, 76)]
    assert make_phases(settings) == expected
    assert [predictions_per_row(settings, phase) for phase in expected] == [20, 76]
    assert (settings.train_batch_size, settings.learning_rate) == (256, 1e-4)
    assert (settings.num_warmup_steps, settings.weight_decay) == (10_000, 0.01)
    assert (settings.optimizer, settings.nsp, settings.pairs) == ("adam", True, True)


def test_equivalent_flags_override_paper_recipe():
    paper = "--recipe=bert_base", "--input=a"
    assert parse(*paper, "--vocab_file=b")[0].vocab_size is None
    assert parse(*paper, "--num_train_steps=100")[0].num_warmup_steps == 10
    assert parse(*paper, "--init_checkpoint=a")[0].bert_config == ""
    settings = parse(*paper, "--max_predictions_per_seq=9")[0]
    assert predictions_per_row(settings, make_phases(settings)[1]) == 9
    with pytest.raises(flags.Error, match="should be one of <default|bert_base|bert_large|"):
        parse("--recipe=paper")


def test_flag_overrides_recipe():
    assert parse("--learning_rate=1e-3", "--train_batch_size=2")[0].learning_rate == 1e-3
    assert parse("--max_seq_length=64")[0].phases == "64:1"
    assert parse("--phases=64:1")[0].phases == "64:1"
    # The config overrides for bert-tiny do not apply to another model.
    assert parse("--bert_config=bert-mini")[0].config_overrides == []
    assert parse("--init_checkpoint=a", "--recipe=five_minutes")[0].config_overrides == []
    assert parse("--seed=3")[0].config_overrides == parse()[0].config_overrides != []


def test_config_overrides():
    flags = ("--input=a", "--bert_config=bert-mini", "--vocab_size=50")
    overrides = "--config_overrides=hidden_act=relu,num_attention_heads=8,initializer_range=0.1"
    plain, other = (read_config(parse(*flags, *more)[0]) for more in ([], [overrides]))
    changes = {"hidden_act": "relu", "num_attention_heads": 8, "initializer_range": 0.1}
    assert other == dataclasses.replace(plain, **changes)
