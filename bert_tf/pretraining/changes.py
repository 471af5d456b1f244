"""``--change``: other settings for a run that is under way or finished, from its checkpoint on."""

import dataclasses
from collections.abc import Collection

from bert_tf.training.run_directory import RunDirectory

from .rules import BY_CHANGE, overridden
from .settings import MAY_DIFFER, PretrainingSettings, phases_of

_DROPOUTS = "attention_probs_dropout_prob", "hidden_dropout_prob"


def with_changes(
    settings: PretrainingSettings,
    directory: RunDirectory,
    given: Collection[str],
    paths: frozenset[str],
) -> PretrainingSettings:
    """The settings, with a run's own for changeable flags that are not ``given``; keeps changes.

    Nothing is done for a run without progress, nor for one that has no changes. ``paths`` are as
    ``RunDirectory.check_settings`` takes them, which refuses all that ``--change`` does not name.
    """
    kept = directory.kept_flags() if directory.has_progress() else {}
    if not kept or not (settings.change or kept.get("changes")):
        return settings
    own = {name: kept[name] for name in BY_CHANGE.difference(given)}
    settings = dataclasses.replace(settings, **own)
    now = settings.to_dict()
    now["config_overrides"] = list(settings.config_overrides)  # as JSON has it
    before = {name: kept[name] for name in settings.change}
    changed = {name: now[name] for name, value in before.items() if value != now[name]}
    if changed:
        step = directory.newest_step()
        _check(settings, dataclasses.replace(settings, **before), step, directory.path)
        may_differ = MAY_DIFFER.union(changed)
        directory.compare_settings(now, may_differ, paths, BY_CHANGE)
        # The fingerprint is of the config with its overrides.
        outdated = ["--bert_config"] if "config_overrides" in changed else []
        directory.change_settings(step, changed, outdated)
    return settings


def _check(
    settings: PretrainingSettings, before: PretrainingSettings, step: int, path: str
) -> None:
    """Refuses what a run at a step cannot become."""
    last = settings.num_train_steps
    if last < step:
        raise ValueError(
            f"--num_train_steps={last} is less than the {step:,} steps that the run in {path} has "
            "made: give as many or more."
        )
    if settings.num_warmup_steps > last:
        raise ValueError(
            f"--num_warmup_steps={settings.num_warmup_steps}, the run's, is more than "
            f"--num_train_steps={last}: change both."
        )
    if len(phases_of(settings)) != len(phases_of(before)):
        raise ValueError(
            f"--num_train_steps={last} leaves --phases={settings.phases} another number of phases "
            f"that have steps than the run in {path} has: give another number."
        )
    old, new = (overridden(each.config_overrides) for each in (before, settings))
    other = {name for name in old | new if old.get(name) != new.get(name)}.difference(_DROPOUTS)
    if other := other or old.keys() - new.keys():
        raise ValueError(
            f"--change=config_overrides changes {' and '.join(_DROPOUTS)} alone: repeat the run's "
            f"value of {', '.join(sorted(other))}."
        )
