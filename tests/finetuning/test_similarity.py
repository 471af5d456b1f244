"""Models of embeddings: the losses' twins, the scores, and a run from a table to what it serves."""

import csv
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api, export
from bert_tf.finetuning.run import run
from bert_tf.interchange import conversion
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.readers.examples import SimilarityExample
from bert_tf.tasks.similarity_losses import (
    CosineError,
    CosineOrder,
    InBatchNegatives,
    Matryoshka,
)
from bert_tf.tasks.similarity_task import SimilarityTask
from bert_tf.tasks.task import TrainingOptions

from .small_runs import WORDS, settings
from .small_tasks import CONFIG, TOKENIZER, examples_of, inference, random_text

RNG = np.random.default_rng(0)


def directions(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


# === Losses ===


def in_batch_twin(labels, vectors, scale, both_ways):
    """A plain loop: of each anchor its own text among those that are not right for it."""
    vectors = directions(vectors)
    count, texts = labels.shape
    anchors = list(range(count))
    candidates = [(row, place) for place in range(1, texts) for row in range(count)]

    def log_sum(own, others):
        return np.log(np.exp(own) + np.sum(np.exp(others))) - own

    losses = []
    for i in anchors:
        others = []
        for row, place in candidates:
            if (row, place) == (i, 1):
                continue
            is_right = labels[row, place] in (labels[i, 0], labels[i, 1])
            is_right |= place == 1 and labels[row, 0] == labels[i, 0]
            if not is_right:
                others.append(scale * vectors[i, 0] @ vectors[row, place])
        losses.append(log_sum(scale * vectors[i, 0] @ vectors[i, 1], np.array(others)))
    if both_ways:
        for i in anchors:
            others = [
                scale * vectors[i, 1] @ vectors[row, 0]
                for row in anchors
                if labels[row, 0] != labels[i, 0] and labels[row, 1] != labels[i, 1]
            ]
            own = scale * vectors[i, 0] @ vectors[i, 1]
            losses[i] = (losses[i] + log_sum(own, np.array(others))) / 2
    return np.mean(losses)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("texts", [2, 3])
def test_in_batch_negatives_equal_a_plain_loop(texts, both_ways):
    vectors = RNG.normal(size=(7, texts, 5)).astype(np.float32)
    numbers = np.arange(7 * texts).reshape(7, texts)
    numbers[3, 0] = numbers[1, 0]  # an anchor twice
    numbers[5, 1] = numbers[2, 1]  # a text that belongs to two anchors
    numbers[6, texts - 1] = numbers[0, 0]  # a text that is another's anchor
    expected = in_batch_twin(numbers, vectors, 4.0, both_ways)
    found = InBatchNegatives(4.0, both_ways)(numbers, vectors)
    assert float(found) == pytest.approx(expected, rel=1e-5)
    without_care = InBatchNegatives(4.0, both_ways)(np.arange(7 * texts).reshape(7, -1), vectors)
    assert abs(float(without_care) - expected) > 0.01


@pytest.mark.parity
def test_in_batch_negatives_without_duplicates_are_torchs_cross_entropy():
    torch = pytest.importorskip("torch")
    vectors = RNG.normal(size=(6, 3, 8)).astype(np.float32)
    anchors, own, wrong = torch.nn.functional.normalize(torch.tensor(vectors), dim=-1).unbind(1)
    target, cross_entropy = torch.arange(6), torch.nn.functional.cross_entropy
    one_way = cross_entropy(20 * anchors @ torch.cat([own, wrong]).T, target)
    both = (one_way + cross_entropy(20 * own @ anchors.T, target)) / 2
    for both_ways, expected in ((False, one_way), (True, both)):
        found = InBatchNegatives(both_ways=both_ways)(np.arange(18).reshape(6, 3), vectors)
        assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_losses_of_scores_equal_a_plain_loop():
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
def test_losses_come_back_from_their_configs(loss):
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config() and again.scale == 3.0
    nested = Matryoshka(loss, [2])
    again = keras.losses.deserialize(keras.losses.serialize(nested))
    assert again.get_config() == nested.get_config() and again.loss.scale == 3.0


def test_matryoshka_is_the_sum_of_the_losses_of_the_first_numbers():
    vectors = RNG.normal(size=(6, 2, 8)).astype(np.float32)
    numbers = np.arange(12).reshape(6, 2)
    expected = sum(in_batch_twin(numbers, vectors[..., :size], 4.0, False) for size in (8, 5, 2))
    found = Matryoshka(InBatchNegatives(4.0), [5, 2])
    assert float(found(numbers, vectors)) == pytest.approx(expected, rel=1e-5)
    assert found.compares_rows and not Matryoshka(CosineError(), [5]).compares_rows


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
    found = BertEncoder(CONFIG, pooler=False)
    found.sentence_embedding = SentenceEmbedding("mean", normalize=False, max_seq_length=32)
    return found


def vector_of(model, text):
    ids = tf.constant([[2, *TOKENIZER.tokenize(tf.constant([text])).values.numpy(), 3]])
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    return directions(model(inputs)["sequence_output"].numpy()[0].mean(0))


def ranks(values):
    return [sum((other < one) + (other == one) / 2 for other in values) for one in values]


def test_scored_pairs_are_judged_by_their_cosines(model):
    examples = pairs(9, scored=True)
    task = SimilarityTask("made up", examples, {"dev": examples}, {"test": examples})
    cosines = [
        vector_of(model, item.texts[0]) @ vector_of(model, item.texts[1]) for item in examples.items
    ]
    how = inference(model)
    found = task.evaluate(how, "dev")
    expected = np.corrcoef(ranks(cosines), ranks([item.label for item in examples.items]))[0, 1]
    assert found.scores["spearman"] == pytest.approx(expected)
    assert found.scores.keys() == {"spearman", "pearson"} and not found.constant
    assert len(found.mistakes) > 3
    records = list(task.predict(how, "test", {}))
    np.testing.assert_allclose([r["prediction"] for r in records], cosines, atol=1e-5)


def test_what_belongs_together_is_judged_as_a_search(model):
    items = pairs(12, texts=3).items
    items[4] = SimilarityExample("again", (items[0].texts[0], *items[4].texts[1:]), None)
    items[7] = SimilarityExample("also", (items[7].texts[0], items[2].texts[1], "a0"), None)
    task = SimilarityTask("made up", examples_of(items), {"dev": examples_of(items)}, {})
    assert task.headline == "ndcg@10"
    how = inference(model)
    found = task.evaluate(how, "dev")
    documents = {text: vector_of(model, text) for item in items for text in item.texts[1:]}
    gains, firsts = [], []
    for query in dict.fromkeys(item.texts[0] for item in items):
        own = {item.texts[1] for item in items if item.texts[0] == query}
        asked = vector_of(model, query)
        ranked = sorted(documents, key=lambda text: -(documents[text] @ asked))
        best = sum(1 / np.log2(rank + 2) for rank in range(len(own)))
        found_at = [rank for rank, text in enumerate(ranked) if text in own]
        gains.append(sum(1 / np.log2(rank + 2) for rank in found_at if rank < 10) / best)
        firsts.append(found_at[0] == 0)
    assert found.scores["ndcg@10"] == pytest.approx(np.mean(gains))
    assert found.scores["accuracy"] == pytest.approx(np.mean(firsts)) and not all(firsts)
    assert len(found.mistakes) == firsts.count(False)
    assert found.interval("ndcg@10") is not None
    (record, *_) = task.predict(how, "dev", {})
    third = vector_of(model, items[0].texts[0]) @ vector_of(model, items[0].texts[2])
    assert record["third"] == pytest.approx(third, abs=1e-5)


def test_texts_are_read_behind_their_prefixes(model):
    """A text that both asks and may be found has two vectors; labels are of the texts alone."""
    items = pairs(12).items
    items[4] = SimilarityExample("turned", items[0].texts[::-1], None)
    embedding = SentenceEmbedding("mean", False, 32, "a1 b1 ", "c3 ", dims=7)
    task = SimilarityTask(
        "m", examples_of(items), {"dev": examples_of(items)}, {}, embedding=embedding
    )
    found = list(task.predict(inference(model), "dev", {}))
    for item, record in zip(items, found, strict=True):
        one, other = (
            vector_of(model, prefix + text)[:7]
            for prefix, text in zip(("a1 b1 ", "c3 "), item.texts, strict=True)
        )
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert record["prediction"] == pytest.approx(cosine, abs=1e-5)
    mistakes = task.evaluate(inference(model), "dev").mistakes
    texts = {text for item in items for text in item.texts}
    assert mistakes and all({*m.texts.values(), m.expected, m.predicted} <= texts for m in mistakes)
    (rows, labels) = next(iter(task.training_examples(TOKENIZER, 32).evaluation_batches(12)))
    firsts = [TOKENIZER.vocab[i] for i in rows["input_word_ids"][0, :, 1].numpy()]
    assert firsts == ["a1", "c3"] and labels[4].numpy().tolist() == labels[0].numpy().tolist()[::-1]


def test_a_constant_model_is_named():
    keras.utils.set_random_seed(3)
    flat = BertEncoder(CONFIG, pooler=False)
    flat.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=32)
    norm = flat.blocks[-1].output_layer_norm
    norm.gamma.assign(0 * norm.gamma)
    norm.beta.assign(0 * norm.beta + 1)
    for examples in (pairs(6, scored=True), pairs(6)):
        task = SimilarityTask("made up", None, {"dev": examples}, {})
        assert task.evaluate(inference(flat), "dev").constant is True


