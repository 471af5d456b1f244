"""``python -m bert_tf.reproduce`` with made-up runs: planning, failing, resuming, tables."""

import contextlib
import csv
import itertools
import json
import pathlib
import re
import shlex
import xml.etree.ElementTree

import numpy as np
import pytest
from absl import flags

from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import as_words
from bert_tf.cli.flag_rules import check
from bert_tf.finetuning.resolution import settings_from_flags
from bert_tf.finetuning.settings import define_flags
from bert_tf.pretraining.settings import settings_from_words
from bert_tf.reproduction.page import MARK
from bert_tf.reproduction.plan import Plan
from bert_tf.reproduction.runner import Reproduction
from bert_tf.reproduction.score_table import Cell, Score, read_cells, write_cells
from bert_tf.reproduction.settings import TABLES, TASKS, Settings
from tests.documents import RECIPES, ROOT, parse


@pytest.fixture
def make(tmp_path):
    """Settings on a folder of data that has SST-2, MRPC and CoNLL-2002."""
    data = tmp_path / "data"
    for name in ("glue/SST-2/train.tsv.gz", "glue/SST-2/dev.tsv", "glue/MRPC/train.tsv"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("rows")
    (data / "glue/MRPC/dev.tsv").write_text("rows")
    (data / "ner").mkdir()
    (data / "ner/conll2002.zip").write_text("rows")
    for number in range(2):
        (tmp_path / f"text{number}.txt").write_text("Some text.")

    def settings(**values):
        given = {
            "size": "bert-tiny",
            "input": [f"{tmp_path}/text*.txt"],
            "steps": 100,
            "data_dir": str(data),
            "output_dir": str(tmp_path / "out"),
            "pretrain_flags": "--learning_rate=2e-3 --config_overrides=hidden_dropout_prob=0",
            "max_examples": 64,
        }
        found = Settings(**{**given, **values})
        check(Settings, vars(found), {*given, *values})
        return found

    return settings


class Stub:
    """Runs no command, but writes what it would have written; fails where it is told to."""

    def __init__(self, failing=(), scores=None):
        self.failing, self.scores, self.made = dict.fromkeys(failing, "It diverged"), scores, []

    def __call__(self, name, words, log):
        flags = dict(word[2:].split("=", 1) for word in words)
        path = flags.get("model_dir") or flags.get("output") or flags["output_file"]
        run = "/".join(pathlib.Path(path).parts[-2:])
        self.made.append(run)
        pathlib.Path(log).touch()
        if run in self.failing:
            return self.failing[run]
        if name in ("pretrain", "finetune"):
            pathlib.Path(path).mkdir(parents=True)
            path += "/results.json"
        pathlib.Path(path).write_text(json.dumps(self._results(run)))
        return None

    def _results(self, run):
        if run.startswith("pretrain/"):
            return {"evaluation": {"masked_lm_perplexity": 12.5}}
        shift = 0.2 if "nsp=false" in run else 0.0
        values = (self.scores or {}).get(run, [0.5 + shift, 0.51 + shift, 0.54 + shift])
        runs = [
            {
                "seed": seed,
                "collapsed": None,
                "scores": {"dev": {"accuracy": value, "loss": 1.0}},
                "classes": {"dev": {"no": {"true": 10}, "yes": {"true": 30}}},
                "rows": {"dev": 40},
            }
            for seed, value in enumerate(values)
        ]
        return {"dev_set": "dev", "runs": runs}


LTR, RTL = "objective=ltr_nsp=false", "objective=rtl_nsp=false"
ELMO = f"finetune/{LTR}_feature_based=weighted_sum_all_{RTL}_ner"


def tuned(name):
    return [f"finetune/{name}_{task}" for task in ("mrpc", "sst-2", "ner")]


ABLATIONS = [
    *("out/vocab.txt", "pretrain/base", *tuned("base")),
    *("pretrain/nsp=false", *tuned("nsp=false")),
    *(f"pretrain/{LTR}", *tuned(LTR), *tuned(f"{LTR}_bilstm")),
    *(f"pretrain/{RTL}", ELMO),
]


def test_a_pre_training_that_rows_share_is_planned_once(make):
    plan = Plan(make(table=["ablations", "steps"]))
    names = [run for run in plan.runs if run.startswith("pretrain/")]
    assert names == ["pretrain/base", "pretrain/nsp=false", f"pretrain/{LTR}", f"pretrain/{RTL}"]
    base = plan.runs["pretrain/base"]
    assert base.flags["keep_steps"] == "20,40,60,80,100" and base.needs == ("vocab",)
    assert base.flags["phases"] == "128:1" and base.flags["learning_rate"] == "2e-3"
    ltr = plan.runs["pretrain/objective=ltr_nsp=false"]
    assert (ltr.flags["objective"], ltr.flags["nsp"]) == ("ltr", "false")
    lstm = plan.runs["finetune/objective=ltr_nsp=false_bilstm_mrpc"]
    assert lstm.flags["bilstm"] == "true" and lstm.needs == (ltr.name,)
    assert lstm.flags["max_steps"] == "2" and lstm.flags["restarts"] == "3"
    part = plan.runs["finetune/base_step=40_sst-2"]
    assert part.flags["init_checkpoint"].endswith("out/pretrain/base/steps/40")
    assert plan.places["steps"][0, ("SST-2", "accuracy")].run == "finetune/base_sst-2"
    rtl, elmo = plan.runs[f"pretrain/{RTL}"], plan.runs[ELMO]
    assert (rtl.flags["objective"], rtl.flags["nsp"]) == ("rtl", "false")
    assert rtl.flags["vocab_file"] == ltr.flags["vocab_file"]
    assert elmo.needs == (ltr.name, rtl.name)
    assert elmo.flags["init_checkpoint"] == ltr.flags["model_dir"]
    assert elmo.flags["backward_checkpoint"] == rtl.flags["model_dir"]
    assert elmo.flags["feature_based"] == "weighted_sum_all"
    places = plan.places["ablations"]
    cells = [places[row, ("NER", "f1")].cell for row in range(5)]
    assert len({*cells}) == 5 and "--objective=rtl" in cells[4].pretraining
    assert "out/" not in " ".join(cells[4])
    none = places[4, ("MRPC", "accuracy")]
    assert none.cell is None and none.note.endswith("frozen' only tags words")
    missing = plan.places["ablations"][0, ("MNLI", "accuracy")]
    assert missing.cell is None and missing.note == "no glue/MNLI/train.tsv in --data_dir"


def test_each_row_of_the_other_tables_has_its_flags(make):
    own = "--lstm_units=8 --num_train_epochs=2"
    plan = Plan(make(checkpoint="/weights/minilm/model", feature_flags=own))
    runs = plan.runs
    assert runs["pretrain/num_hidden_layers=4"].flags["config_overrides"] == (
        "hidden_dropout_prob=0,num_hidden_layers=4"
    )
    wide = "num_attention_heads=3_hidden_size=192_intermediate_size=768"
    assert {f"pretrain/{name}" for name in (
        "num_hidden_layers=1", wide,
        "num_attention_heads=1_hidden_size=64_intermediate_size=256",
        f"num_hidden_layers=4_{wide}")} <= {*runs}  # fmt: skip
    splits = [row.pretrain for row in TABLES["masks"].rows]
    assert splits == ["", *(f"--mask_split={each}" for each in
                            ("100,0,0", "80,20,0", "80,0,20", "0,80,20", "0,100,0"))]  # fmt: skip
    assert runs["pretrain/masking=span"].flags["masking"] == "span"
    rate = runs["pretrain/masked_lm_prob=0.3"]
    assert rate.equal_time and rate.needs == ("vocab", "pretrain/base")
    static = runs["pretrain/static"]
    assert static.needs == ("vocab", "records") and static.flags["input_format"] == "tfrecord"
    assert runs["records"].flags["input"].endswith("text0.txt")
    assert runs["records"].flags["max_predictions_per_seq"] == "20"
    assert runs["pretrain/one_file"].flags["input"].endswith("text0.txt")
    (every,) = make().input
    other = Plan(make(input=[every.replace("*", "1"), every]))
    assert other.runs["pretrain/one_file"].flags["input"].endswith("text1.txt")
    place = plan.places["features"][0, ("NER", "f1")]
    assert place.other_task and "foreign language" in place.note
    assert place.cell.pretraining == "--init_checkpoint=minilm/model" and place.cell.step == ""
    features = runs[place.run]
    assert features.needs == () and features.flags["lstm_units"] == "8"
    assert "max_steps" not in features.flags and plan.runs["finetune/base_mrpc"].flags["max_steps"]
    assert features.flags["train_file"].endswith("data/ner/conll2002.zip/conll2002/esp.train")
    tuned = runs["finetune/checkpoint_as_many_epochs_ner"].flags  # next to them, as many epochs
    assert tuned["num_train_epochs"] == "2" and "feature_based" not in tuned
    assert tuned["train_file"] == features.flags["train_file"]
    for epochs, optimizer in itertools.product(["3", "10"], ("adam", "adamw")):
        name = f"finetune/checkpoint_optimizer={optimizer}_num_train_epochs={epochs}_mrpc"
        assert runs[name].flags["num_train_epochs"] == epochs
        assert runs[name].flags["optimizer"] == optimizer


def test_every_command_reads_and_masks_the_text_alike(make):
    own = "--do_lower_case=false --input_format=jsonl --masked_lm_prob=0.3"
    runs = Plan(make(table=["static"], pretrain_flags=own)).runs
    for name in ("vocab", "records"):
        assert runs[name].flags["do_lower_case"] == "false", name
        assert runs[name].flags["input_format"] == "jsonl", name
    assert runs["records"].flags["masked_lm_prob"] == "0.3"
    assert runs["records"].flags["max_predictions_per_seq"] == "39"
    by_recipe = Plan(make(table=["static"], pretrain_flags="--recipe=hour")).runs["records"].flags
    assert by_recipe["masked_lm_prob"] == "0.3"  # the recipe's
    static = runs["pretrain/static"].flags
    assert (static["do_lower_case"], static["input_format"]) == ("false", "tfrecord")


@pytest.mark.parametrize("size", ["bert-base", "bert-large"])
def test_without_flags_the_papers_own_settings_are_planned(make, tmp_path, size):
    (tmp_path / "data/squad").mkdir()
    for name in ("squad/train-v1.1.json", "squad/dev-v1.1.json"):
        (tmp_path / "data" / name).write_text("rows")
    own = {name: Settings.__dataclass_fields__[name].default for name in ("steps", "max_examples")}
    tables = ["ablations", "rates", "sizes"]
    runs = Plan(make(size=size, pretrain_flags="", table=tables, **own)).runs
    flags = {name: settings_from_words(as_words(run.flags)) for name, run in runs.items()
             if run.command == "pretrain"}  # fmt: skip
    base = flags["pretrain/base"]
    assert (base.bert_config, base.vocab_file[-9:]) == (size, "vocab.txt")
    assert (base.num_train_steps, base.num_warmup_steps) == (1_000_000, 10_000)
    assert (base.learning_rate, base.weight_decay, base.train_batch_size) == (1e-4, 0.01, 256)
    assert base.phases == "128:0.9:20,512:0.1:76"
    assert flags["pretrain/masked_lm_prob=0.4"].phases == "128:0.9,512:0.1"
    squad = runs["finetune/base_squad_1.1"].flags
    assert (squad["max_seq_length"], squad["doc_stride"], squad["sweep"]) == ("384", "128", "paper")
    small = Plan(make(size=size, table=tables)).runs  # some examples: the flags are those given
    assert "sweep" not in small["finetune/base_mrpc"].flags


def test_the_commands_take_the_flags_of_every_run(make, tmp_path):
    for name in ("squad/dev-v1.1.json.zip", "squad/half-dev-v2.0.json.gz", "swag/train.csv",
                 "swag/val.csv", "ner/eng.train", "ner/eng.testa", "glue/STS-B/sts-train.csv",
                 "glue/STS-B/sts-dev.csv"):  # fmt: skip
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "data" / name).write_text("rows")
    # A left-to-right model masks nothing, and takes no share of it.
    overrides = "--config_overrides=hidden_dropout_prob=0"
    plan = Plan(make(pretrain_flags=f"--masked_lm_prob=0.3 {overrides}"))
    seen = set()
    for run in plan.runs.values():
        words = as_words(run.flags)
        if run.command == "pretrain":
            assert settings_from_words(words).model_dir == run.flags["model_dir"]
        elif run.command == "finetune":
            values = flags.FlagValues()
            define_flags(values)
            assert values(["finetune", *words]) == ["finetune"]
            settings, ignored = settings_from_flags(values)
            assert settings.restarts == 3 and not ignored
            seen.add(settings.task)
        else:
            ((error, left),), _ = parse({run.command: [words]})[run.command]
            assert error is None and left == []
    assert seen == {"sst2", "mrpc", "stsb", "squad", "swag", "ner"}
    questions = plan.runs["finetune/base_squad_1.1"].flags
    assert questions["dev_fraction"] == "0.1" and questions["max_seq_length"] == "384"


