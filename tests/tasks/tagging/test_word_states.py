import dataclasses
import shutil

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertFeatureTagger
from bert_tf.tasks.tagging import word_states
from bert_tf.tasks.tagging.rows import tagging_examples
from bert_tf.tasks.tagging.word_states import WordStates
from bert_tf.tasks.task import evaluate
from tests.finetuning.small_tasks import (
    CONFIG,
    IDS,
    TOKENIZER,
    inference,
    loss_of,
    random_sentences,
    tagging_on_frozen_features,
)

TWO_BLOCKS = dataclasses.replace(CONFIG, num_hidden_layers=2)

# The second sentence exceeds a row of 8 tokens; words of the third have several pieces.
WORDS = [["a0", "a1"], [f"{letter}1" for letter in "abcdefgh"] + ["a2"], ["a0s", "b1st", "c2"]]
TAGS = [[0, 1], [2, 0, 1, 2, 0, 1, 2, 0, 1], [1, 2, 0]]


def examples(tags=None):
    return tagging_examples(TOKENIZER, WORDS, tags=tags, max_seq_length=8)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return BertFeatureTagger(TWO_BLOCKS, num_classes=3, variant="weighted_sum_all", lstm_units=2)


def by_word(rows, model):
    """Maps (sentence, word) to the encoder's states of the first piece and the tag."""
    found = {}
    batch, labels = next(rows.sorted_batches(1000)[0])
    blocks = np.stack(model.encoder(batch)["encoder_outputs"], 2)
    words, sentences = batch["word_index"].numpy(), batch["example_index"].numpy()
    for row, column in np.argwhere(words >= 0):
        key = (int(sentences[row]), int(words[row, column]))
        assert key not in found
        found[key] = blocks[row, column], int(labels[row, column])
    return found


def test_stored_states_equal_the_encoder_and_are_computed_once(
    model, tmp_path, monkeypatch, capsys
):
    runs, encoded = [], word_states._encoded
    monkeypatch.setattr(
        word_states, "_encoded", lambda *given: runs.append(given) or encoded(*given)
    )

    usage = shutil.disk_usage("/")

    def free(count):
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=count))

    store, train = WordStates(str(tmp_path)), examples(TAGS)
    # 14 words with 2 states of 16 floats need 1,792 bytes, 90% of 1,992. With less free space,
    # nothing is stored.
    free(1_990)
    assert WordStates(str(tmp_path)).encode(model, train) is train
    printed = capsys.readouterr().out
    assert printed.startswith("The features of 14 words need 0.0 GB, but ")
    assert "The features are not stored, so the encoder runs on each batch." in printed
    free(1_992)
    kept = store.encode(model, train)
    assert store.encode(model, train) is kept
    expected = by_word(train, model)
    assert len(expected) == 14
    seen = 0
    batch, labels = next(kept.sorted_batches(1000)[0])
    states, words = batch["word_states"].numpy(), batch["word_index"].numpy()
    assert states.shape == (*words.shape, 2, 16)
    np.testing.assert_array_equal(labels.numpy() == -1, words == -1)
    assert np.all(np.diff((words == -1).astype(int)) >= 0)  # padding comes last
    for row, column in np.argwhere(words >= 0):
        vectors, tag = expected[int(batch["example_index"][row]), int(words[row, column])]
        np.testing.assert_allclose(states[row, column], vectors, atol=1e-5)
        assert labels[row, column] == tag
        seen += 1
    assert seen == 14
    # Other sets and other variants are encoded separately.
    assert store.encode(model, examples()) is not kept and len(runs) == 2
    other = BertFeatureTagger(CONFIG, num_classes=3, variant="last", lstm_units=2)
    states = next(store.encode(other, train).sorted_batches(1000)[0])[0]["word_states"]
    assert states.shape[2] == 1 and len(runs) == 3
    assert list(tmp_path.iterdir()) == []


def test_scores_equal_those_from_tokens_and_loss_is_mean_over_words(tmp_path):
    examples = random_sentences(12)
    task = tagging_on_frozen_features(examples, tmp_path, 2)
    keras.utils.set_random_seed(0)
    model = BertFeatureTagger(CONFIG, **task.model_arguments)
    kept = evaluate(task, inference(model, max_seq_length=16), "again")
    rows = task.prepare_examples(model, task.training_examples(TOKENIZER, 16))
    task.prepare_examples = lambda model, rows: rows
    tokens = evaluate(task, inference(model, max_seq_length=16), "again")
    assert kept.scores == pytest.approx(tokens.scores)
    losses = [[mistake.loss for mistake in one.mistakes] for one in (kept, tokens)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    batch, labels = next(rows.sorted_batches(1000)[0])
    assert (labels.numpy() < 0).any()  # padding
    loss = loss_of(task, model, batch, labels, training=False)
    assert loss == pytest.approx(kept.scores["loss"], rel=1e-4)


def test_states_in_bfloat16(tmp_path):
    model = BertFeatureTagger(
        CONFIG, num_classes=3, variant="last", lstm_units=2, dtype="mixed_bfloat16"
    )
    kept = WordStates(str(tmp_path)).encode(model, examples())
    batch = next(kept.sorted_batches(1000)[0])
    assert batch["word_states"].dtype.name == "bfloat16"
    row = int(np.argwhere(batch["example_index"].numpy() == 0)[0, 0])
    ids = np.array([[IDS["[CLS]"], IDS["a0"], IDS["a1"], IDS["[SEP]"]]], "int32")
    tokens = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    expected = model.encoder(tokens)["sequence_output"][0, 1:3]
    got = batch["word_states"].numpy()[row, :2, 0].astype("float32")
    np.testing.assert_allclose(got, np.array(expected).astype("float32"), atol=0.1)
