"""Static vectors: one for each piece of the vocabulary; a text's is their mean, no layer is run.

Sources: Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings" (weights
by frequency), and Model2Vec, which takes the vectors of single pieces from a model.

Letters: V pieces, H and D numbers of a vector, B batch, M others.
"""

import io
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.files import check_new, whole_directory
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.pooling import normalize
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer

from . import operations, serving_files
from .exporting import save, trace
from .precision import traced_once
from .samples import run_samples
from .search import Corpus, Index
from .served import Outputs, Signature
from .verification import write_hashes

TABLE = "assets.extra/static.npz"
_PIECES_AT_ONCE = 1024
# Pieces of this share of a text's count half.
_COMMON = 1e-3


def static_table(model: BertModel, dims: int, counts: np.ndarray) -> np.ndarray:
    """The pieces' vectors, (V, D): principal components of the model's, weighted by rarity.

    ``counts`` (V,) say how often the corpus has each piece; special tokens have 0.
    """
    tokenizer = model.preprocessor.tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def embed(pieces: tf.Tensor) -> tf.Tensor:
        first, last = (tf.fill(tf.shape(pieces), n) for n in (tokenizer.cls_id, tokenizer.sep_id))
        ids = tf.stack([first, pieces, last], 1)
        values = (ids, tf.ones_like(ids), tf.zeros_like(ids))
        return model.embed(dict(zip(features.ENCODER_FEATURES, values, strict=True)))

    numbers = np.arange(tokenizer.vocab_size, dtype=np.int32)
    blocks = np.split(numbers, range(_PIECES_AT_ONCE, len(numbers), _PIECES_AT_ONCE))
    vectors = np.concatenate([embed(block).numpy() for block in blocks])
    vectors -= vectors.mean(0)
    # Ascending: the last axes have the most of the variance.
    axes = np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1]
    weights = _COMMON / (_COMMON + counts / max(counts.sum(), 1))
    weights[[tokenizer.vocab.index(token) for token in SPECIAL_TOKENS]] = 0
    return (vectors @ axes[:, :dims] * weights[:, None]).astype(np.float32)


class Static(tf.Module):
    """A table of vectors (V, D) and a tokenizer, as an export has them."""

    def __init__(self, tokenizer: BertTokenizer, table: np.ndarray) -> None:
        super().__init__()
        self.tokenizer = traced_once(tokenizer)
        self.table = tf.Variable(table, trainable=False, name="static_vectors")

    def directions(self, texts: tf.Tensor) -> tf.Tensor:
        """Texts, (B,) string, to vectors (B, D) of length 1; without a known piece 0."""
        ids = self.tokenizer.tokenize(texts)
        found = tf.gather(self.table.read_value(), ids.flat_values)
        rows, count = ids.value_rowids(), tf.size(texts)
        return normalize(tf.math.unsorted_segment_sum(found, rows, count))

    def embed(self, text: tf.Tensor) -> Outputs:
        """``sentence_embedding`` (B, D)."""
        return {"sentence_embedding": self.directions(text)}


def export_static(static: Static, output_dir: str, corpus: Corpus, name: str) -> str:
    """Exports it with a corpus; ``TABLE`` has ``vectors`` (V, D) and ``pieces`` (V,) for NumPy."""
    check_new(output_dir)
    index = Index(corpus)

    def search(text: tf.Tensor) -> Outputs:
        return index.answer(static.directions(text))

    inputs = {"text": tf.TensorSpec([None], tf.string)}
    samples: Sequence[Mapping[str, list[str]]] = ({"text": [*corpus.texts[:3]]},)
    embed = Signature(static.embed, inputs, (*samples,), "Embeds texts, one vector each.")
    finding = Signature(search, inputs, (*samples,), "Finds the nearest texts of the corpus.")
    signatures = {"serving_default": embed, "embed": embed, "search": finding}
    traced = trace(signatures)
    with whole_directory(output_dir) as folder:
        weights = {"vectors": static.table, "corpus": index.vectors, "texts": index.texts}
        save(folder, traced, {}, weights)
        oldest = operations.check_operations(folder)
        asked = [
            sample
            for key, signature in signatures.items()
            for sample in run_samples(key, traced[key], signature)
        ]
        serving_files.write_samples(os.path.join(folder, "assets.extra", "samples"), asked, name)
        content = io.BytesIO()
        np.savez(content, vectors=static.table.numpy(), pieces=np.array(static.tokenizer.vocab))
        serving_files.write_bytes(os.path.join(folder, TABLE), content.getvalue())
        write_hashes(folder)
    return oldest
