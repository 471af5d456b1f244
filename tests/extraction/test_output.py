"""What is in an output's directory: after an end, an interruption, a kill, with other flags."""

import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_tf.extraction import output
from bert_tf.extraction import run as extraction
from bert_tf.files import whole_file
from tests.extraction.conftest import files_of, write_many


@pytest.fixture
def many(tmp_path):
    return write_many(tmp_path / "many.txt")


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("jsonl", "parquet", "tfrecord")]


@pytest.mark.parametrize("format", ["numpy", *SLOW])
def test_interrupted_and_gone_on_with(extract, many, tmp_path, monkeypatch, capsys, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    flags = {"format": format, "lines_per_shard": 15, "pooling": "mean"}
    extract(many, "whole", **flags)
    run_blocks, calls = extraction._Extractor.blocks, []

    def interrupted(*arguments):
        """Raises while the third file is being written."""
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        yield from run_blocks(*arguments)

    monkeypatch.setattr(extraction._Extractor, "blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract(many, **flags)
    assert capsys.readouterr().out.endswith("/output has 30 lines; the same command goes on.\n")
    left = files_of(tmp_path / "output")
    assert len(left) == 3 and not any(name.endswith(".tmp") for name in left)
    done = extract(many, **flags)
    assert len(calls) == 3 + 2 and done.lines == 50
    assert f"{tmp_path}/output has 30 lines already: going on." in capsys.readouterr().out
    assert files_of(tmp_path / "output") == files_of(tmp_path / "whole")
    assert [shard["lines"] for shard in done.shards] == [15, 15, 15, 5]


def test_a_finished_output_is_left_alone(extract, many, tmp_path, capsys):
    extract(many, pooling="mean")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "output").iterdir()}
    extract(many, pooling="mean")
    assert "output is finished: 50 lines" in capsys.readouterr().out
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "output").iterdir()}
    assert after == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pooling": "cls"}, "--pooling (mean, now cls)"),
        ({"layers": ["-1", "0"]}, "--layers ([-1], now [-1, 0])"),
        ({"variant": "last", "normalize": True},
         "--layers ([-1], now []), --variant (None, now last), --normalize (False, now True)"),
        ({"format": "numpy", "batch_size": 4}, "--format (jsonl, now numpy), --batch_size (3, no"),
        ({"precision": "bfloat16"}, "--precision (float32, now bfloat16)"),
        ({"lines_per_shard": 9}, "--lines_per_shard (10000, now 9)"),
    ],
)  # fmt: skip
def test_other_flags(extract, many, tmp_path, changes, named):
    extract(many, pooling="mean")
    with pytest.raises(ValueError) as error:
        extract(many, **{"pooling": "mean", **changes})
    assert str(error.value).startswith(f"{tmp_path}/output was begun with {named}")


def test_other_text_and_another_model(extract, many, tmp_path, loaded):
    extract(many, pooling="mean")
    with open(many, "a") as file:
        file.write("cat\n")
    encoder, _ = loaded
    weight = encoder.weights[-1]
    before = weight.numpy()
    try:
        weight.assign(before + 1)
        with pytest.raises(ValueError, match=r"begun with --input \(other text\), --model "
                                             r"\(another model\): give the flags"):  # fmt: skip
            extract(many, pooling="mean")
    finally:
        weight.assign(before)


def test_an_output_without_a_line_takes_any_flags(extract, many, tmp_path):
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(ValueError, match=r"The input .*empty\.gz has no line: give text"):
        extract(str(tmp_path / "empty.gz"), pooling="cls")
    assert extract(many, pooling="mean").flags["pooling"] == "mean"


def test_a_directory_of_something_else(extract, many, tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "mine.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"output is there and holds no manifest\.json of extract_f"
    ):
        extract(many)
    assert files_of(tmp_path / "output") == {"mine.txt": b"mine"}
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"file is there and holds no manifest\.json"):
        extract(many, "file")


MANIFEST = output.Manifest({"a": 1}, (-1,), 8)
BAD = [{"shards": [1]}, {"shards": [{"file": 1, "lines": 1}]}, {"flags": []}]
BAD += [{"next": [0, 0, "0"]}, {"width": True}, {"complete": "false"}]


@pytest.mark.parametrize(
    "values", [{"layers": []}, *({**dataclasses.asdict(MANIFEST), **change} for change in BAD)]
)
def test_a_manifest_is_typed(tmp_path, values):
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"manifest\.json is not what extract_features writes \("):
        output.open_output(str(tmp_path), MANIFEST)


def test_a_file_that_was_deleted(extract, many, tmp_path):
    extract(many, pooling="mean", lines_per_shard=20)
    (tmp_path / "output" / "part-000001.jsonl").unlink()
    with pytest.raises(ValueError, match=r"output lacks part-000001\.jsonl, which its manifest\.j"):
        extract(many, pooling="mean", lines_per_shard=20)


def test_names_sort_as_their_lines():
    names = [output.shard_name(number, ".npz") for number in (0, 9, 10, 99999, 100000)]
    assert names == sorted(names) and names[1] == "part-000009.npz"


def test_what_a_killed_process_left(extract, many, tmp_path):
    extract(many, "whole", pooling="mean")
    (tmp_path / "output").mkdir()
    with whole_file(str(tmp_path / "output" / "manifest.json")) as temporary:
        left = os.path.basename(temporary)
    (tmp_path / "output" / "manifest.json").unlink()
    (tmp_path / "output" / left).write_text("{")
    extract(many, pooling="mean")
    assert files_of(tmp_path / "output") == files_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("format", ["jsonl", "tfrecord"])
def test_killed_at_any_instant_and_started_again(model_dir, tmp_path, format):
    text = write_many(tmp_path / "many.txt", count=4000)

    def command_for(name):
        return [
            *(sys.executable, "-m", "bert_tf.extract_features", f"--model={model_dir}"),
            *(f"--input={text}", f"--output={tmp_path / name}", f"--format={format}"),
            *("--max_seq_length=12", "--lines_per_shard=50"),
        ]

    subprocess.run(command_for("whole"), check=True, stdout=subprocess.DEVNULL)
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen(command_for("killed"), stdout=subprocess.DEVNULL)
        manifest = tmp_path / "killed" / "manifest.json"
        shards = len(list(manifest.parent.glob("part-*"))) if manifest.exists() else 0
        while process.poll() is None and (
            not manifest.exists() or len(list(manifest.parent.glob("part-*"))) < shards + 5
        ):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = subprocess.run(command_for("killed"), check=True, capture_output=True, text=True)
    assert "lines already: going on." in done.stdout
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")
