"""Heads of pre-training: guesses for each literal ``[MASK]`` of a text, and what follows it."""

from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.bounded_memory import map_blocks, value_rows
from bert_tf.pipelines.vocabulary import CONTINUATION_PREFIX, MASK_TOKEN

from . import embeddings
from .rows import fit_rows, run_on_rows, text_rows, truncate_texts
from .served import Outputs, Served
from .signatures import STRINGS, Requests, Signature, Signatures, long_text, text_signature

_GUESSES = 5  # for each [MASK]
# The literal mask would be this many tokens at most, if it did not stand for one.
_MASK_TOKEN_LENGTH = 2 + len("MASK")
# Logits that are computed at once: 32 MB.
_LOGITS_CHUNK_SIZE = 1 << 23


def signatures(served: Served) -> Signatures:
    """Signatures of a ``BertPretrainer``.

    One without the masked-LM head, or a causal one, whose head fills no masks, answers embeddings
    by default.
    """
    encoder_signatures = embeddings.signatures(served)
    by_name = {"serving_default": encoder_signatures["serving_default"]}
    if served.model.masked_lm is not None and not served.model.config.is_decoder:
        filling = Signature(
            fill_masks,
            {"text": STRINGS},
            _requests(served),
            "Guesses what each literal [MASK] in a text stands for; no other signature gives "
            "[MASK] a meaning.",
        )
        by_name = {"serving_default": filling, "embed": by_name["serving_default"]}
    by_name["tokens"] = encoder_signatures["tokens"]
    if served.model.nsp:
        summary = "Judges whether the second text follows the first in some document."
        names = ("first", "second")
        by_name["next_sentence"] = text_signature(served, next_sentence, summary, *names)
    return by_name


def _requests(served: Served) -> Requests:
    ordinary = [
        f"The harbour was {MASK_TOKEN} when the last boat came in.",
        f"She {MASK_TOKEN} the letter and put it in her {MASK_TOKEN}.",
        "There is nothing to guess here.",
    ]
    odd: list[Any] = ["", f"Señor {MASK_TOKEN} zahlt in Zürich", b"caf\xe9 \xff [MASK]\xc3 ."]
    odd.append(f"{MASK_TOKEN} {long_text(served)} {MASK_TOKEN}")
    return {"text": ordinary}, {"text": odd}


