"""Text to pre-training batches: the dataset that ``python -m bert_tf.pretrain`` trains on."""

import dataclasses
import math
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

# === What a row of pre-training is like: its length, its pairs, and what is predicted of it ===


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options of the rows, checked; ``pretraining_dataset`` says what each does.

    Raises:
        ValueError: an option is out of its range.

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
                raise ValueError(f"{name}: expected a probability, from 0 to 1; got {value}.")
        # The shortest target is two tokens: one for A and one for B.
        check_at_least("max_seq_length", self.max_seq_length, 5 if self.pairs else 4)
        check_at_least("max_predictions_per_seq", self.predictions, 1)
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed: expected an integer of 64 bits; got {self.seed}.")

    @property
    def predictions(self) -> int:
        """P, the most predictions of a row; by default what a full row needs."""
        if self.max_predictions_per_seq is None:
            return default_max_predictions(self.max_seq_length, self.masked_lm_prob)
        return self.max_predictions_per_seq

    @property
    def max_tokens(self) -> int:
        """The tokens that fit beside [CLS] and [SEP]."""
        return self.max_seq_length - (3 if self.pairs else 2)


# A pool of about this many bytes of text has many documents to draw random segments from, and
# takes a hundred megabytes or two with all that is made of them.
_BYTES_PER_POOL = 4_000_000

# The text that `measure_coverage` looks at takes half a second.
_SHARE_BYTES = 2_000_000
_LOW_SHARE = 0.7  # English text has 0.85 to 0.98
_MAX_RANDOM = 0.9  # of documents with several sentences about half


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
    """Makes the batches of BERT's pre-training from a corpus, anew in every epoch.

    The sentence pairs are those of google-research/bert, ``create_pretraining_data.py`` (see
    ``pairing``), the predictions those of ``masking``. Each epoch reads the corpus' blocks in
    another order. A *pool* is the rows of some consecutive blocks, in random order; random
    segments come from another document of the pool. A pool's rows depend on ``seed``, the epoch
    and the pool's number only: not on ``batch_size``, threads or hosts. Each row carries where it
    stands, and the dataset can start at any row: after a last row of (epoch, pool, row),
    ``start=(epoch, pool, row + 1)`` goes on exactly as if nothing had happened.

    Args:
        corpus: documents of sentences, from ``sources``.
        tokenizer: the vocabulary's tokenizer.
        max_seq_length: S, at least 5 (4 without pairs).
        max_predictions_per_seq: P; by default what a full row needs, 20 for 128 tokens.
        masked_lm_prob: the share of tokens to predict.
        short_seq_prob: the probability that a document's rows are cut to a length drawn for it.
        masking: ``"token"`` or ``"whole_word"``.
        replacement: what becomes of the tokens to predict; the paper's 80% [MASK], 10% random.
        pairs: next-sentence pairs, [CLS] A [SEP] B [SEP]. Without them a row is one run of a
            document's tokens, [CLS] A [SEP], and its label 0.
        objective: ``"ltr"``, left to right, hides no token: each predicts the next (see
            ``masking.predict_next``), P is S - 1, and the arguments of masking say nothing.
        seed: any integer of 64 bits.
        blocks_per_pool: about how many blocks make a pool, on which its rows and the memory
            depend; by default as many as hold 4 MB of text.
        **batching: ``batch_size``, ``num_epochs`` and so on, see ``pools.Batching``; ``start`` is
            the (epoch, pool, row) of the first row, or what some number of shards have read, the
            cursor behind the last row of each, ``[[cursor, ...]]``: see ``pools.pool_batches``.

    Returns:
        A dataset of dicts: ``features.PRETRAINING_FEATURES`` and ``cursor`` (B, 3) int32, the
        (epoch, pool, row) of each row.

    Raises:
        ValueError: an argument is out of its range, or there are no other documents for ``pairs``.

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
    """The ``pretraining_dataset`` whose rows are as ``rows`` says."""
    plan, seed = _plan_pools(corpus, blocks_per_pool, rows), rows.seed

    def make_rows(epoch: tf.Tensor, pool: tf.Tensor, order: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens = read_tokens(corpus, tokenizer, plan.pool_blocks(order, pool))
        tokens = _check_not_empty(tokens, epoch, pool)
        return _make_rows(tokens, tokenizer, rows, fold(seed, Operation.POOL, epoch, pool))

    return pool_batches(
        make_rows,
        lambda epoch: plan.order(seed, epoch),
        num_pools=plan.num_pools,
        **batching,
    )


def measure_coverage(
    corpus: Corpus, tokenizer: BertTokenizer, rows: RowOptions
) -> tuple[float, int, float]:
    """Measures how much of a corpus' text reaches rows: pairs that are too long are cut to length.

    Returned, of about two megabytes of the first epoch's first pool: the share of tokens in rows,
    where random segments repeat none, from 0 to 1; how many these are; the share of random pairs.
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
    """Lines on the share of a corpus that reaches rows, and on misfits with the tokenizer."""
    share, size, random = measure_coverage(corpus, tokenizer, rows)
    sample = list(corpus.sentences(SAMPLE_BYTES))
    letters = [letter for sentence in sample for letter in sentence if letter.isalpha()]
    is_chinese = 2 * sum("\u3400" <= letter <= "\u9fff" for letter in letters) > len(letters)
    conditions = {
        f"Tokens that reach rows: {share:.1%} of a sample of {size:,}.": True,
        "  That is little: most sentences nearly fill a row, and pairs of them are cut to length. "
        "Longer rows (--max_seq_length) use more of the text, and --pairs=false of pretrain leaves "
        "no token out.": share < _LOW_SHARE,
        f"In {random:.0%} of the pairs the second text is of another document, as most documents "
        "are one short sentence: nothing is learned from that; --pairs=false of pretrain leaves "
        "pairs out.": random > _MAX_RANDOM,
        "Whole words of Chinese are single characters to BERT: they are masked as tokens "
        "are.": is_chinese and rows.masking == "whole_word",
    }
    notes = [
        *(copies_note(corpus), markup_note(sample), unknown_note(sample, tokenizer)),
        casing_note(tokenizer.vocab, tokenizer.do_lower_case),
    ]
    return [*(line for line, holds in conditions.items() if holds), *filter(None, notes)]


