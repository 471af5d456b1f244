"""Comparison of preprocessing with KerasHub, for presets that it saves."""

import itertools
import warnings

import numpy as np
import pytest

import bert_tf
from bert_tf.io.messages import DifferenceWarning
from tests.checkpoints.test_keras_hub import PIECES

pytestmark = pytest.mark.parity
TEXTS = ["The cat sat.", "cats MAT", "", "the [SEP] cat", "unknown, sat on\tmat", "the " * 9]
DEFAULT = {"lowercase": True, "strip_accents": True}


@pytest.fixture
def save(tmp_path):
    """Returns a function that saves a preset and returns its path and KerasHub's preprocessor."""
    models = pytest.importorskip("keras_hub").models

    def save(tokenizer=DEFAULT, **options):
        pieces = models.BertTokenizer(vocabulary=[*PIECES, ".", ","], **tokenizer)
        preprocessor = models.BertTextClassifierPreprocessor(pieces, **options)
        backbone = models.BertBackbone(20, 1, 2, 8, 12, max_sequence_length=32)
        model = models.BertTextClassifier(backbone, 3, preprocessor=preprocessor)
        model.save_to_preset(str(tmp_path / "preset"))
        return tmp_path / "preset", preprocessor

    return save


def rows(preprocessor, inputs):
    batch = preprocessor(inputs)
    batch = batch[0] if isinstance(batch, tuple) else batch
    names = ("token_ids", "padding_mask", "segment_ids")
    names = names if "token_ids" in batch else ("input_word_ids", "input_mask", "input_type_ids")
    return [np.asarray(batch[name]).astype(int).tolist() for name in names]


@pytest.mark.parametrize("length", [5, 8, 9, 13])
def test_default_preset_equals_keras_hub(save, length):
    path, theirs = save(sequence_length=length)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DifferenceWarning)
        ours = bert_tf.load(path).preprocessor
    assert rows(ours, TEXTS) == rows(theirs, TEXTS)
    pairs = itertools.product(range(9), range(9))
    first, second = zip(*(("cat " * a, "mat " * b) for a, b in pairs), strict=True)
    # KerasHub interprets a tuple of two as texts and labels, contrary to its documentation.
    assert rows(ours, (first, second)) == rows(theirs, ((first, second), None))


CHANGED = [  # arguments of the tokenizer, those of the preprocessor, expected warning
    ({**DEFAULT, "sequence_length": 4}, {}, "sequence_length=4"),
    ({**DEFAULT, "special_tokens_in_strings": True}, {}, "special_tokens_in_strings=True"),
    ({**DEFAULT, "split": False}, {}, "split=False"),
    ({"lowercase": False, "strip_accents": True}, {},
     "strip_accents=True is not supported without lowercase"),
    ({"lowercase": True}, {}, "strip_accents=False with lowercase"),
    (DEFAULT, {"truncate": "waterfall"}, "truncate='waterfall'"),
    ({**DEFAULT, "special_tokens": ["[CLS]"]}, {}, ""),
    ({"lowercase": False}, {}, ""),
    ({**DEFAULT, "dtype": "int64"}, {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("tokenizer", "options", "warning"), CHANGED)
def test_argument_equals_keras_hub_or_causes_warning(save, tokenizer, options, warning):
    path, theirs = save(tokenizer, sequence_length=12, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DifferenceWarning)
        ours = bert_tf.load(path).preprocessor
    messages = [str(each.message) for each in caught if each.category is DifferenceWarning]
    assert [warning in message for message in messages] == [True] * bool(warning)
    if not warning:
        assert rows(ours, TEXTS) == rows(theirs, TEXTS)
