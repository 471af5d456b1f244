"""What ``--grid`` asks for: values of some settings, and which combinations are tried."""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.cli.flag_fields import nearest

# What a grid may vary: nothing of it changes what is read, tokenised, or which weights are first.
NAMES = (
    *("train_batch_size", "learning_rate", "num_train_epochs", "warmup_proportion"),
    *("weight_decay", "layer_decay", "optimizer", "freeze", "label_smoothing"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    *("distillation_weight", "distillation_temperature"),
)
_FORM = "NAME=VALUE,VALUE;NAME=VALUE,VALUE"
_MOST_DRAWS = 100  # for each trial, until one is new


class _Range(NamedTuple):
    """Numbers to draw from: on a logarithmic scale where both ends are above 0."""

    low: float
    high: float

    def draw(self, generator: random.Random) -> float:
        if self.low > 0:
            drawn = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = generator.uniform(self.low, self.high)
        return round(drawn) if isinstance(self.low, int) else float(f"{drawn:.3g}")


def combinations(
    text: str, trials: int | None, seed: int, parse: Callable[[str, str], Any]
) -> list[dict[str, Any]]:
    """The combinations that a grid asks for: all of them, or so many trials drawn by the seed.

    ``parse`` makes a setting's value of its name and text, as the command line does.
    """
    grid = _read(text, parse)
    if trials is None:
        for name, values in grid.items():
            if isinstance(values, _Range):
                raise ValueError(
                    f"--grid={text}: the range of {name} is to be drawn from: give the number of "
                    "draws by --trials."
                )
        return [dict(zip(grid, found, strict=True)) for found in itertools.product(*grid.values())]
    generator = random.Random(seed)
    found: list[dict[str, Any]] = []
    for _ in range(trials * _MOST_DRAWS):
        drawn = {
            name: values.draw(generator) if isinstance(values, _Range) else generator.choice(values)
            for name, values in grid.items()
        }
        if drawn not in found:
            found.append(drawn)
        if len(found) == trials:
            break
    return found


def _read(text: str, parse: Callable[[str, str], Any]) -> Mapping[str, Sequence[Any] | _Range]:
    grid: dict[str, Sequence[Any] | _Range] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, values = (piece.strip() for piece in part.partition("="))
        if not (equals and values):
            raise ValueError(f"--grid={text}: expected {_FORM}, got {part!r}.")
        if name not in NAMES or name in grid:
            twice = " again" if name in grid else nearest(name, NAMES)
            raise ValueError(
                f"--grid={text}: got {name!r}{twice}, expected each once of {', '.join(NAMES)}."
            )
        try:
            low, dots, high = values.partition("..")
            if dots:
                grid[name] = _Range(parse(name, low), parse(name, high))
            else:
                found = [parse(name, value.strip()) for value in values.split(",")]
                grid[name] = list(dict.fromkeys(found))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"--grid={text}: {name} cannot be {values!r} ({str(error).rstrip('.')})."
            ) from error
        if isinstance(ends := grid[name], _Range) and not ends.low < ends.high:
            raise ValueError(f"--grid={text}: {name}={values} is no range: expected LOW..HIGH.")
    if not grid:
        raise ValueError(f"--grid={text} is empty: expected {_FORM}.")
    return grid