def read_tokens(corpus: Corpus, tokenizer: BertTokenizer, blocks: tf.Tensor) -> Tokens:
    """Reads and tokenises some blocks of a corpus, an int64 vector: ``Tokens``, in that order.

    Sentences that have no token (a control character on its own) are left out, and documents that
    have no sentence left.
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
    """The pools of an epoch: every one has a document, or two where random segments are drawn."""
    if corpus.num_documents == 0:
        raise ValueError("The corpus has no documents: expected one at least.")
    if options.pairs and corpus.num_documents == 1:
        raise ValueError(
            "The corpus has one document only, and next-sentence pairs take their random "
            "segments from another one: add documents; where blank lines part them, read them so "
            '(input_format="google", on the command line --input_format=google); or train without '
            "pairs (pairs=False, which is a flag of pretrain)."
        )
    if blocks_per_pool is None:
        blocks_per_pool = max(1, round(_BYTES_PER_POOL / max(1, corpus.bytes_per_block.mean())))
    check_at_least("blocks_per_pool", blocks_per_pool, 1)
    # With two blocks a pool has two documents, whatever the order: no block is without one.
    minimum = 2 if options.pairs and corpus.documents_per_block.min() == 1 else 1
    num_pools = min(math.ceil(corpus.num_blocks / blocks_per_pool), corpus.num_blocks // minimum)
    return PoolPlan(corpus.num_blocks, max(1, num_pools))


def _check_not_empty(tokens: Tokens, epoch: tf.Tensor, pool: tf.Tensor) -> Tokens:
    """Checks that a pool has a token: a corpus without any would be searched for one for ever."""
    message = "No sentence of this pool (epoch, pool) has a token: is the input text?"
    check = tf.debugging.Assert(tf.size(tokens.ids) > 0, [message, epoch, pool])
    with tf.control_dependencies([check] if check is not None else []):
        return tokens._replace(ids=tf.identity(tokens.ids))


def _make_segments(tokens: Tokens, options: RowOptions, seed: tf.Tensor) -> tuple[Tokens, Segments]:
    """Makes a pool's segments, in the text's order and cut to length."""
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
    """Makes a pool's rows: segments in random order, packed, masked."""
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
