import dataclasses
import json
import math
import re
import shutil

import pytest
import yaml

from bert_tf.checkpoints import conversion, hub
from bert_tf.finetuning import run as run_module
from bert_tf.finetuning.model import RunSource
from bert_tf.finetuning.run import run
from bert_tf.finetuning.summary import run_card
from bert_tf.training.run_directory import FineTuningDirectory

from .small_runs import settings

OURS = 'library_name: "bert_tf"\n'


def header_of(text):
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1])


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def card_of(card_settings, results, path):
    """Returns the model card of a new run."""
    source = RunSource(card_settings.init_checkpoint, FineTuningDirectory("none"))
    return run_card(card_settings, results, str(path), source.differences)


def test_finished_run_has_model_card_with_scores(finished):
    results = results_of(finished)
    text = (finished / "README.md").read_text()
    header = header_of(text)
    (entry,) = header["model-index"]
    (result,) = entry["results"]
    assert entry["name"] == "run" and result["task"] == {"type": "text-classification"}
    assert result["dataset"] == {"name": "dev.tsv", "type": "dev.tsv", "split": "dev"}
    assert {row["type"]: row["value"] for row in result["metrics"]} == results["scores"]["dev"]
    assert (header["library_name"], header["pipeline_tag"]) == ("bert_tf", "text-classification")
    # Unspecified fields are omitted.
    assert header.keys().isdisjoint({"license", "language", "base_model"})
    assert results["rows"] == {"train": 46, "dev": 20, "test": 9}
    accuracy = results["scores"]["dev"]["accuracy"]
    for line in (
        "from `tiny` on `train.tsv`.",
        "| train | `train.tsv` | 46 | training |",
        "| test | `test.tsv` | 9 | prediction |",
        f"| dev | `accuracy` | {accuracy:.4g} |",
        "| `learning_rate` | `0.001` |",
        "| `label_column` | `label` |",
        "The supported languages are unknown.",
        "import AutoTokenizer, BertForSequenceClassification\n",
    ):
        assert line in text, line
    assert "`freeze`" not in text and "The head reads" not in text


def test_model_card_contains_settings_of_best_run(finished, tmp_path, inputs):
    """With max_steps, the number of epochs is omitted."""
    longer = settings(inputs, tmp_path, max_steps=7)
    results = {**results_of(finished), "train_batch_size": 8, "learning_rate": 1e-5}
    text = card_of(longer, results, finished)
    assert "| `learning_rate` | `1e-05` |" in text
    assert "| `max_steps` | `7` |" in text and "num_train_epochs" not in text


def test_model_card_contains_differences_of_init_checkpoint(finished, tmp_path, inputs):
    start = tmp_path / "start"
    conversion.convert("tiny", str(start), "huggingface")
    config = start / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "feed_forward_type": "geglu"}))
    card_settings = settings(inputs, finished, init_checkpoint=str(start))
    text = card_of(card_settings, results_of(finished), finished)
    assert "\n- config.json: unknown keys are ignored: 'feed_forward_type'." in text


def test_model_card_omits_directories_and_escapes_names(finished, inputs, monkeypatch):
    def fetch(*arguments):
        raise ValueError("nothing is fetched")

    monkeypatch.setattr(hub, "find_directory", fetch)
    card_settings = settings(
        inputs, finished, init_checkpoint="hf://someone/bert@abc", dev_file=None, freeze=1
    )
    evil = "a|b\n---\nlicense: mit\n# `x` \u2028.csv"
    card_settings = dataclasses.replace(card_settings, train_file=f"/home/somebody/{evil}")
    results = results_of(finished)
    results["scores"]["dev"] |= {"loss": math.nan, "small": 1e-05}
    results |= {"collapsed": "the loss is not finite", "train_batch_size": 48}
    text = card_of(card_settings, results, finished)
    header = header_of(text)
    assert header["base_model"] == "someone/bert"
    (result,) = header["model-index"][0]["results"]
    assert {row["type"] for row in result["metrics"]} == {*results["scores"]["dev"]} - {"loss"}
    assert result["metrics"][-1] == {"type": "small", "value": 1e-05}
    assert "\n" not in result["dataset"]["name"]
    assert "somebody" not in text and "\u2028" not in text and "\nlicense: mit" not in text
    rows = [line for line in text.splitlines() if line.startswith("| dev |")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4, 5}
    assert "- The training collapsed: the loss is not finite." in text
    assert "| `train_batch_size` | `48` |" in text
    assert "| `freeze` | `1` |" in text


def test_conversion_copies_model_card(finished, tmp_path):
    ours = (finished / "README.md").read_text()
    conversion.convert(str(finished), str(tmp_path / "hf"), "huggingface")
    converted = (tmp_path / "hf" / "README.md").read_text()
    own, section, differences = converted.partition("\n## Differences from the source\n")
    assert own == ours.replace(OURS, 'library_name: "transformers"\n') != ours
    assert (
        "- huggingface cannot store the lengths and options in task.json of the sourc"
        in differences
    )
    conversion.convert(str(tmp_path / "hf"), str(tmp_path / "back"), "bert_tf")
    assert (tmp_path / "back" / "README.md").read_text() == f"{ours}{section}{differences}"
    conversion.convert(str(finished), str(tmp_path / "tf1"), "google_tf1")
    assert not (tmp_path / "tf1" / "README.md").exists()


def test_custom_model_card_is_unchanged(finished, tmp_path, inputs, monkeypatch):
    """The run finishes again: its outputs are written before its export and its results."""
    files_before_export = []

    def export_best(directory, name):
        files_before_export.extend(path.name for path in folder.iterdir())
        assert name == "classification"

    monkeypatch.setattr(run_module, "export_best", export_best)
    folder = shutil.copytree(finished, tmp_path / "run")
    own = b"# Mine \xff\r\n\nlibrary_name: bert_tf\n"
    (folder / "README.md").write_bytes(own)
    (folder / "results.json").unlink()  # as if the run had been stopped just before
    shutil.rmtree(folder / "dev")
    run(settings(inputs, folder, test_file=inputs / "test.tsv", export=True))
    assert "dev" in files_before_export and "results.json" not in files_before_export
    assert results_of(folder)["export"] == str(folder / "export" / "1")
    assert (folder / "README.md").read_bytes() == own
    conversion.convert(str(folder), str(tmp_path / "hf"), "huggingface")
    converted = (tmp_path / "hf" / "README.md").read_bytes()
    assert converted.startswith(own + b"\n## Differences from the source\n")


def test_conversion_without_model_card_creates_one(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "README.md").unlink()
    conversion.convert(str(folder), str(tmp_path / "hf"), "huggingface")
    text = (tmp_path / "hf" / "README.md").read_text()
    assert header_of(text) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["bert"],
    }
    assert "The source has no model card" in text and "- 2 classes: `neg`, `pos`." in text
    (folder / "README.md").write_bytes(b" " * (4 << 20) + b"x")
    with pytest.raises(ValueError, match="expected a model card file of at most 4,194,304 bytes"):
        conversion.convert(str(folder), str(tmp_path / "no"), "huggingface")
