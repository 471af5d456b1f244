"""What the samples of an export ask: ordinary requests, and what a server must be able to take.

Each signature has two. The rows of the first are such as clients send. Those of the second are an
empty text, one beyond ASCII, one that is not UTF-8 and one longer than the model's rows.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf import features
from bert_tf.pipelines.vocabulary import MASK_TOKEN

from .served import Served

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


def _long(served: Served) -> str:
    """A text of more tokens than a row has."""
    return " ".join(["The boat came in ."] * (served.max_seq_length // 5 + 1))


def _odd(served: Served) -> list[Any]:
    return ["", _BEYOND_ASCII, _NOT_UTF8, _long(served)]


def of_texts(served: Served, first: str = "text", second: str | None = None) -> Requests:
    """Requests of texts or pairs, by the names of the inputs."""
    columns = [{first: _TEXTS}, {first: _odd(served)}]
    if second:
        columns[0][second] = _SECOND_TEXTS
        columns[1][second] = _odd(served)[::-1]
    return tuple(columns)


def of_masks(served: Served) -> Requests:
    """Requests of texts with ``[MASK]``."""
    odd = ["", f"Señor {MASK_TOKEN} zahlt in Zürich", b"caf\xe9 \xff [MASK]\xc3 ."]
    odd += [f"{MASK_TOKEN} {_long(served)} {MASK_TOKEN}"]
    return {"text": _MASKED}, {"text": odd}


def of_questions(served: Served) -> Requests:
    """Requests of questions and contexts."""
    ordinary = {"question": _QUESTIONS, "context": [_CONTEXT] * len(_QUESTIONS)}
    contexts = [_CONTEXT, _BEYOND_ASCII, _NOT_UTF8, f"{_long(served)} {_CONTEXT}", "", _CONTEXT]
    questions = ["", "Wer zahlt in Zürich?", b"What is \xff open?", _QUESTIONS[0]]
    return ordinary, {"question": [*questions, _QUESTIONS[0], _long(served)], "context": contexts}


def of_choices(served: Served) -> Requests:
    """Requests of contexts and choices."""
    ordinary: dict[str, list[Any]] = {
        "context": ["She put the kettle on.", "The dog heard the bell."],
        "choices": _CHOICES,
    }
    odd = _odd(served)
    return ordinary, {"context": odd, "choices": [[text, "It ran home."] for text in odd[::-1]]}


def of_words(served: Served) -> Requests:
    """Requests of texts that are split into words."""
    odd: list[list[Any]] = [
        [],
        [*_BEYOND_ASCII.split()],
        [*_NOT_UTF8.split()],
        [*_long(served).split()],
    ]
    width = max(map(len, odd))
    return {"words": _WORDS}, {"words": [[*words, *[""] * (width - len(words))] for words in odd]}


def of_ids(served: Served, choices: bool = False) -> Requests:
    """Requests of ids: a row and a shorter one; and a pair of segments.

    Args:
        served: the model.
        choices: whether the rows are those of the choices of one example.
    """
    tokenizer = served.tokenizer
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    # Anything from the vocabulary.
    a, b = tokenizer.vocab_size // 2, tokenizer.vocab_size - 1
    rows = [
        ([[cls, a, b, sep], [cls, b, sep, pad]], [[1, 1, 1, 1], [1, 1, 1, 0]], [[0] * 4] * 2),
        ([[cls, a, sep, b, sep]], [[1] * 5], [[0, 0, 0, 1, 1]]),
    ]
    return tuple(
        dict(
            zip(features.ENCODER_FEATURES, ([ids] if choices else ids for ids in row), strict=True)
        )
        for row in rows
    )
