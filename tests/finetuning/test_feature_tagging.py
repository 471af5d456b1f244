import dataclasses
import random
import types

import keras
import numpy as np
import pytest

from bert_tf.finetuning import stages, sweep
from bert_tf.finetuning.model import RATES, Start
from bert_tf.finetuning.run import run
from bert_tf.modeling import BertFeatureTagger
from bert_tf.tasks.losses import SmoothedCrossEntropy
from bert_tf.tasks.tagging_task import TaggingTask
from bert_tf.tasks.task import TrainingOptions

from .small_runs import WORDS, results_of, settings
from .small_tasks import CONFIG, TAGS, TOKENIZER, inference, random_sentences

VARIANTS = ("embeddings", "weighted_sum_all")


def task_on(examples, folder, variant="weighted_sum_all", lstm_units=64):
    return TaggingTask(
        "ner", examples, {"again": examples}, {}, folder=str(folder), document_context=True,
        training=TrainingOptions(variant=variant, lstm_units=lstm_units),
    )  # fmt: skip


def new_model(task, seed=0):
    keras.utils.set_random_seed(seed)
    return BertFeatureTagger(CONFIG, **task.model_arguments)


def test_a_search_trains_each_run_with_its_own_loss(tmp_path):
    task = task_on(random_sentences(4), tmp_path, lstm_units=4)
    material = stages.Material(task, None, Start(CONFIG, None, TOKENIZER, None), None, None)
    asked = dataclasses.asdict(task.training) | dict.fromkeys(RATES)
    flags = types.SimpleNamespace(**asked, feature_based="weighted_sum_all")
    one = types.SimpleNamespace(
        **{**asked, "variant": "last", "label_smoothing": 0.2}, feature_based="last"
    )
    own = sweep._material_of(sweep.Run("a", one), flags, material).task
    assert own.model_arguments["variant"] == "last"
    assert isinstance(own.compile_arguments["loss"], SmoothedCrossEntropy)
    assert not isinstance(task.compile_arguments["loss"], SmoothedCrossEntropy)


def test_scores_are_those_of_the_tokens_and_the_loss_is_the_words_mean(tmp_path):
    examples = random_sentences(12)
    task = task_on(examples, tmp_path, lstm_units=2)
    model = new_model(task)
    kept = task.evaluate(inference(model, max_seq_length=16), "again")
    rows = task.prepared(model, task.training_examples(TOKENIZER, 16))
    task.prepared = lambda model, rows: rows
    tokens = task.evaluate(inference(model, max_seq_length=16), "again")
    assert kept.scores == pytest.approx(tokens.scores)
    np.testing.assert_array_equal(kept.confusion, tokens.confusion)
    losses = [[mistake.loss for mistake in found.mistakes] for found in (kept, tokens)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    (batch, labels), _ = rows.whole_batch()
    logits = model(batch)
    logs = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))
    words = np.argwhere(labels.numpy() >= 0)
    assert len(words) < labels.numpy().size
    expected = -np.mean([logs[row, place, labels[row, place]] for row, place in words])
    model.compile(jit_compile=False, **task.compile_arguments)
    assert float(model.compute_loss(batch, labels, logits)) == pytest.approx(expected, rel=1e-4)


def test_reading_another_variant_shares_the_data(tmp_path):
    task = task_on(random_sentences(4), tmp_path)
    other = task.asked(dataclasses.replace(task.training, variant="last"))
    found = [each.model_arguments["variant"] for each in (task, other)]
    assert found == ["weighted_sum_all", "last"]
    assert other.model_arguments["lstm_units"] == 64 and other.labels == TAGS


# === The command ===


def write_columns(path, count, seed):
    """Sentences in which good and fine are persons, and film and plot places of two words."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        for word in rng.choices(WORDS, k=rng.randint(2, 7)):
            tag = {"good": "B-PER", "fine": "B-PER", "film": "B-LOC"}.get(word, "O")
            lines.append(f"{word} {tag}")
            if word == "film":
                lines.append("plot I-LOC")
        lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    return write_columns(folder / "train", 60, 1), write_columns(folder / "dev", 9, 2)


def flags(inputs, columns, model_dir, **changes):
    train, dev = columns
    values = {
        "task": "ner",
        "train_file": train,
        "dev_file": dev,
        "text_columns": None,
        "label_column": None,
        "feature_based": ",".join(VARIANTS),
        "lstm_units": 16,
        "learning_rate": 0.02,
        "num_train_epochs": 12,
        **changes,
    }
    return settings(inputs, model_dir, **values)


@pytest.fixture(scope="module")
def tagged(inputs, columns, tmp_path_factory):
    """A run of two variants that nothing interrupted: its directory."""
    model_dir = tmp_path_factory.mktemp("tagged") / "run"
    run(flags(inputs, columns, model_dir))
    return model_dir


@pytest.mark.slow
def test_each_variant_is_a_run_and_the_best_is_kept(tagged):
    results = results_of(tagged)
    names = [f"{variant}_batch8_rate0.02_epochs12_seed12345" for variant in VARIANTS]
    assert [entry["name"] for entry in results["runs"]] == names
    by_variant = {entry["feature_based"]: entry["mean"] for entry in results["configurations"]}
    assert set(by_variant) == set(VARIANTS)
    best = max(by_variant, key=by_variant.get)
    assert results["best_run"].startswith(best)
    assert results["scores"]["dev"]["f1"] == by_variant[best]
    table = (tagged / "feature_based.md").read_text()
    for variant, mean in by_variant.items():
        assert f"| {variant:<22} | {100 * mean:>9.1f} |" in table
    assert "| concat_last_four       |         - |           96.1 |" in table
    rows = (tagged / "results.tsv").read_text().splitlines()
    assert rows[0].startswith("layers\tbatch\t") and rows[1].startswith(f"{best}\t8\t")
    assert not (tagged / "export").exists()
    kept = {path.name for path in (tagged / "runs").rglob("step-*")}
    assert kept == set() and list(tagged.glob("checkpoints/step-*"))
