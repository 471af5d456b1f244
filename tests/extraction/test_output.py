"""Output directories: complete, interrupted, with different flags, with other files."""

import gzip
import os
import shutil

import pytest

from bert_tf.extraction import output
from bert_tf.extraction import run as extraction
from bert_tf.io.files import atomic_path
from tests.extraction.conftest import files_of, run, write_many

FLAGS = {"pooling": "mean", "lines_per_file": 15}


@pytest.fixture(scope="module")
def written(model_dir, loaded, tmp_path_factory):
    """Returns a folder with fifty lines and their ``output``."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extraction, "_load", lambda settings: loaded)
        run(model_dir, folder, write_many(folder / "many.txt"), **FLAGS)
    return folder


@pytest.fixture
def many(written, tmp_path):
    """Returns the path of the lines in a copy of the folder."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "many.txt")


def test_interrupted_extraction_resumes(extract, many, tmp_path, monkeypatch, capsys):
    """The directory also has the temporary file of a killed process."""
    manifest = tmp_path / "again" / "manifest.json"
    manifest.parent.mkdir()
    with atomic_path(str(manifest)) as temporary:
        left = os.path.basename(temporary)
    manifest.unlink()
    (tmp_path / "again" / left).write_text("{")
    run_blocks, calls = extraction._Extractor.blocks, []

    def interrupted(*arguments):
        """Raises while the third file is being written."""
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        yield from run_blocks(*arguments)

    monkeypatch.setattr(extraction._Extractor, "blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract(many, "again", **FLAGS)
    assert capsys.readouterr().out.endswith("/again has 30 lines. Rerun the command to resume.\n")
    left = files_of(tmp_path / "again")
    assert len(left) == 3 and not any(name.endswith(".tmp") for name in left)
    done = extract(many, "again", **FLAGS)
    assert len(calls) == 3 + 2 and done.lines == 50
    assert f"Resuming {tmp_path}/again after 30 lines." in capsys.readouterr().out
    assert files_of(tmp_path / "again") == files_of(tmp_path / "output")
    assert [shard["lines"] for shard in done.shards] == [15, 15, 15, 5]


def test_complete_output_is_unchanged(extract, many, tmp_path, capsys):
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "output").iterdir()}
    extract(many, **FLAGS)
    assert "output is already complete: 50 lines" in capsys.readouterr().out
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "output").iterdir()}
    assert after == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pooling": "cls"}, "--pooling (mean, now cls)"),
        ({"layers": ["-1", "0"]}, "--layers ([-1], now [-1, 0])"),
        ({"normalize": True}, "--normalize (False, now True)"),
        ({"format": "numpy", "batch_size": 4},
         "--format (jsonl, now numpy), --batch_size (3, now 4)"),
        ({"precision": "bfloat16"}, "--precision (float32, now bfloat16)"),
    ],
)  # fmt: skip
def test_different_flags_are_rejected(extract, many, tmp_path, changes, named):
    with pytest.raises(ValueError) as error:
        extract(many, **{**FLAGS, **changes})
    assert str(error.value) == (
        f"{tmp_path}/output was started with different settings: {named}. Use the original flags, "
        "or another --output."
    )


def test_changed_inputs_and_missing_files_are_rejected(extract, many, tmp_path, loaded):
    (tmp_path / "output" / "part-000001.jsonl").unlink()
    message = (
        r"output has no part-000001\.jsonl, which its manifest\.json lists\. Remove the directory "
        r"and rerun\.$"
    )
    with pytest.raises(ValueError, match=message):
        extract(many, **FLAGS)
    with open(many, "a") as file:
        file.write("cat\n")
    encoder, _ = loaded
    weight = encoder.weights[-1]
    before = weight.numpy()
    try:
        weight.assign(before + 1)
        message = (
            r"output was started with different settings: --input \(different text\), --model \(a "
            r"different model\)\. Use the original flags, or another --output\.$"
        )
        with pytest.raises(ValueError, match=message):
            extract(many, **FLAGS)
    finally:
        weight.assign(before)


def test_output_without_lines_accepts_any_flags(extract, text, tmp_path):
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(ValueError, match=r"--input=.*empty\.gz contains no lines"):
        extract(str(tmp_path / "empty.gz"), pooling="cls")
    assert extract(text, pooling="mean").flags["pooling"] == "mean"


def test_directory_with_other_files_is_rejected(extract, text, tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("output", "file"):
        message = (
            rf"{name} has no manifest\.json of extract_features\. Use an empty or new directory\.$"
        )
        with pytest.raises(ValueError, match=message):
            extract(text, name)
    assert files_of(tmp_path / "output") == {"mine.txt": b"mine"}


def test_invalid_manifest_is_rejected(tmp_path):
    (tmp_path / "manifest.json").write_text('{"layers": []}')
    message = (
        r"manifest\.json is not a manifest of extract_features \('shards'\)\. Use another "
        r"--output, or remove the file\.$"
    )
    with pytest.raises(ValueError, match=message):
        output.open_output(str(tmp_path), output.Manifest({"a": 1}, (-1,), 8))
