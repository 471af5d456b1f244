"""Dataset of pre-training batches, which ``python -m bert_tf.pretrain`` trains on."""

import dataclasses
import math
from collections.abc import Callable
from typing import Unpack

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import Masking, Objective
from bert_tf.pipelines.corpora.corpus import Corpus
from bert_tf.pipelines.packing import Segments, check_at_least, cut_pairs, pack
from bert_tf.pipelines.randomness import Operation, fold, permutation
from bert_tf.pipelines.vocabulary_warnings import (
    SAMPLE_BYTES,
    casing_note,
    copies_note,
    markup_note,
    unknown_note,
)
from bert_tf.pipelines.wordpiece import BertTokenizer

from .masking import (
    PAPER_REPLACEMENT,
    Replacement,
    default_max_predictions,
    mask_rows,
    predict_next,
)
from .pairing import (
    Tokens,
    chunk_documents,
    cut_long_sentences,
    draw_pairs,
    draw_targets,
    pair_sentences,
    without_empty,
)
from .pools import Batching, PoolPlan, pool_batches

# === Options of rows ===


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Validated row options, which ``pretraining_dataset`` describes.

    Raises:
        ValueError: If an option is out of range.

    >>> RowOptions(max_seq_length=512).predictions
    77
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int | None = None
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    masking: Masking = "token"
    replacement: Replacement = PAPER_REPLACEMENT
    pairs: bool = True
    objective: Objective = "mlm"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("masked_lm_prob", "short_seq_prob"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name}: expected a probability from 0 to 1, got {value}.")
        # The shortest target is two tokens: one for A and one for B.
        check_at_least("max_seq_length", self.max_seq_length, 5 if self.pairs else 4)
        check_at_least("max_predictions_per_seq", self.predictions, 1)
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed: expected a 64-bit integer, got {self.seed}.")

    @property
    def predictions(self) -> int:
        """Maximum number of predictions per row, P; by default enough for a full row."""
        if self.max_predictions_per_seq is None:
            return default_max_predictions(self.max_seq_length, self.masked_lm_prob)
        return self.max_predictions_per_seq

    @property
    def max_tokens(self) -> int:
        """Maximum number of text tokens per row, without [CLS] and [SEP]."""
        return self.max_seq_length - (3 if self.pairs else 2)


# Number of bytes of text per pool. Such a pool contains enough documents to draw random segments
# from, and takes 100 to 200 MB of memory.
_BYTES_PER_POOL = 4_000_000

# Number of bytes of text that `measure_coverage` samples, in half a second.
_SHARE_BYTES = 2_000_000
_LOW_SHARE = 0.7  # English text reaches 0.85 to 0.98
_MAX_RANDOM = 0.9  # documents with several sentences reach about 0.5


