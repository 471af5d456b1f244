import dataclasses
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api
from bert_tf.finetuning import teacher as teacher_module
from bert_tf.finetuning.model import take_layers
from bert_tf.finetuning.run import run
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.results.run_directory import FineTuningDirectory
from bert_tf.tasks.distillation import (
    DistillationLoss,
    class_divergence,
    classes_divergence,
    number_difference,
)
from bert_tf.tasks.task_file import TaskFile
from bert_tf.tasks.text_task import squared_error
from bert_tf.training import checkpoints

from .small_runs import (
    TINY,
    VOCAB,
    assert_bit_equal,
    assert_ends_as,
    results_of,
    save_weights,
    saved,
    sentences,
    settings,
    stop_at,
    write_checkpoint,
    write_model,
    write_table,
)

RNG = np.random.default_rng(3)


def softmax(logits):
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


# === The losses, beside loops ===


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_loss_of_classes_is_hintons(temperature):
    student, teacher = RNG.normal(size=(2, 6, 3)) * 4
    labels = np.array([0, 2, 1, 1, 0, 2])
    plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = DistillationLoss(plain, class_divergence, 3, temperature, 0.3)
    targets = np.float32(np.concatenate([labels[:, None], teacher], 1))
    found = loss(targets, np.float32(student))
    expected = 0.0
    for ours, theirs, label in zip(student, teacher, labels, strict=True):
        p, q = softmax(theirs / temperature), softmax(ours / temperature)
        divergence = sum(p[c] * np.log(p[c] / q[c]) for c in range(3))
        likelihood = -np.log(softmax(ours)[label])
        expected += (0.7 * likelihood + 0.3 * temperature**2 * divergence) / 6
    np.testing.assert_allclose(float(found), expected, rtol=1e-5)
    found = DistillationLoss(plain, class_divergence, 3, temperature, 0.0)(targets, student)
    assert float(found) == float(plain(labels, np.float32(student)))


