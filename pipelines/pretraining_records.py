"""Google's pre-training records: rows as serialised ``tf.train.Example``s, and back.

A record is as google-research/bert's ``create_pretraining_data.py`` writes it: int64 lists
``input_ids``, ``input_mask``, ``segment_ids`` (S values), ``masked_lm_positions``,
``masked_lm_ids`` (P values), ``next_sentence_labels`` (1 value), and the float list
``masked_lm_weights`` (P values).
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf import features
from bert_tf.untrusted import listed

GOOGLE_NAMES = {
    features.INPUT_WORD_IDS: "input_ids",
    features.INPUT_MASK: "input_mask",
    features.INPUT_TYPE_IDS: "segment_ids",
    features.MASKED_LM_POSITIONS: "masked_lm_positions",
    features.MASKED_LM_IDS: "masked_lm_ids",
    features.MASKED_LM_WEIGHTS: "masked_lm_weights",
    features.NEXT_SENTENCE_LABELS: "next_sentence_labels",
}


def serialize_row(row: Mapping[str, np.ndarray]) -> bytes:
    """Makes one row a serialised ``tf.train.Example``.

    Args:
        row: the contract's features, each a vector; ``next_sentence_labels`` has one value.

    Returns:
        The record's bytes.

    >>> record = serialize_row({"input_word_ids": np.array([7, 8], np.int32)})
    >>> list(tf.train.Example.FromString(record).features.feature["input_ids"].int64_list.value)
    [7, 8]
    """
    example = tf.train.Example()
    for key, values in row.items():
        feature = example.features.feature[GOOGLE_NAMES[key]]
        if values.dtype == np.float32:
            feature.float_list.value.extend(values.tolist())
        else:
            feature.int64_list.value.extend(values.tolist())
    record: bytes = example.SerializeToString()
    return record


def parse_records(
    records: tf.Tensor, max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, tf.Tensor]:
    """Parses records, in-graph.

    Args:
        records: (R,) serialised ``tf.train.Example``s.
        max_seq_length: S.
        max_predictions_per_seq: P.

    Returns:
        The contract's features, of R rows.

    Raises:
        tf.errors.InvalidArgumentError: while it runs, a record has not these features.
    """
    stored = {"int32": tf.int64, "float32": tf.float32}
    sizes = _sizes(max_seq_length, max_predictions_per_seq)
    parsed = tf.io.parse_example(
        records,
        {
            GOOGLE_NAMES[key]: tf.io.FixedLenFeature(
                [] if kind.dimensions == "B" else [sizes[key]], stored[kind.dtype]
            )
            for key, kind in features.PRETRAINING_FEATURES.items()
        },
    )
    return {
        key: tf.cast(parsed[GOOGLE_NAMES[key]], kind.dtype)
        for key, kind in features.PRETRAINING_FEATURES.items()
    }


def check_first_record(path: str, max_seq_length: int, max_predictions_per_seq: int) -> None:
    """Checks a file's first record, so that a wrong length is told by name and at once.

    Args:
        path: a file of at least one record.
        max_seq_length: S.
        max_predictions_per_seq: P.

    Raises:
        ValueError: the record is no example, lacks a feature, or one has another length.
    """
    try:
        example = tf.train.Example.FromString(next(iter(tf.data.TFRecordDataset(path))).numpy())
    except (tf.errors.DataLossError, DecodeError) as error:
        raise ValueError(f"{path}: the first record is no tf.train.Example ({error}).") from error
    found = example.features.feature
    options = {"BS": "max_seq_length", "BP": "max_predictions_per_seq"}
    for key, size in _sizes(max_seq_length, max_predictions_per_seq).items():
        name, kind = GOOGLE_NAMES[key], features.PRETRAINING_FEATURES[key]
        if name not in found:
            raise ValueError(
                f"{path}: the records have no feature {name!r} but "
                f"{listed(sorted(found))}; expected "
                f"{', '.join(GOOGLE_NAMES.values())}."
            )
        values = found[name].float_list if kind.dtype == "float32" else found[name].int64_list
        if len(values.value) != size:
            option = options.get(kind.dimensions)
            advice = f": pass {option}={len(values.value)}" if option else ""
            raise ValueError(
                f"{path}: feature {name!r} has {len(values.value)} values of type "
                f"{'float' if kind.dtype == 'float32' else 'int64'} in the first record; expected "
                f"{size}{advice}."
            )


def _sizes(max_seq_length: int, max_predictions_per_seq: int) -> dict[str, int]:
    """How many values each of the contract's features has in a record."""
    sizes = {"BS": max_seq_length, "BP": max_predictions_per_seq, "B": 1}
    return {key: sizes[kind.dimensions] for key, kind in features.PRETRAINING_FEATURES.items()}
