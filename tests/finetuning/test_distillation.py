import dataclasses
import shutil

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.finetuning import teacher as teacher_module
from bert_tf.finetuning.distillation import (
    DistillationLoss,
    class_divergence,
    classes_divergence,
    number_difference,
)
from bert_tf.finetuning.model import take_layers
from bert_tf.finetuning.run import run
from bert_tf.finetuning.run_directory import FineTuningDirectory
from bert_tf.finetuning.task_file import TaskFile
from bert_tf.finetuning.text import squared_error
from bert_tf.interchange.recognition import open_checkpoint

from .small_runs import (
    TINY,
    VOCAB,
    assert_ends_as,
    save_weights,
    saved,
    sentences,
    settings,
    write_checkpoint,
    write_model,
    write_table,
)
from .test_training import stop_at

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
    loss = DistillationLoss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        class_divergence, 3, temperature, 0.3,
    )  # fmt: skip
    found = loss(np.float32(np.concatenate([labels[:, None], teacher], 1)), np.float32(student))
    expected = 0.0
    for ours, theirs, label in zip(student, teacher, labels, strict=True):
        p, q = softmax(theirs / temperature), softmax(ours / temperature)
        divergence = sum(p[c] * np.log(p[c] / q[c]) for c in range(3))
        likelihood = -np.log(softmax(ours)[label])
        expected += (0.7 * likelihood + 0.3 * temperature**2 * divergence) / 6
    np.testing.assert_allclose(float(found), expected, rtol=1e-5)


def test_the_loss_of_several_labels_and_of_numbers():
    student, teacher = RNG.normal(size=(2, 5, 2)) * 3
    holds = np.float64([[0, 1], [1, 1], [0, 0], [1, 0], [0, 1]])
    several = DistillationLoss(
        keras.losses.BinaryCrossentropy(from_logits=True), classes_divergence, 2, 2.0, 0.25
    )
    found = several(np.float32(np.concatenate([holds, teacher], 1)), np.float32(student))
    p, q, at_one = sigmoid(teacher / 2), sigmoid(student / 2), sigmoid(student)
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    likelihood = -(holds * np.log(at_one) + (1 - holds) * np.log(1 - at_one))
    expected = (0.75 * likelihood + 0.25 * 4 * divergence).mean()
    np.testing.assert_allclose(float(found), expected, rtol=1e-5)

    numbers = DistillationLoss(squared_error, number_difference, 1, 2.0, 0.25)
    found = numbers(np.float32([[1.0, 2.0], [0.0, 1.0]]), np.float32([3.0, -1.0]))
    assert float(found) == (0.75 * (4 + 1) + 0.25 * (1 + 4)) / 2


# === Runs ===

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
def flags(teacher):
    """What a distillation is given."""
    return {"teacher": teacher, "eval_steps": 4, "distillation_weight": 0.8}


@pytest.fixture(scope="module")
def taught(flags, inputs, tmp_path_factory):
    """The directory of a finished distillation."""
    model_dir = tmp_path_factory.mktemp("taught") / "run"
    run(settings(inputs, model_dir, **flags))
    return model_dir


def test_of_weight_0_it_is_plain_training_bit_for_bit(finished, inputs, tmp_path, teacher):
    flags = {"eval_steps": 4, "test_file": inputs / "test.tsv", "teacher": teacher}
    run(settings(inputs, tmp_path / "run", **flags, distillation_weight=0))
    assert_ends_as(finished, tmp_path / "run")


def test_the_student_learns_what_the_teacher_says_of_each_row(taught, teacher):
    """In the teacher's own pieces and length; its classes are in the student's order."""
    model = bert_tf.load(str(teacher), max_seq_length=8)
    texts = [text for text, _ in sentences(46)]
    expected = model(model.preprocessor(texts), training=False).numpy()[:, ::-1]
    assert np.ptp(expected, axis=0).min() > 0.5
    np.testing.assert_allclose(saved(taught / "teacher")["outputs"], expected, atol=1e-5)


def test_the_teacher_changes_what_is_learned_and_no_more(taught, finished):
    ours, plain = saved(taught / "last"), saved(finished / "last")
    assert ours.keys() == plain.keys()
    name = "model/bert_classifier/classifier/kernel"
    assert np.abs(ours[name] - plain[name]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True], ids=["its answers are kept", "and are lost"])
