"""Limits on the number and duration of connections, and log messages about them.

uvicorn does not limit idle connections, or the time for sending headers and reading responses.
"""

import asyncio
import contextlib
import logging
import resource
import sys
import time
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from bert_tf.io.messages import one_line

# Maximum number of seconds for receiving headers, for a client to read a response, and for an idle
# connection. Load balancers, whose limit is 60 seconds, must close idle connections first.
_HEADERS_S = 30
_READ_S = 75
IDLE_S = 75
_MAX_CONNECTIONS = 4000
_MAX_UNREAD = 256 << 20  # total bytes of unread responses of all connections
# File descriptors reserved for the files of the process, for connections that the event loop has
# accepted but not yet counted (up to 4 * ACCEPTED), and for rejected connections, which stay open
# for a second so that clients can read the error.
_SPARE_DESCRIPTORS = 128
ACCEPTED = 8
_MAX_REJECTED = 32


class LineHandler(logging.Handler):
    """Prints errors to standard error, at most one line per second."""

    _next, _num_dropped = 0.0, 0

    def write_line(self, message: str) -> None:
        """Prints a message unless another one was printed within the last second."""
        if time.monotonic() < self._next:
            self._num_dropped += 1
            return
        dropped = f" ({self._num_dropped:,} earlier messages dropped)" if self._num_dropped else ""
        self._next, self._num_dropped = time.monotonic() + 1, 0
        print(f"Error: {one_line(message, 500)}{dropped}", file=sys.stderr, flush=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a log record of uvicorn or asyncio, such as a failed connection."""
        error = record.exc_info and record.exc_info[1]
        message = record.getMessage().strip().split("\n")[0]
        self.write_line(f"{message} {error!r}" if error else message)


LINE_HANDLER = LineHandler()


def max_connections() -> int:
    """Raises the limit of file descriptors and returns the maximum number of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass  # macOS reports an unlimited maximum, but does not accept it as a limit.
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(soft - _SPARE_DESCRIPTORS, soft // 4))


class Connection(H11Protocol):
    """HTTP connection with limits on time and on unread bytes."""

    # Connections with unread responses, oldest first, and rejected connections.
    _unread: ClassVar["dict[Connection, None]"] = {}
    _rejected: ClassVar["set[Connection]"] = set()
    _is_ended = False
    _headers: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts or rejects a connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # pause_writing is called for any unread byte.
        if len(self.connections) >= (self.limit_concurrency or 0):
            self.connections.discard(self)
            limit = f"{len(self.connections):,} connections are open"
            LINE_HANDLER.write_line(f"{limit}: new connections are rejected.")
            self._end(503, f"{limit}. Retry later.")
            self._rejected.add(self)
            if len(self._rejected) > _MAX_REJECTED:
                transport.abort()
        else:
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Reads data and limits the time until the headers are complete."""
        if self._is_ended:
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_headers()
        elif self._headers is not None:
            self._headers.cancel()
            self._headers = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timers of the connection."""
        super().connection_lost(exc)
        self.resume_writing()
        self._rejected.discard(self)
        if self._headers is not None:
            self._headers.cancel()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, even if its last response is unread."""
        if self._answer is not None:
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        """Limits the time for reading a response, and the total size of unread responses."""
        super().pause_writing()
        self._answer = self.loop.call_later(_READ_S, self.transport.abort)
        self._unread[self] = None
        sizes = {
            connection: connection.transport.get_write_buffer_size() for connection in self._unread
        }
        excess = sum(sizes.values()) - _MAX_UNREAD
        for oldest, size in sizes.items():
            if excess > 0 and oldest is not self:
                oldest.transport.abort()
            excess -= size

    def resume_writing(self) -> None:
        """Removes the limits after the client has read the response."""
        super().resume_writing()
        self._unread.pop(self, None)
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def _await_headers(self) -> None:
        if self._headers is None and not self.transport.is_closing():
            message = f"The headers were not received within {_HEADERS_S} seconds."
            self._headers = self.loop.call_later(_HEADERS_S, self._end, 408, message)

    def _end(self, status: int, message: str) -> None:
        """Sends an error on a connection without a request, and closes it a second later."""
        self._is_ended = True
        body = b'{"error": "%s"}' % message.encode()
        reason = {408: b"Request Timeout", 503: b"Service Unavailable"}[status]
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s" % (status, reason, len(body), body)
        )
        self.loop.call_later(1, self.transport.abort)
        with contextlib.suppress(OSError):  # The client has disconnected.
            self.transport.write_eof()
