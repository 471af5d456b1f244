"""Asks an ASGI application without a socket."""

import asyncio
import dataclasses
import json


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


async def send(app, method, path, *parts, headers=(), leaves=None):
    """The reply to one request, whose body comes in parts; ``None`` is a part that never comes.

    The client leaves when the event ``leaves`` is set.
    """
    left, sent = list(parts or (b"",)), []

    async def receive():
        if not left:
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        part = left.pop(0)
        if part is None:
            await asyncio.sleep(1000)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def take(message):
        sent.append(message)

    request = {"method": method, "path": path, "query_string": b"", "headers": [*headers]}
    await app({"type": "http", **request}, receive, take)
    body = b"".join(message.get("body", b"") for message in sent)
    named = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], named, body)


def ask(app, method, path, body=b"", headers=()):
    """Likewise, of bytes or of what is to be JSON."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(send(app, method, path, body, headers=headers))
