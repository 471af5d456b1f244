import dataclasses
import types

import keras
import numpy as np
import pytest

from bert_tf.finetuning import stages, sweep
from bert_tf.finetuning.model import StartingModel
from bert_tf.finetuning.run import run
from bert_tf.modeling import BertFeatureTagger

from .small_runs import results_of, settings
from .small_tasks import CONFIG, TOKENIZER, inference, loss_of, make_task, random_sentences

VARIANTS = ("embeddings", "weighted_sum_all")


def task_on(examples, folder, variant="weighted_sum_all", lstm_units=64):
    return make_task(
        "tagging", "ner", examples, {"again": examples}, folder=str(folder), document_context=True,
        feature_based=variant, lstm_units=lstm_units,
    )  # fmt: skip


def new_model(task, seed=0):
    keras.utils.set_random_seed(seed)
    return BertFeatureTagger(CONFIG, **task.model_arguments)


def test_each_run_reads_layers_of_its_own(tmp_path):
    task = task_on(random_sentences(4), tmp_path, lstm_units=4)
    start = StartingModel(CONFIG, None, TOKENIZER, None)
    inputs = stages.RunInputs(task, start, None, None, 16, 4, {})
    one = types.SimpleNamespace(options=dataclasses.replace(task.options, feature_based="last"))
    assert sweep._inputs_of(one, inputs).task.model_arguments["variant"] == "last"
    assert task.model_arguments["variant"] == "weighted_sum_all"


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
    assert (labels.numpy() < 0).any()  # padding
    found = loss_of(task, model, batch, labels, training=False)
    assert found == pytest.approx(kept.scores["loss"], rel=1e-4)


# === The command ===


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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_each_variant_is_a_run_and_the_best_is_kept(inputs, columns, tmp_path):
    tagged = tmp_path / "run"
    run(flags(inputs, columns, tagged))
    results = results_of(tagged)
    names = [f"{variant}_batch8_rate0.02_epochs12_seed12345" for variant in VARIANTS]
    assert [entry["name"] for entry in results["runs"]] == names
    by_variant = {entry["feature_based"]: entry["mean"] for entry in results["configurations"]}
    assert set(by_variant) == set(VARIANTS)
    best = max(by_variant, key=by_variant.get)
    assert results["best_run"].startswith(best)
    assert results["scores"]["dev"]["f1"] == by_variant[best]
    rows = (tagged / "results.tsv").read_text().splitlines()
    assert rows[0].startswith("layers\tbatch\t") and rows[1].startswith(f"{best}\t8\t")
    assert not (tagged / "export").exists()
    kept = {path.name for path in (tagged / "runs").rglob("step-*")}
    assert kept == set() and list(tagged.glob("checkpoints/step-*"))
