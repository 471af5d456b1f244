import pytest

from bert_tf.finetuning.text import parse_class_weights

LABELS = ("neg", "pos", "odd:one")


def test_balanced_classes_weigh_alike():
    counts = {"neg": 6, "pos": 2}
    weights = parse_class_weights("balanced", LABELS, counts)
    assert weights["neg"] * 6 == weights["pos"] * 2
    assert (weights["neg"] * 6 + weights["pos"] * 2) / 8 == 1.0
    assert weights["odd:one"] == 1.0


def test_named_classes():
    assert parse_class_weights("pos:2,odd:one:0.5", LABELS, {}) == {
        "neg": 1.0,
        "pos": 2.0,
        "odd:one": 0.5,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("maybe:2", "got 'maybe:2', and the classes are neg, pos, odd:one"),
        ("pos:1,pos:2", "expected each class once as NAME:WEIGHT, or balanced; got 'pos:2'"),
        ("pos:much", "expected a positive number as the weight of pos, got 'much'"),
        ("pos:-1", "expected a positive number as the weight of pos, got '-1'"),
        ("pos:nan", "expected a positive number as the weight of pos, got 'nan'"),
    ],
)
def test_wrong_weights(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_class_weights(text, LABELS, {})
