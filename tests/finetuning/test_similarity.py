"""An embedding run from a table of pairs: results, conversion, predictions and serving."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api
from bert_tf.answering.served import serve
from bert_tf.checkpoints import conversion
from bert_tf.finetuning.run import run
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.signatures import model_signatures

from .small_runs import WORDS, settings, started, write_model

QUERY, DOCUMENT = "film ", "plot "


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Returns flags for pairs in two languages, whose words correspond one to one."""
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
    """A run initialized from a model with prompts and a dense layer."""
    folder = tmp_path_factory.mktemp("similar")
    embedding = SentenceEmbedding("mean", True, 16, QUERY, DOCUMENT)
    arguments = {"pooler": False, "dense_size": 8}
    write_model(folder / "start", "BertEncoder", arguments, sentence_embedding=embedding)
    own = {"init_checkpoint": folder / "start", "learning_rate": 2e-2, "train_batch_size": 16}
    run(settings(inputs, folder / "run", **flags, **own, num_train_epochs=5))
    return folder / "run"


def embed(model, texts):
    return np.array(model.embed(model.preprocessor(texts)))


def test_run_trains_and_saves_embedding_model(run_dir, flags, tmp_path):
    results = json.loads((run_dir / "results.json").read_text())
    assert results["headline"] == "ndcg@10" and results["scores"]["dev"]["ndcg@10"] > 0.8
    model = bert_tf.load(str(run_dir))
    assert model.sentence_embedding == SentenceEmbedding("mean", True, 16, QUERY, DOCUMENT)
    assert model.embedding_size == 8
    with open(run_dir / "dev" / "dev.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    pairs = [json.loads(line) for line in flags["train_file"].read_text().splitlines()]
    queries, documents = (
        embed(model, [prefix + pairs[int(row["id"])][name] for row in rows])
        for prefix, name in ((QUERY, "q"), (DOCUMENT, "d"))
    )
    cosines = (queries * documents).sum(1)
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], cosines, atol=1e-5)
    # It converts to a sentence-transformers directory.
    conversion.convert(str(run_dir), str(tmp_path / "st"), "huggingface")
    assert (tmp_path / "st" / "modules.json").exists()
    again = bert_tf.load(str(tmp_path / "st"))
    assert again.sentence_embedding == model.sentence_embedding
    np.testing.assert_array_equal(again.sentence_dense.kernel, model.sentence_dense.kernel)


QUERIES, CORPUS = ["a good film", "the plot"], ["so so", "a film good", "was"]


def test_predictions_and_served_similarities_are_cosines_with_prompts(run_dir):
    model = bert_tf.load(str(run_dir))
    queries = embed(model, [QUERY + text for text in QUERIES])
    cosines = queries @ embed(model, [DOCUMENT + text for text in CORPUS]).T
    pairs = [(text, other) for text in QUERIES for other in CORPUS]
    records = api.predict(str(run_dir), pairs, verbose=False)
    found = [record["prediction"] for record in records]
    np.testing.assert_allclose(found, cosines.ravel(), atol=1e-5)
    served = serve(model, model.preprocessor.tokenizer, ExportOptions())
    compare = model_signatures(served)["similarity"].function
    texts = tf.constant(QUERIES)
    answers = compare(text=texts, others=tf.constant([CORPUS]))
    np.testing.assert_allclose(answers["similarity"], cosines, atol=1e-5)
    message = "one row of others per text, or one row for all texts"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        compare(text=texts, others=tf.constant([["a"], ["b"], ["c"]]))


def test_run_uses_dense_layer_and_prompts_of_checkpoint_or_defaults(
    run_dir, flags, inputs, tmp_path
):
    own = {"init_checkpoint": run_dir, "pooling": "max"}
    second, _ = started(settings(inputs, tmp_path, **flags, **own))
    assert second.sentence_embedding == SentenceEmbedding("max", True, 16, QUERY, DOCUMENT)
    kernel = bert_tf.load(str(run_dir)).sentence_dense.kernel
    np.testing.assert_array_equal(second.sentence_dense.kernel, kernel)
    first, _ = started(settings(inputs, tmp_path, **flags))
    assert first.sentence_embedding == SentenceEmbedding("mean", True, max_seq_length=16)
