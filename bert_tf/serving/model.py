"""The SavedModel that is served, by TensorFlow alone."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.saved_models import replay
from bert_tf.untrusted import reason

from .rest import RestError, Tensors

# HTTP's status of a graph's errors, as TensorFlow Serving's http_server.cc has it; others: 500.
_STATUS = {
    **{tf.errors.INVALID_ARGUMENT: 400, tf.errors.OUT_OF_RANGE: 400},
    **{tf.errors.RESOURCE_EXHAUSTED: 429, tf.errors.UNIMPLEMENTED: 501},
}


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A loaded SavedModel; ``signatures`` are its ``SignatureDef``s as JSON, by name."""

    directory: str
    signatures: Mapping[str, Any]
    loaded: Any

    @property
    def version(self) -> int:
        """The version that the directory is named for; else 1."""
        name = os.path.basename(self.directory)
        return int(name) if name.isdecimal() else 1

    def run(
        self, signature: str, inputs: Tensors, outputs: frozenset[str] | None = None
    ) -> Tensors:
        """Asks a signature, for some outputs or for all."""
        function = self.loaded.signatures[signature]
        try:
            answer = function(**{name: tf.constant(value) for name, value in inputs.items()})
            wanted = answer.keys() if outputs is None else outputs
            return {name: np.asarray(value) for name, value in answer.items() if name in wanted}
        except tf.errors.OpError as error:
            # Before it TensorFlow names the graph's node, as Serving does not.
            sentence = reason(error).rpartition("<stack traces unavailable>")[2].strip()
            raise RestError(_STATUS.get(error.error_code, 500), sentence) from error

    def warm_up(self) -> None:
        """Asks each signature the first sample that the export has."""
        try:
            samples = replay.read_samples(self.directory)
        except replay.ReplayError:
            return  # it is no export of this library's
        for sample in samples:
            if sample.file == f"{sample.signature}.0.json":
                replay.ask(self.loaded.signatures[sample.signature], sample.inputs)


def load(directory: str) -> ServedModel:
    """Loads the SavedModel of a version's directory."""
    replay.load_text_operations()
    loaded = replay.load(directory)
    saved = saved_model_pb2.SavedModel()
    with tf.io.gfile.GFile(os.path.join(directory, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    definitions = saved.meta_graphs[0].signature_def
    signatures = {
        name: json.loads(  # in the order of the names, which maps of a proto do not have
            json_format.MessageToJson(
                definitions[name],
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                sort_keys=True,
            )
        )
        for name in loaded.signatures
    }
    return ServedModel(directory, signatures, loaded)
