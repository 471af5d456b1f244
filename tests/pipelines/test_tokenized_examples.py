import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.classification import classification_examples, multiple_choice_examples
from bert_tf.pipelines.randomness import Operation, fold, permutation
from bert_tf.pipelines.tokenized_examples import (
    Examples,
    class_column,
    label_column,
    plan_epoch,
    prediction_length_multiple,
    string_column,
    tokenize_column,
    tokenize_with_offsets,
    weight_column,
)
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer

LENGTHS = np.random.default_rng(0).integers(3, 20, 45).astype(np.int32)


def _make_batch(indices, width):
    return {"example_index": indices, "width": width}


def _batches(dataset):
    return [
        (batch["example_index"].tolist(), int(batch["width"]))
        for batch in dataset.as_numpy_iterator()
    ]


@pytest.fixture(scope="module")
def examples():
    return Examples(LENGTHS, 20, _make_batch)


def _plan_twin(lengths, batch_size, seed, epoch):
    """Plans an epoch with plain loops, using the same random draws."""
    order = permutation(len(lengths), fold(seed, Operation.EXAMPLE_ORDER, epoch)).numpy().tolist()
    end = len(lengths) // batch_size * batch_size
    batches = [order[i : i + batch_size] for i in range(0, end, batch_size)]
    return [i for batch in batches for i in sorted(batch, key=lambda i: lengths[i])] + order[end:]


@pytest.mark.parametrize("batch_size", [1, 4, 5, 44, 45, 46])
def test_plan_matches_plain_loops(batch_size):
    for epoch in (0, 5):
        plan = plan_epoch(tf.constant(LENGTHS), batch_size, 3, epoch)
        twin = _plan_twin(LENGTHS.tolist(), batch_size, 3, epoch)
        assert plan.numpy().tolist() == twin
        assert sorted(twin) == list(range(45))


def _planned(size, epochs, seed=0):
    """Returns the planned batches of some epochs."""
    found = []
    for epoch in range(epochs):
        plan = plan_epoch(tf.constant(LENGTHS), size, seed, epoch).numpy()
        for indices in np.split(plan, range(size, len(plan), size)):
            found.append((indices.tolist(), min(20, -(-max(LENGTHS[indices]) // 8) * 8)))
    return found


# From the start of the run, from the start of an epoch, and from within one.
@pytest.mark.parametrize(("threads", "first_step"), [(8, 0), (1, 12), (None, 19)])
def test_batches_follow_the_plan(examples, threads, first_step):
    dataset = examples.training_batches(
        4, epochs=3, seed=7, first_step=first_step, num_parallel_calls=threads
    )
    assert dataset.cardinality().numpy() == 3 * examples.num_batches(4) - first_step
    assert _batches(dataset) == _planned(4, 3, 7)[first_step:]


def test_each_iteration_yields_the_next_epoch(examples):
    """``fit`` iterates once per epoch."""
    batches, planned = examples.training_batches(10), _planned(10, 2)
    assert batches.cardinality().numpy() == 5
    assert [*_batches(batches), *_batches(batches)] == planned
    # A dataset that starts within an epoch yields only the rest of that epoch.
    rest = examples.training_batches(10, first_step=3)
    assert _batches(rest) == _batches(rest) == planned[3:5]


def test_few_shapes_limits_batch_shapes(examples):
    """Lengths are rounded up to few values; a smaller last batch has the largest length."""
    assert LENGTHS.max() == 19 and examples.few_lengths().tolist() == [8, 16, 20]
    shapes = {
        (len(indices), width)
        for indices, width in _batches(examples.training_batches(2, epochs=9, few_shapes=True))
    }
    assert shapes == {(2, 8), (2, 16), (2, 20), (1, 20)}
    long = Examples(np.int32([130, 40]), 512, _make_batch)
    assert long.few_lengths().tolist() == [40, 80, 120, 160]
    (batch,) = _batches(long.training_batches(2, few_shapes=True))
    assert batch == ([1, 0], 160)


@pytest.mark.parametrize(
    ("multiple", "in_order", "by_length"),
    [(1, (9, 12, 9), (12, 9, 3)), (8, (12, 12, 12), (12, 12, 8))],
)
def test_evaluation_order_is_original_or_by_length(multiple, in_order, by_length):
    examples = Examples(np.int32([5, 9, 3, 12, 9]), 12, _make_batch)
    dataset = examples.evaluation_batches(2, length_multiple=multiple)
    assert dataset.cardinality().numpy() == 3
    assert _batches(dataset) == list(zip(([0, 1], [2, 3], [4]), in_order, strict=True))
    eager, _ = examples.sorted_batches(2, multiple)
    found = [(batch["example_index"].numpy().tolist(), int(batch["width"])) for batch in eager]
    assert found == list(zip(([3, 1], [4, 0], [2]), by_length, strict=True))


@pytest.mark.parametrize(("device", "multiple"), [("CPU", 1), ("GPU", 8), ("TPU", 8)])
def test_only_predictions_on_a_cpu_are_as_long_as_their_longest_text(monkeypatch, device, multiple):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda name: [name] * (name == device))
    assert prediction_length_multiple() == multiple


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"first_step": 12}, r"expected 0 to 11 \(1 epochs of 12 batches\)"),
        ({"seed": 2**63}, "seed: expected a 64-bit integer"),
        ({"length_multiple": 0}, "length_multiple: expected at least 1, got 0"),
    ],
)
def test_invalid_arguments_raise_error(examples, arguments, message):
    with pytest.raises(ValueError, match=message):
        examples.training_batches(**{"batch_size": 4, **arguments})


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "Expected at least one example, got none"),
        ([3, 20], "lengths: expected 1 to max_seq_length=19, got 3 to 20"),
    ],
)
def test_invalid_lengths_raise_error(lengths, message):
    with pytest.raises(ValueError, match=message):
        Examples(np.int32(lengths), 19, _make_batch)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_batches_of_fixed_size_match_the_element_spec(size):
    """A dimension may equal a length, and another may be limited to the largest length."""
    rows = tf.zeros([5, size, 8], tf.int32)
    examples = Examples(
        np.int32([3, 8, 5, 2, 7]), 8, lambda indices, width: tf.gather(rows, indices)[..., :width]
    )
    batches, spec = examples.sorted_batches(2, 1)
    assert spec == tf.TensorSpec([None, size, None], tf.int32)
    assert [batch.shape.as_list() for batch in batches] == [
        [2, size, 8],
        [2, size, 5],
        [1, size, 2],
    ]