def test_of_a_text_without_a_label_the_teacher_counts_alone():
    """In the loss and in its gradient, which a NaN would spread through."""
    student, teacher = RNG.normal(size=(2, 4, 3)) * 4
    labels = np.array([1, np.nan, 0, np.nan])
    loss = DistillationLoss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True), class_divergence, 3, 2.0, 0.3
    )
    given = tf.constant(student, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(given)
        found = loss(np.float32(np.concatenate([labels[:, None], teacher], 1)), given)
    p, q = softmax(teacher / 2), softmax(student / 2)
    expected = 0.3 * 4 * (p * np.log(p / q)).sum()
    slope = 0.3 * 2 * (q - p)
    for row in (0, 2):
        right = int(labels[row])
        expected -= 0.7 * np.log(softmax(student[row])[right])
        slope[row] += 0.7 * (softmax(student[row]) - np.eye(3)[right])
    np.testing.assert_allclose(float(found), expected / 4, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(found, given), slope / 4, atol=1e-6)


def test_the_loss_of_several_labels_and_of_numbers():
    student, teacher = RNG.normal(size=(2, 5, 2)) * 3
    holds = np.float64([[0, 1], [1, 1], [0, 0], [1, 0], [0, 1]])
    several = DistillationLoss(
        keras.losses.BinaryCrossentropy(from_logits=True), classes_divergence, 2, 2.0, 0.25
    )
    given = np.concatenate([holds, teacher], 1)
    given[3, :2] = np.nan  # not labelled
    found = several(np.float32(given), np.float32(student))
    p, q, at_one = sigmoid(teacher / 2), sigmoid(student / 2), sigmoid(student)
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    likelihood = -(holds * np.log(at_one) + (1 - holds) * np.log(1 - at_one))
    likelihood[3] = 0
    expected = (0.75 * likelihood + 0.25 * 4 * divergence).mean()
    np.testing.assert_allclose(float(found), expected, rtol=1e-5)

    numbers = DistillationLoss(squared_error, number_difference, 1, 2.0, 0.25)
    found = numbers(np.float32([[1.0, 2.0], [0, 1], [np.nan, 3]]), np.float32([3.0, -1.0, 5]))
    assert float(found) == (0.75 * (4 + 1) + 0.25 * (1 + 4 + 4)) / 3


# === Runs ===

UNLABELLED = [text for text, _ in sentences(20, seed=7)]
# The pieces in another order than the student has them, and the classes.
PIECES = (*VOCAB[:5], *reversed(VOCAB[5:]))
TASK = TaskFile(
    "classification", "own", 8, {"text_columns": ["text"], "label_column": "y", "id_column": None}
)


def write_teacher(folder, seed=4, task=TASK, labels=("pos", "neg"), **more):
    """A model directory of a classifier of random weights, which is sure of much."""
    config = dataclasses.replace(TINY, hidden_size=8, num_hidden_layers=2, initializer_range=0.9)
    given = {"config": config, "seed": seed, "labels": labels, "vocabulary": PIECES, **more}
    write_model(folder, "BertClassifier", {"num_classes": len(labels)}, task, **given)
    return folder


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A teacher's directory."""
    return write_teacher(tmp_path_factory.mktemp("teacher") / "model")


@pytest.fixture(scope="module")
def flags(teacher, inputs, tmp_path_factory):
    """What a distillation is given; of the texts without labels one is evaluated on.

    Without dropout, and at a rate that leaves the weights as they are, so that all losses are
    those of one model.
    """
    texts = [*UNLABELLED, sentences(1, seed=1)[0][0]]
    path = tmp_path_factory.mktemp("unlabelled") / "more.csv"
    path.write_text("number,text\n" + "".join(f"1,{text}\n" for text in texts))
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
    more = {"unlabelled_file": path, "class_weights": "pos:3,neg:2", "learning_rate": 1e-12}
    more |= {"teacher": teacher, "num_train_epochs": 1, "distillation_weight": 0.8}
    return {**more, **dict.fromkeys(rates, 0.0)}


@pytest.fixture(scope="module")
def taught(flags, inputs, tmp_path_factory):
    """The directory of a finished distillation."""
    model_dir = tmp_path_factory.mktemp("taught") / "run"
    run(settings(inputs, model_dir, **flags))
    return model_dir


@pytest.mark.slow
def test_of_weight_0_it_is_plain_training_bit_for_bit(finished, inputs, tmp_path, teacher):
    flags = {"eval_steps": 4, "test_file": inputs / "test.tsv", "teacher": teacher}
    run(settings(inputs, tmp_path / "run", **flags, distillation_weight=0))
    assert_ends_as(finished, tmp_path / "run")


def test_the_student_learns_what_the_teacher_says_of_each_row(taught, teacher):
    """In the teacher's own pieces and length; its classes are in the student's order."""
    model = bert_tf.load(str(teacher), max_seq_length=8)
    texts = [*(text for text, _ in sentences(46)), *UNLABELLED]
    expected = model(model.preprocessor(texts), training=False).numpy()[:, ::-1]
    assert np.ptp(expected, axis=0).min() > 0.5
    np.testing.assert_allclose(saved(taught / "teacher")["outputs"], expected, atol=1e-5)


def test_a_run_says_what_it_learned_without_labels_and_keeps_no_more(taught, finished):
    assert saved(taught / "last").keys() == saved(finished / "last").keys()
    assert results_of(taught)["rows"] == {"train": 46, "unlabelled": 20, "dev": 20}
    card = (taught / "README.md").read_text()
    line = "| unlabelled | `more.csv` | 20 | trained on, with the teacher's answers for labels |"
    assert line in card and "\n- more.csv\n" in card


def test_the_losses_of_a_run_are_those_of_a_plain_loop(taught, teacher):
    """Summed over the nine steps: which rows are in which batch is not known."""
    curve = checkpoints.find_latest(str(taught / "last")).extra["curve"]
    assert curve["counts"] == [*[1] * 9, 0]
    found = np.dot(curve["sums"][:9], [*[8] * 8, 2])  # 66 rows
    student, said = bert_tf.load(str(taught)), bert_tf.load(str(teacher), max_seq_length=8)
    train = sentences(46)
    texts = [*(text for text, _ in train), *UNLABELLED]
    ours, theirs = (m(m.preprocessor(texts), training=False).numpy() for m in (student, said))
    expected = 0.0
    for row, (logits, answer) in enumerate(zip(ours, theirs[:, ::-1], strict=True)):
        p, q = softmax(answer / 2), softmax(logits / 2)
        loss, weight = 0.8 * 4 * (p * np.log(p / q)).sum(), 1
        if row < 46:
            label = ["neg", "pos"].index(train[row][1])
            loss -= 0.2 * np.log(softmax(logits)[label])
            weight = (2, 3)[label]
        expected += weight * loss
    assert found == pytest.approx(expected, rel=1e-5)


def test_texts_in_memory_are_taught_as_those_of_a_file(taught, flags, inputs, tmp_path):
    """The one that is evaluated on is left out, too."""
    given = {name: value for name, value in flags.items() if name != "unlabelled_file"}
    found = api.fine_tune(
        sentences(46),
        sentences(20, seed=1),
        unlabelled=[*UNLABELLED, sentences(1, seed=1)[0][0]],
        **{"init": inputs / "tiny", "model_dir": tmp_path / "run", "task": "classification"},
        **{"max_seq_length": 16, "train_batch_size": 8, "export": False, "verbose": False},
        **given,
    )
    assert found.results["rows"] == {"train": 46, "unlabelled": 20, "dev": 20}
    for folder in ("teacher", "checkpoints"):
        assert_bit_equal(saved(tmp_path / "run" / folder), saved(taught / folder))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "more.tsv is empty: expected a first line that names its columns, text"),
        ("text\n", "more.tsv has no rows: expected at least one example"),
        ("texts\na\n", "more.tsv, line 1: expected one column 'text', got none; the columns are"),
        (
            f"text\n{sentences(1, seed=1)[0][0]}\n",
            "--unlabelled_file=.*more.tsv has only texts that ",
        ),
    ],
)
def test_files_of_no_unlabelled_texts(inputs, teacher, tmp_path, content, sentence):
    (tmp_path / "more.tsv").write_text(content)
    given = {"teacher": teacher, "unlabelled_file": tmp_path / "more.tsv"}
    with pytest.raises(ValueError, match=sentence):
        run(settings(inputs, tmp_path / "run", **given))


