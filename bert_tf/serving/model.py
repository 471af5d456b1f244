"""Served SavedModel, run in a TensorFlow session.

As in TensorFlow Serving, a session runs requests in parallel, with one thread per operation. For
short texts, the functions of ``tf.saved_model.load`` are slower.
"""

import ctypes
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.io.messages import reason
from bert_tf.io.runtime import usable_cores
from bert_tf.saved_models import replay

from .rest import RestError, Tensors, to_array

_v1 = tf.compat.v1
# HTTP status by TensorFlow error, as in TensorFlow Serving's http_server.cc; by default 500.
_STATUS = {
    **{tf.errors.INVALID_ARGUMENT: 400, tf.errors.OUT_OF_RANGE: 400},
    **{tf.errors.RESOURCE_EXHAUSTED: 429, tf.errors.UNIMPLEMENTED: 501},
}


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """Loaded SavedModel.

    Attributes:
        directory: Directory of the version.
        signatures: ``SignatureDef`` JSON by name.
        functions: Functions by signature that map the input values to the output values.
    """

    directory: str
    signatures: Mapping[str, Any]
    functions: Mapping[str, Callable[..., list[np.ndarray]]]

    @property
    def version(self) -> int:
        """Version number from the directory name, by default 1."""
        name = os.path.basename(self.directory)
        return int(name) if name.isdecimal() else 1

    def run(
        self, signature: str, inputs: Tensors, outputs: frozenset[str] | None = None
    ) -> Tensors:
        """Runs a signature and returns the requested outputs, by default all."""
        names = self.signatures[signature]
        try:
            values = self.functions[signature](*(inputs[name] for name in names["inputs"]))
        except tf.errors.OpError as error:
            # Unlike TensorFlow Serving, TensorFlow prepends the name of the graph node.
            message = reason(error).rpartition("<stack traces unavailable>")[2].strip()
            raise RestError(_STATUS.get(error.error_code, 500), message) from error
        answer = zip(names["outputs"], values, strict=True)
        return {name: value for name, value in answer if outputs is None or name in outputs}

    def warm_up(self) -> None:
        """Runs each signature with the first sample in the export."""
        try:
            samples = replay.read_samples(self.directory)
        except replay.ReplayError:
            return  # The export has no samples, because bert_tf did not write it.
        for sample in samples:
            if sample.file == f"{sample.signature}.0.json":
                infos = self.signatures[sample.signature]["inputs"].items()
                inputs = {
                    name: to_array(sample.inputs[name], info["dtype"]) for name, info in infos
                }
                self.run(sample.signature, inputs)
        return_memory()


def load(directory: str) -> ServedModel:
    """Loads the SavedModel in the directory of a version."""
    replay.load_text_operations()
    with tf.Graph().as_default() as graph:
        session = _v1.Session(graph=graph, config=_options())
        definitions = replay.load(directory, functools.partial(_restore, session))
    signatures = {
        name: json.loads(  # Sorted, because proto maps have no order.
            json_format.MessageToJson(
                definition,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                sort_keys=True,
            )
        )
        for name, definition in definitions.items()
        if name != replay.INITIAL
    }
    functions = {
        name: session.make_callable(
            [info["name"] for info in signature["outputs"].values()],
            [info["name"] for info in signature["inputs"].values()],
        )
        for name, signature in signatures.items()
    }
    return ServedModel(directory, signatures, functions)


def _restore(session: Any, directory: str) -> Mapping[str, Any]:
    """Restores a SavedModel in a session and returns its signatures."""
    saved = saved_model_pb2.SavedModel()
    with tf.io.gfile.GFile(os.path.join(directory, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    read = saved.meta_graphs[0]
    _remove_unused(read.graph_def)
    saver = _v1.train.import_meta_graph(read)
    if saver is not None:
        saver.restore(session, os.path.join(directory, "variables", "variables"))
    if replay.INITIAL in read.signature_def:
        assets = {
            asset.tensor_info.name: os.path.join(directory, "assets", asset.filename)
            for asset in read.asset_file_def
        }
        session.run(read.signature_def[replay.INITIAL].outputs[replay.INITIAL].name, assets)
    return dict(read.signature_def.items())


def _remove_unused(graph: Any) -> None:
    """Removes functions that no signature calls, such as training functions."""
    functions = {function.signature.name: function for function in graph.library.function}
    used: set[str] = set()
    waiting = [graph.node]
    while waiting:
        for node in waiting.pop():
            values = node.attr.values()
            named = [f.name for value in values for f in (value.func, *value.list.func)]
            for name in {node.op, *named} & functions.keys() - used:
                used.add(name)
                waiting.append(functions[name].node_def)
    del graph.library.function[:], graph.library.gradient[:]
    graph.library.function.extend(functions[name] for name in functions if name in used)


def _options() -> Any:
    options = _v1.ConfigProto()
    if not tf.config.list_physical_devices("GPU"):
        options.intra_op_parallelism_threads = 1
        options.inter_op_parallelism_threads = max(usable_cores(), 2)
        options.use_per_session_threads = True
    return options


def return_memory() -> None:
    """Returns free memory to the operating system, which glibc does not do by itself."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