def test_a_cell_knows_no_paths_and_all_that_changes_it(make, tmp_path):
    def cell(**values):
        return (
            Plan(make(table=["ablations"], **values))
            .places["ablations"][1, ("SST-2", "accuracy")]
            .cell
        )

    own = cell()
    assert str(tmp_path) not in " ".join(own)
    assert own == cell(output_dir=str(tmp_path / "elsewhere"))
    for changed in ({"steps": 200}, {"seeds": 4}, {"max_examples": 128}, {"size": "bert-mini"},
                    {"vocab_size": 500}, {"pretrain_flags": ""}, {"train_batch_size": 8},
                    {"finetune_flags": "--learning_rate=1"},
                    {"input": [f"{tmp_path}/text0.txt"]}):  # fmt: skip
        assert cell(**changed) != own, changed


def test_what_failed_is_named_and_the_rest_goes_on_and_resumes(make, capsys):
    settings = make(table=["ablations"])
    stub = Stub(failing=["pretrain/nsp=false", "finetune/base_mrpc"])
    with pytest.raises(ValueError, match=r"^5 runs have failed, the first finetune/base_mrpc: It"):
        Reproduction(settings, stub).run()
    skipped = tuned("nsp=false")
    assert stub.made == [name for name in ABLATIONS if name not in skipped]
    said = capsys.readouterr().out
    assert "6 of 18: pretrain/nsp=false, 0s: FAILED: It diverged; see " in said
    assert "FAILED: it needs pretrain/nsp=false, which failed\n" in said  # there is no log
    page = pathlib.Path(settings.page).read_text()
    assert "Missing, It diverged: BERT (MRPC)." in page
    assert "Missing, it needs pretrain/nsp=false, which failed: no next sentence." in page
    again = Stub()
    Reproduction(settings, again).run()
    assert again.made == ["finetune/base_mrpc", "pretrain/nsp=false", *skipped]
    Reproduction(settings, third := Stub()).run()
    assert third.made == []


