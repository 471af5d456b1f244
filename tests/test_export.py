"""``python -m bert_tf.export``: what it prints, writes and refuses."""

import functools
import json
import subprocess
import sys

import pytest

from bert_tf import export as command
from bert_tf.answering.signatures import Signature
from bert_tf.checkpoints import sentence_transformers
from bert_tf.io.messages import DifferenceWarning
from bert_tf.saved_models import ExportOptions, exporting
from bert_tf.saved_models.exporting import Exported
from bert_tf.tasks.task_file import TaskFile
from tests.anew import run_anew, run_main
from tests.checkpoints.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.finetuning import small_runs

run = functools.partial(run_main, command)
PAIRS = TaskFile("classification", "RTE", 16, {"text_columns": ["a", "b"], "label_column": "c"})
LENGTHS = {"doc_stride": 7, "max_query_length": 9, "n_best_size": 4, "max_answer_length": 5}
QUESTIONS = TaskFile("squad", "squad", 24, options={**LENGTHS, "with_null": True})


def write_model(folder, *given, **more):
    small_runs.write_model(folder, *given, **more)
    return str(folder)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "classifier"
    return write_model(
        folder, "BertClassifier", {"num_classes": 2}, task=PAIRS, labels=("no", "yes")
    )


@pytest.fixture(scope="module")
def span_predictor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "span_predictor"
    return write_model(folder, "BertSpanPredictor", task=QUESTIONS)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "encoder", "BertEncoder")


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The model and the keywords with which the command calls ``export``."""

    def ask(checkpoint, *arguments):
        seen = []

        def export(model, output, **keywords):
            seen.append((model, keywords))
            raise ZeroDivisionError

        monkeypatch.setattr(exporting, "export", export)
        with pytest.raises(ZeroDivisionError):
            run(f"--model={checkpoint}", f"--output={tmp_path}/1", *arguments)
        return seen[0]

    return ask


def test_what_is_printed(classifier, tmp_path, monkeypatch, capsys):
    output = tmp_path / "mine" / "1"

    def export(model, where, *, name, **keywords):
        assert (where.rstrip("/"), model.labels) == (str(output), ("no", "yes"))
        output.mkdir(parents=True)
        (output / "saved_model.pb").write_bytes(b"x" * 1_230_000)
        signature = Signature(None, {"text": None, "text_pair": None}, (), "It does.")
        answers = {"pair": {"label": None, "score": None}}
        return Exported(str(output), name, {"pair": signature}, answers, ())

    monkeypatch.setattr(exporting, "export", export)
    run(f"--model={classifier}", f"--output={output}/", "--name=rte")
    assert capsys.readouterr().out.splitlines() == [
        f"Reading {classifier}.",
        "Exporting a BertClassifier.",
        "Signatures:",
        "  pair: text, text_pair -> label, score",
        f"{output}: 1.2 MB.",
        "",
        "Next steps:",
        f"  python -m bert_tf.verify {output}",
        f"  docker run -p 8501:8501 -v {tmp_path}/mine:/models/rte -e MODEL_NAME=rte "
        "tensorflow/serving",
        f"  less {output}/assets.extra/README.md",
        f"  python -m bert_tf.serve --model={output}  # a page in the browser",
    ]


@pytest.mark.parametrize(
    ("flags", "ids"), [([], [5, 1, 1, 1]), (["--special_tokens_in_texts"], [5, 3])]
)
def test_special_tokens_in_texts(encoder, asked, flags, ids):
    """As the model was trained, or as asked."""
    tokenizer = asked(encoder, *flags)[0].preprocessor.tokenizer
    assert tokenizer.tokenize(["good [SEP]"]).to_list() == [ids]


def test_flags_come_first(classifier, span_predictor, encoder, asked):
    options = asked(classifier, "--nopair", "--max_seq_length=8")[1]["options"]
    assert options == ExportOptions(max_seq_length=8)
    options = asked(span_predictor, "--precision=bfloat16")[1]["options"]
    assert (options.n_best_size, options.doc_stride, options.precision) == (4, 7, "bfloat16")
    # Without a word from the directory, all positions.
    assert asked(encoder)[1] == {"options": ExportOptions(), "name": "bert", "notes": ""}
    options = asked(encoder, "--normalize", "--max_seq_length=8")[1]["options"]
    assert options == ExportOptions(max_seq_length=8, normalize=True)


def test_a_cross_encoder_reads_pairs(tmp_path, asked):
    checkpoint = make_checkpoint(MODELS["regressor"], tokenization=UNCASED)
    sentence_transformers.write(checkpoint, str(tmp_path))
    assert asked(str(tmp_path))[1]["options"] == ExportOptions()
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert asked(str(tmp_path))[1]["options"] == ExportOptions(pair=True)
    assert asked(str(tmp_path), "--nopair")[1]["options"] == ExportOptions()


def test_what_is_told_of_a_model_stands_in_the_card_of_its_export(tmp_path, asked):
    checkpoint = make_checkpoint(MODELS["classifier"], tokenization=UNCASED)
    source = str(tmp_path)
    sentence_transformers.write(checkpoint, source)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "feed_forward_type": "geglu"}))
    sentence = "config.json: unknown keys are ignored: 'feed_forward_type'."
    with pytest.warns(DifferenceWarning) as found:
        notes = asked(source)[1]["notes"]
    assert [str(each.message) for each in found] == [f"{source}/{sentence}"]
    assert notes == f"## Differences from the source\n\n- {sentence}"


@pytest.mark.parametrize(
    "output", ["exports/mine", "exports/v1", "exports/1.5", "exports/²", "exports/٣"]
)
def test_a_version_is_a_number(output):
    sentence = (
        f"^--output={output}: expected a directory named by a version number.* Pass {output}/1"
    )
    with pytest.raises(ValueError, match=sentence):
        run("--model=c", f"--output={output}")


def test_nothing_is_read_before_the_flags_are_found_good(tmp_path):
    with pytest.raises(ValueError, match="name='my model': "):
        run("--model=nowhere", f"--output={tmp_path}/1", "--name=my model")
    (tmp_path / "1" / "theirs").mkdir(parents=True)
    with pytest.raises(ValueError, match="/1 already exists and is not overwritten"):
        run("--model=tiny", f"--output={tmp_path}/1")


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        (None, r"m has no tokenizer: .*m has no vocabulary\. Add its vocab\.txt"),
        ((*small_runs.VOCAB, "more", "pieces"),
         "m has no tokenizer: .*m has 19 pieces, more than the model's vocab_size=17"),
    ],
)  # fmt: skip
def test_a_vocabulary_is_needed_that_fits(tmp_path, pieces, sentence):
    folder = write_model(tmp_path / "m", "BertEncoder", vocabulary=pieces)
    with pytest.raises(ValueError, match=sentence):
        run(f"--model={folder}", f"--output={tmp_path}/1")


@pytest.mark.parametrize(
    ("model", "flag", "meant_for"),
    [
        ("encoder", "--pair", "BertClassifier and BertRegressor"),
        ("encoder", "--nopair", "BertClassifier and BertRegressor"),
        ("classifier", "--normalize", "BertEncoder and BertPretrainer"),
    ],
)
def test_what_means_nothing_to_a_model(request, tmp_path, model, flag, meant_for):
    checkpoint = request.getfixturevalue(model)
    name = flag.split("=")[0].replace("--no", "--", flag == "--nopair")
    sentence = rf"^{name} does not apply to .*, a Bert\w+\. Remove it; it is for {meant_for}\.$"
    with pytest.raises(ValueError, match=sentence):
        run(f"--model={checkpoint}", f"--output={tmp_path}/1", flag)


def test_batch_sizes_are_numbers(encoder, tmp_path):
    sentence = "^--allowed_batch_sizes=8,x: expected integers such as 8,16,32"
    with pytest.raises(ValueError, match=sentence):
        run(f"--model={encoder}", f"--output={tmp_path}/1", "--allowed_batch_sizes=8,x")


# === As a person runs it ===


@pytest.mark.end_to_end
@pytest.mark.slow
def test_the_command_and_what_comes_next(encoder, tmp_path):
    done = run_anew("export", f"--model={encoder}", f"--output={tmp_path}/1")
    assert done.returncode == 0, done.stderr
    (following,) = (
        line.split()[1:] for line in done.stdout.splitlines() if "bert_tf.verify" in line
    )
    verified = subprocess.run([sys.executable, *following], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
