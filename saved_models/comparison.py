"""What lower precision costs: an export's answers to its samples against those of float32."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from bert_tf import features

from .embeddings import flat_outputs
from .lite import SIGNATURE
from .precision import copy_model
from .samples import Sample, requests_of_ids, run_samples
from .served import Outputs, Served
from .signatures import model_signatures


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far an output is from the reference's: the absolute differences of its numbers."""

    largest: float
    mean: float
    # The least of two vectors along the last axis; None where that axis holds no vectors.
    cosine: float | None


# By what was asked and by output.
Differences = Mapping[str, Mapping[str, Difference]]
# Every block's states would be too much to read; the last's are `sequence_output`.
_LEFT_OUT = "encoder_outputs_"


def compare_signatures(reference: Served, samples: Iterable[Sample]) -> Differences:
    """Asks a float32 model an export's samples; each signature is compared by one of its names."""
    answers = {(sample.signature, sample.number): sample.outputs for sample in samples}
    found: dict[str, Mapping[str, Difference]] = {}
    compared = set()
    for name, signature in model_signatures(reference).items():
        if id(signature) in compared:
            continue
        compared.add(id(signature))
        found[name] = over_all(
            differences(dict(sample.outputs), dict(answers[name, sample.number]))
            for sample in run_samples(name, signature.function, signature)
        )
    return found


def compare_tflite(served: Served, path: str) -> Mapping[str, Difference]:
    """Asks the encoder in float32 and a TF Lite file of it the same ids; differences by output."""
    model = served.model
    encoder = copy_model(model.encoder, "float32")
    with tf.io.gfile.GFile(path, "rb") as file:
        interpreter = tf.lite.Interpreter(model_content=file.read())
    runner = interpreter.get_signature_runner(SIGNATURE)
    found = []
    for request in requests_of_ids(served):
        ids = {name: np.array(rows, np.int32) for name, rows in request.items()}
        expected: Outputs = flat_outputs(
            encoder(ids, training=False), ids[features.INPUT_MASK], encoder.config
        )
        found.append(differences(expected, runner(**ids)))
    return over_all(found)


def describe(difference: Difference) -> str:
    """A difference in words."""
    text = f"at most {difference.largest:.2g}, {difference.mean:.2g} on average"
    if difference.cosine is None:
        return text
    # Rounded down: 1 would be said of what is near it.
    return f"{text}, cosines of {math.floor(difference.cosine * 1e5) / 1e5:.5f} and more"


def over_all(by_sample: Iterable[Mapping[str, Difference]]) -> dict[str, Difference]:
    """The differences over all samples, by output; the mean of each sample counts alike."""
    gathered: dict[str, list[Difference]] = {}
    for found in by_sample:
        for name, difference in found.items():
            if not name.startswith(_LEFT_OUT):
                gathered.setdefault(name, []).append(difference)
    return {
        name: Difference(
            largest=max(part.largest for part in parts),
            mean=statistics.fmean(part.mean for part in parts),
            cosine=min((p.cosine for p in parts if p.cosine is not None), default=None),
        )
        for name, parts in gathered.items()
    }


def differences(reference: Outputs, outputs: Outputs) -> dict[str, Difference]:
    """The difference of each float output of two answers to a request, where shapes are equal."""
    found = {}
    for name, value in reference.items():
        expected, got = (np.asarray(array) for array in (value, outputs[name]))
        is_comparable = expected.dtype.kind == "f" and expected.shape == got.shape and got.size
        if not is_comparable:
            continue
        expected, got = expected.astype(np.float64), got.astype(np.float64)
        absolute = np.abs(expected - got)
        found[name] = Difference(
            float(absolute.max()), float(absolute.mean()), _least_cosine(expected, got)
        )
    return found


def _least_cosine(expected: np.ndarray, got: np.ndarray) -> float | None:
    if expected.ndim < 2 or expected.shape[-1] < 2:
        return None
    lengths = np.linalg.norm(expected, axis=-1) * np.linalg.norm(got, axis=-1)
    products = (expected * got).sum(axis=-1)
    return float((products[lengths > 0] / lengths[lengths > 0]).min(initial=1.0))