def test_finished_cells_need_no_directories(make, tmp_path):
    settings = make(table=["ablations"])
    Reproduction(settings, Stub()).run()
    # Cells may be a stranger's.
    found = [score._replace(machine="<b>\n# Mine") for score in read_cells(settings.cells)]
    write_cells(settings.cells, found)
    other = make(table=["ablations"], output_dir=str(tmp_path / "b"), cells=settings.cells)
    Reproduction(other, stub := Stub()).run()
    assert stub.made == []
    assert "Machine: &lt;b&gt;\\n# Mine. The runs" in pathlib.Path(other.page).read_text()
    # Another plan computes its own, and keeps the others.
    count = len(read_cells(settings.cells))
    more = make(table=["swag", "ablations"], output_dir=str(tmp_path / "c"), steps=200,
                cells=settings.cells)  # fmt: skip
    Reproduction(more, stub := Stub()).run()
    assert len(stub.made) == 18 and len(read_cells(settings.cells)) == 2 * count


def test_an_interruption_writes_the_page_and_ends(make, capsys):
    def interrupted(name, words, log):
        raise KeyboardInterrupt

    settings = make(table=["ablations"])
    with pytest.raises(KeyboardInterrupt):
        Reproduction(settings, interrupted).run()
    assert "\n1 of 18: vocab\nThe page: " in capsys.readouterr().out
    assert "not run yet" in pathlib.Path(settings.page).read_text()


