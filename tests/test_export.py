"""``python -m bert_tf.export``: output, options and errors."""

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
from tests.checkpoints.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.finetuning import small_runs
from tests.processes import run_bert_tf, run_main

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
def export_arguments(monkeypatch, tmp_path):
    """Returns a function that runs the command and returns the arguments of ``export``."""

    def run_command(checkpoint, *arguments):
        calls = []

        def export(model, output, **keywords):
            calls.append((model, keywords))
            raise ZeroDivisionError

        monkeypatch.setattr(exporting, "export", export)
        with pytest.raises(ZeroDivisionError):
            run(f"--model={checkpoint}", f"--output={tmp_path}/1", *arguments)
        return calls[0]

    return run_command


def test_printed_output(classifier, tmp_path, monkeypatch, capsys):
    output = tmp_path / "mine" / "1"

    def export(model, path, *, name, **keywords):
        assert (path.rstrip("/"), model.labels) == (str(output), ("no", "yes"))
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
def test_special_tokens_in_texts_flag(encoder, export_arguments, flags, ids):
    """The flag overrides the setting of the model."""
    tokenizer = export_arguments(encoder, *flags)[0].preprocessor.tokenizer
    assert tokenizer.tokenize(["good [SEP]"]).to_list() == [ids]


def test_flags_override_settings_of_the_model(
    classifier, span_predictor, encoder, export_arguments
):
    options = export_arguments(classifier, "--nopair", "--max_seq_length=8")[1]["options"]
    assert options == ExportOptions(max_seq_length=8)
    options = export_arguments(span_predictor, "--precision=bfloat16")[1]["options"]
    assert (options.n_best_size, options.doc_stride, options.precision) == (4, 7, "bfloat16")
    # Without a task file, the length is max_position_embeddings.
    assert export_arguments(encoder)[1] == {"options": ExportOptions(), "name": "bert", "notes": ""}
    options = export_arguments(encoder, "--normalize", "--max_seq_length=8")[1]["options"]
    assert options == ExportOptions(max_seq_length=8, normalize=True)


def test_cross_encoder_is_exported_for_pairs(tmp_path, export_arguments):
    checkpoint = make_checkpoint(MODELS["regressor"], tokenization=UNCASED)
    sentence_transformers.write(checkpoint, str(tmp_path))
    assert export_arguments(str(tmp_path))[1]["options"] == ExportOptions()
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert export_arguments(str(tmp_path))[1]["options"] == ExportOptions(pair=True)
    assert export_arguments(str(tmp_path), "--nopair")[1]["options"] == ExportOptions()


def test_warnings_are_written_to_the_card(tmp_path, export_arguments):
    checkpoint = make_checkpoint(MODELS["classifier"], tokenization=UNCASED)
    source = str(tmp_path)
    sentence_transformers.write(checkpoint, source)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "feed_forward_type": "geglu"}))
    message = "config.json: unknown keys are ignored: 'feed_forward_type'."
    with pytest.warns(DifferenceWarning) as warnings:
        notes = export_arguments(source)[1]["notes"]
    assert [str(each.message) for each in warnings] == [f"{source}/{message}"]
    assert notes == f"## Differences from the source\n\n- {message}"


@pytest.mark.parametrize(
    "output", ["exports/mine", "exports/v1", "exports/1.5", "exports/²", "exports/٣"]
)
def test_output_must_end_in_a_version_number(output):
    message = (
        f"^--output={output}: expected a directory named by a version number.* Pass {output}/1"
    )
    with pytest.raises(ValueError, match=message):
        run("--model=c", f"--output={output}")


def test_flags_are_validated_before_reading_the_model(tmp_path):
    with pytest.raises(ValueError, match="name='my model': "):
        run("--model=nowhere", f"--output={tmp_path}/1", "--name=my model")
    (tmp_path / "1" / "theirs").mkdir(parents=True)
    with pytest.raises(ValueError, match="/1 already exists and is not overwritten"):
        run("--model=tiny", f"--output={tmp_path}/1")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (None, r"m has no tokenizer: .*m has no vocabulary\. Add its vocab\.txt"),
        ((*small_runs.VOCAB, "more", "pieces"),
         "m has no tokenizer: .*m has 19 pieces, more than the model's vocab_size=17"),
    ],
)  # fmt: skip
def test_missing_or_too_large_vocabulary_is_rejected(tmp_path, pieces, message):
    folder = write_model(tmp_path / "m", "BertEncoder", vocabulary=pieces)
    with pytest.raises(ValueError, match=message):
        run(f"--model={folder}", f"--output={tmp_path}/1")


@pytest.mark.parametrize(
    ("model", "flag", "supported"),
    [
        ("encoder", "--pair", "BertClassifier and BertRegressor"),
        ("encoder", "--nopair", "BertClassifier and BertRegressor"),
        ("classifier", "--normalize", "BertEncoder and BertPretrainer"),
    ],
)
def test_flags_for_other_models_are_rejected(request, tmp_path, model, flag, supported):
    checkpoint = request.getfixturevalue(model)
    name = flag.split("=")[0].replace("--no", "--", flag == "--nopair")
    message = (
        rf"^{name} does not apply to .*, a Bert\w+\. Remove this flag, which is for {supported}\.$"
    )
    with pytest.raises(ValueError, match=message):
        run(f"--model={checkpoint}", f"--output={tmp_path}/1", flag)


def test_invalid_batch_sizes_are_rejected(encoder, tmp_path):
    message = "^--allowed_batch_sizes=8,x: expected integers such as 8,16,32"
    with pytest.raises(ValueError, match=message):
        run(f"--model={encoder}", f"--output={tmp_path}/1", "--allowed_batch_sizes=8,x")


# === In a new process ===


@pytest.mark.end_to_end
@pytest.mark.slow
def test_exported_model_is_verified_by_the_printed_command(encoder, tmp_path):
    done = run_bert_tf("export", f"--model={encoder}", f"--output={tmp_path}/1")
    assert done.returncode == 0, done.stderr
    (arguments,) = (
        line.split()[1:] for line in done.stdout.splitlines() if "bert_tf.verify" in line
    )
    verified = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
