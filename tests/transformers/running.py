"""Which folder each script reads, and how what it computed is compared with what was recorded."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).parent
SCRIPTS = HERE / "scripts"
RECORDED = HERE / "recorded"

#: A script's first argument, below the folder that ``models.make`` fills.
FOLDERS = {
    "01_sentence_classification": "bert-reviews",
    "02_loss_of_the_model": "bert-news",
    "05_regression": "bert-similarity",
    "06_entities": "bert-entities",
    "07_question_answering": "bert-questions",
    "08_masked_words": "bert-uncased",
    "12_gradient_tape": "bert-tags",
    "13_multiple_choice": "bert-choices",
    "15_pipelines": ".",
    "18_prepare_tf_dataset": "bert-news",
    "19_tokenizer_in_the_graph": "bert-reviews",
    "20_pretraining_heads": "bert-uncased",
}


def read(path: pathlib.Path) -> Any:
    """What a script wrote."""
    return json.loads(path.read_text())


def differences(found: Any, expected: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number's place and difference, relative to the larger of 1 and what is expected.

    Raises:
        AssertionError: where the two differ in anything but numbers, which the sentence names.
    """
    if isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys(), (
            f"{place}: expected the keys {list(expected)}, found {found!r:.200}"
        )
        for key, value in expected.items():
            yield from differences(found[key], value, f"{place}/{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), (
            f"{place}: expected {len(expected)} items, found {found!r:.200}"
        )
        for index, value in enumerate(expected):
            yield from differences(found[index], value, f"{place}/{index}")
    elif isinstance(expected, float) and isinstance(found, float):
        yield place, abs(found - expected) / max(1.0, abs(expected))
    else:
        assert type(found) is type(expected) and found == expected, (
            f"{place}: expected {expected!r}, found {found!r}"
        )
