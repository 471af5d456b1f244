"""Signatures of the pre-training heads: masked-token and next-sentence prediction."""

from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.bounded_memory import map_blocks, value_rows
from bert_tf.pipelines.vocabulary import CONTINUATION_PREFIX, MASK_TOKEN

from . import embeddings
from .rows import fit_rows, run_rows, text_rows, truncate_texts
from .served import Outputs, Served
from .signatures import STRINGS, Requests, Signature, Signatures, long_text, text_signature

_GUESSES = 5  # predictions per [MASK]
# Maximum number of tokens that "[MASK]" would have if it were not a special token.
_MASK_TOKEN_LENGTH = 2 + len("MASK")
# Number of logits to compute at a time; they take 32 MB.
_LOGITS_CHUNK_SIZE = 1 << 23


def signatures(served: Served) -> Signatures:
    """Returns the signatures of a ``BertPretrainer``.

    If the model is causal or has no masked-LM head, ``serving_default`` returns embeddings.
    """
    encoder_signatures = embeddings.signatures(served)
    by_name = {"serving_default": encoder_signatures["serving_default"]}
    if served.model.masked_lm is not None and not served.model.config.is_decoder:
        filling = Signature(
            fill_masks,
            {"text": STRINGS},
            _requests(served),
            "Predicts the token for each [MASK] in a text. Only this signature treats [MASK] as "
            "a special token.",
        )
        by_name = {"serving_default": filling, "embed": by_name["serving_default"]}
    by_name["tokens"] = encoder_signatures["tokens"]
    if served.model.nsp:
        summary = "Predicts whether the second text follows the first in a document."
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
    """Returns outputs at all positions for ids, (B, S) int32, with their names in transformers."""
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
    """Predicts the token for each literal ``[MASK]`` in texts, (B,) string.

    The text on either side of a mask is tokenized separately: ``un[MASK]able`` is the words "un"
    and "able" with a mask between them.

    Returns:
        ``tokens``, ``token_ids`` and ``scores``, shape (B, M, K) for up to M masks per text, the
        most likely token first; ``counts``, shape (B,), the number of masks with predictions;
        ``filled``, shape (B,), the text with each mask replaced by its most likely token;
        ``truncated``, shape (B,) bool.
    """
    tokenizer = served.tokenizer
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")
    full_text, text = text, truncate_texts(served, text, _MASK_TOKEN_LENGTH * served.max_seq_length)
    # [B, (parts)]: each text has one more part than masks.
    parts = tf.strings.split(text, sep=MASK_TOKEN)
    part_number = tf.ragged.range(parts.row_lengths()).flat_values
    part_ids = tokenizer.tokenize(parts.flat_values)
    mask_before = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tokenizer.mask_id, tf.math.count_nonzero(part_number)),
        tf.cast(part_number > 0, tf.int64),
    )
    ids = parts.with_values(tf.concat([mask_before, part_ids], 1)).merge_dims(1, 2)

    rows, truncated = fit_rows(served, ids)
    # Only a literal [MASK] has this id, because tokenizing text never produces it.
    is_mask = ids[:, : served.max_seq_length - 2] == tokenizer.mask_id
    # (B,)
    counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), 1)
    max_count = tf.maximum(tf.reduce_max(counts), 1)
    # (B, M, K)
    scores, token_ids = run_rows(
        served, rows, lambda served, inputs: _guesses(served, inputs, max_count)
    )
    tokens = tf.gather(tf.constant(tokenizer.vocab), token_ids)
    answered = tf.sequence_mask(counts, max_count)[:, :, None]

    best = tf.strings.regex_replace(tokens[:, :, 0], f"^{CONTINUATION_PREFIX}", "")
    part_rows = value_rows(parts.row_splits)
    indices = tf.stack([part_rows, tf.maximum(part_number - 1, 0)], 1)
    is_answered = part_number <= tf.gather(tf.cast(counts, tf.int64), part_rows)
    # A truncated mask has no prediction and remains in the text.
    guess = tf.gather_nd(best, tf.where(is_answered[:, None], indices, tf.zeros_like(indices)))
    filler = tf.where(is_answered, guess, MASK_TOKEN)
    pieces = tf.where(part_number > 0, filler, "") + parts.flat_values
    # The truncated rest of the text keeps its masks.
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
    """Returns the scores and ids of each mask's best tokens in N rows, (N, M, K), padded with 0."""
    positions = tf.where(inputs[features.INPUT_WORD_IDS] == served.tokenizer.mask_id)
    states = tf.gather_nd(served.encode(inputs)[features.SEQUENCE_OUTPUT], positions)
    scores, ids = best_pieces(served, states)
    num_rows = tf.shape(inputs[features.INPUT_MASK], tf.int64)[0]

    def dense(values: tf.Tensor) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_value_rowids(
            values, positions[:, 0], num_rows, validate=False
        )
        return ragged.to_tensor(shape=tf.stack([-1, max_count, scores.shape[1]]))

    return dense(scores), dense(ids)


def best_pieces(served: Served, states: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the probabilities and ids, (P, K) each, of the best tokens for states (P, H)."""
    size = served.tokenizer.vocab_size
    top_k, chunk_size = min(_GUESSES, size), max(_LOGITS_CHUNK_SIZE // size, 1)

    def step(begin: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        end = begin + chunk_size
        # The embedding table may have more rows than the vocabulary has tokens.
        logits = served.guess(states[begin:end])[:, :size]
        return end, tuple(tf.math.top_k(tf.nn.softmax(logits), top_k))

    scores, ids = map_blocks(tf.shape(states)[0], step)
    return scores, ids


def next_sentence(served: Served, first: tf.Tensor, second: tf.Tensor) -> Outputs:
    """Returns the ``probability`` that ``second`` follows ``first``, and ``truncated``, (B,)."""
    rows, truncated = text_rows(served, first, second)

    def head(served: Served, inputs: Outputs) -> tf.Tensor:
        # Without positions, the masked-LM head computes nothing.
        positions = tf.zeros([tf.shape(inputs[features.INPUT_MASK])[0], 0], tf.int32)
        outputs = served.call({**inputs, features.MASKED_LM_POSITIONS: positions})
        return outputs[features.NEXT_SENTENCE_LOGITS]

    logits = tf.cast(run_rows(served, rows, head), tf.float32)
    return {"probability": tf.nn.softmax(logits)[:, 0], "truncated": truncated}