def test_the_steps_of_equal_time_are_measured_once(make, monkeypatch):
    asked = []

    def seconds(self, runs):
        asked.append([run.name for run in runs])
        return [0.2, 0.25]

    monkeypatch.setattr(Reproduction, "_step_seconds", seconds)
    settings, steps = make(table=["rates"]), []
    for failing in (["pretrain/masked_lm_prob=0.3"], []):

        class Recording(Stub):
            def __call__(self, name, words, log):
                steps.extend(word for word in words if "num_train_steps" in word)
                return super().__call__(name, words, log)

        with contextlib.suppress(ValueError):
            Reproduction(settings, Recording(failing)).run()
    assert asked == [["pretrain/base", f"pretrain/masked_lm_prob={rate}"] for rate in (0.3, 0.4)]
    assert steps == [f"--num_train_steps={each}" for each in (100, 80, 80, 80)]


def test_the_page_has_the_means_the_papers_figures_and_their_signs(make):
    settings = make(table=["ablations"])
    scores = {"finetune/base_sst-2": [0.8, 0.81, 0.82], "finetune/nsp=false_sst-2": [0.7] * 3,
              "finetune/objective=ltr_nsp=false_sst-2": [0.9] * 3}  # fmt: skip
    Reproduction(settings, Stub(scores=scores)).run()
    page = pathlib.Path(settings.page).read_text()
    table = re.search(r"(\|.*\n)+", page)[0]
    assert table == (
        "| run | MRPC, accuracy | SST-2, accuracy |\n"
        "|:--|--:|--:|\n"
        "| BERT | 51.7 ± 1.2 (86.7) | 81.0 ± 0.6 (92.7) |\n"
        "| no next sentence | 71.7 ± 1.2 (86.5) | 70.0 ± 0.0 (92.6) |\n"
        "| left-to-right, no next sentence | 71.7 ± 1.2 (77.5) | 90.0 ± 0.0 (92.1) |\n"
        "| the same with a BiLSTM | 71.7 ± 1.2 (75.7) | 71.7 ± 1.2 (91.6) |\n"
    )
    assert (
        page.count("- Always predicting the most frequent class of SST-2 gives accuracy 75.0.\n")
        == 1
    )
    assert "that hold here: no next sentence (SST-2) -11.0; the same with a BiLSTM (SST-2)" in page
    assert "that do not hold here: no next sentence (MRPC) +20.0" in page
    assert "with bert-tiny: pre-trainings of 100 steps of 256 rows" in page
    assert "leaves out how another pre-training" in page and "(`--learning_rate=2e-3" in page
    root = xml.etree.ElementTree.parse(settings.page.replace(".md", "_ablations.svg")).getroot()
    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "81.0" in shown and "no next sentence" in shown


