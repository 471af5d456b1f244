"""What a fine-tuning needs whose weights saw little text: a higher rate, and more epochs."""

import os
from collections.abc import Collection, Mapping
from typing import Any

from bert_tf.paths import is_local_file, local_path, of_model
from bert_tf.untrusted import MAX_JSON_BYTES, parse_json_object

# BERT saw 137 billion tokens; a pre-training of an hour on a CPU sees 70 to 160 million.
_LITTLE = 100_000_000
# docs/five_minutes.md has what they bring to the classes of a small table.
_DEFAULTS: Mapping[str, Any] = {"learning_rate": 1e-3, "num_train_epochs": 10}


def defaults_of(settings: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The flags that have other defaults for the weights that the settings name; {} for most."""
    start, run = settings["init_checkpoint"], settings["model_dir"]
    others: Mapping[str, Any] = {}
    if not (settings["feature_based"] or settings["sweep"] or settings["few_shot"]):
        # The weights that a run was started from may be gone when it goes on.
        kept = _read(os.path.join(run, "flags.json")) if _is_gone(start) else {}
        seen, _ = _tokens_seen(start)
        if seen is not None and seen < _LITTLE:
            others = _DEFAULTS
        elif kept.get("init_checkpoint") == start:
            others = {flag: v for flag, v in _DEFAULTS.items() if kept.get(flag) == v}
    set_by = {*given, *(settings["grid"] or "").replace("=", ";").split(";")}
    if settings["max_steps"]:
        set_by.add("num_train_epochs")
    return {flag: value for flag, value in others.items() if flag not in set_by}


def describe(path: str, taken: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """The sentence on the defaults that are taken.

    >>> describe("gone", {"num_train_epochs": 10}, {"num_train_epochs": 3})
    'gone saw little text, so the default is --num_train_epochs=10 instead of 3.'
    """
    seen, is_most = _tokens_seen(path)
    most = "at most " * is_most
    many = "little text" if seen is None else f"little text ({most}{seen:,} tokens)"
    flags = " and ".join(f"--{flag}={value:g}" for flag, value in taken.items())
    verb = "default is" if len(taken) == 1 else "defaults are"
    others = " and ".join(f"{usual[flag]:g}" for flag in taken)
    return f"{path} saw {many}, so the {verb} {flags} instead of {others}."


def _is_gone(path: str) -> bool:
    """Whether nothing is at a path of this machine, of a directory, a file or a prefix."""
    place = local_path(of_model(path))
    return place is not None and not (os.path.exists(place) or os.path.exists(f"{place}.index"))


def _tokens_seen(path: str) -> tuple[int | None, bool]:
    """How many tokens weights saw, where they are of a finished pre-training of this library.

    Its ``best`` weights, and those of ``steps/STEP``, saw at most as many as the whole run, which
    the second value says.
    """
    place = of_model(path).rstrip("/")
    above, name = os.path.split(place)
    found = _read(os.path.join(place, "results.json"))  # a run, too, may be called "best"
    is_part = not found and (name == "best" or os.path.basename(above) == "steps")
    if is_part:
        run = above if name == "best" else os.path.dirname(above)
        found = _read(os.path.join(run, "results.json"))
    seen = found.get("trained_tokens")
    return (seen if isinstance(seen, int) else None), is_part


def _read(path: str) -> dict[str, Any]:
    """The JSON object in a local file; {} where there is none, which others say more about."""
    try:
        if is_local_file(path) and os.path.getsize(path) <= MAX_JSON_BYTES:
            with open(path, "rb") as file:
                return parse_json_object(file.read(), path)
    except (OSError, ValueError):
        pass
    return {}
