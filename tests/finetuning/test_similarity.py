"""A run of embeddings: from a table of pairs to what it keeps, converts to, predicts and serves."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api, export
from bert_tf.finetuning.data import read_task
from bert_tf.finetuning.model import build_model, open_start
from bert_tf.finetuning.run import run
from bert_tf.interchange import conversion
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.results.run_directory import FineTuningDirectory
from bert_tf.saved_models import ExportOptions
from bert_tf.saved_models.precision import serve
from bert_tf.saved_models.signatures import model_signatures

from .small_runs import WORDS, settings

QUERY, DOCUMENT = "film ", "plot "


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Those of pairs in two languages: each word of one stands for a word of the other."""
    path = tmp_path_factory.mktemp("similarity") / "pairs.jsonl"
    rng = np.random.default_rng(2)
    with open(path, "w") as file:
        for _ in range(120):
            words = rng.choice(6, 3, replace=False)
            texts = (" ".join(WORDS[word + first] for word in words) for first in (0, 6))
            file.write(json.dumps(dict(zip("qd", texts, strict=True))) + "\n")
    return {
        "task": "similarity", "train_file": path, "dev_file": None, "dev_fraction": 0.2,
        "text_columns": "q,d", "label_column": None,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run_dir(flags, inputs, tmp_path_factory):
    """A run with prefixes, a layer and fewer numbers."""
    folder = tmp_path_factory.mktemp("similar") / "run"
    own = {"query_prefix": QUERY, "document_prefix": DOCUMENT, "dense_size": 8}
    own |= {"matryoshka_dims": "6,4", "learning_rate": 2e-2}
    run(settings(inputs, folder, **flags, **own, num_train_epochs=5, train_batch_size=16))
    return folder


def vectors_of(model, texts, size=8):
    """The directions of the first numbers."""
    found = np.array(model.embed(model.preprocessor(texts)))[:, :size]
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_a_run_learns_and_leaves_a_model_of_embeddings(run_dir, flags, tmp_path):
    results = json.loads((run_dir / "results.json").read_text())
    assert results["headline"] == "ndcg@10" and results["scores"]["dev"]["ndcg@10"] > 0.8
    model = bert_tf.load(str(run_dir))
    assert model.sentence_embedding == SentenceEmbedding("mean", True, 16, QUERY, DOCUMENT)
    assert model.embedding_size == 8
    with open(run_dir / "dev" / "dev.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    pairs = [json.loads(line) for line in flags["train_file"].read_text().splitlines()]
    asked, answers = (
        vectors_of(model, [prefix + pairs[int(row["id"])][name] for row in rows])
        for prefix, name in ((QUERY, "q"), (DOCUMENT, "d"))
    )
    cosines = (asked * answers).sum(1)
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], cosines, atol=1e-5)
    # A directory of sentence-transformers is made of it.
    conversion.convert(str(run_dir), str(tmp_path / "st"), "huggingface")
    assert (tmp_path / "st" / "modules.json").exists()
    again = bert_tf.load(str(tmp_path / "st"))
    assert again.sentence_embedding == model.sentence_embedding
    np.testing.assert_array_equal(again.sentence_dense.kernel, model.sentence_dense.kernel)


ASKED, CORPUS = ["a good film", "the plot"], ["so so", "a film good", "was", "so so"]


def test_it_predicts_and_compares_by_fewer_numbers(run_dir):
    cosines = cosines_of(run_dir)
    pairs = [(text, other) for text in ASKED for other in CORPUS[:3]]
    records = api.predict(str(run_dir), pairs, verbose=False, embedding_dims=4)
    np.testing.assert_allclose(
        [record["prediction"] for record in records], cosines.ravel(), atol=1e-5
    )
    model = bert_tf.load(str(run_dir))
    served = serve(model, model.preprocessor.tokenizer, ExportOptions(embedding_dims=4))
    compare = model_signatures(served)["similarity"].function
    texts = tf.constant(ASKED)
    found = compare(text=texts, others=tf.constant([CORPUS]))["similarity"]
    np.testing.assert_allclose(found[:, :3], cosines, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row of others for each text"):
        compare(text=texts, others=tf.constant([["a"], ["b"], ["c"]]))


def cosines_of(run_dir):
    """Those of the first four numbers of what is asked and of each text of the corpus."""
    model = bert_tf.load(str(run_dir))
    asked = vectors_of(model, [QUERY + text for text in ASKED], 4)
    return asked @ vectors_of(model, [DOCUMENT + text for text in CORPUS[:3]], 4).T


@pytest.mark.slow
def test_it_is_served_with_a_corpus_of_fewer_numbers(run_dir, tmp_path):
    texts, corpus, cosines = ASKED, CORPUS, cosines_of(run_dir)
    (tmp_path / "corpus.txt").write_text("\n".join(corpus) + "\n")
    given = {"corpus": str(tmp_path / "corpus.txt"), "nearest": 2, "embedding_dims": 4}
    export.run(export.ExportSettings(str(run_dir), str(tmp_path / "1"), **given))
    assert bert_tf.load(str(tmp_path / "1")).embedding_size == 4
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    embedding = {"embed", "embed_documents", "similarity", "search"}
    assert set(signatures) == {"serving_default", "tokens", *embedding}
    found = signatures["search"](text=tf.constant(texts))
    places = np.argsort(-cosines, axis=1)[:, :2]
    assert found["places"].numpy().tolist() == places.tolist()
    assert found["texts"].numpy().tolist() == [[corpus[n].encode() for n in row] for row in places]
    np.testing.assert_allclose(found["scores"], -np.sort(-cosines)[:, :2], atol=1e-5)
    with pytest.raises(ValueError, match=r"embedding_dims=9 is how many .*, and they have 8: exp"):
        api.predict(str(run_dir), [("a", "b")], embedding_dims=9, verbose=False)


def test_what_a_run_begins_with(run_dir, flags, inputs, tmp_path):
    """Of a start's own layer and prefixes those that no flag changes; else the usual ones."""

    def started(**changes):
        given = settings(inputs, tmp_path / "run", **flags, **changes)
        task = read_task(given)[0]
        return build_model(given, task, open_start(given, FineTuningDirectory(given.model_dir)))[0]

    second = started(init_checkpoint=run_dir, document_prefix="")
    assert second.sentence_embedding == SentenceEmbedding("mean", True, 16, QUERY, "")
    kernel = bert_tf.load(str(run_dir)).sentence_dense.kernel
    np.testing.assert_array_equal(second.sentence_dense.kernel, kernel)
    assert started().sentence_embedding == SentenceEmbedding("mean", True, max_seq_length=16)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"matryoshka_dims": "4,6"}, "--matryoshka_dims=4,6: expected numbers of 1 or more, desc"),
        ({"matryoshka_dims": "0"}, "--matryoshka_dims=0: expected numbers of 1 or more"),
        ({"matryoshka_dims": "16"}, "--matryoshka_dims=16: expected numbers below 16, as vectors"),
        ({"dense_size": 4, "matryoshka_dims": "4"}, "expected numbers below 4, as vectors"),
        ({"task": "regression", "query_prefix": "a"}, "--query_prefix means nothing to --task=reg"),
    ],
)
def test_flags_that_are_refused(flags, inputs, tmp_path, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(settings(inputs, tmp_path / "run", **{**flags, **changes}))
