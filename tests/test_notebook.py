"""The notebook is committed as it ran, without an error; ``test_docs_run`` runs it."""

import json

import pytest

from tests.documents import NOTEBOOK, printed

pytestmark = pytest.mark.skipif(
    not NOTEBOOK.is_file(), reason="the checkout is missing, whose examples/ this runs"
)


def test_what_is_committed_is_a_run_without_an_error():
    text, outputs = printed(json.loads(NOTEBOOK.read_text()))
    assert NOTEBOOK.stat().st_size < 200_000
    assert all(output["output_type"] != "error" for output in outputs)
    assert {kind for output in outputs for kind in output.get("data", {})} >= {"image/png"}
    assert "Error" not in text and "/tmp" not in text and "/home" not in text
    # The three new sentences are about these, whatever the model is: so says the export, too.
    served = text[text.rindex("probability_asyncio") :]
    for answer in ("asyncio   Cancel", "email     Add", "tkinter   Draw"):
        assert answer in served