def test_the_page_of_glue_has_the_average_and_what_others_published(make, tmp_path):
    def rows(page):
        table = re.search(r"(\|.*\n)+", pathlib.Path(page).read_text())[0].splitlines()
        return {cells[0]: cells[1:] for cells in
                ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)}  # fmt: skip

    settings = make(table=["glue"])
    Reproduction(settings, Stub()).run()
    found = rows(settings.page)
    assert found["run"][-1] == "average" and found["BERT"][-1] == "-"
    assert found["BERT-large, published"][-1] == "82.1" and len(found["run"]) == 10
    page = pathlib.Path(settings.page).read_text()
    assert "- Missing, no glue/QNLI/train.tsv in --data_dir: QNLI.\n" in page
    for task in TASKS:
        for name in TASKS[task][0]["files"]:
            (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "data" / name).write_text("rows")
    stub = Stub()
    results = stub._results

    def complete(run):
        found = results(run)
        for each in found.get("runs", ()):
            each["scores"]["dev"] = dict.fromkeys(
                ["accuracy", "f1", "matthews_correlation", "spearman"], 0.5)  # fmt: skip
            each["scores"]["dev_mismatched"] = {"accuracy": 0.95}
        return found

    stub._results = complete
    settings = make(table=["glue"], output_dir=str(tmp_path / "b"), cells=str(tmp_path / "c.csv"))
    Reproduction(settings, stub).run()
    found = rows(settings.page)["BERT"]
    assert found[1] == "95.0 ± 0.0 (83.4)" and found[-1] == "55.0"
    picture = pathlib.Path(settings.page.replace(".md", "_glue.svg")).read_text()
    assert picture.count("r='2'") == 27  # nine scores of three seeds


def test_the_page_names_the_checkpoint_and_the_command_that_makes_it_again(make, tmp_path):
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm/model.safetensors").write_text("weights")
    settings = make(table=["features"], checkpoint=str(tmp_path / "minilm"))
    Reproduction(settings, Stub()).run()
    page = pathlib.Path(settings.page).read_text()
    assert f"The rows start from `{tmp_path}/minilm`." in page
    assert "on 64 examples. A cell" in page  # no flags of fine-tuning are given
    (line,) = (line for line in page.splitlines() if line.startswith("python -m "))
    values = flags.FlagValues()
    flag_fields.define_flags(Settings, values)
    values(shlex.split(line)[2:])
    assert flag_fields.checked(Settings, values) == settings


def test_tables_of_a_checkpoint_alone_need_no_text(make, tmp_path):
    (tmp_path / "minilm").write_text("weights")
    given = {"checkpoint": str(tmp_path / "minilm"), "input": None}
    settings = make(table=["features", "stability"], **given)
    Reproduction(settings, stub := Stub()).run()
    assert stub.made and all(name.startswith("finetune/checkpoint_") for name in stub.made)
    page = pathlib.Path(settings.page).read_text()
    assert f"Fine-tunings of `{tmp_path}/minilm` on 64 examples" in page
    assert "pre-training" not in page.split("## ")[0]
    with pytest.raises(ValueError, match="names no file: give the text"):
        Plan(make(table=["features", "ablations"], **given))


def test_the_page_repeats_its_tables_and_no_others(make):
    settings = make(table=["steps", "sizes"])
    Reproduction(settings, Stub()).run()
    page = pathlib.Path(settings.page).read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("python -m "))
    words = shlex.split(line)
    assert "--table=steps,sizes" in words


