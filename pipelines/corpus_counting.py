"""What the documents of a block of text are, for a corpus' index."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from . import corpus_formats
from .corpus import fingerprint_documents


def count_text(text: bytes, text_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts a text's documents: their numbers of sentences, int32, and fingerprints, int64.

    The documents are those of ``corpus_formats.parse``.
    """
    lengths, prints = _counter(text_format)(tf.constant(text))
    return lengths.numpy(), prints.numpy()


@functools.cache
def _counter(text_format: str) -> Any:
    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def count(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        documents = corpus_formats.parse(text, text_format)
        return tf.cast(documents.row_lengths(), tf.int32), fingerprint_documents(documents)

    return count
