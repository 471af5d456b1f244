"""examples/paper: the printed commands parse, finished runs are kept, the tables are correct."""

import importlib.util
import json
import pathlib
import subprocess

import pytest
from absl import flags

from bert_tf.cli.flag_fields import define_flags
from bert_tf.finetuning import settings
from bert_tf.pretraining import settings as pretraining_settings
from tests.documents import ROOT, commands

SCRIPT = ROOT / "examples" / "paper" / "make_tables.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="needs examples/ of a checkout")


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("make_tables", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tables, tmp_path):
    """Returns a folder with the preferred input files of all tasks except RTE."""
    for task, sources in tables.TASKS.items():
        for name in sources[0]["files"] if task != "RTE" else ():
            path = tmp_path / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return tmp_path / "data"


@pytest.mark.parametrize("size", ["bert-mini", "bert-base"])
def test_planned_commands_parse(tables, data, tmp_path, size, capsys):
    given = [f"--size={size}", "--input=a b.txt", f"--data_dir={data}", f"--output_dir={tmp_path}"]
    tables.main([*given, "--pretrain_flags=--masked_lm_prob=0.3", "--dry_run"])
    printed = capsys.readouterr().out
    assert "\n# no glue/RTE/train.tsv in --data_dir" in printed
    by_name = {}
    for name, words in commands(printed):
        by_name.setdefault(name, []).append(words)
    assert {name: len(arguments) for name, arguments in by_name.items()} == {
        "vocab": 1,
        "pretrain": 15,  # 8 sizes, 2 more objectives, 5 more mask settings
        "finetune": 93,
    }
    for words in by_name["pretrain"]:
        define_flags(values := flags.FlagValues(), *pretraining_settings.DECLARATIONS)
        values(["pretrain", *words])
        pretraining_settings.settings_from_flags(parsed=values)
    for words in by_name["finetune"]:
        define_flags(values := flags.FlagValues(), *settings.declarations())
        values(["finetune", *words])
        settings.settings_from_flags(values)
    assert "--objective=ltr" in printed and "--masked_lm_prob=0.3 --objective" not in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_overrides_are_merged_and_head_size_is_kept(tables):
    assert tables.joined("--a=1 --config_overrides=x=1", "--a=2 --config_overrides=y=2") == [
        *("--a=2", "--config_overrides=x=1,y=2")
    ]
    row, heads = {"width": 0.5}, "--config_overrides=num_attention_heads=4"
    sizes = "num_attention_heads=2,hidden_size=64,intermediate_size=256"
    assert tables.sizes("bert-tiny", row, heads) == f"--config_overrides={sizes}"
    with pytest.raises(ValueError, match="bert-tiny has too few blocks or heads"):
        tables.sizes("bert-tiny", {"blocks": 0.25}, "")


def results_of_seeds(scores, **more):
    scores_by_set = [{"dev": {"f1": score, "loss": 3.0}} for score in scores]
    runs = [
        {"seed": n, "collapsed": None, "scores": s, **more} for n, s in enumerate(scores_by_set)
    ]
    return {"dev_set": "dev", "runs": runs}


def test_scores_are_of_the_best_configuration_and_in_percent(tables):
    results = results_of_seeds([0.5, 0.7], learning_rate=2e-5)
    results["runs"] += results_of_seeds([0.9], learning_rate=5e-5)["runs"]
    results["configurations"] = [{"learning_rate": 2e-5}, {"learning_rate": 5e-5}]
    assert [each["f1"] for _, _, each in tables.scores(results)] == [50, 70]
    results = results_of_seeds([81.5])
    results["runs"][0]["scores"]["dev"]["exact"] = 70.0
    assert tables.scores(results) == [("0", "", {"f1": 81.5, "exact": 70.0})]


def test_only_failed_runs_are_rerun_and_missing_data_are_reported(
    tables, data, tmp_path, monkeypatch
):
    started = []

    def run(words, stdout, stderr):
        assert stdout is stderr
        (model_dir,) = [word.split("=", 1)[1] for word in words if word.startswith("--model_dir=")]
        started.append(model_dir.rpartition("/")[2])
        if len(started) == 1:
            return subprocess.CompletedProcess(words, returncode=1)
        pathlib.Path(model_dir).mkdir()
        pathlib.Path(model_dir, "results.json").write_text(json.dumps(results_of_seeds([0.8, 0.9])))
        return subprocess.CompletedProcess(words, returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    given = ["--table=stability", "--checkpoint=tiny", f"--data_dir={data}"]
    given.append(f"--output_dir={tmp_path}/out")
    with pytest.raises(SystemExit, match="1 runs have failed"):
        tables.main(given)
    with pytest.raises(SystemExit, match="0"):
        tables.main(given)
    # 4 runs each of MRPC and CoLA, and the rerun.
    assert len(started) == 9 and started[0] == started[-1]
    page = (tmp_path / "out/tables.md").read_text()
    assert "| AdamW, 3 epochs | - | 85.0 ± 5.0 | - |" in page
    assert "Missing: RTE, no glue/RTE/train.tsv in --data_dir." in page
    lines = (tmp_path / "out/cells.csv").read_text().splitlines()
    assert lines[0] == "run,metric,seed,score,collapsed" and len(lines) == 1 + 8 * 2
    with pytest.raises(SystemExit, match="8 runs have failed"):
        tables.main([*given, "--seeds=5"])