@pytest.mark.parametrize(
    ("scored", "options", "sentence"),
    [
        (True, {"similarity_loss": "one_way"}, "the texts have scores .* one of cosent, cosine"),
        (False, {"similarity_loss": "cosine"}, "have no scores .* expected one of one_way, both"),
        (False, {"metric": "spearman"}, "--metric=spearman is no score of made up"),
        (False, {"bilstm": True}, "--bilstm is for a head, and a model of embeddings has none"),
    ],
)
def test_what_is_refused(scored, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SimilarityTask(
            "made up", pairs(4, scored=scored), {}, {}, training=TrainingOptions(**options)
        )


# === A run ===


@pytest.fixture(scope="module")
def run_dir(inputs, tmp_path_factory):
    """A run on pairs in two languages: each word of one stands for a word of the other."""
    folder = tmp_path_factory.mktemp("similarity")
    rng = np.random.default_rng(2)
    with open(folder / "pairs.jsonl", "w") as file:
        for _ in range(120):
            words = rng.choice(6, 3, replace=False)
            texts = (" ".join(WORDS[word + first] for word in words) for first in (0, 6))
            file.write(json.dumps(dict(zip("qd", texts, strict=True))) + "\n")
    run(
        settings(
            inputs, folder / "run", task="similarity", train_file=folder / "pairs.jsonl",
            dev_file=None, text_columns="q,d", label_column=None, learning_rate=1e-2,
            num_train_epochs=5, train_batch_size=16, dev_fraction=0.2,
        )
    )  # fmt: skip
    return folder / "run"


def test_a_run_learns_and_leaves_a_model_of_embeddings(run_dir, tmp_path):
    results = json.loads((run_dir / "results.json").read_text())
    assert results["headline"] == "ndcg@10" and results["scores"]["dev"]["ndcg@10"] > 0.8
    model = bert_tf.load(str(run_dir))
    assert model.sentence_embedding == SentenceEmbedding("mean", normalize=True, max_seq_length=16)
    with open(run_dir / "dev" / "dev.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    pairs = [json.loads(line) for line in (run_dir.parent / "pairs.jsonl").read_text().splitlines()]
    texts = [text for row in rows for text in pairs[int(row["id"])].values()]
    batch = model.preprocessor(texts)
    vectors = model.sentence_embedding(model(batch)["sequence_output"], batch["input_mask"])
    vectors = np.array(vectors).reshape(len(rows), 2, -1)
    cosines = (vectors[:, 0] * vectors[:, 1]).sum(1)
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], cosines, atol=1e-5)
    # A directory of sentence-transformers is made of it.
    conversion.convert(str(run_dir), str(tmp_path / "st"), "huggingface")
    assert (tmp_path / "st" / "modules.json").exists()
    again = bert_tf.load(str(tmp_path / "st"))
    assert again.sentence_embedding == model.sentence_embedding


