"""Sample requests with the answers that an export gave: as REST's JSON and as gRPC's messages.

They show a client's author what to send, and ``verification`` asks them again elsewhere. Each is
three files, SIGNATURE.N counted from 0:

| name                       | what                                                            |
|----------------------------|-----------------------------------------------------------------|
| SIGNATURE.N.json           | ``signature_name``; ``request`` and ``response``, REST's bodies |
| SIGNATURE.N.request.pb     | a ``PredictRequest``                                            |
| SIGNATURE.N.response.pb    | a ``PredictResponse``                                           |
"""

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.vocabulary import MASK_TOKEN

from .served import Served, Signature

Requests = tuple[Mapping[str, list[Any]], ...]

_TEXTS = [
    "The harbour was quiet when the last boat came in.",
    "I would not see this film again, even for free.",
    "Ada Brandt moved from Lisbon to Oslo in 1931.",
]
_SECOND_TEXTS = [
    "Nobody was waiting on the pier.",
    "It was a waste of time.",
    "She never left Portugal.",
]
_MASKED = [
    f"The harbour was {MASK_TOKEN} when the last boat came in.",
    f"She {MASK_TOKEN} the letter and put it in her {MASK_TOKEN}.",
    "There is nothing to guess here.",
]
_CONTEXT = (
    "The city library of Oslo opened in 1931. Its architect, Ada Brandt, had come from Lisbon two "
    "years before, and the reading room that she drew has 240 seats."
)
_QUESTIONS = [
    "Who drew the reading room?",
    "When did the library open?",
    "How many seats are there?",
]
# No two of a context's are of one length: a vocabulary without their words would make them equal,
# and rounding would choose.
_CHOICES = [
    [
        "She poured the tea.",
        "She closed the old umbrella.",
        "She ate the kettle and the cup.",
        "She sang.",
    ],
    ["It began to swim.", "It ran home.", "It swam.", "It was painted red again."],
]
_WORDS = [
    ["Ada", "Brandt", "moved", "from", "Lisbon", "to", "Oslo", "."],
    ["The", "U.N.", "met", "in", "Geneva", "", "", ""],
]
_BEYOND_ASCII = "Señor Núñez zahlt 5 € in Zürich: 東京の天気 👍"
_NOT_UTF8 = b"The caf\xe9 in \xffOslo is \xc3 open."


@dataclasses.dataclass(frozen=True)
class Sample:
    """A request and its answer, arrays by name; strings are objects, ``bytes`` each."""

    signature: str
    number: int  # among the signature's, from 0
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]

    @property
    def batch_size(self) -> int:
        """The rows of the request."""
        return len(next(iter(self.inputs.values())))

    def rest_request(self, rows: int | None = None) -> dict[str, Any]:
        """The body of REST's request, by columns, of all rows or the first ``rows``."""
        inputs = {name: to_json(value[:rows]) for name, value in self.inputs.items()}
        return {"signature_name": self.signature, "inputs": inputs}

    def rest_response(self) -> dict[str, Any]:
        """The body of the answer, without the name of a single output, as the server has it."""
        outputs = {name: to_json(value) for name, value in self.outputs.items()}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def run_samples(name: str, function: Callable[..., Any], signature: Signature) -> list[Sample]:
    """Asks a signature, or its loaded function, the signature's samples."""
    samples = []
    for number, columns in enumerate(signature.samples):
        inputs = {key: _to_array(values, signature.inputs[key]) for key, values in columns.items()}
        tensors = {key: tf.constant(inputs[key], signature.inputs[key].dtype) for key in inputs}
        outputs = {key: value.numpy() for key, value in function(**tensors).items()}
        for key, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ValueError(
                    f"The output {key} of the signature {name} is not finite on its sample "
                    f"{number}: the weights are damaged, or their training diverged."
                )
        samples.append(Sample(name, number, inputs, outputs))
    return samples


def _to_array(values: list[Any], spec: tf.TensorSpec) -> np.ndarray:
    array = np.array(values, spec.dtype.as_numpy_dtype)
    if spec.dtype == tf.string:
        for index, value in np.ndenumerate(array):
            array[index] = value if isinstance(value, bytes) else value.encode()
    # An empty list tells nothing of the dimensions within.
    return array.reshape(array.shape + (0,) * (len(spec.shape) - array.ndim))


def to_json(array: np.ndarray) -> Any:
    """An array as REST spells it: a float32 has as many digits as tell it from its neighbours."""
    if array.dtype != object and array.dtype.kind != "f":
        return array.tolist()
    nested = np.empty(array.shape, object)
    for index, value in np.ndenumerate(array):
        nested[index] = _text(value) if array.dtype == object else float(str(value))
    return nested.tolist()


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


# === Requests ===


