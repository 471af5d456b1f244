"""What an exported model answers: each head as a function from requests to answers.

The functions work eagerly too, on any model at hand; ``signatures`` makes them ready for export.
Inputs and outputs have the request's batch first, any size, also 0. Outputs are dense, padded where
rows differ ("", -1, 0) beside a count, so that TensorFlow Serving can split a batch. Rows are
padded to the longest of their batch; texts longer than ``max_seq_length`` lose their end, and
``truncated`` says so.

Letters: B batch, S sequence, H hidden, V vocabulary, M masks (the most in a text, at least 1), K
guesses for each mask.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf import features
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines.packing import fit_segments, join_segments, pack
from bert_tf.pipelines.vocabulary import CONTINUATION_PREFIX, MASK_TOKEN
from bert_tf.pipelines.wordpiece import BertTokenizer

Outputs = dict[str, tf.Tensor]


def model_inputs(
    tokenizer: BertTokenizer, segments: Sequence[tf.RaggedTensor], max_seq_length: int
) -> tuple[Outputs, tf.Tensor]:
    """Packs one or two segments into rows, as long as the batch's longest needs.

    Args:
        tokenizer: for the ids of [CLS], [SEP] and [PAD].
        segments: the ids of A, and of B where there is one: each [B, (tokens)] int32.
        max_seq_length: the most tokens of a row. A pair loses tokens of its longer segment first.

    Returns:
        The encoder's inputs, each (B, S) int32, and ``truncated`` (B,) bool.

    >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"])
    >>> rows, truncated = model_inputs(tokenizer, [tokenizer.tokenize(["the cat", "cat"])], 3)
    >>> rows["input_word_ids"].numpy().tolist(), truncated.numpy().tolist()
    ([[2, 5, 3], [2, 6, 3]], [True, False])
    """
    ids, ranges = join_segments(segments)
    fitted = fit_segments(ranges, max_seq_length)
    rows = pack(
        ids,
        fitted.ranges,
        # An empty batch has no longest row; it gets the columns of an empty text.
        tf.maximum(tf.reduce_max(fitted.lengths), 1 + len(segments)),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
    )
    return rows, fitted.truncated


def fill_masks(
    model: BertPretrainer,
    tokenizer: BertTokenizer,
    text: tf.Tensor,
    *,
    max_seq_length: int,
    top_k: int = 5,
) -> Outputs:
    """Guesses what each literal ``[MASK]`` in the texts stands for.

    The text round a mask is tokenised apart: ``un[MASK]able`` is the words "un" and "able" with a
    mask between. All other brackets, ``[CLS]`` and ``[SEP]`` among them, are ordinary text, and so
    is every ``[MASK]`` to the other functions.

    Args:
        model: a pre-trained model.
        tokenizer: the one it was trained with.
        text: (B,) string; bytes that are not UTF-8 are passed over.
        max_seq_length: the most tokens of a row.
        top_k: K; no more than the vocabulary has.

    Returns:
        ``tokens`` (B, M, K) string, the most probable pieces, best first, "" where padded;
        ``token_ids`` (B, M, K) int32, -1 where padded; ``scores`` (B, M, K) float32,
        probabilities, 0 where padded; ``counts`` (B,) int32, how many masks were answered;
        ``filled`` (B,) string, the text with every best piece in place (without its ``##``);
        ``truncated`` (B,) bool, whether the text's end, and any mask in it, was cut off.
    """
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")
    # [B, (parts)]: one more part than masks.
    parts = tf.strings.split(text, sep=MASK_TOKEN)
    part_number = tf.ragged.range(parts.row_lengths()).flat_values
    part_ids = tokenizer.tokenize(parts.flat_values)
    mask_before = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tokenizer.mask_id, tf.math.count_nonzero(part_number)),
        tf.cast(part_number > 0, tf.int64),
    )
    ids = parts.with_values(tf.concat([mask_before, part_ids], 1)).merge_dims(1, 2)

    rows, truncated = model_inputs(tokenizer, [ids], max_seq_length)
    # Only a literal mask has this id: tokenising text never gives it.
    mask_places = tf.where(rows[features.INPUT_WORD_IDS] == tokenizer.mask_id)
    positions = tf.RaggedTensor.from_value_rowids(
        tf.cast(mask_places[:, 1], tf.int32), mask_places[:, 0], nrows=tf.size(text, tf.int64)
    )
    counts = tf.cast(positions.row_lengths(), tf.int32)
    # (B, M)
    positions = _widen(positions.to_tensor(), 1)
    answered = tf.sequence_mask(counts, tf.shape(positions)[1])

    outputs = model({**rows, features.MASKED_LM_POSITIONS: positions}, training=False)
    # (B, M, V); rows of the table beyond the vocabulary stand for no piece.
    logits = outputs[features.MASKED_LM_LOGITS][:, :, : tokenizer.vocab_size]
    scores, token_ids = tf.math.top_k(
        tf.nn.softmax(tf.cast(logits, tf.float32)), min(top_k, tokenizer.vocab_size)
    )
    tokens = tf.gather(tf.constant(tokenizer.vocab), token_ids)
    answered = answered[:, :, None]

    best = tf.strings.regex_replace(tokens[:, :, 0], f"^{CONTINUATION_PREFIX}", "")
    part_rows = parts.value_rowids()
    place = tf.stack([part_rows, tf.maximum(part_number - 1, 0)], 1)
    is_answered = part_number <= tf.gather(tf.cast(counts, tf.int64), part_rows)
    # A mask that was cut off has no place among the answers, and stays as it was written.
    guess = tf.gather_nd(best, tf.where(is_answered[:, None], place, tf.zeros_like(place)))
    filler = tf.where(is_answered, guess, MASK_TOKEN)
    pieces = tf.where(part_number > 0, filler, "") + parts.flat_values
    return {
        "tokens": tf.where(answered, tokens, ""),
        "token_ids": tf.where(answered, token_ids, -1),
        "scores": tf.where(answered, scores, 0.0),
        "counts": counts,
        "filled": tf.strings.reduce_join(parts.with_values(pieces), axis=-1),
        "truncated": truncated,
    }


def embed(
    encoder: BertEncoder, tokenizer: BertTokenizer, text: tf.Tensor, *, max_seq_length: int
) -> Outputs:
    """Embeds texts, one vector each.

    Args:
        encoder: the model without its heads.
        tokenizer: the one it was trained with.
        text: (B,) string.
        max_seq_length: the most tokens of a row.

    Returns:
        ``mean_output`` (B, H) float32, the mean of the last layer over the real tokens, [CLS] and
        [SEP] among them; ``pooled_output`` (B, H) float32, the tanh layer on [CLS], where the
        encoder has a pooler; ``truncated`` (B,) bool.
    """
    rows, truncated = model_inputs(tokenizer, [tokenizer.tokenize(text)], max_seq_length)
    outputs = encoder(rows, training=False)
    states = tf.cast(outputs[features.SEQUENCE_OUTPUT], tf.float32)
    # (B, S, 1)
    weights = tf.cast(rows[features.INPUT_MASK], tf.float32)[:, :, None]
    return {
        "mean_output": tf.reduce_sum(states * weights, 1) / tf.reduce_sum(weights, 1),
        **_in_float32(outputs, features.POOLED_OUTPUT),
        "truncated": truncated,
    }


def next_sentence(
    model: BertPretrainer,
    tokenizer: BertTokenizer,
    first: tf.Tensor,
    second: tf.Tensor,
    *,
    max_seq_length: int,
) -> Outputs:
    """Judges whether the second text follows the first in some document.

    Args:
        model: a pre-trained model with the next-sentence head.
        tokenizer: the one it was trained with.
        first: (B,) string.
        second: (B,) string.
        max_seq_length: the most tokens of a row.

    Returns:
        ``probability`` (B,) float32, that it follows; ``truncated`` (B,) bool.
    """
    segments = [tokenizer.tokenize(first), tokenizer.tokenize(second)]
    rows, truncated = model_inputs(tokenizer, segments, max_seq_length)
    # The head reads the pooled output alone; the masked-LM head gets the least there is to do.
    positions = tf.zeros([tf.shape(first)[0], 1], tf.int32)
    outputs = model({**rows, features.MASKED_LM_POSITIONS: positions}, training=False)
    logits = tf.cast(outputs[features.NEXT_SENTENCE_LOGITS], tf.float32)
    return {"probability": tf.nn.softmax(logits)[:, 0], "truncated": truncated}


def encode_tokens(
    encoder: BertEncoder,
    input_word_ids: tf.Tensor,
    input_mask: tf.Tensor,
    input_type_ids: tf.Tensor,
) -> Outputs:
    """Runs the encoder on ids, for clients with a tokenizer of their own.

    Args:
        encoder: the model without its heads.
        input_word_ids: (B, S) int32.
        input_mask: (B, S) int32, 1 = real, 0 = padding.
        input_type_ids: (B, S) int32, 0 for segment A and 1 for B.

    Returns:
        ``sequence_output`` (B, S, H) float32, and where the encoder has a pooler
        ``pooled_output`` (B, H) float32.
    """
    outputs = encoder(
        {
            features.INPUT_WORD_IDS: input_word_ids,
            features.INPUT_MASK: input_mask,
            features.INPUT_TYPE_IDS: input_type_ids,
        },
        training=False,
    )
    return _in_float32(outputs, features.SEQUENCE_OUTPUT, features.POOLED_OUTPUT)


def _in_float32(outputs: Mapping[str, tf.Tensor], *keys: str) -> Outputs:
    """Those of the keys that are there."""
    return {key: tf.cast(outputs[key], tf.float32) for key in keys if key in outputs}


def _widen(values: tf.Tensor, width: int) -> tf.Tensor:
    """Pads (B, M) by zeros to at least ``width`` columns."""
    missing = tf.maximum(width - tf.shape(values)[1], 0)
    return tf.pad(values, [[0, 0], [0, missing]])
