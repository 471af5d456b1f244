"""``python -m bert_tf.evaluate_retrieval``: files as BEIR has them, searched and judged."""

import dataclasses
import functools
import gzip
import json
import math

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf import evaluate_retrieval
from bert_tf.evaluate_retrieval import RetrievalSettings
from bert_tf.modeling import BertClassifier, BertEncoder, BertRegressor
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.predicting import predictor
from bert_tf.readers.retrieval import read_retrieval
from bert_tf.tasks import embedding

from .finetuning.small_tasks import CONFIG, VOCAB, random_text

DOCUMENTS = {"d0": ("a0", "b0 c1"), "d1": ("", "a1 a1"), "d2": ("d2 e1", "f3"), "q1": ("", "b3 b4")}
QUERIES = {"q0": "a0 b0", "q1": "b3 b4", "q2": "h1"}
JUDGED = [("q0", "d0", 2), ("q0", "d2", 1), ("q1", "d1", 1), ("q2", "d0", 0)]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    rows = [{"_id": n, "title": title, "text": text} for n, (title, text) in DOCUMENTS.items()]
    lines(tmp_path / "corpus.jsonl", rows)
    lines(tmp_path / "queries.jsonl", [{"_id": n, "text": text} for n, text in QUERIES.items()])
    (tmp_path / "qrels").mkdir()
    table = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in JUDGED)]
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join(table) + "\n")
    return tmp_path


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    found = BertEncoder(CONFIG, pooler=False)
    found.preprocessor = BertPreprocessor(VOCAB, max_seq_length=32)
    found.sentence_embedding = SentenceEmbedding("cls", normalize=False, max_seq_length=32)
    return found


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    where = str(tmp_path_factory.mktemp("model") / "m")
    bert_tf.save(model, where)
    return where


