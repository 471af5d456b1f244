"""Next-sentence pairs as in Google's script, for all documents of a pool in parallel.

The algorithm is ``create_instances_from_document`` in google-research/bert,
``create_pretraining_data.py`` (BERT paper, appendix A.2). Sentences are collected into a chunk
until it has the document's target number of tokens, or the document ends. Segment A is the first k
sentences of the chunk. Segment B is the rest (label 0) or, with probability one half and for chunks
of one sentence, a run of sentences from another document (label 1). Unused sentences of the chunk
start the next chunk.

This implementation has no loop over chunks. Random numbers are drawn for each sentence, and used
only if a chunk starts there. Chunk starts only move forward, so each draw is used at most once, and
the results have exactly the same distribution as with a loop. Each sentence then has a known chunk
end and start of the next chunk, and pointer doubling finds the sentences where chunks start.

There are two differences. Google's script tries ten times to draw another document; here, another
document is drawn uniformly, and only a pool with one document uses the same one. Sentences that are
longer than a row, such as text without full stops, are split first (``cut_long_sentences``). From
such a sentence, Google's script creates one row with a random B, and drops the rest.

Letters: D documents, N sentences, R rows (pairs).
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.pipelines.bounded_memory import value_rows
from bert_tf.pipelines.packing import Segments
from bert_tf.pipelines.randomness import Operation, below, bits, fold, uniform


class Tokens(NamedTuple):
    """Tokens of a pool of documents, without empty sentences and documents."""

    ids: tf.Tensor  # int32, all tokens, concatenated
    # (N+1,) int64, strictly ascending: sentence i is ids[token_splits[i]:token_splits[i + 1]]
    token_splits: tf.Tensor
    # (D+1,) int64, strictly ascending: document d has the sentences sentence_splits[d] to
    # sentence_splits[d + 1] (exclusive)
    sentence_splits: tf.Tensor
    is_piece: tf.Tensor  # (N,) bool, whether `cut_long_sentences` split it from a longer sentence


class PairDraws(NamedTuple):
    """Random draws for a pool's pairs, before truncation."""

    targets: tf.Tensor  # (D,) int64, target number of tokens per chunk
    segment_ends: tf.Tensor  # (N,) int64, 32 bits: end of A in a chunk that starts here
    random_next: tf.Tensor  # (N,) bool: whether B is random in a chunk that starts here
    other_documents: tf.Tensor  # (N,) int64, 32 bits: document of a random B
    other_starts: tf.Tensor  # (N,) int64, 32 bits: first sentence of a random B


def without_empty(ids: tf.Tensor, sentence_lengths: tf.Tensor, document_sizes: tf.Tensor) -> Tokens:
    """Drops sentences without tokens, and documents without sentences.

    ``sentence_lengths`` contains the number of tokens per sentence, and ``document_sizes`` contains
    the number of sentences per document, both int64.
    """
    filled = sentence_lengths > 0
    document_of_sentence = value_rows(_splits(document_sizes))
    document_sizes = tf.math.unsorted_segment_sum(
        tf.cast(filled, tf.int64), document_of_sentence, tf.size(document_sizes)
    )
    lengths = tf.boolean_mask(sentence_lengths, filled)
    return Tokens(
        ids,
        _splits(lengths),
        _splits(tf.boolean_mask(document_sizes, document_sizes > 0)),
        is_piece=tf.zeros_like(lengths, tf.bool),
    )


def draw_targets(
    num_documents: tf.Tensor, max_tokens: int, short_seq_prob: float, seed: tf.Tensor
) -> tf.Tensor:
    """Draws each document's target length, (D,) int64.

    The length is ``max_tokens`` or, with probability ``short_seq_prob``, uniform from 2 to
    ``max_tokens``.
    """
    short = uniform([num_documents], fold(seed, 0)) < short_seq_prob
    lengths = 2 + below(bits([num_documents], fold(seed, 1)), max_tokens - 1)
    return tf.where(short, lengths, tf.cast(max_tokens, tf.int64))


