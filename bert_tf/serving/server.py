"""The HTTP server: what it accepts, within bounds, and the page at ``/``."""

import asyncio
import contextlib
import dataclasses
import functools
import importlib.resources
import json
import secrets
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bert_tf.cores import usable_cores
from bert_tf.untrusted import one_line

from . import examples, rest
from .batching import Batcher
from .model import ServedModel

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# A client has so many seconds to send a body; at the end, the rest of one, and then its answer.
_BODY_S = 30
_LAST_BODY_S = 1
_LAST_S = 120
# Open connections, most of which ask nothing at a moment.
_MOST_CONNECTIONS = 1000
_LARGEST_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The most rows and bytes of a request, and the most requests in hand."""

    rows: int
    bytes: int
    waiting: int


class Door:
    """Answers HTTP requests to one model."""

    def __init__(self, name: str, model: ServedModel, batcher: Batcher, bounds: Bounds) -> None:
        self._name, self._model, self._batcher, self._bounds = name, model, batcher, bounds
        self._in_hand = 0
        self._limits: set[asyncio.Timeout] = set()  # of the bodies that are coming
        # One: parsed JSON takes many times the space of its text.
        self._json = ThreadPoolExecutor(1)

    def app(self) -> Starlette:
        """The ASGI application."""
        page = Route("/", self._page, methods=["GET"])
        return Starlette(routes=[page, Route("/{path:path}", self._reply, methods=_METHODS)])

    def hurry(self) -> None:
        """Gives up the bodies that do not come soon, so that no client holds the server's end."""
        soon = asyncio.get_running_loop().time() + _LAST_BODY_S
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(soon)

    async def _page(self, request: Request) -> Response:
        """The page, which may run its own script and style alone, and ask this server alone."""
        nonce = secrets.token_urlsafe(16)
        file = importlib.resources.files(__package__) / "page.html"
        text = file.read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        return HTMLResponse(
            text.replace("NONCE", nonce).replace("MODEL_NAME", self._name),
            headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"},
        )

    async def _reply(self, request: Request) -> Response:
        try:
            status, body = 200, await self._answer(request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except rest.RestError as error:
            status, body = error.status, _encode({"error": str(error)})
        except Exception as error:
            print(f"Error: {one_line(repr(error), 500)}", file=sys.stderr, flush=True)
            sentence = "The server failed; its standard error says more."
            status, body = 500, _encode({"error": sentence})
        return Response(body, status, media_type="application/json")

    async def _answer(self, request: Request) -> bytes:
        name, version, path = self._name, self._model.version, one_line(request.url.path, 1000)
        action = rest.action_of(request.method, path, name, version)
        if action == "status":
            return _encode(rest.status_reply(version))
        if action == "metadata":
            return _encode(rest.metadata_reply(name, version, self._model.signatures))
        if self._in_hand >= self._bounds.waiting:
            raise rest.RestError(
                503, f"{self._bounds.waiting} requests are in hand, --max_waiting: ask later."
            )
        self._in_hand += 1
        try:
            return await self._run(action, await self._body(request))
        finally:
            self._in_hand -= 1

    async def _run(self, action: str, body: bytes) -> bytes:
        loop, parse = asyncio.get_running_loop(), rest.parse_predict
        if action != "predict":
            parse = functools.partial(examples.parse_examples, action)
        asked = await loop.run_in_executor(self._json, parse, body, self._model.signatures)
        rows = rest.rows_of(asked.inputs)
        if rows > self._bounds.rows:
            raise rest.RestError(
                400, f"The request has {rows} rows, and --max_rows is {self._bounds.rows}."
            )
        outputs = await asyncio.wrap_future(self._batcher.ask(asked.signature, asked.inputs))
        return await loop.run_in_executor(self._json, lambda: _encode(asked.reply(outputs)))

    async def _body(self, request: Request) -> bytes:
        """The body, or a refusal once more bytes have come than are allowed."""
        most, body, limit = self._bounds.bytes, bytearray(), asyncio.timeout(_BODY_S)
        self._limits.add(limit)
        try:
            async with limit:
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise rest.RestError(
                            413, f"The body has more than {most} bytes, --max_bytes."
                        )
        except TimeoutError:
            raise rest.RestError(
                408, f"The body did not come within {_BODY_S} seconds, or before the server ended."
            ) from None
        finally:
            self._limits.discard(limit)
        return bytes(body)


def _encode(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False).encode()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._door.hurry()
        await super().shutdown(sockets)


def serve(model: ServedModel, name: str, listening: socket.socket, bounds: Bounds) -> None:
    """Serves a model until Ctrl-C or SIGTERM, and answers the requests in hand before it ends."""
    workers = min(max(usable_cores(), 2), 4)
    largest = min(_LARGEST_BATCH, bounds.rows)
    batcher = Batcher(model.run, model.signatures, largest=largest, workers=workers)
    door = Door(name, model, batcher, bounds)
    config = uvicorn.Config(
        door.app(),
        log_level="warning",
        lifespan="off",
        ws="none",
        http="h11",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_LAST_S,
    )
    host, port = listening.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    says = f"Listening at {place}/ (a page), {place}/v1/models/{name} (REST); Ctrl-C ends it."
    try:
        # uvicorn raises the signal again, when all is answered; a shell's job in the background
        # ignores Ctrl-C's then.
        with contextlib.suppress(KeyboardInterrupt):
            print(says, flush=True)
            _Server(config, door).run(sockets=[listening])
        print("Ended.")
    finally:
        batcher.close()