@pytest.fixture(scope="module", autouse=True)
def opened_once():
    """A model that several tests or calls read is loaded and traced once."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in ((embedding, "open_embedder"), (predictor, "Predictor")):
            patched.setattr(module, name, functools.cache(getattr(module, name)))
        yield


def directions(model, texts, size=None):
    batch = model.preprocessor(texts)
    vectors = np.array(model(batch)["sequence_output"])[:, 0, :size]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ndcg(gains, scores):
    ranked = [gain for _, gain in sorted(zip(-scores, gains, strict=True))]
    best = sorted(gains, reverse=True)
    found, most = (sum(g / math.log2(n + 2) for n, g in enumerate(row)) for row in (ranked, best))
    return found / most


def test_reads_titles_and_leaves_out_what_nothing_is_relevant_to(folder):
    found = read_retrieval(str(folder))
    assert found.queries == {"q0": "a0 b0", "q1": "b3 b4"}
    assert list(found.documents.values()) == ["a0 b0 c1", "a1 a1", "d2 e1 f3", "b3 b4"]
    assert found.relevant == [{0: 2.0, 2: 1.0}, {1: 1.0}]
    content = (folder / "corpus.jsonl").read_bytes()
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(content))
    (folder / "corpus.jsonl").unlink()
    assert read_retrieval(str(folder)).documents == found.documents


def test_of_a_pair_that_is_judged_twice_the_last_score_counts(folder):
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.write("q0\td0\t0\nq1\td1\t0\nq2\td1\t3\nq2\td0\t4\n")
    found = read_retrieval(str(folder))
    assert [*found.queries] == ["q0", "q2"] and found.relevant == [{2: 1.0}, {0: 4.0, 1: 3.0}]


def test_documents_may_be_empty_or_missing(folder, path, model, capsys):
    """As FiQA's and ArguAna's: the one has vectors as every text, the other is never found."""
    lines(folder / "corpus.jsonl", [{"_id": "d0", "text": "a0"}, {"_id": "d1", "text": ""}])
    judged = "query-id\tcorpus-id\tscore\nq0\td0\t1\nq0\tgone\t1\n"
    (folder / "qrels" / "test.tsv").write_text(judged)
    found = evaluate_retrieval.evaluate(RetrievalSettings(path, str(folder), batch_size=3))
    query, *documents = directions(model, ["a0 b0", "a0", ""])
    rank = 1 + int(documents[1] @ query > documents[0] @ query)
    assert found["scores"]["recall@10"] == 0.5
    assert found["scores"]["ndcg@10"] == pytest.approx(
        1 / math.log2(rank + 1) / (1 + 1 / math.log2(3))
    )
    assert "\n1 relevant documents are not there: they count as n" in capsys.readouterr().out
    # One that is irrelevant says nothing, here as many as the others.
    judged = "query-id\tcorpus-id\tscore\nq0\td0\t1\nq0\tgone\t0\n"
    (folder / "qrels" / "test.tsv").write_text(judged)
    assert read_retrieval(str(folder)).missing == 0


def test_the_scores_are_those_of_a_plain_loop(folder, path, model, capsys):
    results = evaluate_retrieval.evaluate(
        RetrievalSettings(path, str(folder), output=str(folder / "out.json"), batch_size=3)
    )
    documents = directions(model, [f"{title} {text}".strip() for title, text in DOCUMENTS.values()])
    cosines = directions(model, ["a0 b0", "b3 b4"]) @ documents.T
    # The second query is the last document, which is itself.
    expected = (ndcg([2, 0, 1, 0], cosines[0]) + ndcg([0, 1, 0], cosines[1, :3])) / 2
    assert results["scores"]["ndcg@10"] == pytest.approx(expected)
    assert json.loads((folder / "out.json").read_text()) == results
    said = capsys.readouterr().out
    assert said.startswith("2 queries, 4 documents.\n")
    assert f"ndcg@10     {expected:.4f}  (95%: " in said and "\nmrr@10      " in said


def test_prefixes_and_fewer_numbers(folder, model, tmp_path):
    read = dataclasses.replace(
        model.sentence_embedding, query_prefix="c2 ", document_prefix="g1 g1 ", dims=5
    )
    prefixed = BertEncoder(CONFIG, pooler=False)
    prefixed.set_weights(model.get_weights())
    prefixed.preprocessor, prefixed.sentence_embedding = model.preprocessor, read
    bert_tf.save(prefixed, tmp_path / "m")
    documents = [f"g1 g1 {title} {text}".replace("  ", " ") for title, text in DOCUMENTS.values()]
    settings = RetrievalSettings(str(tmp_path / "m"), str(folder), embedding_dims=3)
    found = evaluate_retrieval.evaluate(settings)
    cosines = directions(model, ["c2 a0 b0", "c2 b3 b4"], 3) @ directions(model, documents, 3).T
    expected = (ndcg([2, 0, 1, 0], cosines[0]) + ndcg([0, 1, 0], cosines[1, :3])) / 2
    assert found["scores"]["ndcg@10"] == pytest.approx(expected)


# === Reranking ===


@pytest.fixture
def reranker(request, model, tmp_path):
    """A model of pairs, and how relevant it finds them, computed by hand."""
    keras.utils.set_random_seed(8)
    found = BertRegressor(CONFIG) if request.param == "numbers" else BertClassifier(CONFIG, 2)
    found.preprocessor = model.preprocessor
    if request.param == "classes":
        found.labels = ("no", "yes")
    bert_tf.save(found, tmp_path / "reranker")

    def relevance(query, texts):
        outputs = np.array(found(found.preprocessor(([query] * len(texts), texts))))
        return outputs if outputs.ndim == 1 else outputs[:, 1] - outputs[:, 0]

    return str(tmp_path / "reranker"), relevance


@pytest.mark.parametrize(
    ("reranker", "top"), [("numbers", 6), ("classes", 100)], indirect=["reranker"]
)
def test_the_first_documents_are_reranked(path, model, reranker, top, tmp_path, capsys):
    where, relevance = reranker
    rng = np.random.default_rng(6)
    documents, query = [random_text(rng, 9) for _ in range(12)], "a0 b0"
    lines(tmp_path / "corpus.jsonl", [{"_id": n, "text": t} for n, t in enumerate(documents)])
    lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": query}])
    (tmp_path / "qrels").mkdir()
    judged = "".join(f"q\t{n}\t{n}\n" for n in range(12))
    (tmp_path / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    settings = RetrievalSettings(path, str(tmp_path), reranker=where, rerank_top=top)
    results = evaluate_retrieval.evaluate(settings)
    before = np.argsort(-directions(model, documents) @ directions(model, [query])[0])
    first = before[:top]
    scores = relevance(query, [documents[n] for n in first])
    after = [*first[np.argsort(-scores)], *before[top:]]
    gains = [sum(n / math.log2(k + 2) for k, n in enumerate(o[:10])) for o in (before, after)]
    best = sum(n / math.log2(k + 2) for k, n in enumerate(range(11, 1, -1)))
    found = [scores["ndcg@10"] for scores in (results["before_reranking"], results["scores"])]
    assert found == pytest.approx([gain / best for gain in gains]) and found[0] != found[1]
    said = capsys.readouterr().out
    assert f"Before reranking: ndcg@10 {found[0]:.4f}.\n" in said
    assert ("Reranked by the probability of 'yes'.\n" in said) == (top == 100)  # of classes
    ranked = predictor.Predictor(where, batch_size=64).rank(query, documents)
    assert [place for place, _ in ranked] == np.argsort(-relevance(query, documents)).tolist()
    assert ranked[0][1] > ranked[-1][1]


def test_a_reranker_of_other_predictions_is_refused(folder, path, model, tmp_path):
    three = BertClassifier(CONFIG, 3)
    three.preprocessor = model.preprocessor
    bert_tf.save(three, tmp_path / "three")
    settings = RetrievalSettings(path, str(folder), reranker=str(tmp_path / "three"))
    with pytest.raises(ValueError, match="is of classification with 3 classes: expected a model"):
        evaluate_retrieval.evaluate(settings)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td9\t1\n",
         r"qrels/test\.tsv: expected documents of .*corpus\.jsonl, which has no 'd9'\.$"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\td0\t1\n", "expected a query of"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\tx\n", "expected a finite number"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t0\n", "expected a score above 0"),
        ("queries.jsonl", '{"_id": "q0"}\n', r"queries\.jsonl, line 1: expected the key 'text'"),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n' * 2,
         r"corpus\.jsonl, line 2: expected a unique id, got 'a' again; correct the row\.$"),
        ("queries.jsonl", '{"_id": "a", "text": " "}\n', r"line 1: expected text in 'text', got"),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "b", "title": "T", "text": "x"}\n',
         r"corpus\.jsonl, line 1: expected the key 'title'"),
    ],
)  # fmt: skip
def test_malformed_files_are_named(folder, file, content, sentence):
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_retrieval(str(folder))


def test_models_that_do_not_fit_are_refused(folder, path, tmp_path_factory):
    plain = str(tmp_path_factory.mktemp("plain") / "m")
    bert_tf.save(BertEncoder(CONFIG, pooler=False), plain)
    with pytest.raises(ValueError, match="is no model of sentence embeddings: train it by python"):
        evaluate_retrieval.evaluate(RetrievalSettings(plain, str(folder)))
    with pytest.raises(ValueError, match=r"queries\.jsonl is one of the files to read: name anot"):
        output = str(folder / "queries.jsonl")
        evaluate_retrieval.evaluate(RetrievalSettings(path, str(folder), output=output))
    with pytest.raises(ValueError, match="--max_seq_length=65: expected 3 to 64, the positions"):
        evaluate_retrieval.evaluate(RetrievalSettings(path, str(folder), max_seq_length=65))


def test_many_texts_are_embedded_in_parts(model, monkeypatch):
    monkeypatch.setattr(embedding, "_TEXTS_AT_ONCE", 5)
    rng = np.random.default_rng(0)
    texts = [random_text(rng, 9) for _ in range(12)]
    found = embedding.open_embedder(model, batch_size=2).directions(texts, "Texts")
    np.testing.assert_allclose(found, directions(model, texts), atol=1e-5)
