"""The server's bounds, and what the page may do."""

import asyncio
import gzip
import json
import re
import socket
import threading

import pytest

from bert_tf.serving import server
from bert_tf.serving.server import Application, Batcher, Limits

from .conftest import ask, send

PREDICT = "/v1/models/half:predict"
BODY = json.dumps({"inputs": [1.0]}).encode()


@pytest.fixture
def gate():
    """Lets the models of applications answer while it is set."""
    gate = threading.Event()
    gate.set()
    return gate


@pytest.fixture
def application(half_model, gate):
    """Makes applications of given bounds."""
    batchers = []

    def run(signature, inputs, outputs=None):
        assert gate.wait(10)
        return half_model.run(signature, inputs)

    def make(**bounds):
        given = Limits(**{"rows": 8, "bytes": 100, "waiting": 2, "seconds": 60, **bounds})
        application = Application("half", given)
        batchers.append(
            Batcher(run, half_model.signatures, largest=4, workers=1, max_seconds=given.seconds)
        )
        application.open(half_model, batchers[-1])
        return application

    yield make
    gate.set()
    for batcher in batchers:
        batcher.close(10)


def test_no_more_requests_wait_than_may(application, gate):
    gate.clear()
    app = application(waiting=2)

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
    assert refused.json == {"error": "2 requests are pending (--max_waiting). Retry later."}
    assert refused.headers["retry-after"] == "1"
    assert [reply.status for reply in (status, *answered, later)] == [200] * 4


def test_a_body_of_too_many_bytes_is_not_read(application):
    app = application(bytes=100)
    reply = asyncio.run(send(app, "POST", PREDICT, b"x" * 60, b"x" * 60, None))
    assert reply.status == 413
    assert reply.json == {"error": "The body has more than 100 bytes (--max_bytes)."}


def test_a_body_that_does_not_come_is_given_up(application, monkeypatch):
    monkeypatch.setattr(server, "_BODY_S", 0.05)
    app = application(waiting=1)
    reply = asyncio.run(send(app, "POST", PREDICT, b"{", None))
    assert reply.status == 408
    assert reply.json == {
        "error": "The body was not received within 0.05 seconds, or the server shut down or "
        "reached its memory limit."
    }
    assert ask(app, "POST", PREDICT, BODY).status == 200  # it counts no more


def test_the_end_gives_up_bodies_and_answers_that_do_not_come_soon(application, gate, monkeypatch):
    monkeypatch.setattr(server, "_SHUTDOWN_BODY_S", 0.05)
    monkeypatch.setattr(server, "_SHUTDOWN_S", 0.1)
    gate.clear()
    app = application()

    async def end():
        parts = [b"{", None], [BODY]
        tasks = [asyncio.create_task(send(app, "POST", PREDICT, *each)) for each in parts]
        await asyncio.sleep(0.05)
        app.end_soon()
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    slow, waiting = asyncio.run(end())
    sentence = "or the server shut down or reached its memory limit"
    assert slow.status == 408 and sentence in slow.json["error"]
    assert (waiting.status, waiting.json) == (503, {"error": "The server is shutting down."})


def test_bodies_that_are_coming_are_bounded_together_and_hold_up_nobody(application, monkeypatch):
    monkeypatch.setattr(server, "_MAX_PENDING_BYTES", 150)
    app = application(bytes=100, waiting=1)

    async def crowd():
        slow = []
        for _ in range(4):  # each of 60 bytes, of which two have room
            slow.append(asyncio.create_task(send(app, "POST", PREDICT, b"x" * 60, None)))
            await asyncio.sleep(0.01)
        answered = await send(app, "POST", PREDICT, BODY)
        await asyncio.sleep(0.05)
        first = [task.result().status for task in slow if task.done()]
        gauges = (await send(app, "GET", "/metrics")).body.decode()
        for task in slow:
            task.cancel()
        return answered, first, [task.done() for task in slow], gauges

    answered, given_up, are_done, gauges = asyncio.run(crowd())
    assert answered.status == 200
    assert given_up == [408, 408] and are_done == [True, True, False, False]
    assert ':request_bytes_coming{model_name="half"} 120\n' in gauges


