"""Limits of the server, its metrics, and the permissions of its page."""

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
    """Event; models answer only while it is set."""
    gate = threading.Event()
    gate.set()
    return gate


@pytest.fixture
def application(half_model, gate):
    """Creates applications with given limits."""
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


def test_excess_pending_requests_are_rejected(application, gate):
    gate.clear()
    app = application(waiting=2)

    async def crowd():
        waiting = [asyncio.create_task(send(app, "POST", PREDICT, BODY)) for _ in range(2)]
        await asyncio.sleep(0.05)
        rejected = await send(app, "POST", PREDICT, BODY)
        status = await send(app, "GET", "/v1/models/half")
        gate.set()
        answered = await asyncio.gather(*waiting)
        return rejected, status, answered, await send(app, "POST", PREDICT, BODY)

    rejected, status, answered, later = asyncio.run(crowd())
    assert rejected.status == 503
    assert rejected.json == {"error": "2 requests are pending (--max_waiting). Retry later."}
    assert rejected.headers["retry-after"] == "1"
    assert [reply.status for reply in (status, *answered, later)] == [200] * 4


def test_too_large_body_is_not_read(application):
    app = application(bytes=100)
    reply = asyncio.run(send(app, "POST", PREDICT, b"x" * 60, b"x" * 60, None))
    assert reply.status == 413
    assert reply.json == {"error": "The body has more than 100 bytes (--max_bytes)."}


def test_missing_body_times_out(application, monkeypatch):
    monkeypatch.setattr(server, "_BODY_S", 0.05)
    app = application(waiting=1)
    reply = asyncio.run(send(app, "POST", PREDICT, b"{", None))
    assert reply.status == 408
    assert reply.json == {
        "error": "The body was not received within 0.05 seconds, or the server shut down or "
        "reached its memory limit."
    }
    assert ask(app, "POST", PREDICT, BODY).status == 200  # no longer pending


def test_shutdown_drops_late_bodies_and_answers(application, gate, monkeypatch):
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

    slow_tasks, waiting = asyncio.run(end())
    message = "or the server shut down or reached its memory limit"
    assert slow_tasks.status == 408 and message in slow_tasks.json["error"]
    assert (waiting.status, waiting.json) == (503, {"error": "The server is shutting down."})


def test_total_size_of_pending_bodies_is_limited(application, monkeypatch):
    monkeypatch.setattr(server, "_MAX_PENDING_BYTES", 150)
    app = application(bytes=100, waiting=1)

    async def crowd():
        slow_tasks = []
        for _ in range(4):  # 60 bytes each; only two fit
            slow_tasks.append(asyncio.create_task(send(app, "POST", PREDICT, b"x" * 60, None)))
            await asyncio.sleep(0.01)
        answered = await send(app, "POST", PREDICT, BODY)
        await asyncio.sleep(0.05)
        first = [task.result().status for task in slow_tasks if task.done()]
        gauges = (await send(app, "GET", "/metrics")).body.decode()
        for task in slow_tasks:
            task.cancel()
        return answered, first, [task.done() for task in slow_tasks], gauges

    answered, statuses, are_done, gauges = asyncio.run(crowd())
    assert answered.status == 200
    assert statuses == [408, 408] and are_done == [True, True, False, False]
    assert ':request_bytes_coming{model_name="half"} 120\n' in gauges


def test_request_of_disconnected_client_is_dropped(application, gate):
    gate.clear()
    app = application(waiting=2)

    async def leave():
        disconnects = asyncio.Event()
        leaving = asyncio.create_task(send(app, "POST", PREDICT, BODY, leaves=disconnects))
        staying = asyncio.create_task(send(app, "POST", PREDICT, BODY))
        await asyncio.sleep(0.05)
        disconnects.set()
        dropped = await leaving
        third = asyncio.create_task(send(app, "POST", PREDICT, BODY))  # capacity is available again
        await asyncio.sleep(0.05)
        gate.set()
        return dropped, await staying, await third

    dropped, *answered = asyncio.run(leave())
    assert dropped.status == 499
    assert [reply.status for reply in answered] == [200, 200]
    counts = ask(app, "GET", "/monitoring/prometheus/metrics").body.decode()
    assert ':request_count{model_name="half",status="CANCELLED"} 1\n' in counts


def test_answer_with_too_many_values_is_rejected(application, monkeypatch):
    monkeypatch.setattr(server.rest, "_MAX_VALUES", 1)
    app = application()
    reply = ask(app, "POST", PREDICT, {"inputs": [1.0, 2.0]})
    assert reply.status == 429
    assert "would have 2 values, more than 1. Send fewer rows" in reply.json["error"]


def test_internal_error_is_replied_and_logged(application, monkeypatch, capsys):
    app = application()
    monkeypatch.setattr(server.rest, "count_rows", lambda _: 1 / 0)
    reply = ask(app, "POST", PREDICT, BODY)
    assert (reply.status, reply.json["error"].split(".")[0]) == (500, "Internal error")
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_page_may_only_run_its_own_script(application):
    app = application()
    reply = ask(app, "GET", "/")
    text, policy = reply.body.decode(), reply.headers["content-security-policy"]
    assert reply.status == 200 and "half" in text and "MODEL_NAME" not in text
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    nonces = re.findall('<(?:script|style) nonce="(.*?)">', text)
    assert len(nonces) == 2 and "NONCE" not in text
    for tag, nonce in zip(("style", "script"), nonces, strict=True):
        assert f"{tag}-src 'nonce-{nonce}';" in policy
    assert nonces[0].encode() not in ask(app, "GET", "/").body  # a new nonce per request
    # No network access, no markup from text, no code in attributes.
    assert not re.search(
        r"https?://(?!127|localhost)|innerHTML|outerHTML|insertAdjacent|eval\(", text
    )
    assert not re.search(r"<[^>]*\s(on\w+|style)=", text)


def test_gzip_body_is_limited_by_inflated_size(application):
    app = application(bytes=100)
    compressed, large = gzip.compress(BODY), gzip.compress(b" " * 101 + BODY)
    assert len(large) < 100

    def sent(body):
        reply = ask(app, "POST", PREDICT, body, [(b"content-encoding", b"gzip")])
        return reply.status, reply.json

    assert sent(compressed) == (200, {"outputs": [2.5]})
    assert sent(large) == (
        413,
        {"error": "The gzip body contains more than 100 bytes (--max_bytes)."},
    )
    for damaged in (compressed[:-1], compressed + b"x", compressed + compressed):
        assert sent(damaged) == (400, {"error": "The body is not a complete gzip stream."})
    status, reply = sent(BODY)
    assert status == 400 and reply["error"].startswith("The body is not gzip: Error -3")


def test_requests_before_the_model_is_loaded_get_status_503():
    application = Application("half", Limits(8, 100, 2, 60))
    for method, path in (("GET", "/v1/models/half"), ("POST", PREDICT)):
        reply = ask(application, method, path, BODY)
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        assert reply.json == {"error": "The model is loading. Retry later."}
    assert [ask(application, "GET", path).status for path in ("/", "/metrics")] == [200, 200]


def test_metrics_equal_tensorflow_serving(application):
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


def test_callback_runs_while_the_server_waits(monkeypatch):
    monkeypatch.setattr(server, "_CALLBACK_S", 0.01)
    calls = []

    def callback():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = server.Server("m", listening, Limits(4, 1000, 4, 60))
        with running, pytest.raises(KeyboardInterrupt):
            running.wait(callback)
    assert len(calls) == 3