def transformers_outputs(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Outputs on ids, (B, S) int32, of every position, by transformers' names."""
    ids = inputs[features.INPUT_WORD_IDS]
    if served.model.mlm:
        positions = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        inputs[features.MASKED_LM_POSITIONS] = positions
    names = {
        features.MASKED_LM_LOGITS: "prediction_logits",
        features.NEXT_SENTENCE_LOGITS: "seq_relationship_logits",
    }
    outputs = served.call(inputs)
    return {
        names[key] if len(outputs) > 1 else "logits": tf.cast(value, tf.float32)
        for key, value in outputs.items()
    }


def fill_masks(served: Served, text: tf.Tensor) -> Outputs:
    """Guesses what each literal ``[MASK]`` in texts, (B,) string, stands for.

    The text around a mask is tokenised separately: ``un[MASK]able`` is the words "un" and "able"
    with a mask between. Returns ``tokens``, ``token_ids`` and ``scores`` (B, M, K), the most
    probable first; ``counts`` (B,), the masks that were answered; ``filled`` (B,), the text with
    the best pieces in place; ``truncated`` (B,).
    """
    tokenizer = served.tokenizer
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")
    full_text, text = text, truncate_texts(served, text, _MASK_TOKEN_LENGTH * served.max_seq_length)
    # [B, (parts)]: one more part than masks.
    parts = tf.strings.split(text, sep=MASK_TOKEN)
    part_number = tf.ragged.range(parts.row_lengths()).flat_values
    part_ids = tokenizer.tokenize(parts.flat_values)
    mask_before = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tokenizer.mask_id, tf.math.count_nonzero(part_number)),
        tf.cast(part_number > 0, tf.int64),
    )
    ids = parts.with_values(tf.concat([mask_before, part_ids], 1)).merge_dims(1, 2)

    rows, truncated = fit_rows(served, ids)
    # Only a literal mask has this id: tokenising text never gives it.
    is_mask = ids[:, : served.max_seq_length - 2] == tokenizer.mask_id
    # (B,)
    counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), 1)
    max_count = tf.maximum(tf.reduce_max(counts), 1)
    # (B, M, K)
    scores, token_ids = run_on_rows(
        served, rows, lambda served, inputs: _guesses(served, inputs, max_count)
    )
    tokens = tf.gather(tf.constant(tokenizer.vocab), token_ids)
    answered = tf.sequence_mask(counts, max_count)[:, :, None]

    best = tf.strings.regex_replace(tokens[:, :, 0], f"^{CONTINUATION_PREFIX}", "")
    part_rows = value_rows(parts.row_splits)
    answer_index = tf.stack([part_rows, tf.maximum(part_number - 1, 0)], 1)
    is_answered = part_number <= tf.gather(tf.cast(counts, tf.int64), part_rows)
    # A mask that was cut off has no place among the answers, and stays as it was written.
    guess = tf.gather_nd(
        best, tf.where(is_answered[:, None], answer_index, tf.zeros_like(answer_index))
    )
    filler = tf.where(is_answered, guess, MASK_TOKEN)
    pieces = tf.where(part_number > 0, filler, "") + parts.flat_values
    # The rest of the text: masks in it are cut off.
    rest = tf.strings.substr(full_text, tf.strings.length(text), tf.strings.length(full_text))
    return {
        "tokens": tf.where(answered, tokens, ""),
        "token_ids": tf.where(answered, token_ids, -1),
        "scores": tf.where(answered, scores, 0.0),
        "counts": counts,
        "filled": tf.strings.reduce_join(parts.with_values(pieces), axis=-1) + rest,
        "truncated": truncated,
    }


def _guesses(served: Served, inputs: Outputs, max_count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores and ids of the best pieces for each mask of N packed rows, (N, M, K); 0 if padded."""
    positions = tf.where(inputs[features.INPUT_WORD_IDS] == served.tokenizer.mask_id)
    states = tf.gather_nd(served.encode(inputs)[features.SEQUENCE_OUTPUT], positions)
    scores, ids = best_pieces(served, states)

    def dense(values: tf.Tensor) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_value_rowids(
            values,
            positions[:, 0],
            tf.shape(inputs[features.INPUT_MASK], tf.int64)[0],
            validate=False,
        )
        return ragged.to_tensor(shape=tf.stack([-1, max_count, scores.shape[1]]))

    return dense(scores), dense(ids)


def best_pieces(served: Served, states: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The probabilities of the best pieces for P states, (P, H), and their ids, (P, K) each."""
    size = served.tokenizer.vocab_size
    top_k, chunk_size = min(_GUESSES, size), max(_LOGITS_CHUNK_SIZE // size, 1)

    def step(begin: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        end = begin + chunk_size
        # Rows of the table beyond the vocabulary stand for no piece.
        logits = served.guess(states[begin:end])[:, :size]
        return end, tuple(tf.math.top_k(tf.nn.softmax(logits), top_k))

    scores, ids = map_blocks(tf.shape(states)[0], step)
    return scores, ids


def next_sentence(served: Served, first: tf.Tensor, second: tf.Tensor) -> Outputs:
    """Judges whether the second text follows the first: ``probability``, ``truncated`` (B,)."""
    rows, truncated = text_rows(served, first, second)

    def head(served: Served, inputs: Outputs) -> tf.Tensor:
        # This head reads the pooled output alone; the masked-LM head gets nothing to do.
        positions = tf.zeros([tf.shape(inputs[features.INPUT_MASK])[0], 0], tf.int32)
        outputs = served.call({**inputs, features.MASKED_LM_POSITIONS: positions})
        return outputs[features.NEXT_SENTENCE_LOGITS]

    logits = tf.cast(run_on_rows(served, rows, head), tf.float32)
    return {"probability": tf.nn.softmax(logits)[:, 0], "truncated": truncated}