def _long(served: Served) -> str:
    """A text of more tokens than a row has."""
    return " ".join(["The boat came in ."] * (served.max_seq_length // 5 + 1))


def _odd(served: Served) -> list[Any]:
    return ["", _BEYOND_ASCII, _NOT_UTF8, _long(served)]


def requests_of_texts(served: Served, first: str = "text", second: str | None = None) -> Requests:
    """Requests of texts or pairs, by the names of the inputs."""
    columns = [{first: _TEXTS}, {first: _odd(served)}]
    if second:
        columns[0][second] = _SECOND_TEXTS
        columns[1][second] = _odd(served)[::-1]
    return tuple(columns)


def requests_of_examples(served: Served, names: Sequence[str]) -> Requests:
    """Requests of texts or pairs, each a serialized ``tf.Example`` with features of these names."""

    def serialized(columns: Mapping[str, list[Any]]) -> list[bytes]:
        rows = zip(*(columns[name] for name in names), strict=True)
        return [_example(dict(zip(names, row, strict=True))) for row in rows]

    texts = requests_of_texts(served, *names)
    return tuple({"inputs": serialized(columns)} for columns in texts)


def _example(texts: Mapping[str, Any]) -> bytes:
    example = tf.train.Example()
    for name, text in texts.items():
        value = text if isinstance(text, bytes) else text.encode()
        example.features.feature[name].bytes_list.value.append(value)
    content: bytes = example.SerializeToString(deterministic=True)
    return content


def requests_of_masks(served: Served) -> Requests:
    """Requests of texts with ``[MASK]``."""
    odd = ["", f"Señor {MASK_TOKEN} zahlt in Zürich", b"caf\xe9 \xff [MASK]\xc3 ."]
    odd += [f"{MASK_TOKEN} {_long(served)} {MASK_TOKEN}"]
    return {"text": _MASKED}, {"text": odd}


def requests_of_questions(served: Served) -> Requests:
    """Requests of questions and contexts."""
    ordinary = {"question": _QUESTIONS, "context": [_CONTEXT] * len(_QUESTIONS)}
    contexts = [_CONTEXT, _BEYOND_ASCII, _NOT_UTF8, f"{_long(served)} {_CONTEXT}", "", _CONTEXT]
    questions = ["", "Wer zahlt in Zürich?", b"What is \xff open?", _QUESTIONS[0]]
    return ordinary, {"question": [*questions, _QUESTIONS[0], _long(served)], "context": contexts}


def requests_of_choices(served: Served) -> Requests:
    """Requests of contexts and choices."""
    ordinary: dict[str, list[Any]] = {
        "context": ["She put the kettle on.", "The dog heard the bell."],
        "choices": _CHOICES,
    }
    odd = _odd(served)
    return ordinary, {"context": odd, "choices": [[text, "It ran home."] for text in odd[::-1]]}


def requests_of_similar(served: Served) -> Requests:
    """Requests of texts and what each is compared with."""
    odd = _odd(served)
    return (
        {"text": _TEXTS, "others": [[second, _TEXTS[0]] for second in _SECOND_TEXTS]},
        {"text": odd, "others": [[text, _TEXTS[1]] for text in odd[::-1]]},
    )


def requests_of_words(served: Served) -> Requests:
    """Requests of texts that are split into words."""
    odd: list[list[Any]] = [_BEYOND_ASCII.split(), _NOT_UTF8.split(), _long(served).split()]
    odd.insert(0, [])
    width = max(map(len, odd))
    return {"words": _WORDS}, {"words": [[*words, *[""] * (width - len(words))] for words in odd]}


def requests_of_ids(
    served: Served, contract: Mapping[str, features.Feature] = features.ENCODER_FEATURES
) -> Requests:
    """Requests of ids, by the features of a contract: a row and a shorter one; and a pair."""
    tokenizer = served.tokenizer
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    # Anything from the vocabulary.
    a, b = tokenizer.vocab_size // 2, tokenizer.vocab_size - 1
    rows = [
        ([[cls, a, b, sep], [cls, b, sep, pad]], [[1, 1, 1, 1], [1, 1, 1, 0]], [[0] * 4] * 2),
        ([[cls, a, sep, b, sep]], [[1] * 5], [[0, 0, 0, 1, 1]]),
    ]
    words = ([[-1, 0, 1, -1], [-1, 0, -1, -1]], [[-1, 0, -1, 1, -1]])
    found = []
    for row, index in zip(rows, words, strict=True):
        known = {
            **dict(zip(features.ENCODER_FEATURES, row, strict=True)),
            features.WORD_INDEX: index,
        }
        choices = len(contract[features.INPUT_WORD_IDS].dimensions) > 2
        found.append({key: [known[key]] if choices else known[key] for key in contract})
    return tuple(found)