@pytest.mark.slow
def test_what_the_teacher_said_is_kept_or_asked_for_again(
    taught, flags, inputs, tmp_path, monkeypatch, capsys
):
    given, asked = settings(inputs, tmp_path / "run", **flags), []
    stop_at(monkeypatch, 3, 7)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(given)
        asked.append("answers the 66 training examples" in capsys.readouterr().out)
    (tmp_path / "run" / "teacher" / "step-00000000" / "manifest.json").unlink()
    wrong = write_teacher(tmp_path / "wrong", seed=5)
    with monkeypatch.context() as patch:
        patch.setattr(teacher_module, "open_checkpoint", lambda *_: open_checkpoint(wrong))
        with pytest.raises(ValueError, match="What --teacher read is not what the run in"):
            run(given)
    run(given)
    printed = capsys.readouterr().out
    asked.append("answers the 66 training examples" in printed)
    assert asked == [True, False, True]
    assert "20 of them have no label: the teacher's answers are theirs." in printed
    assert "Left out 1 of the 21 texts of" in printed
    assert_ends_as(taught, tmp_path / "run")


def test_a_finished_run_needs_no_answers_and_no_other_teacher(
    taught, flags, inputs, teacher, tmp_path, delete_state, capsys
):
    other = write_teacher(tmp_path / "other", seed=5)
    with pytest.raises(ValueError, match="What --teacher read is not what the run in .* was"):
        run(settings(inputs, taught, **{**flags, "teacher": other}))
    model_dir = shutil.copytree(taught, tmp_path / "run")
    assert (model_dir / "teacher").exists()
    delete_state(FineTuningDirectory(str(model_dir)))
    assert not (model_dir / "teacher").exists()
    moved = shutil.copytree(teacher, tmp_path / "moved")
    run(settings(inputs, model_dir, **{**flags, "teacher": moved}))
    assert "holds this run, finished" in capsys.readouterr().out


