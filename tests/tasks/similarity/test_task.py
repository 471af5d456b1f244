"""The similarity task: losses equal plain loops, and scores equal a plain search."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.readers.examples import SimilarityExample
from bert_tf.tasks.similarity.losses import CosineError, CosineOrder, InBatchNegatives
from bert_tf.tasks.similarity.task import SimilarityTask, read_similarity
from bert_tf.tasks.task import evaluate, predict
from tests.finetuning.small_tasks import (
    CONFIG,
    TOKENIZER,
    examples_of,
    inference,
    make_task,
    random_text,
)

RNG = np.random.default_rng(0)


def directions(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


# === Losses ===


def in_batch_loss_by_loop(labels, vectors, scale, both_ways):
    """Computes the loss by plain loops: each anchor's text against texts not paired with it."""
    vectors = directions(vectors)
    positives = {(anchor, own) for anchor, own, *_ in labels.tolist()}
    positives |= {(number, number) for number in labels.ravel().tolist()}
    losses = []
    for (anchor, own, *_), texts in zip(labels, vectors, strict=True):
        negatives, reverse_negatives = [], []
        for row, column in np.ndindex(labels.shape):
            if column and (anchor, labels[row, column]) not in positives:
                negatives.append(texts[0] @ vectors[row, column])
            if not column and (labels[row, 0], own) not in positives:
                reverse_negatives.append(texts[1] @ vectors[row, 0])
        score = texts[0] @ texts[1]
        losses_by_direction = [
            np.exp(scale * (np.array(others) - score)).sum()
            for others in (negatives, reverse_negatives)
        ]
        losses.append(np.log1p(losses_by_direction[: 1 + both_ways]).mean())
    return np.mean(losses)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("texts", [2, 3])
def test_in_batch_negatives_loss_equals_plain_loop(texts, both_ways):
    vectors = RNG.normal(size=(7, texts, 5)).astype(np.float32)
    text_ids = np.arange(7 * texts).reshape(7, texts)
    text_ids[3, 0] = text_ids[1, 0]  # duplicate anchor
    text_ids[5, 1] = text_ids[2, 1]  # a text that belongs to two anchors
    text_ids[6, texts - 1] = text_ids[0, 0]  # a text that is another's anchor
    text_ids[4, :2] = text_ids[0, 1::-1]  # a pair in the other order
    text_ids[3, 1] = text_ids[2, 1]  # row 1 excludes it, because row 3 has the same anchor
    expected = in_batch_loss_by_loop(text_ids, vectors, 4.0, both_ways)
    loss = InBatchNegatives(4.0, both_ways)(text_ids, vectors)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    without_duplicates = InBatchNegatives(4.0, both_ways)(
        np.arange(7 * texts).reshape(7, -1), vectors
    )
    assert abs(float(without_duplicates) - expected) > 0.01


def test_score_losses_equal_plain_loops():
    vectors = RNG.normal(size=(6, 2, 5)).astype(np.float32)
    scores = np.array([0.0, 1.0, 0.5, 0.5, 0.2, 0.9], np.float32)
    cosines = [float(a @ b) for a, b in directions(vectors)]
    total = 1.0 + sum(
        np.exp(3.0 * (cosines[i] - cosines[j]))
        for i in range(6)
        for j in range(6)
        if scores[i] < scores[j]
    )
    assert float(CosineOrder(3.0)(scores, vectors)) == pytest.approx(np.log(total), rel=1e-5)
    error = np.mean((np.array(cosines) - scores) ** 2)
    assert float(CosineError()(scores, vectors)) == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize("loss", [InBatchNegatives(3.0, both_ways=True), CosineOrder(3.0)])
def test_loss_config_roundtrip(loss):
    restored = keras.losses.deserialize(keras.losses.serialize(loss))
    assert restored.get_config() == loss.get_config() and restored.scale == 3.0


# === The task ===


def pairs(count, texts=2, scored=False):
    rng = np.random.default_rng(count)
    return examples_of(
        SimilarityExample(
            f"id{number}",
            tuple(random_text(rng, 9) for _ in range(texts)),
            round(float(rng.random()), 3) if scored else None,
        )
        for number in range(count)
    )


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    encoder = BertEncoder(CONFIG, pooler=False)
    encoder.sentence_embedding = SentenceEmbedding("mean", normalize=False, max_seq_length=32)
    return encoder


@functools.cache
def traced(model):
    """Returns the model on one row of ids without padding, traced once for all lengths."""

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)], autograph=False)
    def states(ids):
        inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
        return model(inputs)["sequence_output"]

    return states