def pretraining_dataset(
    corpus: Corpus,
    tokenizer: BertTokenizer,
    *,
    max_seq_length: int = 128,
    max_predictions_per_seq: int | None = None,
    masked_lm_prob: float = 0.15,
    short_seq_prob: float = 0.1,
    masking: Masking = "token",
    replacement: Replacement = PAPER_REPLACEMENT,
    pairs: bool = True,
    objective: Objective = "mlm",
    seed: int = 0,
    blocks_per_pool: int | None = None,
    **batching: Unpack[Batching],
) -> tf.data.Dataset:
    """Creates batches for pre-training from a corpus, with new pairs and masks in every epoch.

    ``pairing`` creates sentence pairs as google-research/bert's ``create_pretraining_data.py``
    does, and ``masking`` chooses the tokens to predict. Each epoch reads the blocks of the corpus
    in a different order. A pool consists of the rows of some consecutive blocks, in random order; a
    random segment comes from another document in the pool. The rows of a pool only depend on
    ``seed``, the epoch and the pool's index, not on ``batch_size``, threads or hosts. Each row has
    a cursor (epoch, pool, row); to resume after a row, pass ``start=(epoch, pool, row + 1)``.

    Args:
        corpus: Documents of sentences, from ``sources``.
        tokenizer: Tokenizer of the model.
        max_seq_length: Number of tokens per row, S; at least 5, or 4 without pairs.
        max_predictions_per_seq: Maximum number of predictions per row, P; by default enough for a
            full row, 20 for 128 tokens.
        masked_lm_prob: Fraction of tokens to predict.
        short_seq_prob: Probability that a document has rows of a random shorter length.
        masking: ``"token"`` or ``"whole_word"``.
        replacement: Fractions of predicted tokens to replace with [MASK] and with random tokens; by
            default 0.8 and 0.1, as in the paper.
        pairs: Whether to create next-sentence pairs, [CLS] A [SEP] B [SEP]. Otherwise, a row is a
            run of a document's tokens, [CLS] A [SEP], with label 0.
        objective: ``"mlm"``, or ``"ltr"`` to predict each next token without masks (see
            ``masking.predict_next``); P is then S - 1, and the masking arguments have no effect.
        seed: 64-bit integer.
        blocks_per_pool: Approximate number of blocks per pool, which affects rows and memory; by
            default enough for 4 MB of text.
        **batching: ``batch_size``, ``num_epochs`` and further arguments of ``pools.Batching``.

    Returns:
        A dataset of dicts with ``features.PRETRAINING_FEATURES`` and ``cursor``, the (epoch, pool,
        row) of each row, `(B, 3)`, int32.

    Raises:
        ValueError: If an argument is out of range, or ``pairs`` needs more documents.

    >>> from bert_tf.pipelines.corpora.sources import from_documents
    >>> corpus = from_documents([["a b", "b a"], ["c d", "d d", "c"]])
    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    >>> dataset = pretraining_dataset(
    ...     corpus, BertTokenizer(vocab), batch_size=2, max_seq_length=12)
    >>> next(iter(dataset))["cursor"].numpy().tolist()
    [[0, 0, 0], [0, 0, 1]]
    """
    rows = RowOptions(
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        masked_lm_prob=masked_lm_prob,
        short_seq_prob=short_seq_prob,
        masking=masking,
        replacement=replacement,
        pairs=pairs,
        objective=objective,
        seed=seed,
    )
    return make_row_batches(corpus, tokenizer, rows, blocks_per_pool, **batching)


def make_row_batches(
    corpus: Corpus,
    tokenizer: BertTokenizer,
    rows: RowOptions,
    blocks_per_pool: int | None = None,
    **batching: Unpack[Batching],
) -> tf.data.Dataset:
    """Creates a ``pretraining_dataset`` from row options."""
    plan = _plan_pools(corpus, blocks_per_pool, rows)

    def make_rows(epoch: tf.Tensor, pool: tf.Tensor, order: tf.Tensor) -> dict[str, tf.Tensor]:
        return _make_pool(corpus, tokenizer, rows, plan, epoch, pool, order)

    return pool_batches(
        make_rows,
        lambda epoch: plan.order(rows.seed, epoch),
        num_pools=plan.num_pools,
        **batching,
    )


def trace_pools(
    corpus: Corpus, tokenizer: BertTokenizer, rows: RowOptions
) -> tuple[int, Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]]:
    """Traces a function that maps an epoch and a pool, scalar int64, to all rows of the pool.

    Returns the number of pools per epoch, and the function. A new dataset takes a second to create.
    """
    plan = _plan_pools(corpus, None, rows)
    scalar = tf.TensorSpec([], tf.int64)

    @tf.function(input_signature=[scalar, scalar], autograph=False)
    def make_pool(epoch: tf.Tensor, pool: tf.Tensor) -> dict[str, tf.Tensor]:
        order = plan.order(rows.seed, epoch)
        return _make_pool(corpus, tokenizer, rows, plan, epoch, pool, order)

    return plan.num_pools, make_pool


