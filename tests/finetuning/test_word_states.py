import shutil

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertFeatureTagger
from bert_tf.pipelines.tagging import tagging_examples
from bert_tf.tasks import word_states
from bert_tf.tasks.word_states import WordStates

from .small_tasks import CONFIG, IDS, TOKENIZER

# The second is too long for a row of 8 tokens, the third has words of several pieces.
WORDS = [["a0", "a1"], [f"{letter}1" for letter in "abcdefgh"] + ["a2"], ["a0s", "b1st", "c2"]]
TAGS = [[0, 1], [2, 0, 1, 2, 0, 1, 2, 0, 1], [1, 2, 0]]


def examples(tags=None):
    return tagging_examples(TOKENIZER, WORDS, tags=tags, max_seq_length=8)


@pytest.fixture
def model():
    keras.utils.set_random_seed(3)
    return BertFeatureTagger(CONFIG, num_classes=3, variant="weighted_sum_all", lstm_units=4)


def by_word(rows, model):
    """For each sentence and word, what a model's encoder gives at its first piece, and its tag."""
    found = {}
    for batch, labels in rows.training_batches(1):
        blocks = model.encoder(batch)["encoder_outputs"]
        for place, word in enumerate(batch["word_index"].numpy()[0]):
            if word >= 0:
                key = (int(batch["example_index"][0]), int(word))
                assert key not in found
                states = np.stack([block[0, place] for block in blocks])
                found[key] = states, int(labels[0, place])
    return found


def test_equal_what_the_encoder_gives(model, tmp_path):
    expected = by_word(examples(TAGS), model)
    assert len(expected) == 14
    kept = WordStates(str(tmp_path)).of(model, examples(TAGS))
    seen = 0
    for batch, labels in kept.training_batches(3):
        states, words = batch["word_states"].numpy(), batch["word_index"].numpy()
        assert states.shape == (*words.shape, 2, 32)
        np.testing.assert_array_equal(labels.numpy() == -1, words == -1)
        assert np.all(np.diff((words == -1).astype(int)) >= 0)  # padding comes last
        for row, place in np.argwhere(words >= 0):
            vectors, tag = expected[int(batch["example_index"][row]), int(words[row, place])]
            np.testing.assert_allclose(states[row, place], vectors, atol=1e-5)
            assert labels[row, place] == tag
            seen += 1
    assert seen == 14


def test_computed_once_for_a_variant_and_nothing_is_left(model, tmp_path, monkeypatch):
    runs = []
    encoded = word_states._encoded
    monkeypatch.setattr(
        word_states, "_encoded", lambda *given: runs.append(given) or encoded(*given)
    )
    store, train, dev = WordStates(str(tmp_path)), examples(TAGS), examples()
    first = store.of(model, train)
    assert store.of(model, train) is first and store.of(model, dev) is not first
    assert len(runs) == 2
    other = BertFeatureTagger(CONFIG, num_classes=3, variant="last", lstm_units=4)
    states = next(iter(store.of(other, train).evaluation_batches(2)))[0]["word_states"]
    assert states.shape[2] == 1 and len(runs) == 3
    assert list(tmp_path.iterdir()) == []


def test_without_room_the_tokens_stay(model, tmp_path, monkeypatch, capsys):
    # 14 words of 2 states of 32 floats are 3,584 bytes.
    for free, is_kept in [(3_900, False), (4_000, True)]:
        usage = shutil.disk_usage("/")._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
        rows = examples(TAGS)
        assert (WordStates(str(tmp_path)).of(model, rows) is not rows) == is_kept
    printed = capsys.readouterr().out
    assert printed.startswith("The features of 14 words take 0.0 GB, and ")
    assert "they are not kept, and each batch runs the encoder." in printed


def test_in_bfloat16(tmp_path):
    model = BertFeatureTagger(
        CONFIG, num_classes=3, variant="last", lstm_units=4, dtype="mixed_bfloat16"
    )
    kept = WordStates(str(tmp_path)).of(model, examples())
    batch = next(iter(kept.evaluation_batches(4)))
    assert batch["word_states"].dtype.name == "bfloat16"
    row = int(np.argwhere(batch["example_index"].numpy() == 0)[0, 0])
    ids = np.array([[IDS["[CLS]"], IDS["a0"], IDS["a1"], IDS["[SEP]"]]], "int32")
    tokens = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    expected = model.encoder(tokens)["sequence_output"][0, 1:3]
    got = batch["word_states"].numpy()[row, :2, 0].astype("float32")
    np.testing.assert_allclose(got, np.array(expected).astype("float32"), atol=0.1)
