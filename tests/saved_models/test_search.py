"""An export that searches a corpus."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.metrics.retrieval import search as exact
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.saved_models import search
from bert_tf.saved_models.search import Corpus, Index, check_size

from .conftest import make, serve

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_it_finds_what_an_exact_search_in_numpy_finds(monkeypatch, rows):
    monkeypatch.setattr(search, "_SCORES_AT_ONCE", 20)  # two rows at once
    corpus, queries = RNG.integers(-2, 3, (9, 4)), RNG.integers(-2, 3, (rows, 4))
    index = Index(Corpus([*"abcdefghi"], corpus.astype(np.float32), nearest=3))
    find = tf.function(index.find, autograph=False)
    scores, places = find(tf.constant(queries, tf.float32))
    expected_places, expected_scores = exact(queries, corpus, 3)
    np.testing.assert_array_equal(places, expected_places)
    np.testing.assert_allclose(scores, expected_scores)


@pytest.mark.parametrize(
    ("count", "width", "nearest", "sentence"),
    [
        (4, 8, 5, "has 4 texts, and 5 are to be found: expected as many or fewer"),
        (4, 8, 0, "and 0 are to be found"),
        (1_400_000, 384, 5, r"take 2\.0 GiB: an export searches at most 2 GiB, 1,398,101 texts"),
    ],
)
def test_a_corpus_that_cannot_be_served_is_refused(count, width, nearest, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_size(count, width, nearest)


def test_there_is_nothing_to_search_without_a_corpus():
    model = make(BertEncoder)
    model.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=16)
    with pytest.raises(ValueError, match="is served without a corpus: expected one to search"):
        search.search(serve(model), tf.constant(["a cat"]))
