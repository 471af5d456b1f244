"""``python -m bert_tf.serve``: exports, errors, requests and shutdown."""

import functools
import http.client
import importlib.util
import json
import os
import signal
import socket

import pytest

from bert_tf import serve as command
from tests.processes import run_in_forks, run_main
from tests.served import Served

run = functools.partial(run_main, command)


@pytest.mark.parametrize(
    "path, export, name",
    [
        ("exports/reviews", "exports/reviews/10", "reviews"),
        ("exports/reviews/2", "exports/reviews/2", "reviews"),
        ("exports/reviews/2/", "exports/reviews/2", "reviews"),
        ("runs/mine", "runs/mine/export/1", "mine"),
        ("runs/mine/export/1", "runs/mine/export/1", "mine"),
        ("runs/my run", None, "model"),
        ("tiny", None, "tiny"),
        ("hf://google/bert_uncased", None, "bert_uncased"),
        ("nowhere", None, "nowhere"),
    ],
)
def test_newest_version_is_found(path, export, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("exports/reviews/2", "exports/reviews/10", "runs/mine/export/1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "saved_model.pb").touch()
    (tmp_path / "exports/reviews/11").mkdir()  # an incomplete export
    assert (command.find_export(path), command._name_of(path)) == (export, name)


def test_invalid_flags_are_rejected(tmp_path, monkeypatch):
    with pytest.raises(
        ValueError, match="--model is missing: serve needs a run, an export or a checkpoint"
    ):
        run()
    with pytest.raises(ValueError, match="No such checkpoint: .*/nowhere"):
        run(f"--model={tmp_path}/nowhere")
    with pytest.raises(ValueError, match="name='my model': "):
        run("--model=tiny", "--name=my model")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = f"Cannot listen on --host=127.0.0.1 --port={port}: Address already in use"
        message = f"{taken}. Use another port, or --port=0 for a free one"
        with pytest.raises(ValueError, match=message):
            run("--model=tiny", f"--port={port}")
    with pytest.raises(
        ValueError,
        match=r"Cannot listen on --host=no.such.host.invalid --port=8501: .*\. Use another port, "
        "or --port=0 for a free one",
    ):
        run("--model=tiny", "--host=no.such.host.invalid")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError,
        match=r"needs the packages orjson and uvicorn\. Run pip install 'bert_tf\[serve\]'",
    ):
        run("--model=tiny")


def test_loopback_addresses():
    assert [*map(command._is_this_machine, ("127.0.0.1", "127.3.0.1", "::1"))] == [True] * 3
    assert [*map(command._is_this_machine, ("0.0.0.0", "::", "10.0.0.7", "fe80::1%eth0"))] == [
        False
    ] * 4


@pytest.mark.slow
def test_checkpoint_is_served_until_sigterm(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    served = Served("--model=tiny")

    def temporary_files():  # except the bytecode of TensorFlow's AutoGraph
        return set(os.listdir(tmp_path)) - {"__pycache__"}

    assert len(temporary_files()) == 1
    (status,) = served.ask("/v1/models/tiny")["model_version_status"]
    assert status["state"] == "AVAILABLE"
    predict = "/v1/models/tiny:predict"
    answer = served.ask(predict, {"instances": ["She [MASK] the letter."]})
    assert answer["predictions"][0]["counts"] == 1
    # Requests in flight are answered after the signal.
    large_request = {"instances": ["The [MASK] is on the [MASK]. " * 9] * 250}
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=120)
    connection.request("POST", predict, json.dumps(large_request))
    for _ in range(3):  # by then, the server has started to read the first request
        served.ask("/v1/models/tiny")
    # A request without a body delays the shutdown for one second, not for the normal 30 seconds.
    slow = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=20)
    slow.putrequest("POST", predict)
    slow.putheader("Content-Length", "100")
    slow.endheaders(b"{")
    served.ask("/v1/models/tiny")
    served.process.send_signal(signal.SIGTERM)
    assert slow.getresponse().status == 408
    assert len(json.load(connection.getresponse())["predictions"]) == 250
    slow.close()
    connection.close()
    out, err = served.process.communicate(timeout=120)
    assert (served.process.returncode, out, err) == (0, "Stopped.\n", "")
    assert temporary_files() == set()


# Serves a model that loads immediately. The process receives a signal at each of the given moments.
INTERRUPTED = """
import asyncio, atexit, contextlib, signal, sys, threading, types
from bert_tf import serve
from bert_tf.cli import command
from bert_tf.serving import server

signal.alarm(60)  # ends a process that would wait forever
moments = sys.argv.pop().split("_")
serve._MAX_SHUTDOWN_S = 1 if "swallowed" in moments else 600
server._CALLBACK_S = 0.01
command.load_tensorflow = lambda: None
sys.modules["bert_tf.serving.model"] = model = types.ModuleType("model")

def interrupt(moment, number):
    if moment in moments:
        moments.remove(moment)
        signal.pthread_kill(threading.main_thread().ident, number)

def load(export):
    interrupt("loading", signal.SIGINT)
    try:
        interrupt("converted", signal.SIGINT)
    except KeyboardInterrupt as error:  # as in extension modules that use pybind11
        raise ImportError("initialization failed") from error
    with contextlib.suppress(KeyboardInterrupt):
        interrupt("swallowed", signal.SIGINT)
    if "blocked" in moments:  # Another thread receives the signal.
        threading.Timer(0.1, signal.raise_signal, [signal.SIGTERM]).start()
        threading.Event().wait()
    return types.SimpleNamespace(warm_up=lambda: None, signatures={}, run=None)

class Interrupted(server.Server):
    def __exit__(self, *error):
        interrupt("exit", signal.SIGTERM)
        super().__exit__(*error)

async def shutdown(self, sockets):
    interrupt("shutdown", signal.SIGTERM)
    await asyncio.sleep(60)

class Output:
    def write(self, text, write=sys.stderr.write):
        interrupt("message", signal.SIGINT)
        return write(text)

    def flush(self):
        pass

if "shutdown" in moments:
    server._Uvicorn.shutdown = shutdown
sys.stderr = Output()
threading._register_atexit(interrupt, "threads", signal.SIGTERM)
atexit.register(interrupt, "atexit", signal.SIGINT)
server.Server = Interrupted
model.load, model.return_memory = load, lambda: interrupt("serving", signal.SIGINT)
command.run(serve.main, serve.ServeSettings)
"""
# Moments of a first signal and of further ones during the shutdown.
MOMENTS = (
    "loading",
    "loading_exit",
    "loading_message",
    "loading_threads_atexit",
    "blocked",
    "converted",
    "serving_exit",
    "serving_shutdown",
    "swallowed",  # The time limit of the shutdown ends the process.
)


def test_signals_at_any_moment_end_the_process(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    (tmp_path / "program.py").write_text(INTERRUPTED)
    line = [tmp_path / "program.py", f"--model={tmp_path}", "--port=0"]
    results = run_in_forks(tmp_path, *([*line, moments] for moments in MOMENTS))
    found = {
        moments: (done.returncode, done.stderr)
        for moments, done in zip(MOMENTS, results, strict=True)
    }
    expected = dict.fromkeys(MOMENTS, (130, "\nInterrupted.\n")) | {"swallowed": (130, "")}
    assert found == expected
