"""``python -m bert_tf.predict``: every kind of task, from and to every form of file."""

import functools
import gzip
import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning import prediction, prediction_inputs
from bert_tf.finetuning.task_file import TaskFile, write_task_file
from bert_tf.interchange import conversion, model_directory
from bert_tf.interchange.checkpoint import ModelSpec, Tokenization
from bert_tf.interchange.weights import build_model
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.training import checkpoints

WORDS = ("good", "fine", "bad", "poor", "the", "a", "film", "plot", "was", "is", "and", "so")
VOCAB = (*SPECIAL_TOKENS, *WORDS)
CONFIG = BertConfig(
    vocab_size=len(VOCAB),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
    initializer_range=0.8,
)
LABELS = ("neg", "neutral", "pos")
TEXTS = ["good film", "the plot was so bad", "fine", "a poor plot and a bad film", "is", "so so so"]
CLASSES = {"num_classes": 3}


def write_model(folder, class_name, arguments=None, task=None, *, labels=(), **more):
    """A directory as a fine-tuning leaves it, of random weights; gives the model, too."""
    spec = ModelSpec(class_name, arguments or {})
    keras.utils.set_random_seed(4)
    model = build_model(CONFIG, spec)
    model_directory.write_description(
        str(folder), CONFIG, spec, tokenization=Tokenization(VOCAB, True), labels=labels, **more
    )
    weights = {f"model/{weight.path}": weight for weight in model.weights}
    checkpoints.save(str(folder / "checkpoints"), 0, weights, {})
    if task is not None:
        write_task_file(str(folder), task)
    return model


def text_task(kind, **more):
    columns = {"text_columns": ["text"], "label_column": "label", "id_column": "n"}
    return TaskFile(kind, "own", 16, columns, **more)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    task = text_task("classification")
    return folder, write_model(folder, "BertClassifier", CLASSES, task, labels=LABELS)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("n\ttext\n" + "".join(f"{7 - n}\t{text}\n" for n, text in enumerate(TEXTS)))
    return path


def predict(folder, source, *more, **options):
    return prediction.predict_file(str(folder), str(source), *map(str, more), **options)


@functools.cache
def preprocessor_of(length):
    return BertPreprocessor(VOCAB, max_seq_length=length)


@pytest.fixture(autouse=True)
def load_each_model_once(monkeypatch):
    monkeypatch.setattr(prediction, "_load", functools.cache(prediction._load))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def probabilities_of(model, texts, second=None, length=16):
    """Row by row, padded to the whole length."""
    preprocessor = preprocessor_of(length)
    rows = []
    for number, text in enumerate(texts):
        inputs = [text] if second is None else ([text], [second[number]])
        rows.append(tf.nn.softmax(model(preprocessor(inputs), training=False))[0].numpy())
    return np.array(rows)


# === Classification ===