def vector_of(model, text):
    ids = tf.constant([[2, *TOKENIZER.tokenize(tf.constant([text])).values.numpy(), 3]])
    return directions(traced(model)(ids).numpy()[0].mean(0))


def ranks(values):
    return [sum((other < one) + (other == one) / 2 for other in values) for one in values]


def test_scored_pairs_are_evaluated_by_cosine(model):
    examples = pairs(9, scored=True)
    task = SimilarityTask("made up", examples, {"dev": examples}, {"test": examples})
    cosines = [
        vector_of(model, item.texts[0]) @ vector_of(model, item.texts[1]) for item in examples.items
    ]
    evaluation = evaluate(task, inference(model), "dev")
    expected = np.corrcoef(ranks(cosines), ranks([item.label for item in examples.items]))[0, 1]
    assert evaluation.scores["spearman"] == pytest.approx(expected)
    assert evaluation.scores.keys() == {"spearman", "pearson"} and not evaluation.constant
    assert evaluation.scores.keys() == set(task.logged_scores)
    assert len(evaluation.mistakes) > 3
    records = list(predict(task, inference(model), "test", {}))
    np.testing.assert_allclose([r["prediction"] for r in records], cosines, atol=1e-5)


def test_pairs_without_scores_are_evaluated_as_search(model):
    items = pairs(12, texts=3).items
    items[4] = SimilarityExample("again", (items[0].texts[0], *items[4].texts[1:]), None)
    items[7] = SimilarityExample("also", (items[7].texts[0], items[2].texts[1], "a0"), None)
    items[8] = SimilarityExample("turned", (items[3].texts[1], items[3].texts[0], "b0"), None)
    items[9] = SimilarityExample("itself", (items[9].texts[0],) * 2 + ("c0",), None)
    task = SimilarityTask("made up", examples_of(items), {"dev": examples_of(items)}, {})
    assert task.headline == "ndcg@10"
    evaluation = evaluate(task, inference(model), "dev")
    documents = {text: vector_of(model, text) for item in items for text in item.texts[1:]}
    gains, firsts = [], []
    for query in dict.fromkeys(item.texts[0] for item in items):
        own = {item.texts[1] for item in items if item.texts[0] == query}
        vector = vector_of(model, query)
        others = [text for text in documents if text != query or query in own]
        ranked = sorted(others, key=lambda text: -(documents[text] @ vector))
        best = sum(1 / np.log2(rank + 2) for rank in range(len(own)))
        hits = [rank for rank, text in enumerate(ranked) if text in own]
        gains.append(sum(1 / np.log2(rank + 2) for rank in hits if rank < 10) / best)
        firsts.append(hits[0] == 0)
    assert evaluation.scores["ndcg@10"] == pytest.approx(np.mean(gains))
    assert evaluation.scores["accuracy"] == pytest.approx(np.mean(firsts)) and not all(firsts)
    assert len(evaluation.mistakes) == firsts.count(False)
    assert evaluation.scores.keys() == set(task.logged_scores)
    assert all(mistake.predicted != mistake.texts[""] for mistake in evaluation.mistakes)
    (record, *_) = predict(task, inference(model), "dev", {})
    third = vector_of(model, items[0].texts[0]) @ vector_of(model, items[0].texts[2])
    assert record["third"] == pytest.approx(third, abs=1e-5)


def test_prefixes_precede_the_texts(model):
    """A text used as query and document has two vectors; labels ignore the prefixes."""
    items = pairs(12).items
    items[4] = SimilarityExample("turned", items[0].texts[::-1], None)
    embedding = SentenceEmbedding("mean", False, 32, "a1 b1 ", "c3 ")
    task = SimilarityTask(
        "m", examples_of(items), {"dev": examples_of(items)}, {}, embedding=embedding
    )
    records = predict(task, inference(model), "dev", {})
    for item, record in zip(items, records, strict=True):
        one, other = (
            vector_of(model, prefix + text)
            for prefix, text in zip(("a1 b1 ", "c3 "), item.texts, strict=True)
        )
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert record["prediction"] == pytest.approx(cosine, abs=1e-5)
    mistakes = evaluate(task, inference(model), "dev").mistakes
    texts = {text for item in items for text in item.texts}
    assert mistakes and all({*m.texts.values(), m.expected, m.predicted} <= texts for m in mistakes)
    rows, labels = next(task.training_examples(TOKENIZER, 32).sorted_batches(1000)[0])
    order, labels = rows["example_index"].numpy().argsort(), labels.numpy()
    firsts = [TOKENIZER.vocab[i] for i in rows["input_word_ids"][0, :, 1].numpy()]
    assert firsts == ["a1", "c3"]
    assert labels[order[4]].tolist() == labels[order[0]].tolist()[::-1]


