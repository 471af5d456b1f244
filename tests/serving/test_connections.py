"""What the HTTP server does with connections: over sockets, of a server in this process."""

import contextlib
import json
import resource
import socket
import time

import pytest

from bert_tf import serve as command
from bert_tf.serving import connections
from bert_tf.serving.server import Limits, Server

BODY = json.dumps({"inputs": [1.0]}).encode()
HEAD = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
PREDICT = HEAD % len(BODY) + BODY


@contextlib.contextmanager
def serving(half_model=None):
    """The address of a server; one without a model has not loaded it yet."""
    listening = command._listen("127.0.0.1", 0)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # what is not read waits here
    place = listening.getsockname()
    with Server("half", listening, Limits(8, 100_000, 2, 60)) as server:
        if half_model is not None:
            server.open(half_model)
        yield place, server


def reply(connection):
    """The status and the body of a reply; ``None`` where the connection is closed without one."""
    text = b""
    while b"\r\n\r\n" not in text:
        if not (part := connection.recv(1 << 16)):
            return None
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    (length,) = (
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(1 << 16)
    return int(head.split()[1]), body


def connect(place):
    return socket.create_connection(place, timeout=10)


def test_accepted_connections_send_at_once(half_model, monkeypatch):
    """Without it each answer over a kept connection waits for the client's acknowledgement."""
    options = []

    class Asked(connections.Connection):
        def connection_made(self, transport):
            accepted = transport.get_extra_info("socket")
            options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            super().connection_made(transport)

    monkeypatch.setattr(connections, "Connection", Asked)
    with serving(half_model) as (place, _), connect(place) as client:
        for _ in range(2):
            client.sendall(PREDICT)
            assert reply(client) == (200, b'{"outputs":[2.5]}')
    assert options and all(options)


def test_the_newest_connection_is_refused_in_one_line(half_model, monkeypatch, capfd):
    monkeypatch.setattr(connections, "max_connections", lambda: 2)
    with serving(half_model) as (place, _), contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(connect(place)) for _ in range(2))
        for _ in range(20):
            with connect(place) as third:
                third.sendall(PREDICT)
                refusal = b'{"error": "2 connections are open. Retry later."}'
                assert (reply(third), third.recv(1)) == ((503, refusal), b"")
        first.sendall(PREDICT)
        assert reply(first)[0] == 200
        first.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b'status="OK"} 1\n' in reply(first)[1]  # what a refused one asks is not answered
        second.close()
        time.sleep(0.1)
        with connect(place) as fourth:
            fourth.sendall(PREDICT)
            assert reply(fourth)[0] == 200
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "Error: 2 connections are open: new connections are rejected."
    assert len(said) <= 2  # a second may have passed


def test_the_bound_is_below_the_limit_of_descriptors(monkeypatch):
    limits = [(200, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert connections.max_connections() == 1000 - 128 and limits[-1] == (1000, 1000)
    limits.append((1 << 20, 1 << 20))
    assert connections.max_connections() == 4000
    monkeypatch.setattr(resource, "setrlimit", _refuse)
    limits.append((200, resource.RLIM_INFINITY))
    assert connections.max_connections() == 72


def _refuse(*_):
    raise ValueError("current limit exceeds maximum limit")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/models/half HTTP/1.1\r\nHost"])
def test_headers_that_do_not_come_are_ended(sent, half_model, monkeypatch):
    monkeypatch.setattr(connections, "_HEADERS_S", 0.2)
    late = b'{"error": "The headers were not received within 0.2 seconds."}'
    with serving(half_model) as (place, _), connect(place) as new, connect(place) as kept:
        kept.sendall(PREDICT)
        assert reply(kept)[0] == 200
        time.sleep(0.3)  # between requests nothing is awaited
        kept.sendall(PREDICT + b"POST /")
        assert reply(kept)[0] == 200
        new.sendall(sent)
        assert (reply(new), new.recv(1)) == ((408, late), b"")
        kept.sendall(b"v1")
        assert (reply(kept), kept.recv(1)) == ((408, late), b"")


def test_idle_connections_are_closed_after_a_load_balancers(half_model, monkeypatch):
    assert connections.IDLE_S > 60
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    with serving(half_model) as (place, _), connect(place) as idle:
        idle.sendall(PREDICT)
        assert reply(idle)[0] == 200
        assert idle.recv(1) == b""


@pytest.mark.parametrize(
    "name, most, first_is_read",
    [("_MAX_UNREAD", 1000, False), ("_READ_S", 0.3, False), ("", 0, True)],
)
def test_answers_that_nobody_reads_are_given_up(name, most, first_is_read, half_model, monkeypatch):
    """After a time, and those that have waited longest where they are too large together."""
    if name:
        monkeypatch.setattr(connections, name, most)
    body = json.dumps({"inputs": [[1.0] * 10_000]}).encode()
    with serving(half_model) as (place, server), contextlib.ExitStack() as stack:
        kept = server._uvicorn.server_state.connections
        clients = []
        for number in range(2):
            clients.append(stack.enter_context(socket.socket()))
            clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            clients[-1].connect(place)
            clients[-1].sendall(HEAD % len(body) + body)
            end = time.monotonic() + 10
            while time.monotonic() < end and len(connections.Connection._unread) <= number:
                time.sleep(0.01)
                if name == "_MAX_UNREAD" and number == 1 and len(kept) == 1:
                    break
        time.sleep(0.5)
        assert len(kept) == {"_MAX_UNREAD": 1, "_READ_S": 0, "": 2}[name]
        with connect(place) as other:
            other.sendall(PREDICT)
            assert reply(other)[0] == 200
        if first_is_read:
            assert reply(clients[0])[0] == 200


def test_the_end_comes_while_the_model_loads_and_while_it_computes(half_model, monkeypatch):
    with serving() as (place, _), connect(place) as client:
        client.sendall(b"HEAD /v1/models/half HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 503 " in client.recv(1000)
    with serving(half_model) as (place, _), connect(place) as client:
        client.sendall(b"HEAD /v1/models/half HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):  # HEAD has no body
            client.recv(1)
