"""Settings and fixtures for all tests."""

import contextlib
import functools
import gc
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import signal
import sys
from collections.abc import Iterator

import pytest

from bert_tf.io import runtime

# Commands enable oneDNN. Otherwise, results of tests in Python could differ in the last bits.
runtime.enable_onednn()

# Background jobs of a shell ignore SIGINT, and child processes inherit this. Tests that interrupt a
# process would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None,
    reason="Apache Beam is not installed: pip install 'bert_tf[beam]'",
)


def pytest_collection_finish() -> None:
    """Excludes the imported modules from garbage collections, and makes collections rarer.

    Graphs have many objects, few of which are garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(autouse=True)
def check_precision_is_reset():
    """Fails a test that does not reset bfloat16."""
    yield
    if "bert_tf.training.precision" in sys.modules:
        import keras
        from tensorflow.core.protobuf.config_pb2 import ConfigProto
        from tensorflow.python.eager import context

        options = ConfigProto.FromString(
            context.context().function_call_options.config_proto_serialized
        ).graph_options.rewrite_options
        assert options.auto_mixed_precision_onednn_bfloat16 != options.ON
        assert keras.config.dtype_policy().name == "float32"


@pytest.fixture
def full_disk():
    """Returns a context manager in which writes beyond a file size fail, as on a full disk."""

    @contextlib.contextmanager
    def limit(size: int) -> Iterator[None]:
        previous = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, previous[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, previous)

    return limit


@pytest.fixture(scope="session")
def unpacked(data_dir, tmp_path_factory):
    """Returns a function that unpacks an archive of the real data and returns the folder."""

    @functools.cache
    def unpack(name: str) -> pathlib.Path:
        folder = tmp_path_factory.mktemp("unpacked")
        shutil.unpack_archive(data_dir / name, folder)
        return folder

    return unpack


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """Returns the folder in ``BERT_TF_DATA``; skips the test if the variable is not set."""
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        pytest.skip(
            "real data is missing: set BERT_TF_DATA to the folder that CONTRIBUTING.md describes"
        )
    path = pathlib.Path(folder)
    if not path.is_dir():
        raise ValueError(f"BERT_TF_DATA is {folder!r}, which is not a folder.")
    return path


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a string, bytes or a list of lines, and returns the path.

    Lines that are not strings are written as JSON.
    """

    def write_file(name, content, line_end="\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            lines = (line if isinstance(line, str) else json.dumps(line) for line in content)
            content = "".join(line + line_end for line in lines)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write_file