def test_noise_and_what_learned_nothing_are_marked(make, tmp_path):
    settings = make(table=["steps"])
    stub = Stub(scores={"finetune/base_sst-2": [0.5, 0.52, 0.51]})
    results = stub._results

    def collapsed(run):
        found = results(run)
        if run == "finetune/base_step=20_sst-2":
            found["runs"][0]["collapsed"] = "one class only"
            found["runs"][1] |= {"scores": {}, "collapsed": "a loss that is not finite"}
        if run == "finetune/base_step=40_sst-2":
            found["runs"] = [{**each, "scores": {}, "collapsed": "x"} for each in found["runs"]]
        return found

    stub._results = collapsed
    Reproduction(settings, stub).run()
    page = pathlib.Path(settings.page).read_text()
    assert re.search(r"\| 20% of the steps \| 52\.0 ± 2\.0 ≈ \|", page)
    failures = "40% of the steps (SST-2) 3 of 3 seeds; 20% of the steps (SST-2) 2 of 3 seeds"
    assert f"- Learned nothing, or one answer only: {failures}." in page
    assert "\n| 40% of the steps | - |\n" in page
    (missing,) = (line for line in page.splitlines() if line.startswith("- Missing, not run yet"))
    assert "SST-2" not in missing
    assert re.search(r"Within the noise of seeds: 80% of the steps \(SST-2\) \+0\.7", page)
    # Of one pre-training each, nothing is known of noise.
    settings = make(table=["sizes"], output_dir=str(tmp_path / "b"))
    Reproduction(settings, Stub()).run()
    page = pathlib.Path(settings.page).read_text()
    assert "- Learned nothing, or one answer only: none." in page
    # bert-tiny has no quarter of its two blocks, or of its two heads.
    assert page.count("| 12.5") == len(TABLES["sizes"].rows) - 2 and "12.5 ≈" not in page


def test_a_row_without_any_score_is_named_under_its_table_alone(make):
    settings = make(table=["sizes"])
    with pytest.raises(ValueError, match="It diverged"):
        Reproduction(settings, Stub(failing=["pretrain/num_hidden_layers=4"])).run()
    page = pathlib.Path(settings.page).read_text()
    assert "| twice its blocks |" not in page and "| half of its blocks |" in page
    assert "too few blocks or heads for the row 'a quarter of its blocks'.\n" in page
    heads = "half of its blocks, a quarter of its heads"
    assert f"too few blocks or heads for the row {heads!r}.\n" in page
    more = make(table=["sizes"], pretrain_flags="--config_overrides=num_attention_heads=4")
    assert "pretrain/num_hidden_layers=1_num_attention_heads=1" in Plan(more).runs
    assert "Missing, no glue/MNLI/train.tsv in --data_dir: MNLI.\n" in page
    assert "which failed: twice its blocks.\n" in page
    # The picture has the rows of the table, in their order, each beside its points.
    svg = pathlib.Path(settings.page.removesuffix(".md") + "_sizes.svg").read_text()
    names = re.findall(r"y='(\d+)' text-anchor='end'>([^<]+)<", svg)
    table = re.search(r"(\|.*\n)+", page)[0].splitlines()[2:]
    assert [name for _, name in names] == [line.split("|")[1].strip() for line in table]
    heights = [int(y) for y, _ in names]
    assert heights == sorted({round(float(y)) for y in re.findall(r"cy='([\d.]+)'", svg)})
    assert heights[-1] < int(re.search(r"height='(\d+)'", svg)[1])


def test_a_dry_run_lists_runs_time_disk_and_what_is_missing(make, monkeypatch, capsys):
    monkeypatch.setattr(Reproduction, "_step_seconds", lambda self, runs: [1.5 for _ in runs])
    settings = make(table=["ablations"])
    Reproduction(settings, Stub()).report()
    out = capsys.readouterr().out
    assert "pretrain/nsp=false: 2m30s\nfinetune/nsp=false_mrpc: not measured\n" in out
    assert "ablations: no glue/MNLI/train.tsv in --data_dir." in out
    assert re.search(r"18 runs are left: 10m00s where measured, about 0\.\d+ GB of disk\.\n$", out)
    assert not pathlib.Path(settings.output_dir).exists()


