"""Sample requests to an export, and their answers."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.answering.signatures import Requests

from .replay import to_array, to_json


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
