"""Serves a model over HTTP, with TensorFlow Serving's REST API and a web page.

    python -m bert_tf.serve --model=runs/reviews

By default, only this machine can send requests. After Ctrl-C, the server answers pending requests
and stops. docs/guides/serving.md shows requests and how to move to TensorFlow Serving.
"""

import contextlib
import dataclasses
import importlib.util
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import names_a_model, required
from bert_tf.io import paths
from bert_tf.io.messages import one_line
from bert_tf.io.untrusted import check_model_name

_SAVED_MODEL = "saved_model.pb"
_PACKAGES = ("orjson", "uvicorn")
_MAX_SHUTDOWN_S = 29  # docs/reference/server.md promises 30 seconds.


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Flags of the command."""

    model: str = flag_fields.string(
        None,
        "Model to serve: a run, an export, or another checkpoint, which is exported first.",
        rules=[required("serve needs a run, an export or a checkpoint")],
    )
    name: str | None = flag_fields.string(
        None,
        "Name of the model in URLs; by default the name of its directory.",
        rules=[names_a_model],
    )
    special_tokens_in_texts: bool | None = flag_fields.special_tokens("in the model's training")
    host: str = flag_fields.string(
        "127.0.0.1",
        "Address to listen on: 127.0.0.1 accepts requests only from this machine, and 0.0.0.0 "
        "accepts requests from all machines.",
    )
    port: int = flag_fields.integer(
        8501,
        "Port to listen on; 0 selects a free port, which is printed.",
        min_value=0,
        max_value=65535,
    )
    max_rows: int = flag_fields.integer(
        256, "Maximum number of rows in a request.", min_value=1, advanced=True
    )
    max_bytes: int = flag_fields.integer(
        1 << 20, "Maximum size of a request in bytes.", min_value=256, advanced=True
    )
    max_waiting: int = flag_fields.integer(
        64,
        "Maximum number of pending requests; further requests get status 503.",
        min_value=1,
        advanced=True,
    )
    max_wait_seconds: int = flag_fields.integer(
        30,
        "Maximum number of seconds that a request waits before it gets status 503.",
        min_value=1,
        advanced=True,
    )


def main(settings: ServeSettings) -> None:
    """Serves a model until a signal stops the process."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"serve needs the packages {' and '.join(missing)}. Run pip install 'bert_tf[serve]'."
        )
    export = find_export(settings.model)
    if export is not None and settings.special_tokens_in_texts is not None:
        raise ValueError(
            f"--special_tokens_in_texts cannot change an existing export, {settings.model}. Pass "
            "the flag to bert_tf.export."
        )
    if export is None:
        paths.check_inputs(checkpoints=[settings.model])
    name = settings.name or _name_of(settings.model)
    # Background jobs of a shell ignore SIGINT by default.
    signal.signal(signal.SIGINT, command.interrupt)
    listening = _listen(settings.host, settings.port)
    _limit_shutdown()
    from bert_tf.serving import server

    bounds = server.Limits(
        settings.max_rows, settings.max_bytes, settings.max_waiting, settings.max_wait_seconds
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(listening)
        host, port = listening.getsockname()[:2]
        running = stack.enter_context(server.Server(name, listening, bounds))
        if export is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            export = _export(settings, os.path.join(folder, "1"), name)
        print(f"Loading {export}.", flush=True)
        command.load_tensorflow()
        from bert_tf.serving import model

        served = model.load(export)
        served.warm_up()
        running.open(served)
        if not _is_this_machine(host):
            print(
                f"--host={settings.host}: every machine that can reach this one can send requests, "
                "without a password or encryption."
            )
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        message = f"Listening at {url}/ (page) and {url}/v1/models/{name} (REST); Ctrl-C stops it."
        with contextlib.suppress(KeyboardInterrupt):
            print(message, flush=True)
            running.wait(model.return_memory)
    print("Stopped.", flush=True)
    os._exit(0)  # a running TensorFlow computation cannot be stopped


def find_export(path: str) -> str | None:
    """Returns the directory of the newest version of an export or run, or ``None``.

    ``path`` is a version directory of an export, its parent, or a run directory.
    """
    local = paths.local_path(path)
    for folder in () if local is None else (Path(local), Path(local, "export")):
        if (folder / _SAVED_MODEL).is_file():
            return str(folder)
        found = [file.parent for file in folder.glob(f"*/{_SAVED_MODEL}")]
        versions = [version for version in found if version.name.isdecimal()]
        if versions:
            return str(max(versions, key=lambda version: int(version.name)))
    return None


def _name_of(path: str) -> str:
    """Returns the name of a model's directory, ignoring a final ``export`` and version number."""
    parts = os.path.abspath(path).split(os.sep) if "://" not in path else path.split("/")
    while len(parts) > 1 and (parts[-1].isdecimal() or parts[-1] in ("", "export")):
        parts.pop()
    try:
        check_model_name(parts[-1])
    except ValueError:
        return "model"
    return parts[-1]


def _export(settings: ServeSettings, output: str, name: str) -> str:
    """Exports a checkpoint in another process, so that its memory is freed."""
    print(f"Exporting {one_line(settings.model)} to a temporary directory.", flush=True)
    line = ["bert_tf.export", f"--model={settings.model}", f"--output={output}", f"--name={name}"]
    if settings.special_tokens_in_texts is not None:
        line.append(f"--special_tokens_in_texts={settings.special_tokens_in_texts}")
    process = subprocess.run([sys.executable, "-m", *line], stdout=subprocess.DEVNULL)
    if process.returncode:
        sys.exit(process.returncode)  # the process has printed the error
    return output


def _listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With an explicit protocol, asyncio sets TCP_NODELAY.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        raise ValueError(
            f"Cannot listen on --host={host} --port={port}: {error.strerror or error}. Use another "
            "port, or --port=0 for a free one."
        ) from error
    return listening


def _limit_shutdown() -> None:
    """Ends the process some time after its first signal, if it still runs.

    Python handles signals only between operations of the main thread. A signal just before a
    blocking operation does not end it; SIGURG does. Libraries can catch the KeyboardInterrupt.
    """
    main_thread = threading.get_ident()
    signal.signal(signal.SIGURG, lambda *_: None)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def end() -> None:
        os.read(reading, 1)
        for _ in range(_MAX_SHUTDOWN_S):
            time.sleep(1)
            signal.pthread_kill(main_thread, signal.SIGURG)
        os._exit(command.INTERRUPTED)

    threading.Thread(target=end, daemon=True).start()


def _is_this_machine(address: str) -> bool:
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


if __name__ == "__main__":
    command.run(main, ServeSettings)
