"""Classification, regression and multiple choice signatures equal direct calls and literals."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.answering.fill_mask import next_sentence
from bert_tf.modeling import BertClassifier, BertMultipleChoice, BertRegressor
from bert_tf.pipelines.classification import multiple_choice_examples
from bert_tf.tasks.signatures import model_signatures

from .conftest import ask, assert_same, features_of, make, serve, softmax, texts_of

CLS, SEP = 2, 3
THE, A, CAT, DOG, SAT, ON, MAT = range(5, 12)
STOP = 15

TEXTS = ["The cat", "", "dog dog dog dog dog"]
SECOND_TEXTS = ["sat.", "dog", "a"]
ROWS = [[CLS, THE, CAT, SEP], [CLS, SEP], [CLS, *[DOG] * 5, SEP]]
PAIRS = [
    ([CLS, THE, CAT, SEP, SAT, STOP, SEP], [0, 0, 0, 0, 1, 1, 1]),
    ([CLS, SEP, DOG, SEP], [0, 0, 1, 1]),
    ([CLS, *[DOG] * 4, SEP, A, SEP], [0] * 6 + [1, 1]),
]


@pytest.fixture
def classifier():
    model = make(BertClassifier, num_classes=3)
    model.labels = ("no", "perhaps", "sí")
    return model


def stub(model, logits, **options):
    """Returns a stub of the classifier with fixed logits."""
    return serve(model, call=lambda rows: tf.constant(logits), **options)


@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_probabilities_equal_separate_rows(classifier, pairs):
    inputs = {"text": TEXTS, **({"text_pair": SECOND_TEXTS} if pairs else {})}
    outputs = ask("pair" if pairs else "text", serve(classifier, 8), **inputs)
    rows = [features_of(*row) for row in PAIRS] if pairs else map(features_of, ROWS)
    probabilities = np.array([softmax(classifier(row).numpy()[0]) for row in rows])
    best = probabilities.argmax(1)
    assert len(set(best)) > 1 and (np.sort(probabilities)[:, -2:] @ [-1, 1] > 1e-3).all()
    np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-6)
    np.testing.assert_allclose(outputs["score"], probabilities.max(1), atol=1e-6)
    names = ["no", "perhaps", "sí"]
    assert texts_of(outputs["labels"]) == [names] * 3
    assert texts_of(outputs["label"]) == [names[index] for index in best]
    assert outputs["truncated"].tolist() == [False, False, pairs]
    assert set(outputs) == {"label", "score", "labels", "probabilities", "truncated"}


def test_single_label_outputs_equal_literals(classifier):
    logits = np.log(np.float32([[0.25, 0.5, 0.25], [0.5, 0.5, 1e-9]]))
    outputs = ask("text", stub(classifier, logits), text=["a", "cat"])
    assert outputs["label"].tolist() == [b"perhaps", b"no"]  # the first one wins ties
    np.testing.assert_allclose(outputs["score"], [0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize(
    "thresholds, expected",
    [
        ({}, [["sí", "no", ""], ["", "", ""], ["no", "perhaps", "sí"]]),
        (
            {"probability": 0.125},
            [["sí", "no", "perhaps"], ["sí", "perhaps", ""], ["no", "perhaps", "sí"]],
        ),
        ({"probability": 0.75}, [["sí", "", ""], ["", "", ""], ["no", "perhaps", "sí"]]),
        # The calibrated probability of "perhaps", 0.319, is below the threshold.
        (
            {"probability": 0.33, "temperature": 2.5},
            [["sí", "no", ""], ["sí", "", ""], ["no", "perhaps", "sí"]],
        ),
        # As float32, two probabilities are 1.
        ({"probability": 1 - 2e-9}, [["", "", ""], ["", "", ""], ["no", "", ""]]),
    ],
)
def test_multilabel_outputs_equal_literals(classifier, thresholds, expected):
    classifier.multi_label, classifier.thresholds = True, thresholds
    logits = np.float32([[0.0, -1.9, 1.1], [-9.0, -1.9, -0.1], [22.0, 20.0, 18.0]])
    outputs = ask("text", stub(classifier, logits), text=["a", "cat", "dog"])
    assert texts_of(outputs["chosen_labels"]) == expected
    assert outputs["counts"].tolist() == [sum(map(bool, row)) for row in expected]
    scaled = logits / thresholds.get("temperature", 1)
    np.testing.assert_allclose(outputs["probabilities"], 1 / (1 + np.exp(-scaled)), atol=1e-6)
    assert texts_of(outputs["labels"]) == [["no", "perhaps", "sí"]] * 3
    assert set(outputs) == {"chosen_labels", "counts", "labels", "probabilities", "truncated"}


def test_probabilities_are_calibrated(classifier):
    logits = np.float32([[0.0, -1.9, 1.1], [-9.0, -1.9, -0.1]])
    classifier.thresholds = {"temperature": 2.5}
    outputs = ask("text", stub(classifier, logits), text=["a", "cat"])
    expected = [softmax(row / 2.5) for row in logits]
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
    np.testing.assert_allclose(outputs["score"], np.max(expected, 1), atol=1e-6)


def test_default_class_names_and_invalid_utf8_names(classifier):
    classifier.labels = ()
    assert serve(classifier).labels == ["0", "1", "2"]
    classifier.labels = ("a", "\ud800", "b")
    with pytest.raises(ValueError, match=r"Class 1 has the name '\\ud800', .* not valid UTF-8"):
        print(serve(classifier).labels)


def test_regression_values_equal_separate_rows():
    model = make(BertRegressor)
    outputs = ask("pair", serve(model, 8), text=TEXTS, text_pair=SECOND_TEXTS)
    values = np.array([model(features_of(*row)).numpy()[0] for row in PAIRS])
    assert_same(outputs, {"value": values, "truncated": np.array([False, False, True])})
    assert outputs["value"].std() > 0.1


def test_regressor_activation_is_applied_for_text_and_ids():
    model = make(BertRegressor)

    def values():
        served = serve(model, 8)
        ids = model_signatures(served)["tokens"].samples[0]
        by_ids = {key: tf.constant(value) for key, value in ids.items()}
        answers = ask("text", served, text=TEXTS), ask("tokens", served, **by_ids)
        return np.concatenate([answer["value"] for answer in answers])

    plain = values()
    model.activation = "sigmoid"
    np.testing.assert_allclose(values(), 1 / (1 + np.exp(-plain)), atol=1e-6)


def test_next_sentence_probabilities_equal_separate_rows(model):
    outputs = ask(next_sentence, serve(model), first=["The cat", ""], second=["sat.", "dog"])
    no_masks = {"masked_lm_positions": tf.constant([[0]])}
    rows = [model({**features_of(*row), **no_masks}) for row in PAIRS[:2]]
    probabilities = [softmax(row["next_sentence_logits"].numpy())[0, 0] for row in rows]
    np.testing.assert_allclose(outputs["probability"], probabilities, atol=1e-6)
    assert abs(probabilities[0] - 0.5) > 1e-3, "swapped labels would not be detected"
    assert outputs["truncated"].tolist() == [False, False]


# === Choices ===

CONTEXTS = ["The cat", "", "dog dog dog dog dog", b"a \xff\xc3dog."]
CHOICES = [
    ["sat", "the mat", "?"],
    ["on a mat", "sat", "!"],
    ["a", "the cat sat on the mat", "dog"],
    [b"\xff", b"\xffcat", "unable"],
]


@pytest.fixture(scope="module")
def chooser():
    return make(BertMultipleChoice)


def test_choices_equal_fine_tuning(chooser, tokenizer):
    outputs = ask("serving_default", serve(chooser, 8), context=CONTEXTS, choices=CHOICES)
    examples = multiple_choice_examples(tokenizer, CONTEXTS, CHOICES, max_seq_length=8)
    for batch in examples.evaluation_batches(2):
        indices = batch.pop("example_index").numpy()
        logits = chooser(batch, training=False).numpy()
        np.testing.assert_allclose(outputs["probabilities"][indices], softmax(logits), atol=1e-6)
        assert outputs["choice"][indices].tolist() == logits.argmax(1).tolist()
    assert outputs["truncated"].tolist() == [False, False, True, False]
    assert examples.num_too_long == 1


def test_empty_choices_are_ignored(chooser):
    """Empty choices do not affect others, at any position."""
    rows = [["a cat", "", "on the mat"], ["", "", "dog"], ["sat", "the dog", "unable"], [""] * 3]
    contexts = ["the cat sat", "dog", "a", "the cat"]
    outputs = ask("serving_default", serve(chooser), context=contexts, choices=rows)
    for at, (context, row) in enumerate(zip(contexts, rows, strict=True)):
        non_empty = [index for index, choice in enumerate(row) if choice]
        assert outputs["probabilities"][at, [p for p in range(3) if p not in non_empty]].sum() == 0
        if not non_empty:
            assert outputs["choice"][at] == -1
            continue
        separate = ask(
            "serving_default",
            serve(chooser),
            context=[context],
            choices=[[row[p] for p in non_empty]],
        )
        assert outputs["choice"][at] == non_empty[separate["choice"][0]]
        np.testing.assert_allclose(
            outputs["probabilities"][at, non_empty], separate["probabilities"][0], atol=1e-6
        )
    # Only padding is never truncated.
    outputs = ask(
        "serving_default", serve(chooser, 8), context=["the cat sat on the mat"], choices=[["", ""]]
    )
    assert not outputs["truncated"].any()


def example(**texts):
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
        for name, text in texts.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.mark.parametrize("pair", [False, True])
def test_tf_examples_have_the_answers_of_their_texts(classifier, pair):
    columns = {"text": TEXTS, **({"text_pair": SECOND_TEXTS} if pair else {})}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    examples = [example(**row, unread="x") for row in rows]
    served = serve(classifier, 8, pair=pair)
    answered = ask("classify", served, inputs=examples)
    expected = ask("serving_default", served, **columns)
    np.testing.assert_array_equal(answered["scores"], expected["probabilities"])
    assert texts_of(answered["classes"]) == [["no", "perhaps", "sí"]] * 3
    regressor = serve(make(BertRegressor), 8, pair=pair)
    np.testing.assert_array_equal(
        ask("regress", regressor, inputs=examples)["outputs"],
        ask("serving_default", regressor, **columns)["value"],
    )


def test_tf_example_without_text_raises_error(classifier):
    served = serve(classifier, pair=True)
    message = "text_pair.* is required but could not be found"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask("classify", served, inputs=[example(text="The cat")])
