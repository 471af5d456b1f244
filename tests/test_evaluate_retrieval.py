"""``python -m bert_tf.evaluate_retrieval``: files as BEIR has them, searched and judged."""

import gzip
import json
import math

import numpy as np
import pytest

import bert_tf
from bert_tf import evaluate_retrieval
from bert_tf.evaluate_retrieval import RetrievalSettings
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.readers.retrieval import read_retrieval

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
    found = BertEncoder(CONFIG, pooler=False)
    found.preprocessor = BertPreprocessor(VOCAB, max_seq_length=32)
    found.sentence_embedding = SentenceEmbedding("cls", normalize=False, max_seq_length=32)
    return found


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    where = str(tmp_path_factory.mktemp("model") / "m")
    bert_tf.save(model, where)
    return where


def directions(model, texts):
    batch = model.preprocessor(texts)
    vectors = np.array(model(batch)["sequence_output"])[:, 0]
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


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td9\t1\n",
         r"qrels/test\.tsv, line 2: expected a document of .*, got the id 'd9'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\td0\t1\n", "expected a query of"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\tx\n", "expected a finite number"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t0\n", "expected a score above 0"),
        ("queries.jsonl", '{"_id": "q0"}\n', r"queries\.jsonl, line 1: expected the key 'text'"),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n' * 2,
         r"corpus\.jsonl, line 2: expected an id of its own, got 'a' again"),
        ("corpus.jsonl", '{"_id": "a", "text": " "}\n', r"line 1: expected text in 'text', got"),
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
    from bert_tf.tasks import embedding

    monkeypatch.setattr(embedding, "_TEXTS_AT_ONCE", 5)
    rng = np.random.default_rng(0)
    texts = [random_text(rng, 9) for _ in range(12)]
    found = embedding.open_embedder(model, batch_size=2).directions(texts, "Texts")
    np.testing.assert_allclose(found, directions(model, texts), atol=1e-5)
