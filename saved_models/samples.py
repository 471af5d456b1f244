"""Sample requests to an export and their responses."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.answering.signatures import Requests

from .replay import to_array, to_json


@dataclasses.dataclass(frozen=True)
class Sample:
    """Request to a signature and its response.

    Attributes:
        signature: Name of the signature.
        number: Index among the samples of the signature.
        inputs: Inputs by name. Strings are ``bytes`` in object arrays.
        outputs: Outputs by name.
    """

    signature: str
    number: int
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]

    @property
    def batch_size(self) -> int:
        """Number of rows of the request."""
        return len(next(iter(self.inputs.values())))

    def rest_request(self, rows: int | None = None) -> dict[str, Any]:
        """Returns the body of the REST request in column format, for the first ``rows``."""
        inputs = {name: to_json(value[:rows]) for name, value in self.inputs.items()}
        return {"signature_name": self.signature, "inputs": inputs}

    def rest_response(self) -> dict[str, Any]:
        """Returns the body of the REST response, in which a single output is not named."""
        outputs = {name: to_json(value) for name, value in self.outputs.items()}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def run_samples(
    name: str,
    function: Callable[..., Any],
    specs: Mapping[str, tf.TensorSpec],
    requests: Requests,
) -> list[Sample]:
    """Runs a signature with requests whose inputs have the given ``specs``."""
    samples = []
    for number, columns in enumerate(requests):
        inputs = {key: to_array(values, specs[key]) for key, values in columns.items()}
        answer = function(**{key: tf.constant(value) for key, value in inputs.items()})
        outputs = {key: value.numpy() for key, value in answer.items()}
        for key, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ValueError(
                    f"Output {key} of the signature {name} is not finite (sample {number}). The "
                    "weights are damaged, or training diverged."
                )
        samples.append(Sample(name, number, inputs, outputs))
    return samples
