"""The breaks that tests.breaks makes are of texts that stand there still, each once."""

import pytest

from tests import breaks


@pytest.mark.skipif(
    not (breaks.ROOT / "pipelines").is_dir(),
    reason="the checkout is missing, whose files this reads",
)
def test_each_break_is_of_a_text_that_its_file_has_once():
    found = [(path, old) for path, old, _ in breaks.read_breaks()]
    assert found
    assert [place for place in found if _count(*place) != 1] == []


def _count(path, text):
    file = breaks.ROOT / path
    return file.read_text().count(text) if file.is_file() else 0
