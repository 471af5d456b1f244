"""Models for the server, and requests to an ASGI application without a socket."""

import asyncio
import dataclasses
import json

import pytest
import tensorflow as tf

from bert_tf.serving import connections
from bert_tf.serving import model as served


class Half(tf.Module):
    """TensorFlow Serving's own test model, half plus two, and signatures of what else there is."""

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
    def half_plus_two(self, x):
        return {"y": x / 2 + 2}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="text"),
            tf.TensorSpec([None, 2], tf.int32, name="ids"),
        ]
    )
    def two(self, text, ids):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(ids >= 0), ["No: -1."])]):
            return {"text": tf.identity(text), "sum": tf.reduce_sum(ids, 1), "raw_bytes": text}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.bool, name="flags")])
    def odd(self, flags):
        return {"number": tf.where(flags, float("nan"), float("-inf")), "one": tf.constant([True])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs):
        x = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]
        return {"scores": (x / 2 + 2)[:, None]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(self, inputs):
        return {"outputs": self.classify(inputs)["scores"][:, 0]}


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch):
    """No line on standard error in the second before."""
    monkeypatch.setattr(connections, "LINE_HANDLER", connections.LineHandler())


@pytest.fixture(scope="package")
def half(tmp_path_factory):
    """The directory of version 123 of such a model."""
    folder = tmp_path_factory.mktemp("half") / "123"
    module = Half()
    names = ("two", "odd", "classify", "regress")
    signatures = {"serving_default": module.half_plus_two}
    signatures |= {name: getattr(module, name) for name in names}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return str(folder)


@pytest.fixture(scope="package")
def half_model(half):
    return served.load(half)


# === Requests ===


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
