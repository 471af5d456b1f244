"""Recipes: named sets of pre-training flags."""

from collections.abc import Collection, Mapping
from typing import Any

# Devlin et al. 2019, section 3.1 and appendix A.2, with the predictions per row of Google's
# commands. The presets have the paper's dropout rate of 0.1.
_PAPER = {
    "vocab_size": 30_522,
    "train_batch_size": 256,
    "num_train_steps": 1_000_000,
    "num_warmup_steps": 10_000,
    "learning_rate": 1e-4,
    "weight_decay": 0.01,
    "phases": "128:0.9:20,512:0.1:76",
}
# Other flags keep their defaults. benchmarks/NOTES.md describes the ablations of five_minutes.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "bert_base": {"bert_config": "bert-base", **_PAPER},
    "bert_large": {"bert_config": "bert-large", **_PAPER},
    "five_minutes": {
        "config_overrides": [
            "num_attention_heads=4",
            "initializer_range=0.05",
            "hidden_dropout_prob=0",
            "attention_probs_dropout_prob=0",
        ],
        "phases": "12:0.1,32:0.13,128:0.77",
        "equal_tokens": True,
        "num_train_steps": 3000,
        "learning_rate": 2e-3,
        "adam_beta_2": 0.98,
    },
    # benchmarks/NOTES.md describes the experiments. The bundled model tiny used this recipe.
    "hour": {
        "config_overrides": [
            "num_attention_heads=4",
            "initializer_range=0.05",
            "hidden_dropout_prob=0",
            "attention_probs_dropout_prob=0",
            # Longer positions would never be trained.
            "max_position_embeddings=128",
        ],
        "phases": "12:0.01,32:0.03,128:0.96",
        "equal_tokens": True,
        "nsp": False,
        "masked_lm_prob": 0.3,
        "num_train_steps": 36_000,
        "num_warmup_steps": 500,
        "learning_rate": 2e-3,
        "adam_beta_2": 0.98,
    },
}

# By flag: other flags of a recipe that are dropped as well if the user passes this flag.
_ALSO_REPLACED: Mapping[str, Collection[str]] = {
    "bert_config": ["config_overrides"],
    "init_checkpoint": ["config_overrides", "bert_config", "vocab_size"],
    "vocab_file": ["vocab_size"],
    "num_train_steps": ["num_warmup_steps"],
}


def recipe_flags(name: str, given_flags: Collection[str]) -> dict[str, Any]:
    """Returns a recipe's flags, without ``given_flags`` and the flags that these replace."""
    replaced = {*given_flags}.union(*(_ALSO_REPLACED.get(flag, ()) for flag in given_flags))
    return {flag: value for flag, value in RECIPES[name].items() if flag not in replaced}


def format_recipe(name: str, values: Mapping[str, Any]) -> str:
    """Formats those flags of a recipe whose value in ``values`` equals the recipe's value.

    >>> format_recipe("five_minutes", {**RECIPES["five_minutes"], "phases": "64:1",
    ...                                "config_overrides": [], "num_train_steps": 10})
    '--equal_tokens=true --learning_rate=0.002 --adam_beta_2=0.98'
    """
    flags = []
    for flag, value in RECIPES[name].items():
        if values[flag] == value:
            text = ",".join(value) if isinstance(value, list) else value
            if isinstance(value, bool):
                text = str(value).lower()
            flags.append(f"--{flag}={text}")
    return " ".join(flags)


def legacy_recipe_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Returns recipe settings that runs of older versions did not record."""
    if not recorded or "adam_beta_2" in recorded:
        return {}
    recipe = RECIPES.get(recorded.get("recipe", ""), {})
    defaults = {"adam_beta_2": 0.999, "equal_tokens": False}
    return {name: recipe.get(name, value) for name, value in defaults.items()}
