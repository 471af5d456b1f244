"""Sample requests to an export, and their answers."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .replay import to_array, to_json
from .served import Served

# Requests: of each its columns, by the inputs' names.
Requests = Sequence[Mapping[str, list[Any]]]

TEXTS = [
    "The harbour was quiet when the last boat came in.",
    "I would not see this film again, even for free.",
    "Ada Brandt moved from Lisbon to Oslo in 1931.",
]
SECOND_TEXTS = [
    "Nobody was waiting on the pier.",
    "It was a waste of time.",
    "She never left Portugal.",
]
BEYOND_ASCII = "Señor Núñez zahlt 5 € in Zürich: 東京の天気 👍"
NOT_UTF8 = b"The caf\xe9 in \xffOslo is \xc3 open."


def long_text(served: Served) -> str:
    """A text of more tokens than a row has."""
    return " ".join(["The boat came in ."] * (served.max_seq_length // 5 + 1))


def odd_texts(served: Served) -> list[Any]:
    """Texts that a server must take, four."""
    return ["", BEYOND_ASCII, NOT_UTF8, long_text(served)]


def requests_of_texts(served: Served, names: Sequence[str]) -> Requests:
    """Requests of texts or pairs, by the names of the inputs."""
    odd = odd_texts(served)
    ordinary = dict(zip(names, (TEXTS, SECOND_TEXTS), strict=False))
    return ordinary, dict(zip(names, (odd, odd[::-1]), strict=False))


# === Answers ===


@dataclasses.dataclass(frozen=True)
class Sample:
    """A request and its answer, arrays by name; strings are objects, ``bytes`` each."""

    signature: str
    number: int  # among the signature's, from 0
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]

    @property
    def batch_size(self) -> int:
        """The rows of the request."""
        return len(next(iter(self.inputs.values())))

    def rest_request(self, rows: int | None = None) -> dict[str, Any]:
        """The body of REST's request, by columns, of all rows or the first ``rows``."""
        inputs = {name: to_json(value[:rows]) for name, value in self.inputs.items()}
        return {"signature_name": self.signature, "inputs": inputs}

    def rest_response(self) -> dict[str, Any]:
        """The body of the answer, without the name of a single output, as the server has it."""
        outputs = {name: to_json(value) for name, value in self.outputs.items()}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def run_samples(
    name: str,
    function: Callable[..., Any],
    specs: Mapping[str, tf.TensorSpec],
    requests: Requests,
) -> list[Sample]:
    """Asks a signature, or its loaded function, requests of its inputs' ``specs``."""
    samples = []
    for number, columns in enumerate(requests):
        inputs = {key: to_array(values, specs[key]) for key, values in columns.items()}
        answer = function(**{key: tf.constant(value) for key, value in inputs.items()})
        outputs = {key: value.numpy() for key, value in answer.items()}
        for key, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ValueError(
                    f"The output {key} of the signature {name} is not finite on its sample "
                    f"{number}: the weights are damaged, or their training diverged."
                )
        samples.append(Sample(name, number, inputs, outputs))
    return samples
