import dataclasses
import operator

import pytest

from bert_tf.finetuning import data
from bert_tf.readers.examples import (
    ChoiceExample,
    QuestionExample,
    SimilarityExample,
    TaggedExample,
    TextExample,
)
from bert_tf.tasks.registry import KINDS

KIND_OF = {
    TextExample: "classification",
    TaggedExample: "tagging",
    ChoiceExample: "multiple_choice",
    SimilarityExample: "similarity",
    QuestionExample: "squad",
}


def hold_out(items, fraction, seed):
    key, what = KINDS[KIND_OF[type(items[0])]].grouping(items, fraction)
    return data.hold_out(items, fraction, seed, key, what)


def texts(count):
    return [TextExample(str(n), f"text {n}", None, "a") for n in range(count)]


def test_every_class_gives_its_share():
    labels = ["rare"] * 20 + ["common"] * 980
    items = [TextExample(str(n), f"text {n}", None, label) for n, label in enumerate(labels)]
    for seed in range(40):
        _, held_out, _ = hold_out(items, 0.1, seed)
        assert len(held_out) == 100
        assert sum(item.label == "rare" for item in held_out) == 2


def test_many_small_classes_are_held_out_in_all_by_the_share():
    items = [TextExample(str(n), f"text {n}", None, f"class {n % 50}") for n in range(200)]
    for seed in range(20):
        kept, held_out, what = hold_out(items, 0.1, seed)
        assert (len(held_out), what) == (20, "drawn by the seed")
        assert sorted([*kept, *held_out], key=lambda item: int(item.id)) == items
        assert {item.label for item in kept} == {item.label for item in items}
    assert hold_out(items, 0.1, 0)[1] != hold_out(items, 0.1, 1)[1]
    backwards = hold_out(items[::-1], 0.1, seed=1)[1]
    assert backwards[::-1] == hold_out(items, 0.1, seed=1)[1]


def test_equal_texts_of_several_classes_stay_together():
    items = [TextExample(str(n), f"text {n % 30}", None, "ab"[n % 7 == 0]) for n in range(90)]
    kept, held_out, _ = hold_out(items, 0.2, seed=0)
    assert len(held_out) == 18
    assert not {item.text_a for item in kept} & {item.text_a for item in held_out}
    alone = [TextExample("0", "x", None, "once"), *texts(30)]
    assert all("once" not in [item.label for item in hold_out(alone, 0.1, s)[1]] for s in range(30))


def of_articles(n):
    return QuestionExample(str(n), f"title {n % 7}", "q", f"c {n % 20}", (), False)


@pytest.mark.parametrize(
    ("make", "field", "what"),
    [
        (of_articles, "title", "whole articles"),
        (
            lambda n: dataclasses.replace(of_articles(n), title="", context=f"c {n % 7}"),
            "context",
            "whole paragraphs",
        ),
        (
            lambda n: TaggedExample(str(n), (f"word{n}",), ("O",), n % 7),
            "document",
            "whole documents",
        ),
        (
            lambda n: ChoiceExample(str(n), f"context {n % 7}", ("a", "b"), 0),
            "context",
            "drawn by the seed",
        ),
    ],
)
def test_what_belongs_together_stays_together(make, field, what):
    kept, held_out, told = hold_out([make(n) for n in range(70)], 0.3, seed=3)
    assert told == what
    assert len(held_out) == 20 and len(kept) == 50
    key = operator.attrgetter(field)
    assert not set(map(key, kept)) & set(map(key, held_out))


def test_scored_pairs_in_either_order_stay_together():
    pairs = [(f"a{n // 2}", f"b{n // 2}") for n in range(60)]
    items = [SimilarityExample(str(n), p[:: 1 - 2 * (n % 2)], n / 9) for n, p in enumerate(pairs)]
    kept, held_out, _ = hold_out(items, 0.3, seed=3)
    assert len(held_out) == 18
    assert not {frozenset(i.texts) for i in kept} & {frozenset(i.texts) for i in held_out}


