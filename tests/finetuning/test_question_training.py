"""Question answering is trained as it is meant to be, and learns."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.questions import QuestionTask
from bert_tf.modeling import BertSpanPredictor
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.squad import SquadReferences, read_squad
from bert_tf.tasks.squad_metrics import score_predictions

from .small_questions import SIZES, inference, question, random_examples, written
from .small_tasks import CONFIG, IDS, TOKENIZER, WORDS, compile_for_fit, examples_of, fit


def test_what_there_is_to_train_on_in_words():
    items = [
        question("long", "a0", " ".join(WORDS[:30]), "a1"),
        question("accent", "a0", "b0 \u0301 b1", "\u0301"),
        question("short", "a0", "b0 b1", "b1"),
    ]
    task = QuestionTask("squad", examples_of(items), {}, {}, **SIZES, with_null=False)
    rows = task.training_examples(TOKENIZER, 24)
    assert len(rows) == 6  # 20 of 30 tokens fit into a row with the question; the next begin 4 on
    assert task.training_lines(rows) == [
        "3 questions in 6 windows",
        "The contexts of 1 of the training questions are read in several windows of 24 tokens "
        "(--max_seq_length).",
        "The answers to 1 of the training questions have no token, as an accent alone: they are "
        "trained as if there were none.",
    ]
    assert task.training_lines(task.training_examples(TOKENIZER, 48))[0] == (
        "3 questions in 3 windows"
    )


def test_trains_on_the_first_answer():
    # Its characters are fewer than its bytes.
    item = question("7", "a0", "\u00e9 b0 \u00e9\u00e9 c0 d0", "\u00e9\u00e9 c0", "b0")
    task = QuestionTask("squad", examples_of([item]), {}, {}, **SIZES, with_null=False)
    batch, labels = next(iter(task.training_examples(TOKENIZER, 24).evaluation_batches(1)))
    tokens = batch["input_word_ids"].numpy()[0]
    start, end = labels["start_logits"].numpy()[0], labels["end_logits"].numpy()[0]
    assert tokens[start : end + 1].tolist() == [IDS["[UNK]"], IDS["c0"]]
    assert tokens[start - 1] == IDS["b0"]


def test_the_loss_is_the_mean_of_both_in_fit():
    examples = random_examples(8)
    task = QuestionTask("squad", examples, {}, {}, **SIZES, with_null=False)
    keras.utils.set_random_seed(1)
    model = BertSpanPredictor(dataclasses.replace(CONFIG, initializer_range=0.5))
    rows = task.training_examples(TOKENIZER, 24)
    ((batch, labels),) = rows.training_batches(len(rows), bucket_lengths=[])
    logits = model(batch, training=False)
    expected = []
    for index in range(len(rows)):
        length = int(tf.reduce_sum(batch["input_mask"][index]))
        for key in ("start_logits", "end_logits"):
            logs = tf.nn.log_softmax(logits[key][index, :length]).numpy()
            expected.append(-logs[labels[key].numpy()[index]])
    compile_for_fit(model, keras.optimizers.SGD(0.0), task)
    history = model.fit(
        rows.training_batches(len(rows), bucket_lengths=[]), verbose=0, shuffle=False
    )
    assert history.history["loss"] == [pytest.approx(np.mean(expected), rel=1e-5)]


@pytest.mark.slow
@pytest.mark.parametrize("with_null", [False, True])
def test_overfits(with_null):
    examples = random_examples(64, impossible=0.3 * with_null)
    task = QuestionTask(
        "squad", examples, {"train_again": examples}, {}, **SIZES, with_null=with_null
    )
    keras.utils.set_random_seed(0)
    model = BertSpanPredictor(CONFIG)
    losses = fit(task, model, epochs=40, max_seq_length=24)
    assert losses[0] > 1.0 > losses[-1]
    scores = task.evaluate(inference(model), "train_again").scores
    assert scores["best_exact" if with_null else "exact_match"] >= 95


@pytest.mark.slow
def test_squad_trains(data_dir, tmp_path):
    items = read_squad(str(data_dir / "squad" / "half-dev-v2.0.json.gz")).items[:48]
    vocab = (data_dir / "vocab" / "bert-base-uncased.txt").read_text().splitlines()
    tokenizer = BertTokenizer(vocab)
    data = examples_of(items)
    task = QuestionTask("squad", data, {"dev": data}, {"test": data}, with_null=True)
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(CONFIG, vocab_size=len(vocab), max_position_embeddings=256)
    model = BertSpanPredictor(config)
    losses = fit(task, model, tokenizer=tokenizer, epochs=2, max_seq_length=256)
    assert losses[-1] < losses[0]
    run = inference(model, tokenizer=tokenizer, max_seq_length=256, batch_size=16)
    found = task.evaluate(run, "dev")
    files = written(task.write_predictions(run, "test", str(tmp_path), found.thresholds))
    references = SquadReferences(
        {item.id: tuple(answer.text for answer in item.answers) for item in items}, "2.0"
    )
    scores = score_predictions(references, files["predictions.json"]).to_dict()
    assert scores["f1"] == pytest.approx(found.scores["best_f1"])