PAIR = dataclasses.replace(
    TASK, columns={"text_columns": ["a", "b"], "label_column": "y", "id_column": None}
)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"task": None}, "--teacher=.*model has no task.json: name the directory that"),
        ({"vocabulary": None}, "--teacher=.*model has no vocabulary: name the directory that"),
        ({"task": dataclasses.replace(TASK, kind="multilabel")}, "was trained for multilabel: exp"),
        ({"labels": ("neg", "new", "pos")}, "knows the classes neg, new, pos: expected those of t"),
        ({"task": PAIR}, r"reads 2 text column\(s\): expected 1, as the student does"),
        (None, "is of a run that has not finished: finish it by the"),
    ],
)  # fmt: skip
def test_a_teacher_of_something_else_is_refused(inputs, tmp_path, model, sentence):
    teacher = write_teacher(tmp_path / "model", **(model or {}))
    if model is None:
        (teacher / "flags.json").write_text("{}")
    with pytest.raises(ValueError, match=sentence):
        run(settings(inputs, tmp_path / "run", teacher=teacher))


# === Other kinds ===


@pytest.mark.slow
def test_a_student_of_numbers_learns_those_of_its_teacher(inputs, tmp_path):
    """A weight of 1: the labels, which are noise of another scale, say nothing."""
    rng = np.random.default_rng(0)
    rows = [(text, 500 + 30 * rng.normal()) for text, _ in sentences(150, seed=3)]
    train = write_table(tmp_path / "train.tsv", rows)
    more = tmp_path / "more.tsv"
    more.write_text("text\n" + "".join(f"{text}\n" for text, _ in sentences(150, seed=9)))
    task = dataclasses.replace(TASK, kind="regression")
    config = dataclasses.replace(TINY, initializer_range=0.4)
    teacher = tmp_path / "model"
    model = write_model(teacher, "BertRegressor", None, task, config=config)
    model.regressor.bias.assign([510.0])
    shutil.rmtree(teacher / "checkpoints")
    save_weights(teacher, model)
    flags = {"task": "regression", "teacher": teacher, "train_file": train, "dev_file": train}
    more = {
        "unlabelled_file": more,
        "distillation_weight": 1,
        "num_train_epochs": 10,
        "init_checkpoint": teacher,
    }
    run(settings(inputs, tmp_path / "run", **flags, **more, max_seq_length=8))
    learned, said = (
        bert_tf.load(str(folder), max_seq_length=8) for folder in (tmp_path / "run", teacher)
    )
    texts = [text for text, _ in rows[:50]]
    ours, theirs = (m(m.preprocessor(texts), training=False).numpy() for m in (learned, said))
    np.testing.assert_allclose(ours, theirs, atol=2.0)


# === Some blocks of a checkpoint ===


def test_a_student_takes_the_blocks_that_are_named(tmp_path):
    config = dataclasses.replace(TINY, num_hidden_layers=3)
    write_checkpoint(tmp_path / "whole", config=config)
    checkpoint = open_checkpoint(tmp_path / "whole")
    whole, part = bert_tf.load(checkpoint), bert_tf.load(take_layers(checkpoint, [0, 2]))
    assert part.config == dataclasses.replace(config, num_hidden_layers=2)
    values = {weight.path: weight.numpy() for weight in part.weights}
    for weight in whole.weights:
        path = weight.path.replace("layer_2/", "layer_1/")
        if "layer_1/" not in weight.path:
            np.testing.assert_array_equal(values.pop(path), weight.numpy(), err_msg=path)
    assert not values
