"""A model of embeddings that is run on texts.

Letters: N texts, D numbers of a vector.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.interchange.load import load
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.pooling import SentenceEmbedding, most_tokens
from bert_tf.pipelines.similarity import similarity_examples
from bert_tf.training.progress import Progress

from .inference import Inference

# So many texts are tokenised at once, and have their tokens in memory.
_TEXTS_AT_ONCE = 16384


@dataclasses.dataclass(frozen=True)
class Embedder:
    """A model, how it is run, and how it makes texts to vectors."""

    inference: Inference
    embedding: SentenceEmbedding

    def directions(
        self, texts: Sequence[str], label: str, *, are_queries: bool = False
    ) -> np.ndarray:
        """The texts' vectors at length 1, (N, D) float32, in order; shows how far it is.

        Before each stands the model's prefix, of documents or of queries.
        """
        progress, found = Progress(label, len(texts), "texts"), []
        embedding = self.embedding
        prefix = embedding.query_prefix if are_queries else embedding.document_prefix
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            part = [prefix + text for text in texts[first : first + _TEXTS_AT_ONCE]]
            length = self.inference.max_seq_length
            examples = similarity_examples(self.inference.tokenizer, [part], max_seq_length=length)

            def update(done: int, first: int = first) -> None:
                progress.update(first + done)

            found.append(self.inference.in_order(examples, update)[:, 0])
        progress.close()
        return at_length_1(np.concatenate(found)[:, : embedding.dims])


def at_length_1(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, D) at length 1; zeros stay zeros.

    >>> at_length_1(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def open_embedder(
    path: str | BertModel,
    max_seq_length: int | None = None,
    batch_size: int = 64,
    embedding_dims: int | None = None,
    name: str = "",
) -> Embedder:
    """Loads a model of embeddings, to be run under the strategy whose scope this is.

    Its vectors are cut to ``embedding_dims`` numbers. ``name`` is what errors call a model.

    Raises:
        ValueError: the model gives no vectors of texts, or shorter ones, has no vocabulary, or
            fewer positions than ``max_seq_length``.
    """
    model = path if isinstance(path, BertModel) else load(path)
    name = name or (model.name if isinstance(path, BertModel) else path)
    embedding, positions = model.sentence_embedding, model.config.max_position_embeddings
    if embedding is None:
        raise ValueError(
            f"{name} is no model of sentence embeddings: train it by python -m bert_tf.finetune "
            "--task=similarity, or name a directory of sentence-transformers."
        )
    if model.preprocessor is None:
        raise ValueError(f"{name} has no vocabulary: put its vocab.txt into the directory.")
    length = max_seq_length or most_tokens(embedding, positions)
    if length > positions:
        raise ValueError(
            f"--max_seq_length={length}: expected 3 to {positions}, the positions that {name} has "
            "embeddings for."
        )
    embedding = model.cut_embedding(embedding_dims) or embedding
    return Embedder(Inference(model, model.preprocessor.tokenizer, length, batch_size), embedding)