def test_wrong_flags_are_refused(make, tmp_path):
    with pytest.raises(ValueError, match=r"--table=ablation is unknown \(did you mean ablations"):
        make(table=["ablation"])
    for values, message in (
        ({"size": "bert-tinny"}, r"--size=bert-tinny is no preset \(did you mean bert-tiny\?\)"),
        ({"input": ["none/*"]}, r"--input=none/\* names no file: give the text"),
        ({"pretrain_flags": "nsp=false"}, r"--pretrain_flags=nsp=false: expected --name=value"),
        ({"output_dir": str(tmp_path / "data")}, "data holds no reproduction: name an empty"),
        (
            {"finetune_flags": "--restarts=12"},
            r"--finetune_flags has --restarts: give --seeds, from 2 to 10, instead\.",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            Reproduction(make(**values), Stub())
    Reproduction(make(table=["swag"]), Stub()).run()
    with pytest.raises(ValueError, match=r"out holds another plan: --steps=50 \(was 100\)\. Give"):
        Reproduction(make(steps=50), Stub())


def test_files_of_others_are_not_written_over(make, tmp_path):
    page = tmp_path / "notes.md"
    page.write_text("mine")
    picture = tmp_path / "page_ablations.svg"
    picture.write_text("mine")
    for name, path in (("notes.md", page), ("page.md", picture)):
        settings = make(table=["ablations"], page=str(tmp_path / name))
        with pytest.raises(ValueError, match=rf"{path} exists, and this command did not write"):
            Reproduction(settings, Stub())
        assert path.read_text() == "mine"
    settings = make(table=["ablations"], page=str(page / "page.md"))
    with pytest.raises(Exception, match=r"notes\.md"):  # in a file there is no room for one
        Reproduction(settings, stub := Stub()).run()
    assert stub.made == [] and page.read_text() == "mine"
    page.write_text("\n".join(["a,b", "1,2"]))
    with pytest.raises(
        ValueError, match=r"notes\.md, line 1: expected the columns pretraining,step"
    ):
        Reproduction(make(cells=str(page)), Stub())


def test_cells_are_kept_and_a_wrong_line_is_named(tmp_path):
    path = str(tmp_path / "cells.csv")
    cell = Cell("--a=b,c", "10", "1 files", "SST-2", "2 files", "")
    scores = [Score(cell, "f1", seed, 1 / 3, 'one "class"', 5, "2 cores") for seed in "21"]
    write_cells(path, scores)
    assert read_cells(path) == sorted(scores)
    written = pathlib.Path(path).read_bytes()
    write_cells(path, read_cells(path))
    assert pathlib.Path(path).read_bytes() == written
    lines = [*csv.reader(written.decode().splitlines())]
    assert lines[0][:3] == ["pretraining", "step", "corpus"] and len(lines) == 3
    # As spreadsheets leave it.
    pathlib.Path(path).write_bytes(b"\xef\xbb\xbf" + written + b"\n")
    assert read_cells(path) == sorted(scores)
    whole = written.decode()
    for text, message in (
        (whole.replace(str(1 / 3), "a third", 1), r"line 2: could not convert string to float"),
        (whole.replace(str(1 / 3), "inf", 1), r"line 2: expected a score of at most 1e\+09, got"),
        (whole.replace(",5,", ",inf,", 1), r"line 2: invalid literal for int\(\)"),
        ("a\rb", r"cells\.csv, line 1: new-line character seen in unquoted field"),
        ('"' + "a" * 200_000, r"cells\.csv, line 1: field larger than field limit"),
    ):
        pathlib.Path(path).write_bytes(text.encode() + b"\nb\n")
        with pytest.raises(ValueError, match=message):
            read_cells(path)


def test_runs_of_other_files_are_not_taken_for_those_of_these(make, tmp_path):
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    features = make(table=["features"], checkpoint=str(tmp_path / "small"))
    Reproduction(features, stub := Stub()).run()
    assert stub.made and all(name.startswith("finetune/checkpoint_") for name in stub.made)
    other = {"output_dir": str(tmp_path / "b"), "cells": features.cells}
    Reproduction(make(table=["features"], checkpoint=str(tmp_path / "large"), **other), stub).run()
    assert stub.made[: len(stub.made) // 2] == stub.made[len(stub.made) // 2 :]
    with pytest.raises(ValueError, match=r"of other files: the files of --checkpoint have changed"):
        Reproduction(make(table=["features"], checkpoint=str(tmp_path / "large")), Stub())
    Reproduction(make(table=["ablations"]), Stub()).run()
    (tmp_path / "data/glue/SST-2/dev.tsv").write_text("other rows")
    with pytest.raises(ValueError, match=r"of other files: the files of SST-2 have changed\. Name"):
        Reproduction(make(table=["ablations"]), Stub())
    (tmp_path / "data/glue/SST-2/dev.tsv").write_text("rows")
    (tmp_path / "text1.txt").write_text("Other text.")
    with pytest.raises(ValueError, match=r"of other files: the files of --input have changed\."):
        Reproduction(make(table=["ablations"]), Stub())


def test_plans_at_once_keep_each_others_cells(make, tmp_path):
    first = Reproduction(make(table=["ablations"]), Stub())
    second = make(table=["ablations"], steps=200, output_dir=str(tmp_path / "b"),
                  cells=first.settings.cells)  # fmt: skip
    second = Reproduction(second, Stub())
    first.run()
    count = len(read_cells(first.settings.cells))
    second.run()
    assert len(read_cells(first.settings.cells)) == 2 * count


@pytest.mark.parametrize(
    "flag, text, why",
    [
        ("pretrain_flags", "--spede=1", "pretrain does not take these flags: Unknown command li"),
        ("pretrain_flags", "--seed=x", "pretrain does not take these flags: flag --seed=x: "),
        ("pretrain_flags", "--config_overrides=num_attention_heads=x", "num_attention_heads=x is"),
        ("finetune_flags", "--lerning_rate=3", "finetune does not take these flags: Unknown comm"),
        ("finetune_flags", "--train_batch_size=0", "finetune does not take these flags: flag --tr"),
        ("finetune_flags", "--learning_rate='3", "--learning_rate='3: No closing quotation."),
        ("feature_flags", "--num_train_epochs=x", "finetune does not take these flags: flag --nu"),
        ("feature_flags", "--lora_rank=8", "--lora_rank is for fine-tuning, and with "),
    ],
)
def test_what_a_run_would_refuse_is_refused_before_any(make, flag, text, why):
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        Plan(make(**{flag: text}, table=["features", "sizes"]))
    assert str(error.value).startswith(f"--{flag}")


def test_steps_that_cannot_be_measured_are_a_failure(make):
    settings = make(pretrain_flags="--config_overrides=spede=1", table=["rates"])
    with pytest.raises(ValueError, match=r"^6 runs have failed, the first pretrain/masked_lm_prob"):
        Reproduction(settings, stub := Stub()).run()
    assert "finetune/base_sst-2" in stub.made


def test_results_without_scores_are_named(make):
    stub = Stub()
    stub._results = lambda run: {"runs": [{}]}
    settings = make(table=["steps"])
    with pytest.raises(ValueError, match=r"results\.json has no scores \(KeyError"):
        Reproduction(settings, stub).run()


def test_the_papers_figures_are_those_of_the_recipes():
    texts = {path.stem: path.read_text() for path in RECIPES}
    (row,) = TABLES["glue"].rows
    # The paper prints the averages, too.
    averages = {"OpenAI GPT": 75.1, "BERT-base": 79.6, "BERT-large": 82.1}
    for name, average in averages.items():
        assert round(np.mean(TABLES["glue"].published[name]), 1) == average
    assert row.paper == TABLES["glue"].published["BERT-base"]
    for (task, _), figure in zip(TABLES["glue"].columns, row.paper, strict=True):
        assert str(figure) in texts[task.lower().replace("-", "")], task
    for table, recipe in (("squad11", "squad1.1"), ("swag", "swag"), ("ner", "ner")):
        for figure in TABLES[table].rows[0].paper:
            assert str(figure) in texts[recipe], table
    assert [row.paper for row in TABLES["features"].rows][:2] == [[94.9], [91.0]]
    columns = {task for table in TABLES.values() for task, _ in table.columns}
    assert columns - {*TASKS} == {"held-out text"}


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the checkout is missing")
@pytest.mark.parametrize("name, least", [("reproduction", 30), ("stability", 4)])
def test_the_committed_page_is_the_commands(name, least):
    page = (ROOT / "docs" / f"{name}.md").read_text()
    assert MARK in page
    values = {}
    for score in read_cells(str(ROOT / "docs" / f"{name}.csv")):
        if not np.isnan(score.score):
            values.setdefault((score.cell, score.metric), []).append(score.score)
    means = {}
    for (cell, metric), found in values.items():
        error = np.std(found, ddof=1) / len(found) ** 0.5 if found[1:] else 0  # a pre-training's
        shown = f"{np.mean(found):.1f} ± {error:.1f}"
        means.setdefault((cell.task, metric), set()).add(shown)
    count = 0
    for table in (table for table in TABLES.values() if f"## {table.title}\n" in page):
        lines = re.search(r"(\|.*\n)+", page.split(f"## {table.title}\n")[1])[0].splitlines()
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        columns = [tuple(name.rsplit(", ", 1)) for name in head[1:] if name != "average"]
        assert {*columns} <= {*table.columns} and columns
        published = [f"{name}, published" for name in table.published]
        named = {row.name: row for row in table.rows}
        own = [row[0] for row in rows if row[0] not in published]
        assert own == [name for name in named if name in own] and own
        for row, cells in ((named[name], cells) for name, *cells in rows if name in named):
            for column, cell in zip(columns, cells, strict=False):
                if shown := re.match(r"[\d.]+ ± [\d.]+", cell):
                    assert shown[0] in means[column], (row.name, column)
                    count += 1
                if figure := re.search(r"\(([\d.]+)\)", cell):
                    assert float(figure[1]) == row.paper[table.columns.index(column)], row.name
    assert count >= least