def _make_pool(
    corpus: Corpus,
    tokenizer: BertTokenizer,
    rows: RowOptions,
    plan: PoolPlan,
    epoch: tf.Tensor,
    pool: tf.Tensor,
    order: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Creates the rows of a pool, given the order of the epoch's blocks."""
    tokens = read_tokens(corpus, tokenizer, plan.pool_blocks(order, pool))
    tokens = _check_not_empty(tokens, epoch, pool)
    return _make_rows(tokens, tokenizer, rows, fold(rows.seed, Operation.POOL, epoch, pool))


def measure_coverage(
    corpus: Corpus, tokenizer: BertTokenizer, rows: RowOptions
) -> tuple[float, int, float]:
    """Measures how much of a corpus remains in rows after long pairs are truncated.

    Returns, for a sample of about two megabytes, the fraction of tokens that are in rows, not
    counting random segments; the number of tokens; and the fraction of pairs with a random B.
    """
    plan = _plan_pools(corpus, None, rows)
    blocks = plan.pool_blocks(plan.order(rows.seed, 0), 0)
    filled = np.cumsum(corpus.bytes_per_block[blocks])
    blocks = blocks[: max(2, np.searchsorted(filled, _SHARE_BYTES) + 1)]
    tokens = read_tokens(corpus, tokenizer, blocks)
    tokens, segments = _make_segments(tokens, rows, fold(rows.seed, Operation.POOL, 0, 0))
    num_tokens = int(tf.size(tokens.ids))
    borders = np.zeros(num_tokens + 1, np.int64)
    follows = segments.labels == 0
    for start, end in (
        (segments.a_start, segments.a_end),
        (segments.b_start[follows], segments.b_end[follows]),
    ):
        np.add.at(borders, start, 1)
        np.add.at(borders, end, -1)
    share = float(np.sum(np.cumsum(borders) > 0) / max(1, num_tokens))
    return share, num_tokens, float(np.mean(segments.labels))


def describe_rows(corpus: Corpus, tokenizer: BertTokenizer, rows: RowOptions) -> list[str]:
    """Describes how much of a corpus the rows contain, and warns of problems with the text."""
    share, size, random = measure_coverage(corpus, tokenizer, rows)
    sample = list(corpus.sentences(SAMPLE_BYTES))
    letters = [letter for sentence in sample for letter in sentence if letter.isalpha()]
    is_chinese = 2 * sum("\u3400" <= letter <= "\u9fff" for letter in letters) > len(letters)
    conditions = {
        f"Tokens used in rows: {share:.1%}, measured on a sample of {size:,} tokens.": True,
        "  The fraction is low, because pairs of long sentences are truncated. To use more of the "
        "text, increase --max_seq_length, or pass --pairs=false to pretrain.": share < _LOW_SHARE,
        f"In {random:.0%} of the pairs, the second text is from another document, because most "
        "documents have one short sentence. Pass --pairs=false to pretrain.": random > _MAX_RANDOM,
        "Whole-word masking has no effect on Chinese text, because BERT treats each Chinese "
        "character as a word.": is_chinese and rows.masking == "whole_word",
    }
    notes = [
        *(copies_note(corpus), markup_note(sample), unknown_note(sample, tokenizer)),
        casing_note(tokenizer.vocab, tokenizer.do_lower_case),
    ]
    return [*(line for line, holds in conditions.items() if holds), *filter(None, notes)]


def read_tokens(corpus: Corpus, tokenizer: BertTokenizer, blocks: tf.Tensor) -> Tokens:
    """Reads and tokenizes blocks, an int64 vector, in order.

    Drops sentences without tokens, such as a single control character, and empty documents.
    """
    num_blocks = tf.size(blocks)
    ids, lengths, sizes = (
        tf.TensorArray(dtype, num_blocks, element_shape=[None], infer_shape=False)
        for dtype in (tf.int32, tf.int64, tf.int64)
    )

    def read_one(
        i: tf.Tensor, ids: tf.TensorArray, lengths: tf.TensorArray, sizes: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.TensorArray, tf.TensorArray, tf.TensorArray]:
        documents = corpus.read_documents(blocks[i])
        pieces = tokenizer.tokenize(documents.flat_values)
        return (
            i + 1,
            ids.write(i, pieces.flat_values),
            lengths.write(i, tf.cast(pieces.row_lengths(), tf.int64)),
            sizes.write(i, tf.cast(documents.row_lengths(), tf.int64)),
        )

    _, ids, lengths, sizes = tf.while_loop(
        lambda i, *_: i < num_blocks, read_one, (0, ids, lengths, sizes)
    )
    return without_empty(ids.concat(), lengths.concat(), sizes.concat())


def _plan_pools(corpus: Corpus, blocks_per_pool: int | None, options: RowOptions) -> PoolPlan:
    """Plans pools with at least one document each, or two if random segments are drawn."""
    if corpus.num_documents == 0:
        raise ValueError("The corpus has no documents. Pass at least one.")
    if options.pairs and corpus.num_documents == 1:
        raise ValueError(
            "The corpus has one document, but next-sentence pairs need at least 2. Add documents, "
            'use input_format="google" if blank lines separate them, or pretrain with pairs=False.'
        )
    if blocks_per_pool is None:
        blocks_per_pool = max(1, round(_BYTES_PER_POOL / max(1, corpus.bytes_per_block.mean())))
    check_at_least("blocks_per_pool", blocks_per_pool, 1)
    # Every block has a document, so pools of two blocks have at least two documents.
    minimum = 2 if options.pairs and corpus.documents_per_block.min() == 1 else 1
    num_pools = min(math.ceil(corpus.num_blocks / blocks_per_pool), corpus.num_blocks // minimum)
    return PoolPlan(corpus.num_blocks, max(1, num_pools))


def _check_not_empty(tokens: Tokens, epoch: tf.Tensor, pool: tf.Tensor) -> Tokens:
    """Checks that a pool has a token, because a corpus without tokens would be searched forever."""
    message = "No sentence of this pool (epoch, pool) has a token. Pass text as the input."
    check = tf.debugging.Assert(tf.size(tokens.ids) > 0, [message, epoch, pool])
    with tf.control_dependencies([check]):
        return tokens._replace(ids=tf.identity(tokens.ids))


def _make_segments(tokens: Tokens, options: RowOptions, seed: tf.Tensor) -> tuple[Tokens, Segments]:
    """Creates a pool's segments, in the order of the text, and truncates them."""
    targets = draw_targets(
        tf.size(tokens.sentence_splits) - 1,
        options.max_tokens,
        options.short_seq_prob,
        fold(seed, Operation.TARGET_LENGTHS),
    )
    if not options.pairs:
        return tokens, chunk_documents(tokens, targets, options.max_tokens)
    tokens, targets = cut_long_sentences(tokens, targets, options.max_tokens)
    draws = draw_pairs(tf.size(tokens.token_splits) - 1, targets, seed)
    return tokens, cut_pairs(pair_sentences(tokens, draws), options.max_tokens, seed)


def _make_rows(
    tokens: Tokens, tokenizer: BertTokenizer, options: RowOptions, seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Creates a pool's rows: segments in random order, packed and masked."""
    tokens, segments = _make_segments(tokens, options, seed)
    order = permutation(tf.size(segments.labels), fold(seed, Operation.ROW_ORDER))
    segments = Segments(*(tf.gather(field, order) for field in segments))

    parts = [(segments.a_start, segments.a_end - segments.a_start)]
    if options.pairs:
        parts.append((segments.b_start, segments.b_end - segments.b_start))
    rows = pack(tokens.ids, parts, options.max_seq_length, tokenizer)
    word_ids = rows[features.INPUT_WORD_IDS]
    if options.objective == "ltr":
        predicted = predict_next(word_ids, tokenizer)
    else:
        predicted = mask_rows(
            word_ids,
            tokenizer,
            max_predictions_per_seq=options.predictions,
            masked_lm_prob=options.masked_lm_prob,
            masking=options.masking,
            replacement=options.replacement,
            seed=seed,
        )
    return {**rows, **predicted, features.NEXT_SENTENCE_LABELS: segments.labels}
