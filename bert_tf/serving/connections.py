"""Connections within bounds: how many, how long each may take, and what is said of them.

uvicorn bounds neither the connections that ask nothing nor the time of headers and of answers that
nobody reads.
"""

import asyncio
import contextlib
import logging
import resource
import sys
import time
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from bert_tf.io.wording import one_line

# A client has so many seconds to send headers, and to read an answer. Load balancers give up a
# connection that asks nothing after 60, and must be the first to do so.
_HEADERS_S = 30
_READ_S = 75
IDLE_S = 75
_MAX_CONNECTIONS = 4000
_MAX_UNREAD = 256 << 20  # bytes of answers that wait to be read, of all connections
# Of the descriptors, so many are for the files of the process, for the connections that the event
# loop accepts at a time, of which it has four times as many before the first is refused, and for
# those that are refused, which stay for a second, so that their clients read why.
_SPARE = 128
ACCEPTED = 8
_MAX_REJECTED = 32


class LineHandler(logging.Handler):
    """Says what goes wrong on standard error, in a line a second at most."""

    _next, _num_dropped = 0.0, 0

    def write_line(self, message: str) -> None:
        """Says a sentence, unless another one was said within the second."""
        if time.monotonic() < self._next:
            self._num_dropped += 1
            return
        dropped = f" (and {self._num_dropped:,} such lines before)" if self._num_dropped else ""
        self._next, self._num_dropped = time.monotonic() + 1, 0
        print(f"Error: {one_line(message, 500)}{dropped}", file=sys.stderr, flush=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Says what uvicorn and the event loop log, such as a connection that fails."""
        error = record.exc_info and record.exc_info[1]
        message = record.getMessage().strip().split("\n")[0]
        self.write_line(f"{message} {error!r}" if error else message)


LINE_HANDLER = LineHandler()


def max_connections() -> int:
    """The most connections, below the limit of descriptors, which is raised as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass  # macOS says that there is no limit, and refuses to have none
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(soft - _SPARE, soft // 4))


class Connection(H11Protocol):
    """A connection that no client can hold open for nothing."""

    # Those whose client does not read, the oldest first, and those that are refused.
    _unread: ClassVar["dict[Connection, None]"] = {}
    _rejected: ClassVar["set[Connection]"] = set()
    _is_ended = False
    _headers: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection, or refuses it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # whatever waits to be read calls pause_writing
        if len(self.connections) >= (self.limit_concurrency or 0):
            self.connections.discard(self)
            limit = f"{len(self.connections):,} connections are open"
            LINE_HANDLER.write_line(f"{limit}: the newest are refused.")
            self._end(503, f"{limit}: ask later.")
            self._rejected.add(self)
            if len(self._rejected) > _MAX_REJECTED:
                transport.abort()
        else:
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Reads; what belongs to no request yet must become one in time."""
        if self._is_ended:
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_headers()
        elif self._headers is not None:
            self._headers.cancel()
            self._headers = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what waits for the client."""
        super().connection_lost(exc)
        self.resume_writing()
        self._rejected.discard(self)
        if self._headers is not None:
            self._headers.cancel()

    def timeout_keep_alive_handler(self) -> None:
        """Ends a connection that asks nothing more, even where its last answer is not read."""
        if self._answer is not None:
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        """Waits for the client to read, for a time and for so many bytes of all."""
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
        """Goes on: the client has read all."""
        super().resume_writing()
        self._unread.pop(self, None)
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def _await_headers(self) -> None:
        if self._headers is None and not self.transport.is_closing():
            message = f"The headers did not come within {_HEADERS_S} seconds."
            self._headers = self.loop.call_later(_HEADERS_S, self._end, 408, message)

    def _end(self, status: int, message: str) -> None:
        """Ends a connection that has no request, with a reply of one line, and time to read it."""
        self._is_ended = True
        body = b'{"error": "%s"}' % message.encode()
        reason = {408: b"Request Timeout", 503: b"Service Unavailable"}[status]
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s" % (status, reason, len(body), body)
        )
        self.loop.call_later(1, self.transport.abort)
        with contextlib.suppress(OSError):  # the client has left
            self.transport.write_eof()