def test_json_lines_in_the_files_order(classifier, table, tmp_path, capsys):
    folder, model = classifier
    output = tmp_path / "new" / "predictions.jsonl"
    done = predict(folder, table, output)
    assert (done.num_examples, done.skipped) == (6, [])
    rows = read_lines(output)
    expected = probabilities_of(model, TEXTS)
    assert [row["id"] for row in rows] == ["7", "6", "5", "4", "3", "2"]
    assert [row["prediction"] for row in rows] == [LABELS[at] for at in expected.argmax(1)]
    assert list(rows[0]["probabilities"]) == list(LABELS)
    found = [list(row["probabilities"].values()) for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len({row["prediction"] for row in rows}) > 1  # else the order would not show
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Predicting: 6 examples in \d+s\.", printed[0])
    assert printed[1:] == [f"Predictions: {output}"]


@pytest.mark.slow
def test_chunks_make_no_difference(classifier, table, tmp_path, monkeypatch):
    predict(classifier[0], table, tmp_path / "whole.tsv")
    monkeypatch.setattr(prediction_inputs, "_CHUNK", 4)
    predict(classifier[0], table, tmp_path / "chunks.tsv")
    whole, chunks = (
        [line.split("\t") for line in (tmp_path / name).read_text().splitlines()]
        for name in ("whole.tsv", "chunks.tsv")
    )
    assert whole[0] == chunks[0] == [
        "id", "prediction", "probability_neg", "probability_neutral", "probability_pos"
    ]  # fmt: skip
    assert [row[:2] for row in whole] == [row[:2] for row in chunks] and len(whole) == 7
    np.testing.assert_allclose(
        np.float64([row[2:] for row in whole[1:]]),
        np.float64([row[2:] for row in chunks[1:]]),
        atol=2e-6,
    )


@pytest.mark.slow
def test_other_columns_and_pairs(classifier, tmp_path):
    folder, model = classifier
    source = tmp_path / "pairs.csv"
    source.write_text("one,two\n" + "".join(f"{text},film\n" for text in TEXTS))
    output = tmp_path / "out.jsonl"
    predict(folder, source, output, text_columns=["one", "two"], id_column="two", max_seq_length=9)
    rows = read_lines(output)
    assert [row["id"] for row in rows] == ["film"] * 6
    expected = probabilities_of(model, TEXTS, ["film"] * 6, length=9)
    found = [list(row["probabilities"].values()) for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_ids_are_row_numbers_where_the_file_has_none(classifier, tmp_path):
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    predict(classifier[0], source, tmp_path / "out.jsonl")
    assert [row["id"] for row in read_lines(tmp_path / "out.jsonl")] == list("012345")


@pytest.mark.slow
def test_a_hugging_face_classifier(classifier, table, tmp_path):
    conversion.convert(str(classifier[0]), str(tmp_path / "hf"), "huggingface")
    outputs = [tmp_path / "one.tsv", tmp_path / "other.tsv"]
    predict(classifier[0], table, outputs[0])
    with pytest.raises(ValueError, match="does not say which columns of .*: name them, --text_col"):
        predict(tmp_path / "hf", table, outputs[1])
    predict(tmp_path / "hf", table, outputs[1], text_columns=["text"], id_column="n")
    assert outputs[0].read_text() == outputs[1].read_text()


@pytest.mark.slow
def test_a_classifier_without_names(table, tmp_path):
    write_model(tmp_path / "model", "BertClassifier", CLASSES)
    predict(tmp_path / "model", table, tmp_path / "out.jsonl", text_columns=["text"])
    assert list(read_lines(tmp_path / "out.jsonl")[0]["probabilities"]) == ["0", "1", "2"]


# === Several classes, numbers ===


def test_several_classes_by_the_models_threshold(table, tmp_path):
    task = text_task("multilabel", thresholds={"probability": 0.3})
    folder, output = tmp_path / "model", tmp_path / "out.jsonl"
    model = write_model(folder, "BertClassifier", CLASSES, task, labels=LABELS, multi_label=True)
    logits = -np.log(1 / np.array([0.2, 0.4, 0.6]) - 1)
    model.classifier.bias.assign(logits)
    model.classifier.kernel.assign(np.zeros(model.classifier.kernel.shape))
    weights = {f"model/{weight.path}": weight for weight in model.weights}
    checkpoints.save(str(folder / "checkpoints"), 1, weights, {})
    for options, names in (
        ({}, ["neutral", "pos"]),
        ({"threshold": 0.5}, ["pos"]),
        ({"threshold": 0.1}, list(LABELS)),
        ({"threshold": 0.7}, []),
    ):
        predict(folder, table, output, **options)
        for row in read_lines(output):
            assert row["prediction"] == names
            assert row["probabilities"] == {"neg": 0.2, "neutral": 0.4, "pos": 0.6}


@pytest.mark.slow
def test_numbers(table, tmp_path):
    model = write_model(tmp_path / "model", "BertRegressor", task=text_task("regression"))
    predict(tmp_path / "model", table, tmp_path / "out.jsonl")
    preprocessor = preprocessor_of(16)
    expected = model(preprocessor(TEXTS), training=False).numpy()
    rows = read_lines(tmp_path / "out.jsonl")
    assert set(rows[0]) == {"id", "prediction"}
    np.testing.assert_allclose([row["prediction"] for row in rows], expected, rtol=1e-4, atol=1e-5)


# === Tagging ===

TAGS = ("O", "B-LOC", "I-LOC")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    columns = {"words_column": "words", "tags_column": "tags", "id_column": None}
    task = TaskFile("tagging", "ner", 16, columns, {"document_context": True})
    return folder, write_model(folder, "BertTokenClassifier", CLASSES, task, labels=TAGS)


def tags_of(model, words):
    rows = preprocessor_of(16)([" ".join(words)])
    logits = model(rows, training=False)[0, 1 : 1 + len(words)].numpy()
    return [TAGS[at] for at in logits.argmax(-1)]


_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    ["in.conll", pytest.param("in.txt.gz", marks=_SLOW), pytest.param("in.jsonl", marks=_SLOW)],
)
def test_tagging(tagger, tmp_path, name):
    folder, model = tagger
    sentences = [text.split() for text in TEXTS]
    source = tmp_path / name
    if name.endswith(".jsonl"):
        source.write_text("".join(json.dumps({"words": words}) + "\n" for words in sentences))
    else:
        # Each sentence a document of its own, so that its neighbours are no context.
        text = "".join("-DOCSTART- -X-\n\n" + "".join(f"{w} -X-\n" for w in words) + "\n"
                       for words in sentences)  # fmt: skip
        with tf.io.gfile.GFile(str(source), "wb") as file:
            file.write(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    expected = [tags_of(model, words) for words in sentences]
    assert len({tag for tags in expected for tag in tags}) > 1
    predict(folder, source, tmp_path / "out.jsonl")
    assert read_lines(tmp_path / "out.jsonl") == [
        {"id": str(number), "words": words, "tags": tags}
        for number, (words, tags) in enumerate(zip(sentences, expected, strict=True))
    ]
    predict(folder, source, tmp_path / "out.conll")
    assert (tmp_path / "out.conll").read_text() == "".join(
        "".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
        for words, tags in zip(sentences, expected, strict=True)
    )
    predict(folder, source, tmp_path / "out.tsv")
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert lines[0] == "id\twords\ttags"
    assert lines[1] == f"0\tgood film\t{' '.join(expected[0])}"


# === Multiple choice ===


@pytest.mark.parametrize(
    "form", ["own", pytest.param("swag", marks=_SLOW), pytest.param("codah", marks=_SLOW)]
)
def test_multiple_choice(tmp_path, form):
    choices = ["good", "bad plot", "fine", "so"]
    source, columns = tmp_path / "in.tsv", {}
    if form == "own":
        columns = {"context_column": "c", "choice_columns": list("0123"), "label_column": "l"}
        rows = ["c\t0\t1\t2\t3", *("\t".join([text, *choices]) for text in TEXTS)]
    elif form == "swag":
        source = tmp_path / "in.csv"
        rows = ["sent1,sent2,ending0,ending1,ending2,ending3"]
        rows += [",".join([text, "", *choices]) for text in TEXTS]
    else:
        rows = ["\t".join(["i", text, *choices, "2"]) for text in TEXTS]
    source.write_text("\n".join(rows) + "\n")
    task = TaskFile("multiple_choice", form, 16, columns)
    model = write_model(tmp_path / "model", "BertMultipleChoice", task=task)
    predict(tmp_path / "model", source, tmp_path / "out.jsonl")
    preprocessor = preprocessor_of(16)
    for text, row in zip(TEXTS, read_lines(tmp_path / "out.jsonl"), strict=True):
        inputs = preprocessor(([text] * 4, choices))
        logits = model({key: value[None] for key, value in inputs.items()}, training=False)
        expected = tf.nn.softmax(logits)[0].numpy()
        assert row["prediction"] == expected.argmax()
        found = [row["probabilities"][str(number)] for number in range(4)]
        np.testing.assert_allclose(found, expected, atol=1e-5)


# === Questions ===


@pytest.fixture
def questions(tmp_path):
    paragraphs = [
        {"context": text, "qas": [{"id": f"q{number}", "question": "the film"}]}
        for number, text in enumerate(TEXTS)
    ]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("with_null", [False, True])
def test_questions(questions, tmp_path, with_null):
    options = {"doc_stride": 4, "max_query_length": 8, "n_best_size": 20, "max_answer_length": 4}
    task = TaskFile("squad", "squad", 16, {}, {**options, "with_null": with_null})
    write_model(tmp_path / "model", "BertSpanPredictor", task=task)
    table = tmp_path / "questions.tsv"
    table.write_text("q\tc\n" + "".join(f"the film\t{text}\n" for text in TEXTS))
    predict(tmp_path / "model", questions, tmp_path / "out.json")
    predict(tmp_path / "model", table, tmp_path / "out.jsonl", text_columns=["q", "c"])
    answers = json.loads((tmp_path / "out.json").read_text())
    rows = read_lines(tmp_path / "out.jsonl")
    assert list(answers) == [f"q{number}" for number in range(6)]
    assert [row["prediction"] for row in rows] == list(answers.values())
    for text, answer in zip(TEXTS, answers.values(), strict=True):
        assert answer in text and (answer or with_null)
    assert set(rows[0]) == {"id", "prediction", *(["null_odds"] if with_null else [])}
    if with_null:
        odds = {f"q{row['id']}": row["null_odds"] for row in rows}
        least = sorted(odds.values())[3]
        predict(tmp_path / "model", questions, tmp_path / "out.json", threshold=least - 1e-3)
        answers = json.loads((tmp_path / "out.json").read_text())
        assert {name for name, answer in answers.items() if not answer} == {
            name for name, value in odds.items() if value >= least
        }
    else:
        with pytest.raises(ValueError, match="--threshold=1: .* questions that all have an answer"):
            predict(tmp_path / "model", questions, tmp_path / "out.json", threshold=1.0)


# === Bad input ===


def test_bad_rows(classifier, tmp_path, capsys):
    source, output = tmp_path / "texts.tsv", tmp_path / "out.jsonl"
    source.write_text("n\ttext\n1\tgood\n2\n3\t \n4\tbad\n")
    with pytest.raises(ValueError) as caught:
        predict(classifier[0], source, output)
    assert str(caught.value) == (
        f"{source}, line 3: expected 2 columns, got 1; correct the row, or set skip_bad_rows."
    )
    assert not output.exists()
    done = predict(classifier[0], source, output, skip_bad_rows=True)
    assert [row["id"] for row in read_lines(output)] == ["1", "4"]
    assert (done.num_examples, len(done.skipped)) == (2, 2)
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "Left out 2 bad rows:",
        f"  {source}, line 3: expected 2 columns, got 1.",
        f"  {source}, line 4: expected text in column 'text', got ' '.",
    ]
    source.write_text("n\ttext\n" + "2\n" * 7 + "1\tgood\n")
    predict(classifier[0], source, output, skip_bad_rows=True)
    assert "  and 2 more" in capsys.readouterr().out
    for content, message in (("n\ttext\n", "has no rows"), ("n\ttext\n2\n", "has no good row")):
        source.write_text(content)
        with pytest.raises(ValueError, match=message):
            predict(classifier[0], source, output, skip_bad_rows=True)


def test_refusals(classifier, table, tmp_path):
    folder, output = classifier[0], tmp_path / "out.tsv"
    for options, message in (
        ({"max_seq_length": 33}, "--max_seq_length=33: expected 5 to 32, the positions that"),
        ({"max_seq_length": 4}, "--max_seq_length=4: expected 5 to 32"),
        ({"threshold": 0.5}, "--threshold=0.5 means nothing to classification: it is for multilab"),
        ({"text_columns": list("abc")}, "--text_columns=a,b,c: expected one or two columns."),
        ({"text_columns": ["other"]}, f"{table}, line 1: expected one column 'other', got none"),
        ({"id_column": "other"}, f"{table}, line 1: expected one column 'other', got none"),
    ):
        with pytest.raises(ValueError) as caught:
            predict(folder, table, output, **options)
        assert str(caught.value).startswith(message)
    for name, message in (
        (table, f"--output={table} is the file to read: name another."),
        (
            "a.csv",
            "--output=a.csv: expected a name that ends in .tsv or .jsonl for classification.",
        ),
        ("a.conll", "--output=a.conll: expected a name that ends in .tsv or .jsonl for classific"),
    ):
        with pytest.raises(ValueError) as caught:
            predict(folder, table, name)
        assert str(caught.value).startswith(message)


def test_columns_of_another_number(tagger, table, tmp_path):
    with pytest.raises(ValueError, match="--text_columns=a,b: expected WORDS for tagging."):
        predict(tagger[0], table, tmp_path / "out.tsv", text_columns=["a", "b"])
    for class_name, kind in (
        ("BertMultipleChoice", "CONTEXT,CHOICE,... for multiple_choice"),
        ("BertSpanPredictor", "QUESTION,CONTEXT for squad"),
    ):
        write_model(tmp_path / class_name, class_name)
        with pytest.raises(ValueError, match=f"--text_columns=a: expected {kind}."):
            predict(tmp_path / class_name, table, tmp_path / "out.tsv", text_columns=["a"])


def test_models_that_do_not_predict(classifier, table, tmp_path):
    write_model(tmp_path / "encoder", "BertEncoder", {"pooler": True})
    with pytest.raises(ValueError, match="encoder holds a BertEncoder, which predicts for no task"):
        predict(tmp_path / "encoder", table, tmp_path / "out.tsv")
    write_model(tmp_path / "odd", "BertRegressor", task=text_task("squad"))
    with pytest.raises(ValueError, match="odd was trained for squad and holds a BertRegressor"):
        predict(tmp_path / "odd", table, tmp_path / "out.tsv")
    write_model(tmp_path / "no_words", "BertRegressor", task=text_task("regression"))
    (tmp_path / "no_words" / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"no_words has no vocabulary: put its vocab\.txt into"):
        predict(tmp_path / "no_words", table, tmp_path / "out.tsv")


# === The command ===


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bert_tf.predict", *arguments], capture_output=True, text=True
    )


@pytest.mark.slow
def test_predictions_alone_on_standard_output(classifier, table, tmp_path):
    predict(classifier[0], table, tmp_path / "out.tsv")
    done = run(f"--model_dir={classifier[0]}", f"--input={table}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "out.tsv").read_text()
    assert "Predicting: 6 examples in " in done.stderr


def test_what_is_wrong_is_told_in_a_sentence(tmp_path):
    done = run(f"--model_dir={tmp_path}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: --input is missing: predict needs --model_dir and --input.\n"
