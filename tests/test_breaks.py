"""The code that tests.breaks replaces occurs exactly once in its file."""

import pytest

from tests import breaks


@pytest.mark.skipif(
    not (breaks.ROOT / "pipelines").is_dir(),
    reason="needs the files of a checkout",
)
def test_code_of_each_break_occurs_once():
    found = [(path, old) for path, old, _ in breaks.read_breaks()]
    assert found
    assert [item for item in found if _num_occurrences(*item) != 1] == []


def _num_occurrences(path, text):
    file = breaks.ROOT / path
    return file.read_text().count(text) if file.is_file() else 0