def cut_long_sentences(
    tokens: Tokens, targets: tf.Tensor, max_tokens: int
) -> tuple[Tokens, tf.Tensor]:
    """Splits sentences of more than ``max_tokens`` into pieces, which count as sentences.

    The length of a piece is a third of the document's target, so that three pieces fill a row. In
    documents with pieces, the target is at least a quarter of ``max_tokens``, because a target of
    two tokens would create hundreds of thousands of rows. Returns the tokens and the targets.
    """
    starts, sentence_splits = tokens.token_splits[:-1], tokens.sentence_splits
    lengths = tokens.token_splits[1:] - starts
    num_documents = tf.size(sentence_splits) - 1
    document = value_rows(sentence_splits)
    is_long = lengths > max_tokens
    has_long = tf.math.unsorted_segment_max(tf.cast(is_long, tf.int32), document, num_documents)
    targets = tf.where(has_long > 0, tf.maximum(targets, max_tokens // 4), targets)
    piece = tf.gather(-(-targets // 3), document)
    counts = tf.where(is_long, -(-lengths // piece), 1)
    first = _splits(counts)
    sentence = value_rows(first)
    number = tf.range(first[-1]) - tf.gather(first, sentence)
    piece_starts = tf.gather(starts, sentence) + number * tf.gather(piece, sentence)
    return Tokens(
        tokens.ids,
        tf.concat([piece_starts, tokens.token_splits[-1:]], 0),
        tf.gather(first, sentence_splits),
        is_piece=tf.gather(is_long, sentence),
    ), targets


def draw_pairs(num_sentences: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> PairDraws:
    """Draws all random numbers for a pool's pairs, except the targets."""
    shape = [num_sentences]
    return PairDraws(
        targets=targets,
        segment_ends=bits(shape, fold(seed, Operation.SEGMENT_ENDS)),
        random_next=uniform(shape, fold(seed, Operation.RANDOM_NEXT)) < 0.5,
        other_documents=bits(shape, fold(seed, Operation.OTHER_DOCUMENTS)),
        other_starts=bits(shape, fold(seed, Operation.OTHER_STARTS)),
    )


def pair_sentences(tokens: Tokens, draws: PairDraws) -> Segments:
    """Creates the next-sentence pairs of a pool, before truncation, ordered by the start of A.

    In a pool with one document, random segments are from that document.
    """
    token_splits, sentence_splits = tokens.token_splits, tokens.sentence_splits
    sizes = sentence_splits[1:] - sentence_splits[:-1]
    num_documents = tf.size(sizes, tf.int64)
    document = value_rows(sentence_splits)
    target = tf.gather(draws.targets, document)

    # (N,): the chunk that would start at each sentence, and its A.
    begin = tf.range(tf.size(token_splits, tf.int64) - 1)
    end = _filled_end(token_splits, begin, target, tf.gather(sentence_splits, document + 1))
    a_end = begin + 1 + below(draws.segment_ends, end - begin - 1)
    is_single = end - begin == 1
    # A single piece at the end of a document is split into halves, so that B need not be random.
    has_halves = tokens.is_piece & (token_splits[1:] - token_splits[:-1] > 1)
    halved = is_single & has_halves & ~draws.random_next
    is_random = (draws.random_next | is_single) & ~halved
    middle = (token_splits[:-1] + token_splits[1:] + 1) // 2
    a_end_token = tf.where(halved, middle, tf.gather(token_splits, a_end))

    # (N,): the random B of that chunk. Indices from the chunk's own document on are shifted by one.
    other = below(draws.other_documents, num_documents - 1)
    other += tf.cast(other >= document, tf.int64)
    other = tf.minimum(other, num_documents - 1)
    other_begin = tf.gather(sentence_splits, other)
    other_begin += below(draws.other_starts, tf.gather(sizes, other))
    # B has at least one sentence, even if A exceeds the target.
    missing = tf.maximum(target - (a_end_token - token_splits[:-1]), 1)
    other_end = _filled_end(
        token_splits, other_begin, missing, tf.gather(sentence_splits, other + 1)
    )

    begins_chunk = _reachable(
        successor=tf.where(is_random, a_end, end),
        starts=sentence_splits[:-1],
        steps=tf.reduce_max(sizes),
    )
    row = tf.boolean_mask(begin, begins_chunk)
    random_rows = tf.gather(is_random, row)
    a_end_row = tf.gather(a_end_token, row)
    other_start = tf.gather(token_splits, tf.gather(other_begin, row))
    b_end = tf.where(random_rows, tf.gather(other_end, row), tf.gather(end, row))
    return Segments(
        a_start=tf.gather(token_splits, row),
        a_end=a_end_row,
        b_start=tf.where(random_rows, other_start, a_end_row),
        b_end=tf.gather(token_splits, b_end),
        labels=tf.cast(random_rows, tf.int32),
    )


# Maximum number of runs per document; without it, a megabyte could become 125,000 runs.
_MAX_RUNS = 8192


def chunk_documents(tokens: Tokens, targets: tf.Tensor, max_tokens: int) -> Segments:
    """Splits documents into runs of their target length, for training without pairs.

    Each token is used once; the last run of a document may be shorter. Segment B is empty, and the
    label is 0. If a document would have more than 8,192 runs, its runs are longer, up to
    ``max_tokens``, because the pool would otherwise consist mostly of that document.
    """
    bounds = tf.gather(tokens.token_splits, tokens.sentence_splits)
    minimum = -(-(bounds[1:] - bounds[:-1]) // _MAX_RUNS)
    targets = tf.maximum(targets, tf.minimum(minimum, max_tokens))
    starts = tf.ragged.range(bounds[:-1], bounds[1:], targets)
    document = value_rows(starts.row_splits)
    a_start = starts.flat_values
    a_end = tf.minimum(a_start + tf.gather(targets, document), tf.gather(bounds, document + 1))
    return Segments(a_start, a_end, a_end, a_end, tf.zeros_like(a_end, tf.int32))


def _splits(lengths: tf.Tensor) -> tf.Tensor:
    """Converts (n,) lengths to (n+1,) splits."""
    return tf.pad(tf.cumsum(lengths), [[1, 0]])


def _filled_end(
    token_splits: tf.Tensor, begin: tf.Tensor, target: tf.Tensor, limit: tf.Tensor
) -> tf.Tensor:
    """Returns the first sentence end at which ``target`` tokens from ``begin`` are reached."""
    end = tf.searchsorted(token_splits, tf.gather(token_splits, begin) + target, out_type=tf.int64)
    return tf.minimum(end, limit)


def _reachable(successor: tf.Tensor, starts: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Returns which sentences are visited by following ``successor`` from ``starts``, (N,) bool.

    A sentence's successor is a later sentence or N; a document has up to ``steps`` sentences.
    """
    size = tf.size(successor)
    jump = tf.concat([successor, [tf.cast(size, tf.int64)]], 0)
    reached = tf.scatter_nd(starts[:, None], tf.ones_like(starts, tf.int32), [size + 1])

    # After iteration i, sentences within 2**i - 1 steps are marked, and `jump` makes 2**i steps.
    def double(
        distance: tf.Tensor, jump: tf.Tensor, reached: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        marked = tf.math.unsorted_segment_max(reached, jump, size + 1)
        return distance * 2, tf.gather(jump, jump), tf.maximum(reached, marked)

    _, _, reached = tf.while_loop(
        lambda distance, *_: distance < steps, double, (tf.constant(1, tf.int64), jump, reached)
    )
    return reached[:-1] > 0
