import dataclasses
import operator

import pytest

from bert_tf.finetuning import data as drawing
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
    return drawing.hold_out(items, fraction, seed, key, what)


def texts(count):
    return [TextExample(str(n), f"text {n}", None, "a") for n in range(count)]


def test_each_class_is_held_out_by_fraction():
    labels = ["rare"] * 20 + ["common"] * 980
    items = [TextExample(str(n), f"text {n}", None, label) for n, label in enumerate(labels)]
    for seed in range(40):
        _, held_out, _ = hold_out(items, 0.1, seed)
        assert len(held_out) == 100
        assert sum(item.label == "rare" for item in held_out) == 2


def test_small_classes_are_held_out_by_total_fraction():
    items = [TextExample(str(n), f"text {n}", None, f"class {n % 50}") for n in range(200)]
    for seed in range(20):
        rest, held_out, what = hold_out(items, 0.1, seed)
        assert (len(held_out), what) == (20, "chosen at random, stratified by class")
        assert sorted([*rest, *held_out], key=lambda item: int(item.id)) == items
        assert {item.label for item in rest} == {item.label for item in items}
    assert hold_out(items, 0.1, 0)[1] != hold_out(items, 0.1, 1)[1]
    backwards = hold_out(items[::-1], 0.1, seed=1)[1]
    assert backwards[::-1] == hold_out(items, 0.1, seed=1)[1]


def test_equal_texts_of_different_classes_stay_together():
    items = [TextExample(str(n), f"text {n % 30}", None, "ab"[n % 7 == 0]) for n in range(90)]
    rest, held_out, _ = hold_out(items, 0.2, seed=0)
    assert len(held_out) == 18
    assert not {item.text_a for item in rest} & {item.text_a for item in held_out}
    single = [TextExample("0", "x", None, "once"), *texts(30)]
    assert all(
        "once" not in [item.label for item in hold_out(single, 0.1, s)[1]] for s in range(30)
    )


def article_question(n):
    return QuestionExample(str(n), f"title {n % 7}", "q", f"c {n % 20}", (), False)


def swapped_pair(n):
    return (f"a{n % 7}", f"b{n % 7}")[:: 1 - 2 * (n % 2)]


def texts_of(item):
    return frozenset((item.text_a, item.text_b))


def seventh(item):
    return int(item.id) % 7


@pytest.mark.parametrize(
    ("make", "group_of", "what"),
    [
        (article_question, operator.attrgetter("title"), "whole articles"),
        (lambda n: dataclasses.replace(article_question(n), title="", context=f"c {n % 7}"),
         operator.attrgetter("context"), "whole paragraphs"),
        (lambda n: TaggedExample(str(n), (f"word{n}",), ("O",), n % 7),
         operator.attrgetter("document"), "whole documents"),
        (lambda n: ChoiceExample(str(n), f"context {n % 7}", ("a", "b"), 0),
         operator.attrgetter("context"), "chosen at random"),
        # Pairs, in either order.
        (lambda n: SimilarityExample(str(n), swapped_pair(n), n / 9), seventh,
         "chosen at random"),
        (lambda n: TextExample(str(n), *swapped_pair(n), "a"), texts_of, "chosen at random"),
        (lambda n: TextExample(str(n), *swapped_pair(n), 2.5), texts_of, "chosen at random"),
        # Pairs that share one text form a group; some share it only through other pairs.
        (lambda n: SimilarityExample(str(n), (f"question {n % 7}", f"answer {n}"), None), seventh,
         "chosen at random"),
        (lambda n: SimilarityExample(str(n), (f"question {n}", f"answer {n % 7}", "no"), None),
         seventh, "chosen at random"),
        (lambda n: SimilarityExample(str(n), (f"text {n}", f"text {n + 7}"), None), seventh,
         "chosen at random"),
    ],
)  # fmt: skip
def test_groups_stay_together_in_any_order(make, group_of, what):
    items = [make(n) for n in range(70)]
    rest, held_out, groups = hold_out(items, 0.3, seed=3)
    assert (len(rest), len(held_out), groups) == (50, 20, what)
    assert not set(map(group_of, rest)) & set(map(group_of, held_out))
    assert hold_out(items[::-1], 0.3, seed=3)[1][::-1] == held_out


@pytest.mark.parametrize(("documents", "words"), [(2, 40), (40, 20)])
def test_sentences_are_split_without_document_groups(documents, words):
    items = [TaggedExample(str(n), (f"word{n % words}",), ("O",), n % documents) for n in range(40)]
    rest, held_out, what = hold_out(items, 0.1, seed=0)
    assert (len(held_out), what) == (4, "chosen at random")
    assert not {item.words for item in rest} & {item.words for item in held_out}


def test_too_large_group_is_skipped():
    titles = ["large"] * 900 + ["small"] * 50 + ["other"] * 50
    items = [QuestionExample(str(n), t, "q", "c", (), False) for n, t in enumerate(titles)]
    for seed in range(9):
        assert len(hold_out(items, 0.1, seed)[1]) in (50, 100)
        assert len(hold_out(items, 0.01, seed)[1]) == 50, "the smallest, as all are too large"
    items += [QuestionExample(str(n), f"title {n}", "q", "c", (), False) for n in range(50)]
    for seed in range(9):
        assert len(hold_out(items, 0.05, seed)[1]) > 40, "drawing does not end there"
    few = [SimilarityExample(str(n), ("q", f"a{n}"), None) for n in range(97)]
    few += [SimilarityExample(str(n), (f"r{n}", f"b{n}"), None) for n in range(3)]
    _, held_out, what = hold_out(few, 0.1, seed=1)
    assert len(held_out) in (2, 3)
    assert what.startswith("chosen at random; 97 share a text or an article and cannot be split: ")


def test_at_least_one_example_stays_in_each_split():
    assert [len(part) for part in hold_out(texts(2), 0.01, seed=0)[:2]] == [1, 1]
    assert [len(part) for part in hold_out(texts(2), 0.9, seed=0)[:2]] == [1, 1]


@pytest.mark.parametrize(
    "items, what",
    [
        (texts(1), "there is only one"),
        (3 * texts(1), "all 3 have the same text, context or article"),
        ([SimilarityExample(str(n), ("question", f"answer {n}"), None) for n in range(4)],
         "all 4 have the same text, context or article"),
    ],
)  # fmt: skip
def test_unsplittable_examples_raise_error(items, what):
    message = (
        f"^Cannot hold out examples: {what}. Add examples, or pass --dev_file or --dev_fraction=0"
    )
    with pytest.raises(ValueError, match=message):
        hold_out(items, 0.1, seed=1)