def test_constant_model_is_detected():
    keras.utils.set_random_seed(3)
    constant_model = BertEncoder(CONFIG, pooler=False)
    constant_model.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=32)
    norm = constant_model.blocks[-1].output_layer_norm
    norm.gamma.assign(0 * norm.gamma)
    norm.beta.assign(0 * norm.beta + 1)
    for examples in (pairs(6, scored=True), pairs(6)):
        task = SimilarityTask("made up", None, {"dev": examples}, {})
        assert evaluate(task, inference(constant_model), "dev").constant is True


@pytest.mark.parametrize("scores", [(3e38, -3e38, 0.0), (2.0, 1.0, 1.5)])
def test_training_scores_are_scaled_to_0_to_1(scores):
    texts = pairs(3).items
    items = [dataclasses.replace(i, label=s) for i, s in zip(texts, scores, strict=True)]
    examples = SimilarityTask("m", examples_of(items), {}, {}).training_examples(TOKENIZER, 32)
    rows, labels = next(examples.sorted_batches(1000)[0])
    assert labels.numpy()[rows["example_index"].numpy().argsort()].tolist() == [1.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("scored", "options", "message"),
    [
        (True, {"similarity_loss": "one_way"},
         r"expected one of cosent, cosine for texts with scores \(--label_column\)"),
        (False, {"similarity_loss": "cosine"},
         r"expected one of one_way, both_ways for texts without scores \(--label"),
        (False, {"metric": "spearman"}, "--metric=spearman is not available for made up"),
    ],
)  # fmt: skip
def test_options_that_do_not_match_the_pairs_raise_error(scored, options, message):
    with pytest.raises(ValueError, match=message):
        make_task("similarity", "made up", pairs(4, scored=scored), **options)


ALL_POSITIVE = "Every text belongs to every anchor, so there is nothing to learn"


@pytest.mark.parametrize(
    ("rows", "scores", "message"),
    [
        (["a0 b0", "a1 b1"], [3.0, 3.0], "Every pair has the score 3, so there is nothing to"),
        (["a0 b0", "a1 b1"], [3.0, 4.0], None),
        (["a0 b0", "a0 b1"], None, ALL_POSITIVE),
        (["a0 b0", "a1 b0"], None, ALL_POSITIVE),
        (["a0 b0", "a0 b1", "a1 b1"], None, None),
        (["a0 b0 c0", "a0 b1 c1"], None, None),
    ],
)
def test_uninformative_data_cause_a_warning(rows, scores, message):
    items = [
        SimilarityExample("", tuple(row.split()), score)
        for row, score in zip(rows, scores or [None] * len(rows), strict=True)
    ]
    task = SimilarityTask("m", examples_of(items), {}, {})
    _, *notes = task.training_summary(task.training_examples(TOKENIZER, 32))
    assert len(notes) == (message is not None) and all(n.startswith(message) for n in notes)


# === Custom tables ===

TABLE = "id\ta\tb\tc\tscore\nx\tA cat.\tOne cat.\tA dog.\t4.5\ny\tHe ran.\tHe ran on.\tNo.\t-1\n"


@pytest.fixture
def path(write):
    return write("t.tsv", TABLE)


@pytest.mark.parametrize(
    ("others", "label", "texts", "labels"),
    [
        (["b"], "score", ("A cat.", "One cat."), [4.5, -1.0]),
        (["b"], None, ("A cat.", "One cat."), [None, None]),
        (["b", "c"], None, ("A cat.", "One cat.", "A dog."), [None, None]),
    ],
)
def test_similarity_table(path, others, label, texts, labels):
    found = read_similarity(path, text_columns=["a", *others], label_column=label, id_column="id")
    assert found.items[0].texts == texts
    assert [item.label for item in found.items] == labels
    assert [item.id for item in found.items] == ["x", "y"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_columns": ["a", "b", "c"], "label_column": "score"},
         "The column 'score' contains scores, which require two text columns, but there are "
         "more: a, b, c. Use two text columns or remove the label column"),
        ({"label_column": "c"}, "line 2: expected a finite number in column 'c', got 'A dog.'"),
        ({"text_columns": ["a", "d"]}, "line 1: expected one column 'd', got none"),
    ],
)  # fmt: skip
def test_invalid_similarity_columns_raise_error(path, changes, message):
    with pytest.raises(ValueError, match=message):
        read_similarity(path, **{"text_columns": ["a", "b"], **changes})
