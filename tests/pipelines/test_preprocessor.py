import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.text_rules import AddedToken, TextRules
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS

VOCAB = [*SPECIAL_TOKENS, *"abcdefgh", "##b", "!"]
A, B = ["a b c", "Ab!", "a b c d e f g h"], ["d e f g", "", "h"]
SINGLE = {
    "input_word_ids": [
        [2, 5, 6, 7, 3, 0, 0, 0, 0, 0],
        [2, 5, 13, 14, 3, 0, 0, 0, 0, 0],
        [2, 5, 6, 7, 8, 9, 10, 11, 12, 3],
    ],
    "input_mask": [[1] * 5 + [0] * 5, [1] * 5 + [0] * 5, [1] * 10],
    "input_type_ids": [[0] * 10] * 3,
}
PAIR = {
    "input_word_ids": [
        [2, 5, 6, 7, 3, 8, 9, 10, 11, 3],
        [2, 5, 13, 14, 3, 3, 0, 0, 0, 0],
        [2, 5, 6, 7, 8, 9, 10, 3, 12, 3],
    ],
    "input_mask": [[1] * 10, [1] * 6 + [0] * 4, [1] * 10],
    "input_type_ids": [[0] * 5 + [1] * 5, [0] * 5 + [1] + [0] * 4, [0] * 8 + [1] * 2],
}


@pytest.fixture(scope="module")
def preprocessor():
    return BertPreprocessor(VOCAB, max_seq_length=10)


def assert_features(batch, expected):
    assert batch.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(batch[key], value, err_msg=key)


@pytest.mark.parametrize("form", [list, np.array, tf.constant])
def test_accepts_lists_arrays_and_tensors(preprocessor, form):
    single = preprocessor(form(A))
    assert_features(single, SINGLE)
    features.check_batch(single, features.ENCODER_FEATURES)
    assert_features(preprocessor(form(A[:2])), {key: value[:2] for key, value in SINGLE.items()})
    assert_features(preprocessor((form(A), form(B))), PAIR)
    if form is tf.constant:
        assert_features(preprocessor([form(A), form(B)]), PAIR)


def test_cased_and_empty_batch(preprocessor):
    batch = BertPreprocessor([*VOCAB, "A"], do_lower_case=False, max_seq_length=5)(["A a"])
    assert batch["input_word_ids"].numpy().tolist() == [[2, 15, 5, 3, 0]]
    batch = preprocessor((tf.constant([], tf.string), tf.constant([], tf.string)))
    assert [value.shape for value in batch.values()] == [(0, 10)] * 3


@pytest.fixture(scope="module")
def keras_model(preprocessor):
    a, b = (keras.Input((), dtype="string") for _ in range(2))
    symbolic = preprocessor([a, b])
    features.check_batch(symbolic, features.ENCODER_FEATURES)
    assert {value.shape for value in symbolic.values()} == {(None, 10)}
    return keras.Model([a, b], symbolic)


def test_saved_keras_model_gives_equal_features(keras_model, tmp_path):
    assert_features(keras_model([tf.constant(A), tf.constant(B)]), PAIR)
    keras_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_features(loaded([tf.constant(A), tf.constant(B)]), PAIR)


def test_config_contains_text_rules(preprocessor, tmp_path):
    """Google's rules are omitted, so that older versions can load the file."""
    assert "rules" not in preprocessor.get_config()
    token = AddedToken("[SEP]", 3, special=True)
    rules = TextRules("tokenizers", 100, pair_types=False, added_tokens=(token,))
    found = BertPreprocessor(VOCAB, max_seq_length=10, rules=rules)
    texts, pairs = keras.Input((), dtype="string"), keras.Input((), dtype="string")
    keras.Model([texts, pairs], found([texts, pairs])).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    batch = loaded([tf.constant(["a [SEP] b"]), tf.constant(["c"])])
    assert batch["input_word_ids"].numpy().tolist() == [[2, 5, 3, 6, 3, 7, 3, 0, 0, 0]]
    assert not batch["input_type_ids"].numpy().any()
    assert BertPreprocessor.from_config(found.get_config()).tokenizer.rules == rules
    message = (
        "BertPreprocessor: invalid tokenization rules: expected an object with content, id, "
        "special, normalized, single_word, lstrip, rstrip, is_piece, got 'x'"
    )
    with pytest.raises(ValueError, match=message):
        BertPreprocessor(VOCAB, rules={"added_tokens": ["x"]})


@pytest.mark.slow
def test_keras_export_gives_equal_features(keras_model, tmp_path):
    keras_model.export(tmp_path / "export", verbose=False)
    serve = tf.saved_model.load(str(tmp_path / "export")).serve
    assert_features(serve([tf.constant(A), tf.constant(B)]), PAIR)


def test_invalid_arguments_raise_error(preprocessor):
    message = (
        r"max_seq_length=4: expected at least 5, for \[CLS\], two \[SEP\] and "
        "one token of each text"
    )
    with pytest.raises(ValueError, match=message):
        BertPreprocessor(VOCAB, max_seq_length=4)
    with pytest.raises(ValueError, match="long_text='windows': expected head or head_tail"):
        BertPreprocessor(VOCAB, long_text="windows")
    with pytest.raises(ValueError, match="a tuple or list of two such vectors, got a list of 3"):
        preprocessor((A, B, A))
    with pytest.raises(ValueError, match=r"got shape \(\)"):
        preprocessor("a b")
