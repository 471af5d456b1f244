"""Compiles ``engine.cc`` against the installed TensorFlow, and runs it.

TensorFlow's wheel contains the headers and, in ``libtensorflow_cc.so.2``, the loader that
TensorFlow Serving uses. Only a compiler is needed in addition.
"""

import functools
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.protobuf import named_tensor_pb2

# The libraries of tensorflow_text with the operations of exports.
_TEXT_LIBRARIES = ("_fast_bert_normalizer.so", "_fast_wordpiece_tokenizer.so")
SOURCE = pathlib.Path(__file__).with_name("engine.cc")


def compiler() -> str | None:
    """Returns the path of the C++ compiler, if installed."""
    return shutil.which("g++")


def compile_engine(folder: str) -> str:
    """Compiles the program into a folder and returns its path, or raises ``ValueError``."""
    libraries = tf.sysconfig.get_lib()
    program = os.path.join(folder, "engine")
    command = [
        compiler() or "g++",
        "-O1",
        *tf.sysconfig.get_compile_flags(),
        "-o",
        program,
        str(SOURCE),
        # The program uses no symbol of the library that registers sessions, so keep it explicitly.
        "-Wl,--no-as-needed",
        os.path.join(libraries, "libtensorflow_cc.so.2"),
        os.path.join(libraries, "libtensorflow_framework.so.2"),
        f"-Wl,-rpath,{libraries}",
        "-pthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{' '.join(command)} failed:\n{done.stderr}")
    return program


@functools.cache
def _response_type() -> Any:
    """Returns the part of ``PredictResponse`` that is read; map entries are key-value messages."""
    field = descriptor_pb2.FieldDescriptorProto(
        name="outputs",
        number=1,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
        type_name="." + named_tensor_pb2.NamedTensorProto.DESCRIPTOR.full_name,
    )
    file = descriptor_pb2.FileDescriptorProto(
        name="tests/saved_models/response.proto",
        package="tests",
        dependency=[named_tensor_pb2.DESCRIPTOR.name],
        message_type=[descriptor_pb2.DescriptorProto(name="Response", field=[field])],
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Response"))


def text_libraries() -> str:
    """Returns the libraries of tensorflow_text that exports need, separated by commas."""
    spec = importlib.util.find_spec("tensorflow_text")
    folder = os.path.join(spec.submodule_search_locations[0], "python", "ops")
    return ",".join(os.path.join(folder, name) for name in _TEXT_LIBRARIES)


def answers(
    program: str, export: str, requests: Sequence[str], folder: str
) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
    """Runs the engine on files with one ``PredictRequest`` each.

    Returns the report about loading, warm-up and the first answer, and the outputs by name for
    each request. The program writes its answers to ``folder``.

    Raises:
        ValueError: If the program fails.
    """
    done = subprocess.run(
        [program, export, text_libraries(), folder, *requests],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    if done.returncode:
        raise ValueError(f"The engine ended with status {done.returncode}: {done.stderr}")
    found = []
    for request in requests:
        path = os.path.join(folder, os.path.basename(request) + ".answer")
        with open(path, "rb") as file:
            tensors = _response_type().FromString(file.read()).outputs
        found.append({entry.name: tf.make_ndarray(entry.tensor) for entry in tensors})
    return json.loads(done.stdout), found
