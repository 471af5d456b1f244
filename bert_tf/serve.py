"""Serves a model over HTTP: TensorFlow Serving's REST interface, and a page to try it in a browser.

    python -m bert_tf.serve --model=runs/reviews

It listens on this machine alone, until Ctrl-C, which lets the requests in hand be answered;
docs/guides/serving.md shows what clients ask, and how TensorFlow Serving takes over.
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
from pathlib import Path

from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import names_a_model, required
from bert_tf.io import paths
from bert_tf.io.untrusted import check_model_name
from bert_tf.io.wording import one_line

_SAVED_MODEL = "saved_model.pb"
_PACKAGES = ("orjson", "uvicorn")


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Every flag."""

    model: str = flag_fields.string(
        None,
        "Serve this: a run, an export, or another checkpoint, which is exported for the time.",
        rules=[required("serve needs a run, an export or a checkpoint")],
    )
    name: str | None = flag_fields.string(
        None,
        "Give the model this name, a part of the address that clients call; by default its "
        "directory's.",
        rules=[names_a_model],
    )
    special_tokens_in_texts: bool | None = flag_fields.special_tokens("the model was trained")
    host: str = flag_fields.string(
        "127.0.0.1",
        "Listen at this address: 127.0.0.1 is reached from this machine alone, 0.0.0.0 from all "
        "that reach the machine.",
    )
    port: int = flag_fields.integer(
        8501,
        "Listen at this port; 0 is any free one, which is printed.",
        min_value=0,
        max_value=65535,
    )
    max_rows: int = flag_fields.integer(
        256, "Refuse requests of more rows.", min_value=1, advanced=True
    )
    max_bytes: int = flag_fields.integer(
        1 << 20, "Refuse requests of more bytes.", min_value=256, advanced=True
    )
    max_waiting: int = flag_fields.integer(
        64, "Refuse requests (503) while so many wait or are answered.", min_value=1, advanced=True
    )
    max_wait_seconds: int = flag_fields.integer(
        30, "Give up requests (503) that have waited so long.", min_value=1, advanced=True
    )


def main(settings: ServeSettings) -> None:
    """Serves, until a signal ends it."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"serve needs {' and '.join(missing)}, which this environment lacks: run "
            "pip install 'bert_tf[serve]'."
        )
    export = find_export(settings.model)
    if export is not None and settings.special_tokens_in_texts is not None:
        raise ValueError(
            f"--special_tokens_in_texts: {settings.model} is exported already, and its graph reads "
            "text as it was exported: give the flag to bert_tf.export."
        )
    if export is None:
        paths.check_inputs(checkpoints=[settings.model])
    name = settings.name or _name_of(settings.model)
    # A shell's job in the background ignores Ctrl-C's, by which kill -INT ends a server.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    listening = _listen(settings.host, settings.port)
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
            found = settings.special_tokens_in_texts
            export = _export(settings.model, os.path.join(folder, "1"), name, found)
        print(f"Loading {export}.", flush=True)
        command.load_tensorflow()
        from bert_tf.serving import model

        served = model.load(export)
        served.warm_up()
        running.open(served)
        if not _is_this_machine(host):
            print(
                f"--host={settings.host}: whoever reaches this machine can ask the model, without "
                "a password, and what they send is not encrypted."
            )
        place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        says = f"Listening at {place}/ (a page), {place}/v1/models/{name} (REST); Ctrl-C ends it."
        with contextlib.suppress(KeyboardInterrupt):
            print(says, flush=True)
            running.wait(model.return_memory)
    print("Ended.", flush=True)
    os._exit(0)  # what the model may compute still is for nobody, and cannot be ended


def find_export(path: str) -> str | None:
    """The newest version's directory of an export or of a run; ``None`` where there is none.

    ``path`` is a version's directory, the one above, or a run's.
    """
    local = paths.local_path(path)
    for folder in () if local is None else (Path(local), Path(local, "export")):
        if (folder / _SAVED_MODEL).is_file():
            return str(folder)
        every = [file.parent for file in folder.glob(f"*/{_SAVED_MODEL}")]
        versions = [version for version in every if version.name.isdecimal()]
        if versions:
            return str(max(versions, key=lambda version: int(version.name)))
    return None


def _name_of(path: str) -> str:
    """The name of a model's directory, above those of a version and of a run's export."""
    parts = os.path.abspath(path).split(os.sep) if "://" not in path else path.split("/")
    while len(parts) > 1 and (parts[-1].isdecimal() or parts[-1] in ("", "export")):
        parts.pop()
    try:
        check_model_name(parts[-1])
    except ValueError:
        return "model"
    return parts[-1]


def _export(checkpoint: str, output: str, name: str, found: bool | None) -> str:
    """Exports a checkpoint, in another process, whose memory is given back."""
    print(f"Exporting {one_line(checkpoint)} to a temporary directory.", flush=True)
    line = ["bert_tf.export", f"--model={checkpoint}", f"--output={output}", f"--name={name}"]
    line += [] if found is None else [f"--special_tokens_in_texts={found}"]
    process = subprocess.run([sys.executable, "-m", *line], stdout=subprocess.DEVNULL)
    if process.returncode:
        sys.exit(process.returncode)  # its sentence stands on standard error
    return output


def _listen(host: str, port: int) -> socket.socket:
    """A socket of a place."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends what is written at once (TCP_NODELAY) where the protocol is said.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        raise ValueError(
            f"--host={host} --port={port} cannot be listened at ({error.strerror or error}): name "
            "another port, or --port=0 for any free one."
        ) from error
    return listening


def _is_this_machine(address: str) -> bool:
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


if __name__ == "__main__":
    command.run(main, ServeSettings)