@pytest.mark.parametrize("label", ["a", 2.5])
def test_labelled_pairs_in_either_order_stay_together(label):
    pairs = [(f"a{n // 2}", f"b{n // 2}")[:: 1 - 2 * (n % 2)] for n in range(60)]
    items = [TextExample(str(n), *pair, label) for n, pair in enumerate(pairs)]
    kept, held_out, _ = hold_out(items, 0.3, seed=3)
    assert len(held_out) == 18
    assert not {frozenset((i.text_a, i.text_b)) for i in kept} & {
        frozenset((i.text_a, i.text_b)) for i in held_out
    }


def test_sentences_of_few_documents_are_parted():
    items = [TaggedExample(str(n), (f"word{n}",), ("O",), n % 2) for n in range(40)]
    _, held_out, what = hold_out(items, 0.1, seed=0)
    assert (len(held_out), what) == (4, "drawn by the seed")


def test_a_group_that_is_too_large_is_passed_over():
    titles = ["large"] * 900 + ["small"] * 50 + ["other"] * 50
    items = [QuestionExample(str(n), t, "q", "c", (), False) for n, t in enumerate(titles)]
    for seed in range(9):
        assert len(hold_out(items, 0.1, seed)[1]) in (50, 100)
        assert len(hold_out(items, 0.01, seed)[1]) == 50, "the least, where each is too much"
    items += [QuestionExample(str(n), f"title {n}", "q", "c", (), False) for n in range(50)]
    for seed in range(9):
        assert len(hold_out(items, 0.05, seed)[1]) > 40, "the large one does not end the drawing"
    few = [SimilarityExample(str(n), ("q", f"a{n}"), None) for n in range(97)]
    few += [SimilarityExample(str(n), (f"r{n}", f"b{n}"), None) for n in range(3)]
    _, held_out, what = hold_out(few, 0.1, seed=1)
    assert len(held_out) in (2, 3)
    assert what.startswith("drawn by the seed; 97 that share a text or an article stay together: ")


def test_a_tables_rows_are_no_documents():
    items = [TaggedExample(str(n), (f"word{n % 20}",), ("O",), n) for n in range(40)]
    kept, held_out, what = hold_out(items, 0.1, seed=0)
    assert (len(held_out), what) == (4, "drawn by the seed")
    assert not {item.words for item in kept} & {item.words for item in held_out}


def test_one_of_a_few_is_held_out_and_never_all():
    assert [len(part) for part in hold_out(texts(2), 0.01, seed=0)[:2]] == [1, 1]
    assert [len(part) for part in hold_out(texts(2), 0.9, seed=0)[:2]] == [1, 1]


@pytest.mark.parametrize(
    "items, what",
    [
        (texts(1), "one example"),
        (3 * texts(1), "3 examples of one article, context or text, which stay together"),
        (
            [SimilarityExample(str(n), ("question", f"answer {n}"), None) for n in range(4)],
            "4 examples of one article, context or text, which stay together",
        ),
    ],
)
def test_nothing_can_be_held_out(items, what):
    with pytest.raises(ValueError, match=f"^Nothing can be held out of {what}: give more of them"):
        hold_out(items, 0.1, seed=1)


@pytest.mark.parametrize(
    "texts_of",
    [
        lambda n: (f"question {n % 7}", f"answer {n}"),
        lambda n: (f"question {n}", f"answer {n % 7}", "wrong"),
        lambda n: (f"text {n}", f"text {n + 7}"),  # of each seven the next is known by the last
    ],
)
def test_pairs_that_share_a_text_stay_together(texts_of):
    items = [SimilarityExample(str(n), texts_of(n), None) for n in range(70)]
    kept, held_out, _ = hold_out(items, 0.3, seed=3)
    assert (len(kept), len(held_out)) == (50, 20)
    assert not {int(item.id) % 7 for item in kept} & {int(item.id) % 7 for item in held_out}
    backwards = hold_out(items[::-1], 0.3, seed=3)[1]
    assert backwards[::-1] == held_out
