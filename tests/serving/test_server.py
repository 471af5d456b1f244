"""The server's bounds, and what the page may do."""

import asyncio
import contextlib
import json
import re
import socket
import threading

import pytest

from bert_tf.serving import server
from bert_tf.serving.batching import Batcher
from bert_tf.serving.server import Bounds, Door

from .asgi import ask, send

PREDICT = "/v1/models/half:predict"
BODY = json.dumps({"inputs": [1.0]}).encode()


@pytest.fixture
def door(half_model):
    """An application of given bounds, and what lets its model answer."""
    gate, batchers = threading.Event(), []

    def run(signature, inputs, outputs):
        assert gate.wait(10)
        return half_model.run(signature, inputs, outputs)

    def make(**bounds):
        batcher = Batcher(run, half_model.signatures, largest=4, workers=1, most_seconds=60)
        batchers.append(batcher)
        given = Bounds(**{"rows": 8, "bytes": 100, "waiting": 2, **bounds})
        return Door("half", half_model, batcher, given).app(), gate

    yield make
    gate.set()
    for batcher in batchers:
        batcher.close(60)


def test_no_more_requests_wait_than_may(door):
    app, gate = door(waiting=2)

    async def crowd():
        waiting = [asyncio.create_task(send(app, "POST", PREDICT, BODY)) for _ in range(2)]
        await asyncio.sleep(0.05)
        refused = await send(app, "POST", PREDICT, BODY)
        status = await send(app, "GET", "/v1/models/half")
        gate.set()
        answered = await asyncio.gather(*waiting)
        return refused, status, answered, await send(app, "POST", PREDICT, BODY)

    refused, status, answered, later = asyncio.run(crowd())
    assert refused.status == 503
    assert refused.json == {"error": "2 requests are in hand, --max_waiting: ask later."}
    assert [reply.status for reply in (status, *answered, later)] == [200] * 4


@pytest.mark.parametrize("ending", [None, KeyboardInterrupt()])
def test_the_end_is_said_where_the_shell_ignores_the_signal_too(
    half_model, monkeypatch, capsys, ending
):
    """A job in the background ignores Ctrl-C's signal, so that none is raised at the end."""

    def run(self, sockets):
        if ending is not None:
            raise ending

    monkeypatch.setattr(server.uvicorn.Server, "run", run)
    # Its logging would close the file that catches what is said.
    monkeypatch.setattr(server.uvicorn, "Config", lambda app, **options: options)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.serve(half_model, "half", listening, Bounds(8, 100, 2))
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Listening at http://127.0.0.1:") and said[1:] == ["Ended."]


def test_a_body_of_too_many_bytes_is_not_read(door):
    app, _ = door(bytes=100)
    reply = asyncio.run(send(app, "POST", PREDICT, b"x" * 60, b"x" * 60, None))
    assert reply.status == 413
    assert reply.json == {"error": "The body has more than 100 bytes, --max_bytes."}


def test_a_body_that_does_not_come_is_given_up(door, monkeypatch):
    monkeypatch.setattr(server, "_BODY_S", 0.05)
    app, gate = door(waiting=1)
    gate.set()
    reply = asyncio.run(send(app, "POST", PREDICT, b"{", None))
    assert reply.status == 408
    assert reply.json == {
        "error": "The body did not come within 0.05 seconds, or before the server ended."
    }
    assert ask(app, "POST", PREDICT, BODY).status == 200  # it counts no more


def test_at_the_end_a_body_that_does_not_come_is_given_up_soon(half_model, monkeypatch):
    monkeypatch.setattr(server, "_LAST_BODY_S", 0.05)
    batcher = Batcher(half_model.run, half_model.signatures, largest=4, workers=1, most_seconds=60)
    door = Door("half", half_model, batcher, Bounds(rows=8, bytes=100, waiting=2))

    async def end():
        coming = asyncio.create_task(send(door.app(), "POST", PREDICT, b"{", None))
        await asyncio.sleep(0.05)
        door.hurry()
        return await asyncio.wait_for(coming, 10)

    with contextlib.ExitStack() as stack:
        stack.callback(batcher.close, 60)
        reply = asyncio.run(end())
    assert reply.status == 408 and "or before the server ended" in reply.json["error"]


def test_an_answer_of_too_many_values_is_refused(door, monkeypatch):
    monkeypatch.setattr(server.rest, "_MOST_VALUES", 1)
    app, gate = door()
    gate.set()
    reply = ask(app, "POST", PREDICT, {"inputs": [1.0, 2.0]})
    assert reply.status == 429
    assert "has 2 values, and the most is 1: ask fewer rows" in reply.json["error"]


def test_what_fails_inside_is_a_reply_too(door, monkeypatch, capsys):
    app, gate = door()
    gate.set()
    monkeypatch.setattr(server.rest, "rows_of", lambda _: 1 / 0)
    reply = ask(app, "POST", PREDICT, BODY)
    assert (reply.status, reply.json["error"].split(";")[0]) == (500, "The server failed")
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_page_may_run_its_own_script_alone(door):
    app, _ = door()
    reply = ask(app, "GET", "/")
    text, policy = reply.body.decode(), reply.headers["content-security-policy"]
    assert reply.status == 200 and "half" in text and "MODEL_NAME" not in text
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    nonces = re.findall('<(?:script|style) nonce="(.*?)">', text)
    assert len(nonces) == 2 and "NONCE" not in text
    for tag, nonce in zip(("style", "script"), nonces, strict=True):
        assert f"{tag}-src 'nonce-{nonce}';" in policy
    assert nonces[0].encode() not in ask(app, "GET", "/").body  # another one for each reader
    # Nothing of the network, no markup of a text, no code in attributes.
    assert not re.search(
        r"https?://(?!127|localhost)|innerHTML|outerHTML|insertAdjacent|eval\(", text
    )
    assert not re.search(r"<[^>]*\s(on\w+|style)=", text)
