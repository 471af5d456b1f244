"""The HTTP server: what it accepts, within bounds, and the page at ``/``."""

import asyncio
import base64
import dataclasses
import functools
import hashlib
import importlib.resources
import json
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bert_tf.untrusted import one_line

from . import examples, rest
from .batching import Batcher
from .model import ServedModel

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# A client has so many seconds to send a body, and the requests in hand to be answered at the end.
_BODY_S = 30
_LAST_S = 120
# Open connections, most of which ask nothing at a moment.
_MOST_CONNECTIONS = 1000


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
        # One: parsed JSON takes many times the space of its text.
        self._json = ThreadPoolExecutor(1)

    def app(self) -> Starlette:
        """The ASGI application."""
        page = Route("/", functools.partial(_page, self._name), methods=["GET"])
        return Starlette(routes=[page, Route("/{path:path}", self._reply, methods=_METHODS)])

    async def _reply(self, request: Request) -> Response:
        try:
            return _json_response(200, await self._answer(request))
        except rest.RestError as error:
            return _error(error.status, str(error))
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:
            print(f"Error: {one_line(repr(error), 500)}", file=sys.stderr, flush=True)
            return _error(500, "The server failed; its standard error says more.")

    async def _answer(self, request: Request) -> bytes:
        path = one_line(request.url.path, 1000)
        if not path.lower().startswith("/v1/"):
            raise rest.RestError(404, f"Nothing is at {path}: the page is at /, the model at /v1/.")
        action = rest.action_of(request.method, path, self._name, self._model.version)
        if action == "status":
            return _encode(rest.status_reply(self._model.version))
        if action == "metadata":
            signatures = self._model.signatures
            return _encode(rest.metadata_reply(self._name, self._model.version, signatures))
        is_refused = self._in_hand >= self._bounds.waiting
        self._in_hand += not is_refused
        try:
            body = await self._body(request)
            if is_refused:
                raise rest.RestError(
                    503,
                    f"{self._bounds.waiting} requests are in hand, which is the most: ask later.",
                )
            return await self._run(action, body)
        finally:
            self._in_hand -= not is_refused

    async def _run(self, action: str, body: bytes) -> bytes:
        loop, signatures = asyncio.get_running_loop(), self._model.signatures
        if action == "predict":
            parse = functools.partial(rest.parse_predict, body, signatures)
        else:
            parse = functools.partial(examples.parse_examples, body, action, signatures)
        asked = await loop.run_in_executor(self._json, parse)
        rows = max((len(value) for value in asked.inputs.values() if value.ndim), default=1)
        if rows > self._bounds.rows:
            raise rest.RestError(
                400, f"The request has {rows} rows, and the most is {self._bounds.rows}."
            )
        outputs = await asyncio.wrap_future(self._batcher.ask(asked.signature, asked.inputs))
        reply = functools.partial(rest.predict_reply, outputs, is_row=asked.is_row)
        if action != "predict":
            reply = functools.partial(examples.results_reply, outputs)
        return await loop.run_in_executor(self._json, lambda: _encode(reply()))

    async def _body(self, request: Request) -> bytes:
        """The body, or a refusal once more bytes are announced or have come than are allowed."""
        most = self._bounds.bytes
        too_large = rest.RestError(
            413, f"The body has more than {most:,} bytes, which is the most."
        )
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise rest.RestError(408, f"The body did not come within {_BODY_S} seconds.") from None
        return bytes(body)


def _encode(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False).encode()


def _json_response(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")


def _error(status: int, sentence: str) -> Response:
    response = _json_response(status, _encode({"error": sentence}))
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


# === The page ===


async def _page(name: str, request: Request) -> Response:
    return HTMLResponse(*_page_of(name))


@functools.cache
def _page_of(name: str) -> tuple[str, int, dict[str, str]]:
    """The page of a model, whose name has no character of markup, and its headers.

    They allow its own script and style, by their hashes, and requests to this server.
    """
    file = importlib.resources.files(__package__) / "page.html"
    text = file.read_text(encoding="utf-8").replace("MODEL_NAME", name)
    allowed = {
        tag: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
            for each in re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        )
        for tag in ("script", "style")
    }
    policy = (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return text, 200, headers


# === The process ===


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, says: str) -> None:
        super().__init__(config)
        self._says = says

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._says, flush=True)


def serve(model: ServedModel, name: str, bound: socket.socket, bounds: Bounds) -> None:
    """Serves a model until Ctrl-C or SIGTERM, and answers the requests in hand before it ends."""
    workers = min(max(os.cpu_count() or 1, 2), 4)
    batcher = Batcher(
        model.run, model.signatures, largest=min(model.largest_batch, bounds.rows), workers=workers
    )
    config = uvicorn.Config(
        Door(name, model, batcher, bounds).app(),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_LAST_S,
    )
    host, port = bound.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    says = f"Listening at {place}/ (a page), {place}/v1/models/{name} (REST); Ctrl-C ends it."
    try:
        _Server(config, says).run(sockets=[bound])
    except KeyboardInterrupt:  # uvicorn raises the signal again, when all is answered
        print("Ended.")
    except OSError as error:  # another has begun to listen since
        raise ValueError(
            f"{place} cannot be listened at ({error.strerror or error}): name another --port, or "
            "--port=0 for any free one."
        ) from error
    finally:
        batcher.close()