# Nine chunks, of which the last one is smaller: more than are tokenized eagerly.
STRINGS = ["a b" * (i % 4) + "c" * (i % 3) for i in range(8500)]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer([*SPECIAL_TOKENS, "a", "b", "c", "##c", "##a"])


def _examples_of_each_form(tokenizer):
    texts, options = ["a b " * n for n in range(6, 0, -1)], {"max_seq_length": 8}
    yield classification_examples(tokenizer, texts, **options)
    options["labels"] = [1, 0] * 3
    yield classification_examples(tokenizer, texts, long_text="windows", **options)
    # All rows have 8 tokens, and there are 8 choices.
    yield multiple_choice_examples(tokenizer, ["a b a b"] * 6, [["a"] * 8] * 6, **options)


def test_element_spec_is_that_of_the_dataset(tokenizer):
    for examples in _examples_of_each_form(tokenizer):
        batches, spec = examples.sorted_batches(4)
        assert spec == examples.evaluation_batches(2).element_spec
        for batch in batches:
            tf.nest.map_structure(
                lambda part, spec: spec.shape.assert_is_compatible_with(part.shape), batch, spec
            )


@pytest.mark.parametrize("size", [2500, 8500], ids=["eager", "dataset"])
def test_chunked_tokenization_equals_single_call(tokenizer, size):
    columns = tokenize_with_offsets(tokenizer, string_column(STRINGS[:size], "texts"))
    expected = tokenizer.tokenize_with_offsets(STRINGS[:size])
    few = tokenize_column(tokenizer, np.array(STRINGS[:9]), "texts")
    assert few.dtype == tf.int32 and few.to_list() == expected[0][:9].to_list()
    for column, wanted in zip(columns, expected, strict=True):
        assert column.dtype == wanted.dtype
        np.testing.assert_array_equal(column.row_splits, wanted.row_splits)
        np.testing.assert_array_equal(column.values, wanted.values)


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        (["a", 3], r"texts\[1\]: expected a string, got 3"),
        ([["a"]], r"texts\[0\]: expected a string, got \['a'\]"),
        (tf.constant([["a"]]),
         r"texts: expected strings of shape \(N,\), got string of shape \(1, 1\)"),
        (tf.constant([1, 2]),
         r"texts: expected strings of shape \(N,\), got int32 of shape \(2,\)"),
        ("abc", "texts: expected a vector .* got 'abc'"),
        ([], "texts: expected at least one string, got none"),
    ],
)  # fmt: skip
def test_invalid_string_column_raises_error(strings, message):
    with pytest.raises(ValueError, match=message):
        string_column(strings, "texts")


@pytest.mark.parametrize(
    "labels, dtype, expected",
    [
        ([2, 0, 1], np.int32, [2, 0, 1]),
        (np.array([True, False, True]), np.int32, [1, 0, 1]),
        ([1, 0.5, -3], np.float32, [1, 0.5, -3]),
        ([[1, 0], [0, 0], [1, 1]], np.float32, [[1, 0], [0, 0], [1, 1]]),
        ([[0.25, 1.0]] * 3, np.float32, [[0.25, 1.0]] * 3),
    ],
)
def test_label_column_dtypes(labels, dtype, expected):
    column = label_column(labels, 3)
    assert column.dtype == dtype
    np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        (label_column, [0, 1], "labels: expected one row for each of the 3 examples, got 2"),
        (label_column, [0, -1, 2], r"labels\[1\]: expected 0 to 2147483647, got -1"),
        (label_column, [0, 2**31, 2], r"labels\[1\]: expected 0 to 2147483647, got 2147483648"),
        (label_column, [0.5, np.nan, 2],
         r"labels\[1\]: expected a finite number, -inf to inf, got nan"),
        (label_column, [[0, 1], [0, 1], [1, 2]], r"labels\[2, 1\]: expected 0 to 1, got 2"),
        (label_column, ["a", "b", "c"], r"labels: expected integers of shape \(N,\), floats "
         r"of shape \(N,\), or numbers of shape \(N, C\), got dtype <U1 and shape \(3,\)"),
        (label_column, 1, r"got dtype int64 and shape \(\)"),
        (label_column, [[0], [0, 1], [1]],
         r"labels: expected rows of equal length, got \[\[0\], \[0, 1\], \[1\]\]"),
        (class_column, [3.0, 0.0, 1.0],
         r"labels: expected integers of shape \(N,\), got dtype float64 and shape \(3,\)"),
        (weight_column, [1, -1, 1],
         r"sample_weights\[1\]: expected a finite number, 0 to inf, got -1"),
        (weight_column, [[1, 1]], r"sample_weights: expected numbers of shape \(N,\), got dtype "
         r"int64 and shape \(1, 2\)"),
        (weight_column, [1, 1],
         "sample_weights: expected one row for each of the 3 examples, got 2"),
    ],
)  # fmt: skip
def test_invalid_labels_and_weights_raise_error(make, values, message):
    with pytest.raises(ValueError, match=message):
        make(values, 3)
