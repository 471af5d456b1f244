"""examples/convert_annotations.py converts the exports of doccano and Label Studio."""

import json
import runpy

import pytest

from tests.documents import ROOT

SCRIPT = ROOT / "examples" / "convert_annotations.py"
TEXT = "Ann Lee \U0001f600 left Rome"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="needs examples/ of a checkout")


def _convert(folder, *, utf16=False):
    runpy.run_path(str(SCRIPT))["convert"](folder, folder / "out", utf16)
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def test_longest_spans_and_first_annotations_are_kept(tmp_path):
    row = {"text": TEXT, "label": [[0, 3, "PER"], [0, 8, "PER"]]}
    (tmp_path / "all.jsonl").write_text(json.dumps(row) + "\n")
    value = {"start": 0, "end": 4, "text": "Rome", "labels": ["LOC"]}
    good = {"was_cancelled": False, "result": [{"type": "labels", "value": value}]}
    task = {"data": {"text": "Rome"}, "annotations": [{"was_cancelled": True}, good]}
    (tmp_path / "project.json").write_text(json.dumps([task]))
    assert _convert(tmp_path) == [
        {"text": TEXT, "entities": [{"start": 0, "end": 7, "label": "PER"}]},
        {"text": "Rome", "entities": [{"start": 0, "end": 4, "label": "LOC"}]},
    ]


def test_utf16_offsets_are_converted(tmp_path):
    row = {"text": TEXT, "label": [[16, 20, "LOC"]]}
    (tmp_path / "all.jsonl").write_text(json.dumps(row) + "\n")
    (entity,) = _convert(tmp_path, utf16=True)[0]["entities"]
    assert TEXT[entity["start"] : entity["end"]] == "Rome"
