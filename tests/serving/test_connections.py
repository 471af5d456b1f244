"""Connections of the HTTP server, tested over sockets with a server in this process."""

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
    """Yields the address and the server; without a model, the server is still loading."""
    listening = command._listen("127.0.0.1", 0)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # buffers unread replies
    address = listening.getsockname()
    with Server("half", listening, Limits(8, 100_000, 2, 60)) as server:
        if half_model is not None:
            server.open(half_model)
        yield address, server


def reply(connection):
    """Returns status and body of a reply, or ``None`` if the connection is closed without one."""
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


def connect(address):
    return socket.create_connection(address, timeout=10)


def test_accepted_connections_send_immediately(half_model, monkeypatch):
    """TCP_NODELAY avoids waiting for the client's acknowledgement on kept connections."""
    options = []

    class RecordedConnection(connections.Connection):
        def connection_made(self, transport):
            accepted = transport.get_extra_info("socket")
            options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            super().connection_made(transport)

    monkeypatch.setattr(connections, "Connection", RecordedConnection)
    with serving(half_model) as (address, _), connect(address) as client:
        for _ in range(2):
            client.sendall(PREDICT)
            assert reply(client) == (200, b'{"outputs":[2.5]}')
    assert options and all(options)


def test_excess_connections_are_rejected_and_logged_once(half_model, monkeypatch, capfd):
    monkeypatch.setattr(connections, "max_connections", lambda: 2)
    with serving(half_model) as (address, _), contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(connect(address)) for _ in range(2))
        for _ in range(20):
            with connect(address) as third:
                third.sendall(PREDICT)
                rejection = b'{"error": "2 connections are open. Retry later."}'
                assert (reply(third), third.recv(1)) == ((503, rejection), b"")
        first.sendall(PREDICT)
        assert reply(first)[0] == 200
        first.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b'status="OK"} 1\n' in reply(first)[1]  # rejected requests are not counted
        second.close()
        time.sleep(0.1)
        with connect(address) as fourth:
            fourth.sendall(PREDICT)
            assert reply(fourth)[0] == 200
    error_lines = capfd.readouterr().err.splitlines()
    assert error_lines[0] == "Error: 2 connections are open: new connections are rejected."
    assert len(error_lines) <= 2  # at most one line per second


def test_max_connections_is_below_the_descriptor_limit(monkeypatch):
    limits = [(200, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert connections.max_connections() == 1000 - 128 and limits[-1] == (1000, 1000)
    limits.append((1 << 20, 1 << 20))
    assert connections.max_connections() == 4000
    monkeypatch.setattr(resource, "setrlimit", _raise_value_error)
    limits.append((200, resource.RLIM_INFINITY))
    assert connections.max_connections() == 72


def _raise_value_error(*_):
    raise ValueError("current limit exceeds maximum limit")


@pytest.mark.parametrize("sent", [b"", b"GET /v1/models/half HTTP/1.1\r\nHost"])
def test_missing_headers_time_out(sent, half_model, monkeypatch):
    monkeypatch.setattr(connections, "_HEADERS_S", 0.2)
    timeout_reply = b'{"error": "The headers were not received within 0.2 seconds."}'
    with serving(half_model) as (address, _), connect(address) as new, connect(address) as kept:
        kept.sendall(PREDICT)
        assert reply(kept)[0] == 200
        time.sleep(0.3)  # no time limit applies between requests
        kept.sendall(PREDICT + b"POST /")
        assert reply(kept)[0] == 200
        new.sendall(sent)
        assert (reply(new), new.recv(1)) == ((408, timeout_reply), b"")
        kept.sendall(b"v1")
        assert (reply(kept), kept.recv(1)) == ((408, timeout_reply), b"")


def test_idle_timeout_exceeds_that_of_load_balancers(half_model, monkeypatch):
    assert connections.IDLE_S > 60
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    with serving(half_model) as (address, _), connect(address) as idle:
        idle.sendall(PREDICT)
        assert reply(idle)[0] == 200
        assert idle.recv(1) == b""


@pytest.mark.parametrize(
    "name, limit, first_is_read",
    [("_MAX_UNREAD", 1000, False), ("_READ_S", 0.3, False), ("", 0, True)],
)
def test_unread_answers_are_dropped(name, limit, first_is_read, half_model, monkeypatch):
    """They are closed after a time limit, or the oldest first if their total size is too large."""
    if name:
        monkeypatch.setattr(connections, name, limit)
    body = json.dumps({"inputs": [[1.0] * 10_000]}).encode()
    with serving(half_model) as (address, server), contextlib.ExitStack() as stack:
        kept = server._uvicorn.server_state.connections
        clients = []
        for number in range(2):
            clients.append(stack.enter_context(socket.socket()))
            clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            clients[-1].connect(address)
            clients[-1].sendall(HEAD % len(body) + body)
            end = time.monotonic() + 10
            while time.monotonic() < end and len(connections.Connection._unread) <= number:
                time.sleep(0.01)
                if name == "_MAX_UNREAD" and number == 1 and len(kept) == 1:
                    break
        time.sleep(0.5)
        assert len(kept) == {"_MAX_UNREAD": 1, "_READ_S": 0, "": 2}[name]
        with connect(address) as other:
            other.sendall(PREDICT)
            assert reply(other)[0] == 200
        if first_is_read:
            assert reply(clients[0])[0] == 200


def test_head_requests_while_loading_and_when_ready(half_model, monkeypatch):
    with serving() as (address, _), connect(address) as client:
        client.sendall(b"HEAD /v1/models/half HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 503 " in client.recv(1000)
    with serving(half_model) as (address, _), connect(address) as client:
        client.sendall(b"HEAD /v1/models/half HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):  # HEAD has no body
            client.recv(1)
