"""HTTP server with request limits, and with a web page at ``/``.

This module does not import TensorFlow, so that the server responds while the model loads.
"""

import asyncio
import bisect
import collections
import contextlib
import dataclasses
import functools
import gc
import importlib.resources
import logging
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from bert_tf.io.messages import one_line
from bert_tf.io.runtime import usable_cores

from . import connections, rest
from .batching import Batcher

if TYPE_CHECKING:
    from .model import ServedModel

_BODY_S = 30  # maximum number of seconds for sending a body
_MAX_PENDING_BYTES = 64 << 20  # total size of all bodies that are being received
# Maximum number of seconds for receiving bodies, and for responding, on shutdown.
_SHUTDOWN_BODY_S = 1
_SHUTDOWN_S = 20
_CALLBACK_S = 5
_MAX_BATCH_SIZE = 64
# Number of body bytes, or of response values, that are converted faster than a thread switch.
_SMALL = 4096
_BACKLOG = 1024
_JSON = "application/json"
# TensorFlow Serving's path, and the default path of Prometheus.
_METRICS_PATHS = ("/monitoring/prometheus/metrics", "/metrics")
_METRICS_TYPE = "text/plain; version=0.0.4"
_SERVING = ":tensorflow:serving:"
_LIMITS = [10 * 1.8**power for power in range(32)]  # microseconds, up to 14 minutes
_CODES = {200: "OK", 400: "INVALID_ARGUMENT", 408: "DEADLINE_EXCEEDED", 413: "INVALID_ARGUMENT"} | {
    **{429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}
}
# Types of an ASGI application.
_Message = dict[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on requests.

    Attributes:
        rows: Maximum number of rows per request.
        bytes: Maximum number of bytes per request.
        waiting: Maximum number of pending requests.
        seconds: Maximum number of seconds that a request may wait.
    """

    rows: int
    bytes: int
    waiting: int
    seconds: int


@dataclasses.dataclass(frozen=True)
class _Reply:
    status: int
    body: bytes
    media_type: str = _JSON
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


class Application:
    """ASGI application for one model, which returns status 503 until ``open`` is called."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name, self._limits = name, limits
        self._model: ServedModel | None = None
        self._batcher: Batcher
        self._metrics = _Metrics(name)
        self._answers: set[asyncio.Future[rest.Tensors]] = set()
        self._in_flight = 0
        # Timeout and number of received bytes of each body, oldest first.
        self._pending_bodies: dict[asyncio.Timeout, int] = {}
        self._pending_bytes = 0
        # A single thread, because parsed JSON takes many times the memory of its text.
        self._json = ThreadPoolExecutor(1)

    def open(self, model: "ServedModel", batcher: Batcher) -> None:
        """Starts answering requests with a model."""
        self._batcher, self._model = batcher, model

    def end_soon(self) -> None:
        """Limits how long a shutdown waits for request bodies and for responses."""
        loop = asyncio.get_running_loop()
        for limit in [*self._pending_bodies]:
            self._reschedule(limit, loop.time() + _SHUTDOWN_BODY_S)
        loop.call_later(_SHUTDOWN_S, lambda: [answer.cancel() for answer in self._answers])

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answers an HTTP request."""
        try:
            reply = await self._reply(scope, receive)
        except rest.RestError as error:
            retry_after = error.retry_after
            headers = {} if retry_after is None else {"retry-after": str(retry_after)}
            reply = _Reply(error.status, rest.encode({"error": str(error)}), headers=headers)
        except Exception as error:
            connections.LINE_HANDLER.write_line(repr(error))
            message = "Internal error. See the standard error output of the server."
            reply = _Reply(500, rest.encode({"error": message}))
        headers = {"content-type": reply.media_type, "content-length": str(len(reply.body))}
        sent = [(k.encode(), v.encode()) for k, v in {**headers, **reply.headers}.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": sent})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: _Message, receive: _Receive) -> _Reply:
        method, path = scope["method"], one_line(scope["path"], 1000)
        if method in ("GET", "HEAD") and path == "/":
            return self._page()
        if method in ("GET", "HEAD") and path in _METRICS_PATHS:
            now = {"requests_in_hand": self._in_flight, "request_bytes_coming": self._pending_bytes}
            return _Reply(200, self._metrics.text(now).encode(), _METRICS_TYPE)
        if self._model is None:
            raise rest.RestError(503, "The model is loading. Retry later.", retry_after=5)
        version, signatures = self._model.version, self._model.signatures
        action = rest.parse_action(method, path, self._name, version)
        if action == "status":
            return _Reply(200, rest.encode(rest.status_reply(version)))
        if action == "metadata":
            return _Reply(200, rest.encode(rest.metadata_reply(self._name, version, signatures)))
        is_gzip = any(k == b"content-encoding" and b"gzip" in v for k, v in scope["headers"])
        return _Reply(200, await self._measured(action, is_gzip, receive, signatures))

    def _page(self) -> _Reply:
        """Returns the web page, with a policy that allows only its own script, style and server."""
        nonce = secrets.token_urlsafe(16)
        file = importlib.resources.files(__package__) / "page.html"
        text = file.read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        return _Reply(
            200,
            text.replace("NONCE", nonce).replace("MODEL_NAME", self._name).encode(),
            "text/html; charset=utf-8",
            {"content-security-policy": policy, "x-content-type-options": "nosniff"},
        )

    async def _measured(
        self, action: str, is_gzip: bool, receive: _Receive, signatures: Mapping[str, Any]
    ) -> bytes:
        start, status, rows = time.monotonic(), 500, 0
        try:
            body = await self._body(receive)
            start = time.monotonic()
            if self._in_flight >= self._limits.waiting:
                message = (
                    f"{self._limits.waiting} requests are pending (--max_waiting). Retry later."
                )
                raise rest.RestError(503, message, retry_after=1)
            self._in_flight += 1
            try:
                request = await self._parsed(action, body, is_gzip, signatures)
                rows = rest.count_rows(request.inputs)
                reply = await self._answer(request, receive)
            finally:
                self._in_flight -= 1
            status = 200
            return reply
        except rest.RestError as error:
            status = error.status
            raise
        finally:
            self._metrics.count(action, status, rows, time.monotonic() - start)

    async def _body(self, receive: _Receive) -> bytes:
        """Receives the body, up to the maximum number of bytes."""
        max_bytes, body, limit = self._limits.bytes, bytearray(), asyncio.timeout(_BODY_S)
        self._pending_bodies[limit] = 0
        try:
            async with limit:
                while (message := await receive())["type"] == "http.request":
                    body += message["body"]
                    if len(body) > max_bytes:
                        raise rest.RestError(
                            413, f"The body has more than {max_bytes} bytes (--max_bytes)."
                        )
                    if not message.get("more_body"):
                        return bytes(body)
                    self._limit_pending_bytes(limit, len(message["body"]))
        except TimeoutError:
            raise rest.RestError(
                408,
                f"The body was not received within {_BODY_S} seconds, or the server shut down or "
                "reached its memory limit.",
            ) from None
        finally:
            self._pending_bytes -= self._pending_bodies.pop(limit, 0)
        raise _client_left_error()

    def _limit_pending_bytes(self, limit: asyncio.Timeout, size: int) -> None:
        """Counts received bytes, and times out the oldest bodies if the total is too large."""
        if limit in self._pending_bodies:
            self._pending_bodies[limit] += size
            self._pending_bytes += size
        while self._pending_bytes > max(_MAX_PENDING_BYTES, self._limits.bytes):
            oldest, oldest_size = next(iter(self._pending_bodies.items()))
            del self._pending_bodies[oldest]
            self._pending_bytes -= oldest_size
            self._reschedule(oldest, asyncio.get_running_loop().time())

    @staticmethod
    def _reschedule(limit: asyncio.Timeout, when: float) -> None:
        if not limit.expired():
            limit.reschedule(when)

    async def _parsed(
        self, action: str, body: bytes, is_gzip: bool, signatures: Mapping[str, Any]
    ) -> rest.Request:
        """Parses a body; uses a thread for large bodies, so that small requests do not wait."""
        limits, parser = self._limits, rest.parse_predict
        if action != "predict":
            parser = functools.partial(rest.parse_examples, action)

        def parse() -> rest.Request:
            text = _inflated(body, limits.bytes) if is_gzip else body
            return parser(text, signatures, limits.rows)

        if len(body) <= _SMALL and not is_gzip:
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._json, parse)

    async def _answer(self, request: rest.Request, receive: _Receive) -> bytes:
        """Returns the reply to a request, which is canceled if the client disconnects."""
        future = self._batcher.submit(request.signature, request.inputs, request.outputs)
        answer = asyncio.wrap_future(future)
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        disconnect.add_done_callback(lambda _: answer.cancel())
        self._answers.add(answer)
        try:
            outputs = await answer
        except asyncio.CancelledError:
            raise (
                _client_left_error()
                if disconnect.done()
                else rest.RestError(503, "The server is shutting down.")
            ) from None
        finally:
            self._answers.discard(answer)
            disconnect.cancel()
        if sum(array.size for array in outputs.values()) <= _SMALL:
            return rest.encode(request.reply(outputs))
        return await asyncio.get_running_loop().run_in_executor(
            self._json, lambda: rest.encode(request.reply(outputs))
        )


def _client_left_error() -> rest.RestError:
    return rest.RestError(499, "The client disconnected.")


async def _wait_for_disconnect(receive: _Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _inflated(body: bytes, limit: int) -> bytes:
    """Decompresses a gzip body of at most ``limit`` bytes."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise rest.RestError(400, f"The body is not gzip: {error}.") from error
    if len(text) > limit:
        raise rest.RestError(413, f"The gzip body contains more than {limit} bytes (--max_bytes).")
    if not inflate.eof or inflate.unused_data:
        raise rest.RestError(400, "The body is not a complete gzip stream.")
    return text


class _Metrics:
    """Metrics of one model in Prometheus' text format, with TensorFlow Serving's names.

    Source: prometheus_exporter.cc and servables/tensorflow/util.cc of TensorFlow Serving. Gauges of
    pending requests have the prefix ``:bert_tf:``, because TensorFlow Serving's batching differs.
    """

    def __init__(self, name: str) -> None:
        self._name, self._rows = name, 0
        self._requests: collections.Counter[str] = collections.Counter()
        self._times: dict[str, list[float]] = {}  # by action: histogram counts, then the sum

    def count(self, action: str, status: int, rows: int, seconds: float) -> None:
        """Counts a request with its HTTP status, number of rows and duration."""
        self._requests[_CODES.get(status, "INTERNAL")] += 1
        self._rows += rows
        times = self._times.setdefault(action.capitalize(), [0] * (len(_LIMITS) + 2))
        times[bisect.bisect_left(_LIMITS, seconds * 1e6)] += 1
        times[-1] += seconds * 1e6

    def text(self, gauges: Mapping[str, int]) -> str:
        """Returns all metrics; ``gauges`` maps names to current values."""
        lines = [f"# TYPE {_SERVING}request_count counter"]
        for status, number in sorted(self._requests.items()):
            labels = f'model_name="{self._name}",status="{status}"'
            lines.append(f"{_SERVING}request_count{{{labels}}} {number}")
        lines += [
            f"# TYPE {_SERVING}request_example_count_total counter",
            f'{_SERVING}request_example_count_total{{model="{self._name}"}} {self._rows}',
            f"# TYPE {_SERVING}request_latency histogram",
        ]
        for action, (*counts, total) in sorted(self._times.items()):
            labels, so_far = f'model_name="{self._name}",API="{action}",entrypoint="REST"', 0
            for limit, count in zip([*map("{:g}".format, _LIMITS), "+Inf"], counts, strict=True):
                so_far += int(count)
                bucket = f'{_SERVING}request_latency_bucket{{{labels},le="{limit}"}}'
                lines.append(f"{bucket} {so_far}")
            lines.append(f"{_SERVING}request_latency_sum{{{labels}}} {total:.0f}")
            lines.append(f"{_SERVING}request_latency_count{{{labels}}} {so_far}")
        for name, number in gauges.items():
            lines.append(f"# TYPE :bert_tf:serving:{name} gauge")
            lines.append(f':bert_tf:serving:{name}{{model_name="{self._name}"}} {number}')
        return "\n".join([*lines, ""])


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for name in ("uvicorn", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [connections.LINE_HANDLER], False
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)  # asyncio uses config.backlog in its accept loop.

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.end_soon()
        asyncio.get_running_loop().call_later(_SHUTDOWN_S + 1, self._abort)
        await super().shutdown(sockets)

    def _abort(self) -> None:
        for connection in [*self.server_state.connections]:
            connection.transport.abort()


class Server:
    """Server that listens in a thread, and finishes pending requests when the context exits."""

    def __init__(self, name: str, listening: socket.socket, limits: Limits) -> None:
        self._limits, self._application = limits, Application(name, limits)
        self._batcher: Batcher | None = None
        config = uvicorn.Config(
            self._application,
            http=connections.Connection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=connections.ACCEPTED,
            limit_concurrency=connections.max_connections() + 1,
            timeout_keep_alive=connections.IDLE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S + 3,
        )
        self._uvicorn = _Uvicorn(config, self._application)
        self._finished: Future[None] = Future()
        # An exiting process does not wait for daemon threads. This is needed, because a signal can
        # interrupt __exit__ before it stops the server.
        threading.Thread(target=self._run, args=[listening], daemon=True).start()

    def _run(self, listening: socket.socket) -> None:
        try:
            self._uvicorn.run([listening])
        except BaseException as error:
            self._finished.set_exception(error)
        else:
            self._finished.set_result(None)

    def __enter__(self) -> Self:
        return self

    def open(self, model: "ServedModel") -> None:
        """Starts answering requests with a model."""
        batcher = Batcher(
            model.run,
            model.signatures,
            largest=min(_MAX_BATCH_SIZE, self._limits.rows),
            workers=max(usable_cores(), 2),
            max_seconds=self._limits.seconds,
        )
        # Excludes the loaded objects from garbage collection, which would take half a second.
        gc.collect()
        gc.freeze()
        self._batcher = batcher
        self._application.open(model, batcher)

    def wait(self, callback: Callable[[], None]) -> None:
        """Waits for the server to end, raises its error, and calls ``callback`` periodically."""
        while True:
            with contextlib.suppress(TimeoutError):
                return self._finished.result(_CALLBACK_S)
            callback()

    def __exit__(self, *error: object) -> None:
        """Stops the server within 30 seconds, unless a signal interrupts the wait."""
        self._uvicorn.should_exit = True
        self._finished.result()
        if self._batcher is not None:
            self._batcher.close(0)
