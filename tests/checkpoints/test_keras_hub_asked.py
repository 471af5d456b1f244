"""KerasHub itself, where it is installed, makes the same rows of a preset that it saves."""

import itertools
import warnings

import numpy as np
import pytest

import bert_tf
from bert_tf.io.messages import DifferenceWarning
from tests.checkpoints.test_keras_hub import PIECES

pytestmark = pytest.mark.parity
TEXTS = ["The cat sat.", "cats MAT", "", "the [SEP] cat", "unknown, sat on\tmat", "the " * 9]
ORDINARY = {"lowercase": True, "strip_accents": True}


@pytest.fixture
def save(tmp_path):
    """Saves a classifier's preset, and gives its path and KerasHub's preprocessor."""
    models = pytest.importorskip("keras_hub").models

    def save(tokenizer=ORDINARY, **options):
        pieces = models.BertTokenizer(vocabulary=[*PIECES, ".", ","], **tokenizer)
        preprocessor = models.BertTextClassifierPreprocessor(pieces, **options)
        backbone = models.BertBackbone(20, 1, 2, 8, 12, max_sequence_length=32)
        model = models.BertTextClassifier(backbone, 3, preprocessor=preprocessor)
        model.save_to_preset(str(tmp_path / "preset"))
        return tmp_path / "preset", preprocessor

    return save


def rows(preprocessor, inputs):
    made = preprocessor(inputs)
    made = made[0] if isinstance(made, tuple) else made
    names = ("token_ids", "padding_mask", "segment_ids")
    names = names if "token_ids" in made else ("input_word_ids", "input_mask", "input_type_ids")
    return [np.asarray(made[name]).astype(int).tolist() for name in names]


@pytest.mark.parametrize("length", [5, 8, 9, 13])
def test_a_preset_as_it_is_saved(save, length):
    path, theirs = save(sequence_length=length)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DifferenceWarning)
        ours = bert_tf.load(path).preprocessor
    assert rows(ours, TEXTS) == rows(theirs, TEXTS)
    pairs = itertools.product(range(9), range(9))
    first, second = zip(*(("cat " * a, "mat " * b) for a, b in pairs), strict=True)
    # A tuple of two is the texts and their labels to KerasHub, whatever its documentation says.
    assert rows(ours, (first, second)) == rows(theirs, ((first, second), None))


CHANGED = [  # of the tokenizer, of the preprocessor, what is told or refused
    ({**ORDINARY, "sequence_length": 4}, {}, "sequence_length=4"),
    ({**ORDINARY, "special_tokens_in_strings": True}, {}, "special_tokens_in_strings=True"),
    ({**ORDINARY, "split": False}, {}, "split=False"),
    ({"lowercase": False, "strip_accents": True}, {},
     "strip_accents=True is not supported without lowercase"),
    ({"lowercase": True}, {}, "strip_accents=False with lowercase"),
    (ORDINARY, {"truncate": "waterfall"}, "truncate='waterfall'"),
    ({**ORDINARY, "special_tokens": ["[CLS]"]}, {}, ""),
    ({"lowercase": False}, {}, ""),
    ({**ORDINARY, "dtype": "int64"}, {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("tokenizer", "options", "told"), CHANGED)
def test_each_argument_is_equal_or_told(save, tokenizer, options, told):
    path, theirs = save(tokenizer, sequence_length=12, **options)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", DifferenceWarning)
        ours = bert_tf.load(path).preprocessor
    said = [str(each.message) for each in found if each.category is DifferenceWarning]
    assert [told in sentence for sentence in said] == [True] * bool(told)
    if not told:
        assert rows(ours, TEXTS) == rows(theirs, TEXTS)
