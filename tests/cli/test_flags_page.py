"""docs/reference/flags.md lists the flags as the commands declare them."""

import pytest

from tests.cli.make_flags_page import PAGE, markdown, page


@pytest.mark.skipif(not PAGE.exists(), reason="needs docs/ of a checkout")
def test_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tests.cli.make_flags_page"


def test_markdown():
    text = "Read <doc> of --input=FILE, max_rows|b or hf://OWNER/NAME; see corpus/*.txt."
    assert markdown(text) == (
        "Read `<doc>` of `--input=FILE`, `max_rows`\\|b or `hf://OWNER/NAME`; see corpus/\\*.txt."
    )
