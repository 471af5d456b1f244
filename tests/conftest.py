"""What every test starts from, and fixtures that any of them may ask for."""

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

# A shell starts its background jobs deaf to Ctrl-C, and processes hand that on: the tests that
# interrupt one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None,
    reason="Apache Beam is not installed: pip install 'bert_tf[beam]'",
)


def pytest_collection_finish() -> None:
    """Leaves out of every later collection what imports have made, which stays to the end.

    The others come more rarely: graphs are many objects, of which few are garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(autouse=True)
def unchanged_arithmetic():
    """Fails a test that leaves bfloat16 to the tests after it."""
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
    """A context in which no file gets larger than so many bytes: a write fails half-way."""

    @contextlib.contextmanager
    def limit(size: int) -> Iterator[None]:
        was = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, was[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, was)

    return limit


@pytest.fixture(scope="session")
def unpacked(data_dir, tmp_path_factory):
    """A function that unpacks an archive of the real data, and gives the folder of its files."""

    @functools.cache
    def unpack(name: str) -> pathlib.Path:
        folder = tmp_path_factory.mktemp("unpacked")
        shutil.unpack_archive(data_dir / name, folder)
        return folder

    return unpack


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """The folder of real data that ``BERT_TF_DATA`` names; without it the test skips, saying so."""
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        pytest.skip(
            "real data is missing: set BERT_TF_DATA to the folder that CONTRIBUTING.md describes"
        )
    path = pathlib.Path(folder)
    if not path.is_dir():
        raise ValueError(f"BERT_TF_DATA names {folder!r}, which is not a folder.")
    return path


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and gives its path: of text, of bytes, or of lines.

    A line that is no text is written as JSON.
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
