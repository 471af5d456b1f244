"""Entities and tags equal plain loops, fine-tuning's predictions and literals."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.evaluation.evaluation import Inference
from bert_tf.modeling import BertFeatureTagger, BertTokenClassifier
from bert_tf.readers.examples import ExampleSet, TaggedExample
from bert_tf.tasks.tagging import entities as iob
from bert_tf.tasks.tagging.reader import read_tagging
from bert_tf.tasks.tagging.rows import tagging_examples
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import predict

from .conftest import SMALL, VOCAB, ask, features_of, make, serve, texts_of

IOB = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PLAIN = ("noun", "verb", "O", "stop")
MIXED = ("O", "I-PER", "PER", "B-", "B-LOC")
BIOES = ("O", *(f"{prefix}-{kind}" for kind in ("LOC", "PER") for prefix in "BIES"))
BILOU = ("O", *(f"{prefix}-{kind}" for kind in ("LOC", "PER") for prefix in "BILU"))


@pytest.fixture(scope="module")
def tagger():
    model = make(BertTokenClassifier, num_classes=len(IOB))
    model.labels = IOB
    # All tags have about the same probability.
    logits = model(features_of([list(range(5, 21))]))
    model.token_classifier.bias.assign(-tf.reduce_mean(logits, [0, 1]))
    return model


def labeled_model(labels):
    """Returns a model with labels for ``by_word``."""
    model = BertTokenClassifier(SMALL, num_classes=len(labels))
    model.labels = labels
    return model


def by_word(model, tags, max_seq_length=16):
    """Returns a stub with a logit of 2 for the tag of each piece and 0 for others."""
    tag_ids = [model.labels.index(tags.get(piece, model.labels[0])) for piece in VOCAB]

    def call(rows):
        row_tag_ids = tf.gather(tf.constant(tag_ids), rows["input_word_ids"])
        return tf.one_hot(row_tag_ids, len(model.labels)) * 2.0

    return serve(model, max_seq_length, call=call)


PADDING = {"types": b"", "entities": b"", "byte_starts": -1, "byte_ends": -1, "scores": 0}


def test_entities_equal_predict_for_texts_of_any_length(tagger, tokenizer, tmp_path):
    rng = np.random.default_rng(9)
    words = ["the", "cat", "unables", "dog", "!", "sat", "mat"]
    long = " ".join(rng.choice(words, 200))
    texts = [long, *(f"\u200b{one}\u200b" for one in words), "the \ufeffcat\x0bdog\u200b on"]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "spans": []}) + "\n" for text in texts))
    columns = {"text_columns": ["text"], "label_column": "spans", "character_spans": True}
    items = read_tagging(str(path), labels=IOB, **columns).items
    task = TaggingTask("tags", None, {}, {"test": ExampleSet(items, (), [])}, labels=IOB)
    inference = Inference(tagger, tokenizer, max_seq_length=24, batch_size=5)
    records = predict(task, inference, "test", {})
    outputs = ask("serving_default", serve(tagger, 24), text=texts)
    counts = outputs["counts"]
    assert counts[0] > 20 and sum(counts[1:]) > 1 and not outputs["truncated"].any()
    for row, (text, count, record) in enumerate(zip(texts, counts, records, strict=True)):
        starts, ends = (outputs[f"byte_{key}"][row, :count] for key in ("starts", "ends"))
        expected = record["entities"]
        for start, end, one in zip(starts, ends, expected, strict=True):
            before, within = text.encode()[:start].decode(), text.encode()[start:end].decode()
            assert (len(before), within) == (one["start"], text[one["start"] : one["end"]])
        assert texts_of(outputs["types"][row, :count]) == [one["label"] for one in expected]
        scores = [one["score"] for one in expected]
        np.testing.assert_allclose(outputs["scores"][row, :count], scores, atol=1e-5)
        for key, padding in PADDING.items():
            assert (outputs[key][row, count:] == padding).all()


@pytest.mark.parametrize("labels", [BIOES, BILOU])
def test_bioes_and_bilou_entities_equal_plain_loop(labels):
    words = ["the", "cat", "dog", "sat", "on", "mat", "un", "a"]
    rng = np.random.default_rng(7)
    seen = set()
    for _ in range(3):
        tags = dict(zip(words, rng.choice(labels, len(words)).tolist(), strict=True))
        texts = [rng.choice(words, 12).tolist() for _ in range(6)]
        model = labeled_model(labels)
        outputs = ask(
            "serving_default", by_word(model, tags), text=[" ".join(text) for text in texts]
        )
        for row, text in enumerate(texts):
            (expected,) = iob.find_all([[tags[word] for word in text]])
            found = [" ".join(text[start:end]) for _, start, end in expected]
            kept = slice(outputs["counts"][row])
            assert texts_of(outputs["entities"][row, kept]) == found
            assert texts_of(outputs["types"][row, kept]) == [kind for kind, *_ in expected]
            seen |= {end - start for _, start, end in expected}
    assert len(seen) > 1


@pytest.mark.parametrize(
    "labels, tags, expected",
    [
        # B- starts an entity, I- continues it; another type starts a new one, and O ends it.
        (
            IOB,
            {"the": "B-PER", "cat": "I-PER", "dog": "B-PER", "sat": "I-LOC", "on": "O"},
            [("PER", "The cat"), ("PER", "dog"), ("LOC", "sat"), ("PER", "the cat")],
        ),
        # IOB1: I- also starts an entity.
        (IOB, {"the": "I-PER", "cat": "I-PER"}, [("PER", "The cat"), ("PER", "the cat")]),
        (
            PLAIN,
            {"the": "O", "cat": "noun", "dog": "noun", "sat": "verb", "on": "O", ".": "stop"},
            [("noun", "cat dog"), ("verb", "sat"), ("noun", "cat"), ("stop", ".")],
        ),
        (("O", "O", "O"), {}, []),
        (("x", "y"), {"on": "y"}, [("x", "The cat dog sat"), ("y", "on"), ("x", "the cat.")]),
        # PER is read as I-PER; "B-" has no type after the prefix, so it is itself a type.
        (
            MIXED,
            {"the": "I-PER", "cat": "PER", "dog": "B-LOC", "sat": "B-", "on": "B-"},
            [("PER", "The cat"), ("LOC", "dog"), ("B-", "sat on"), ("PER", "the cat")],
        ),
    ],
)
def test_entities_of_schemes_equal_literals(labels, tags, expected):
    model = labeled_model(labels)
    outputs = ask("serving_default", by_word(model, tags), text=["The cat dog sat on the cat."])
    assert texts_of(outputs["entities"]) == [[text for _, text in expected] or [""]]
    assert texts_of(outputs["types"]) == [[kind for kind, _ in expected] or [""]]
    assert outputs["counts"].tolist() == [len(expected)]


def test_byte_offsets_refer_to_the_request(tagger):
    served = by_word(tagger, {"cat": "B-PER", "dog": "I-PER", "un": "B-LOC"})
    texts = [
        "Thé  Càt\u0301\u200b  dog\u00ad .".encode(),
        b"\xff\xfecat\xff \xc3\xc3dog\xff\xff sat",
        b"unable\xff##s cat",
    ]
    outputs = ask("serving_default", served, text=texts)
    assert texts_of(outputs["entities"]) == [["Càt\u0301\u200b  dog", ""], ["cat dog", ""],
                                             ["unable", "cat"]]  # fmt: skip
    assert outputs["counts"].tolist() == [1, 1, 2]
    assert outputs["byte_starts"].tolist() == [[6, -1], [2, -1], [0, 11]]
    assert outputs["byte_ends"].tolist() == [[20, -1], [12, -1], [6, 14]]


def test_word_tags_equal_fine_tuning(tagger, tokenizer, tmp_path):
    rng = np.random.default_rng(4)
    # Words with no pieces, [UNK], several pieces, and several words.
    words = ["the", "cat", "\u200b", "\u6f22", "unables", "a.b", "dog", "!"]
    sentences = [rng.choice(words, rng.integers(1, 9)).tolist() for _ in range(8)]
    items = [TaggedExample(str(n), tuple(words), None, n) for n, words in enumerate(sentences)]
    task = TaggingTask("tags", None, {}, {"test": ExampleSet(items, (), [])}, labels=IOB)
    inference = Inference(tagger, tokenizer, max_seq_length=24, batch_size=5)
    (path,) = task.write_predictions(inference, "test", str(tmp_path), {})
    expected = [
        [line.rsplit(" ", 1)[1] for line in sentence.split("\n")]
        for sentence in pathlib.Path(path).read_text().split("\n\n")[:-1]
    ]
    width = max(map(len, sentences))
    padded = [sentence + [""] * (width - len(sentence)) for sentence in sentences]
    outputs = ask("words", serve(tagger, 24), words=padded)
    assert texts_of(outputs["tags"]) == [tags + [""] * (width - len(tags)) for tags in expected]
    assert outputs["counts"].tolist() == list(map(len, sentences))
    assert len({tag for tags in expected for tag in tags}) > 2
    assert not outputs["truncated"].any()
    is_word = outputs["tags"] != b""
    assert (outputs["scores"][is_word] > 0.2).all() and (outputs["scores"][~is_word] == 0).all()


def test_word_tags_equal_literals(tagger):
    served = by_word(tagger, {"cat": "B-PER", "un": "I-LOC", "[UNK]": "I-PER"}, max_seq_length=7)
    words = [
        ["cat", "unables", "cat", "on"],  # 1 + 3 + 1 pieces, and one in a second window
        ["", "cat", "", b"\xff"],
        ["a", "a", "a", "unables"],  # only the first piece fits
        ["", "", "", ""],
    ]
    outputs = ask("words", served, words=words)
    assert texts_of(outputs["tags"]) == [
        ["B-PER", "I-LOC", "B-PER", "O"],
        ["", "B-PER", "", "I-PER"],
        ["O", "O", "O", "I-LOC"],
        ["", "", "", ""],
    ]
    assert outputs["counts"].tolist() == [4, 2, 4, 0]
    assert not outputs["truncated"].any()
    score = np.exp(2) / (np.exp(2) + 4)
    np.testing.assert_allclose(outputs["scores"][0], [score] * 4, atol=1e-6)


def test_word_tags_on_frozen_features_equal_training(tokenizer):
    model = make(BertFeatureTagger, num_classes=len(IOB), variant="last", lstm_units=4)
    model.labels = IOB
    # A word with several word-initial pieces, and a sentence with several windows.
    words = [["the", "[a]", "cats"], ["unable", "on", "the.", "mat", "!", "dog"]]
    rows = tagging_examples(tokenizer, words, max_seq_length=8)
    expected = [[""] * len(sentence) for sentence in words]
    for batch in rows.evaluation_batches(4):
        best = model(batch).numpy().argmax(-1)
        for row, column in np.argwhere(batch["word_index"].numpy() >= 0):
            sentence, word = batch["example_index"][row], batch["word_index"][row, column]
            expected[sentence][word] = IOB[best[row, column]]
    width = max(map(len, words))
    padded = [[*sentence, *[""] * (width - len(sentence))] for sentence in words]
    answer = ask("words", serve(model, 8), words=padded)
    found = [[tag for tag in tags if tag] for tags in texts_of(answer["tags"])]
    assert found == expected and len({tag for tags in found for tag in tags}) > 1