def test_a_request_whose_client_leaves_is_dropped(application, gate):
    gate.clear()
    app = application(waiting=2)

    async def leave():
        leaves = asyncio.Event()
        left = asyncio.create_task(send(app, "POST", PREDICT, BODY, leaves=leaves))
        stays = asyncio.create_task(send(app, "POST", PREDICT, BODY))
        await asyncio.sleep(0.05)
        leaves.set()
        dropped = await left
        third = asyncio.create_task(send(app, "POST", PREDICT, BODY))  # there is room again
        await asyncio.sleep(0.05)
        gate.set()
        return dropped, await stays, await third

    dropped, *answered = asyncio.run(leave())
    assert dropped.status == 499
    assert [reply.status for reply in answered] == [200, 200]
    counts = ask(app, "GET", "/monitoring/prometheus/metrics").body.decode()
    assert ':request_count{model_name="half",status="CANCELLED"} 1\n' in counts


def test_an_answer_of_too_many_values_is_refused(application, monkeypatch):
    monkeypatch.setattr(server.rest, "_MAX_VALUES", 1)
    app = application()
    reply = ask(app, "POST", PREDICT, {"inputs": [1.0, 2.0]})
    assert reply.status == 429
    assert "would have 2 values, more than 1. Send fewer rows" in reply.json["error"]


def test_what_fails_inside_is_a_reply_too(application, monkeypatch, capsys):
    app = application()
    monkeypatch.setattr(server.rest, "count_rows", lambda _: 1 / 0)
    reply = ask(app, "POST", PREDICT, BODY)
    assert (reply.status, reply.json["error"].split(".")[0]) == (500, "Internal error")
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_page_may_run_its_own_script_alone(application):
    app = application()
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


def test_a_gzip_body_is_bounded_by_what_it_inflates_to(application):
    app = application(bytes=100)
    whole, large = gzip.compress(BODY), gzip.compress(b" " * 101 + BODY)
    assert len(large) < 100

    def sent(body):
        reply = ask(app, "POST", PREDICT, body, [(b"content-encoding", b"gzip")])
        return reply.status, reply.json

    assert sent(whole) == (200, {"outputs": [2.5]})
    assert sent(large) == (
        413,
        {"error": "The body inflates to more than 100 bytes (--max_bytes)."},
    )
    for damaged in (whole[:-1], whole + b"x", whole + whole):
        assert sent(damaged) == (400, {"error": "The body is not a complete gzip stream."})
    status, reply = sent(BODY)
    assert status == 400 and reply["error"].startswith("The body is not gzip: Error -3")


def test_until_the_model_is_loaded_the_door_asks_for_patience():
    application = Application("half", Limits(8, 100, 2, 60))
    for method, path in (("GET", "/v1/models/half"), ("POST", PREDICT)):
        reply = ask(application, method, path, BODY)
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        assert reply.json == {"error": "The model is loading. Retry later."}
    assert [ask(application, "GET", path).status for path in ("/", "/metrics")] == [200, 200]


def test_counts_are_servings(application):
    app = application()
    for body in (BODY, b'{"inputs": [1, 2, 3]}', b"", b'{"inputs": "x"}'):
        ask(app, "POST", PREDICT, body)
    reply = ask(app, "GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = reply.body.decode().splitlines()
    kinds = [line.split()[2:] for line in lines if line.startswith("# TYPE ")]
    assert kinds[:2] == [
        [":tensorflow:serving:request_count", "counter"],
        [":tensorflow:serving:request_example_count_total", "counter"],
    ]
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    count = ":tensorflow:serving:request_count"
    assert values[count + '{model_name="half",status="OK"}'] == "2"
    assert values[count + '{model_name="half",status="INVALID_ARGUMENT"}'] == "2"
    assert values[':tensorflow:serving:request_example_count_total{model="half"}'] == "4"
    labels = 'model_name="half",API="Predict",entrypoint="REST"'
    latency = ":tensorflow:serving:request_latency"
    buckets = [values[key] for key in values if "_bucket" in key]
    assert buckets == sorted(buckets, key=int) and len(buckets) == 33 and buckets[-1] == "4"
    assert values[f'{latency}_bucket{{{labels},le="+Inf"}}'] == "4"
    assert values[f"{latency}_count{{{labels}}}"] == "4"
    assert float(values[f"{latency}_sum{{{labels}}}"]) > 0


def test_a_server_that_waits_gives_memory_back_meanwhile(monkeypatch):
    monkeypatch.setattr(server, "_CALLBACK_S", 0.01)
    calls = []

    def meanwhile():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = server.Server("m", listening, Limits(4, 1000, 4, 60))
        with running, pytest.raises(KeyboardInterrupt):
            running.wait(meanwhile)
    assert len(calls) == 3
