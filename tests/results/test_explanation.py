"""What words add to a prediction is all of it, by plain sums; pages run nothing of their texts."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier, BertRegressor
from bert_tf.readers.examples import TextExample
from bert_tf.results.explanation import Explanation, Word, explain_texts, write_explanations
from tests.finetuning.small_tasks import CONFIG, LABELS, TOKENIZER

from .pages import Page

STRONG = dataclasses.replace(CONFIG, initializer_range=0.3)
TEXTS = [("a0 b0 c0 d0", None), ("a1  b1, c0s", None), ("a0 b0", "c0 d0 e0"), ("a0 " * 40, "b0 c0")]


def explained(model, labels, texts=TEXTS, length=24):
    items = [TextExample(str(at), *both, None) for at, both in enumerate(texts)]
    return list(explain_texts(model, TOKENIZER, items, labels, length))


def made(seed=3, config=STRONG, model_class=BertClassifier, **arguments):
    keras.utils.set_random_seed(seed)
    return model_class(config, **arguments)


@pytest.fixture(scope="module")
def classifier():
    return made(num_classes=3)


@pytest.mark.parametrize("kind", ["classes", "several", "number", "bilstm", "mean"])
def test_attributions_add_up_to_the_difference(kind, classifier):
    model, labels, texts = classifier, LABELS, TEXTS[1:3]
    if kind == "number":
        model, labels = made(model_class=BertRegressor), ()
    elif kind in ("bilstm", "mean"):
        reads = {"bilstm": {"bilstm": True}, "mean": {"pooling": "mean"}}[kind]
        model, texts = made(num_classes=3, **reads), TEXTS[2:3]
    model.multi_label = kind == "several"
    for found in explained(model, labels, texts):
        total = sum(word.attribution for word in found.words)
        difference = found.score - found.baseline
        assert abs(difference) > 0.01
        assert total == pytest.approx(difference, rel=0.01)
    model.multi_label = False


def test_a_steep_way_is_cut_until_all_adds_up(tmp_path, monkeypatch):
    model = made(config=dataclasses.replace(CONFIG, initializer_range=2.0), num_classes=3)
    texts = [("a0 b0 c0 d0", None), ("d0 d1", None)]

    def worst_rest():
        found = explained(model, LABELS, texts)
        return max(abs(one.rest / (one.score - one.baseline)) for one in found), found

    monkeypatch.setattr("bert_tf.results.explanation._MOST_PIECES", 1)
    rest, found = worst_rest()
    assert rest > 0.02
    write_explanations(str(tmp_path / "a.html"), found, "")
    assert " given to no word · id " in (tmp_path / "a.html").read_text()
    monkeypatch.undo()
    rest, found = worst_rest()
    assert rest <= 0.0101
    write_explanations(str(tmp_path / "a.html"), found, "")
    assert " given to no word" not in (tmp_path / "a.html").read_text()


def test_scores_and_words_of_a_pair(classifier):
    (found,) = explained(classifier, LABELS, TEXTS[2:3])
    ids = TOKENIZER.tokenize(["a0 b0", "c0 d0 e0"]).to_list()
    row = [TOKENIZER.cls_id, *ids[0], TOKENIZER.sep_id, *ids[1], TOKENIZER.sep_id]
    types = [0] * 4 + [1] * 4

    def log_odds(tokens, at):
        rows = {
            "input_word_ids": tf.constant([tokens]),
            "input_mask": tf.ones([1, 8], tf.int32),
            "input_type_ids": tf.constant([types]),
        }
        shares = tf.nn.softmax(classifier(rows, training=False))[0].numpy()
        return np.log(shares[at] / (1 - shares[at])), shares

    _, shares = log_odds(row, 0)
    at = int(shares.argmax())
    special = (TOKENIZER.cls_id, TOKENIZER.sep_id)
    masked = [token if token in special else TOKENIZER.mask_id for token in row]
    assert found.explained == LABELS[at]
    assert found.score == pytest.approx(log_odds(row, at)[0], abs=1e-4)
    assert found.baseline == pytest.approx(log_odds(masked, at)[0], abs=1e-4)
    assert [(word.text, word.start, word.end) for word in found.words] == [
        (0, 0, 2), (0, 3, 5), (1, 0, 2), (1, 3, 5), (1, 6, 8)
    ]  # fmt: skip


def test_a_word_that_cannot_matter_is_given_nothing():
    model = made(5, num_classes=2)
    table = model.encoder.embeddings.word_embeddings
    values = table.numpy()
    place = TOKENIZER.tokenize(["b0"]).to_list()[0][0]
    values[place] = values[TOKENIZER.mask_id]  # as if it were not known
    table.assign(values)
    (found,) = explained(model, ("x", "y"), [("a0 b0 c0", None)])
    shares = [abs(word.attribution) for word in found.words]
    assert shares[1] < 1e-6 < min(shares[0], shares[2])


def test_what_was_cut_has_no_words_and_pieces_are_joined(classifier):
    texts = [("a0 " * 40, None), TEXTS[3], ("a0s", None)]
    cut, pair, joined = explained(classifier, LABELS, texts, length=12)
    assert [word.start for word in cut.words] == [3 * number for number in range(10)]
    assert {word.text for word in pair.words} == {0, 1} and len(pair.words) == 9
    pieces = TOKENIZER.tokenize(["a0s"]).to_list()[0]
    assert len(pieces) == 2 and [(w.start, w.end) for w in joined.words] == [(0, 3)]


def test_a_page_and_lines(tmp_path):
    bad = "<script>alert('\"&')</script>"
    text = f"{bad} \u00e9t\u00e9 good"
    start = len(bad) + 1
    words = [Word(0, start, start + 5, -0.25), Word(0, start + 6, start + 10, 1.5)]
    found = [Explanation(bad, (text, bad), bad, 2.0, 0.75, words)]
    write_explanations(str(tmp_path / "a.html"), found, bad)
    content = (tmp_path / "a.html").read_text()
    page = Page(content)
    assert "script" not in page.tags and page.text.count(bad) == 6
    assert not page.handlers
    assert (
        "<span class='against' style='--share:0.11' title='-0.250'>\u00e9t\u00e9</span>" in content
    )
    assert "<span class='for' style='--share:0.65' title='+1.500'>good</span>" in content
    assert "color-scheme: light dark" in content
    write_explanations(str(tmp_path / "a.jsonl"), found, "")
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    values = json.loads(line)
    assert (values["score"], values["baseline"], values["id"]) == (2.0, 0.75, bad)
    assert [word["word"] for word in values["words"]] == ["\u00e9t\u00e9", "good"]