def test_interrupted_and_resumed(taught, flags, inputs, tmp_path, monkeypatch, capsys, lost):
    stop_at(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        run(settings(inputs, tmp_path / "run", **flags))
    capsys.readouterr()
    if lost:
        (tmp_path / "run" / "teacher" / "step-00000000" / "manifest.json").unlink()
        wrong = write_teacher(tmp_path / "wrong", seed=5)
        with monkeypatch.context() as patch:
            patch.setattr(teacher_module, "open_checkpoint", lambda *_: open_checkpoint(wrong))
            with pytest.raises(ValueError, match="What --teacher read is not what the run in"):
                run(settings(inputs, tmp_path / "run", **flags))
    run(settings(inputs, tmp_path / "run", **flags))
    assert ("answers the 46 training examples" in capsys.readouterr().out) is lost
    assert_ends_as(taught, tmp_path / "run")


def test_another_teacher_is_refused_by_name(taught, flags, inputs, teacher, tmp_path, capsys):
    other = write_teacher(tmp_path / "other", seed=5)
    with pytest.raises(ValueError, match="What --teacher read is not what the run in .* was"):
        run(settings(inputs, taught, **{**flags, "teacher": other}))
    moved = shutil.copytree(teacher, tmp_path / "moved")
    run(settings(inputs, taught, **{**flags, "teacher": moved}))
    assert "holds this run, finished" in capsys.readouterr().out


def test_a_finished_run_needs_the_teachers_answers_no_more(taught, tmp_path, delete_state):
    model_dir = shutil.copytree(taught, tmp_path / "run")
    delete_state(FineTuningDirectory(str(model_dir)))
    assert not (model_dir / "teacher").exists()


PAIR = dataclasses.replace(
    TASK, columns={"text_columns": ["a", "b"], "label_column": "y", "id_column": None}
)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"task": None}, "--teacher=.*model has no task.json: name the directory that"),
        ({"vocabulary": None}, "--teacher=.*model has no vocabulary: name the directory that"),
        (
            {"task": dataclasses.replace(TASK, kind="multilabel")},
            "was trained for multilabel: expected classification, as --task=classification",
        ),
        (
            {"labels": ("neg", "new", "pos")},
            "knows the classes neg, new, pos: expected those of the training set, neg, pos",
        ),
        ({"task": PAIR}, r"reads 2 text column\(s\): expected 1, as the student does"),
    ],
)
def test_a_teacher_of_something_else_is_refused(inputs, tmp_path, model, sentence):
    teacher = write_teacher(tmp_path / "model", **model)
    with pytest.raises(ValueError, match=sentence):
        run(settings(inputs, tmp_path / "run", teacher=teacher))


def test_an_unfinished_teacher_is_refused(inputs, tmp_path):
    teacher = write_teacher(tmp_path / "model")
    (teacher / "flags.json").write_text("{}")
    with pytest.raises(ValueError, match="is of a run that has not finished: finish it by the"):
        run(settings(inputs, tmp_path / "run", teacher=teacher))


# === Other kinds ===


@pytest.mark.slow
def test_a_student_of_numbers_learns_those_of_its_teacher(inputs, tmp_path):
    """A weight of 1: the labels, which are noise of another scale, say nothing."""
    rng = np.random.default_rng(0)
    rows = [(text, 500 + 30 * rng.normal()) for text, _ in sentences(300, seed=3)]
    train = write_table(tmp_path / "train.tsv", rows)
    task = dataclasses.replace(TASK, kind="regression")
    config = dataclasses.replace(TINY, initializer_range=0.4)
    teacher = tmp_path / "model"
    model = write_model(teacher, "BertRegressor", None, task, config=config)
    model.regressor.bias.assign([510.0])
    shutil.rmtree(teacher / "checkpoints")
    save_weights(teacher, model)
    flags = {"task": "regression", "teacher": teacher, "train_file": train, "dev_file": train}
    more = {"distillation_weight": 1, "num_train_epochs": 10, "init_checkpoint": teacher}
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


@pytest.mark.slow
def test_a_run_with_some_blocks_resumes(inputs, tmp_path, monkeypatch):
    config = dataclasses.replace(TINY, num_hidden_layers=3)
    flags = {"init_checkpoint": write_checkpoint(tmp_path / "whole", config=config)}
    flags |= {"init_layers": "0,2", "num_train_epochs": 1}
    run(settings(inputs, tmp_path / "run", **flags))
    stop_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        run(settings(inputs, tmp_path / "again", **flags))
    run(settings(inputs, tmp_path / "again", **flags))
    assert_ends_as(tmp_path / "run", tmp_path / "again")
    assert bert_tf.load(str(tmp_path / "run")).config.num_hidden_layers == 2
