import pytest

from bert_tf.finetuning.data_sets import DataSets

from .small_tasks import examples_of


def test_gives_each_sets_examples():
    sets = DataSets("rte", examples_of("ab"), {"dev": examples_of("c")}, {"test": examples_of("")})
    assert sets.training_items() == ["a", "b"]
    assert (sets.items("dev"), sets.items("test")) == (["c"], [])


def test_checks_what_is_to_be_labelled():
    sets = DataSets("rte", examples_of("ab"), {"dev": examples_of("c")}, {"test": examples_of("d")})
    seen = []
    sets.check_labelled(seen.append)
    assert seen == ["a", "b", "c"]
    with pytest.raises(ValueError, match="^rte, dev: c is bad: expected a or b\\.$"):
        sets.check_labelled(lambda item: "c is bad: expected a or b" if item == "c" else None)
    DataSets("rte", None, {}, {}).check_labelled(seen.append)
    assert len(seen) == 3


def test_refuses_sets_that_are_none():
    with pytest.raises(ValueError, match="rte: dev is empty: expected examples to evaluate on"):
        DataSets("rte", None, {"dev": examples_of("")}, {})
    with pytest.raises(ValueError, match="one to predict are both called a: expected names that"):
        DataSets("rte", None, {"a": examples_of("x")}, {"a": examples_of("y")})
    for train in (None, examples_of("")):
        with pytest.raises(ValueError, match="rte has no training set: expected one to train on"):
            DataSets("rte", train, {}, {}).training_items()
    sets = DataSets("rte", None, {"dev": examples_of("x")}, {"test": examples_of("")})
    with pytest.raises(ValueError, match="rte has no set 'tset': expected one of dev, test"):
        sets.items("tset")
    with pytest.raises(ValueError, match="rte has no set 'dev': expected one of none"):
        DataSets("rte", None, {}, {}).items("dev")
