"""Models for the server, and requests to an ASGI application without a socket."""

import asyncio
import dataclasses
import json

import pytest
import tensorflow as tf

from bert_tf.serving import connections
from bert_tf.serving import model as served


class Half(tf.Module):
    """TensorFlow Serving's test model, half plus two, with further signatures."""

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
def reset_error_lines(monkeypatch):
    """Resets the limit of one error line per second."""
    monkeypatch.setattr(connections, "LINE_HANDLER", connections.LineHandler())


@pytest.fixture(scope="package")
def half(tmp_path_factory):
    """Directory of version 123 of the model."""
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
    """Sends a request in parts and returns the reply; ``None`` is a part that never arrives.

    The client disconnects when the event ``leaves`` is set.
    """
    remaining, sent = list(parts or (b"",)), []

    async def receive():
        if not remaining:
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        part = remaining.pop(0)
        if part is None:
            await asyncio.sleep(1000)
        return {"type": "http.request", "body": part, "more_body": bool(remaining)}

    async def send_message(message):
        sent.append(message)

    request = {"method": method, "path": path, "query_string": b"", "headers": [*headers]}
    await app({"type": "http", **request}, receive, send_message)
    body = b"".join(message.get("body", b"") for message in sent)
    header_values = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], header_values, body)


def ask(app, method, path, body=b"", headers=()):
    """Sends a request whose body is bytes or a JSON value, and returns the reply."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(send(app, method, path, body, headers=headers))
