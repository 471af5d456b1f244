"""Lines as tokens to vectors.

Letters: N lines, T tokens of all of them, L layers, D numbers of a vector.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.layer_mixing import LayerMixture, check_variant
from bert_tf.modeling.pooling import normalize, pool
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .rows import Rows, batches
from .settings import ExtractionSettings

# What is held at once before it is written: 128 MiB.
_NUMBERS_AT_ONCE = 1 << 25


class Block(NamedTuple):
    """Consecutive lines and their vectors.

    Attributes:
        rows: N lines.
        values: float32; (N, L, D), or (T, L, D) where each token has its vectors.
    """

    rows: Rows
    values: np.ndarray


class Extractor:
    """An encoder, and what is read of it.

    Args:
        encoder: any.
        preprocessor: the one that tokenises the lines.
        settings: which layers, pooled how.

    Attributes:
        layers: L names: a block's number as it was given, or the variant.
        width: D.

    Raises:
        ValueError: the encoder has no such layer, or too few of them.
    """

    def __init__(
        self, encoder: BertEncoder, preprocessor: BertPreprocessor, settings: ExtractionSettings
    ) -> None:
        blocks, hidden = encoder.config.num_hidden_layers, encoder.config.hidden_size
        for layer in settings.layers:
            if not -blocks <= layer < blocks:
                raise ValueError(
                    f"--layers has {layer}, and {settings.init_checkpoint} has {blocks} blocks: "
                    f"expected numbers from {-blocks} to {blocks - 1}."
                )
        mixture = None
        if settings.variant is not None:
            check_variant(settings.variant, blocks)
            mixture = LayerMixture(settings.variant)
        self.layers: tuple[int | str, ...] = (
            settings.layers if settings.variant is None else (settings.variant,)
        )
        self.width = 4 * hidden if settings.variant == "concat_last_four" else hidden
        self._settings = settings
        self._preprocessor = preprocessor

        spec = {
            key: tf.TensorSpec((None, None), feature.dtype)
            for key, feature in features.ENCODER_FEATURES.items()
        }

        @tf.function(input_signature=[spec], autograph=False)
        def run(batch: Any) -> tf.Tensor:
            outputs = encoder(batch, training=False)
            if mixture is not None:
                states = [mixture(outputs)]
            else:
                states = [outputs[features.ENCODER_OUTPUTS][layer] for layer in settings.layers]
            mask = batch[features.INPUT_MASK]
            vectors = [pool(tf.cast(s, tf.float32), mask, settings.pooling) for s in states]
            if settings.normalize:
                vectors = [normalize(vector) for vector in vectors]
            # (B, L, D), or (B, S, L, D)
            stacked = tf.stack(vectors, axis=-2)
            return stacked if settings.is_pooled else tf.boolean_mask(stacked, mask)

        self._run = run

    def blocks(self, rows: Rows, on_tokens: Callable[[int], None]) -> Iterator[Block]:
        """Computes the vectors of lines, some at a time, in their order.

        What is held at once does not depend on how many lines there are.

        Args:
            rows: the lines.
            on_tokens: is told of each batch how many tokens it had.

        Yields:
            Every line, once.
        """
        for begin, end in self._runs(rows):
            part = rows.between(begin, end)
            yield Block(part, self._values(part, on_tokens))

    def _runs(self, rows: Rows) -> Iterator[tuple[int, int]]:
        """Where to cut lines so that their vectors may be held at once."""
        most = max(1, _NUMBERS_AT_ONCE // (len(self.layers) * self.width))
        sizes = np.ones_like(rows.lengths) if self._settings.is_pooled else rows.lengths
        begin = total = 0
        for number, size in enumerate(sizes.tolist()):
            if total and total + size > most:
                yield begin, number
                begin, total = number, 0
            total += size
        yield begin, len(sizes)

    def _values(self, rows: Rows, on_tokens: Callable[[int], None]) -> np.ndarray:
        settings = self._settings
        starts = np.arange(len(rows.lengths) + 1) if settings.is_pooled else rows.starts
        values = np.empty((starts[-1], len(self.layers), self.width), np.float32)
        for numbers, batch in batches(rows, settings.batch_size, self._preprocessor):
            vectors = self._run({key: tf.constant(value) for key, value in batch.items()}).numpy()
            counts = starts[numbers + 1] - starts[numbers]
            # The batch's vectors lie behind each other, its lines' places anywhere.
            offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            values[np.repeat(starts[numbers], counts) + offsets] = vectors
            on_tokens(int(rows.lengths[numbers].sum()))
        return values


def model_fingerprint(encoder: BertEncoder, preprocessor: BertPreprocessor) -> str:
    """A digest of all that the numbers depend on: weights, config, vocabulary and casing."""
    tokenizer = preprocessor.tokenizer
    digest = hashlib.sha256(encoder.config.to_json().encode())
    digest.update("\n".join([*tokenizer.vocab, str(tokenizer.do_lower_case)]).encode())
    for weight in encoder.weights:
        digest.update(weight.numpy().reshape(-1))
    return digest.hexdigest()