def test_it_is_served_with_a_corpus_and_predicts(run_dir, tmp_path):
    texts, corpus = ["a good film", "the plot"], ["so so", "a film good", "was", "so so"]
    (tmp_path / "corpus.txt").write_text("\n".join(corpus) + "\n")
    output = str(tmp_path / "export" / "1")
    export.run(
        export.ExportSettings(str(run_dir), output, corpus=str(tmp_path / "corpus.txt"), nearest=2)
    )
    signatures = tf.saved_model.load(output).signatures
    assert set(signatures) == {"serving_default", "embed", "tokens", "similarity", "search"}
    pairs = [(text, other) for text in texts for other in corpus[:3]]
    records = api.predict(str(run_dir), pairs, verbose=False)
    cosines = np.reshape([record["prediction"] for record in records], (2, 3))
    similarity, searching = signatures["similarity"], signatures["search"]
    found = similarity(text=tf.constant(texts), others=tf.constant([corpus]))
    np.testing.assert_allclose(found["similarity"][:, :3], cosines, atol=1e-5)
    found = searching(text=tf.constant(texts))
    places = np.argsort(-cosines, axis=1)[:, :2]
    assert found["places"].numpy().tolist() == places.tolist()
    assert found["texts"].numpy().tolist() == [[corpus[n].encode() for n in row] for row in places]
    np.testing.assert_allclose(found["scores"], -np.sort(-cosines)[:, :2], atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row of others for each text"):
        similarity(text=tf.constant(texts), others=tf.constant([["a"], ["b"], ["c"]]))


# === Prefixes, a dense layer, fewer numbers ===


@pytest.fixture(scope="module")
def small_run(run_dir, inputs):
    """A run with all of them, and an accumulation of two parts."""
    folder = run_dir.parent / "small"
    run(
        settings(
            inputs, folder, task="similarity", train_file=run_dir.parent / "pairs.jsonl",
            dev_file=None, text_columns="q,d", label_column=None, learning_rate=1e-3,
            max_steps=3, gradient_accumulation_steps=2, query_prefix="film ",
            document_prefix="plot ", dense_size=8, matryoshka_dims="6,4",
        )
    )  # fmt: skip
    return folder


def test_a_run_keeps_prefixes_and_layer(small_run, inputs, tmp_path):
    model = bert_tf.load(str(small_run))
    expected = SentenceEmbedding("mean", True, 16, "film ", "plot ")
    assert model.sentence_embedding == expected and model.embedding_size == 8
    pairs = [("a good film", "so so"), ("was", "the plot")]

    def vectors(texts, size):
        found = np.array(model.embed(model.preprocessor(texts)))[:, :size]
        return directions(found)

    for size in (8, 4):
        given = {} if size == 8 else {"embedding_dims": 4}
        records = api.predict(str(small_run), pairs, verbose=False, **given)
        asked = vectors(["film " + one for one, _ in pairs], size)
        answers = vectors(["plot " + other for _, other in pairs], size)
        cosines = (asked * answers).sum(1)
        np.testing.assert_allclose([r["prediction"] for r in records], cosines, atol=1e-5)
    (tmp_path / "corpus.txt").write_text("so so\nthe plot\nwas good\n")
    given = {"corpus": str(tmp_path / "corpus.txt"), "nearest": 2, "embedding_dims": 4}
    export.run(export.ExportSettings(str(small_run), str(tmp_path / "1"), **given))
    search = tf.saved_model.load(str(tmp_path / "1")).signatures["search"]
    found = search(text=tf.constant([one for one, _ in pairs]))
    corpus = vectors(["plot so so", "plot the plot", "plot was good"], 4)
    scores = -np.sort(-asked @ corpus.T)[:, :2]
    np.testing.assert_allclose(found["scores"], scores, atol=1e-5)
    assert bert_tf.load(str(tmp_path / "1")).embedding_size == 4
    # A run that starts from it begins with its layer and prefixes.
    flags = {"task": "similarity", "train_file": small_run.parent / "pairs.jsonl", "max_steps": 1}
    flags |= {"dev_file": None, "dev_fraction": 0, "text_columns": "q,d", "label_column": None}
    again = tmp_path / "again"
    run(
        settings(
            inputs,
            again,
            init_checkpoint=small_run,
            document_prefix="",
            learning_rate=1e-9,
            **flags,
        )
    )
    second = bert_tf.load(str(again))
    assert second.sentence_embedding == SentenceEmbedding("mean", True, 16, "film ", "")
    np.testing.assert_allclose(second.sentence_dense.kernel, model.sentence_dense.kernel, atol=1e-6)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"matryoshka_dims": "4,6"}, "--matryoshka_dims=4,6: expected numbers of 1 or more, desc"),
        ({"matryoshka_dims": "0"}, "--matryoshka_dims=0: expected numbers of 1 or more"),
        ({"matryoshka_dims": "16"}, "--matryoshka_dims=16: expected numbers below 16, as vectors"),
        ({"dense_size": 4, "matryoshka_dims": "4"}, "expected numbers below 4, as vectors"),
        ({"task": "regression", "query_prefix": "a"}, "--query_prefix means nothing to --task=reg"),
    ],
)
def test_flags_that_are_refused(run_dir, inputs, tmp_path, flags, sentence):
    given = {"task": "similarity", "train_file": run_dir.parent / "pairs.jsonl", "dev_file": None}
    given |= {"text_columns": "q,d", "label_column": None, **flags}
    with pytest.raises(ValueError, match=sentence):
        run(settings(inputs, tmp_path / "run", **given))


def test_dims_are_for_embeddings(run_dir, small_run):
    with pytest.raises(ValueError, match=r"embedding_dims=9 is how many .*, and they have 8: exp"):
        api.predict(str(small_run), [("a", "b")], embedding_dims=9, verbose=False)
