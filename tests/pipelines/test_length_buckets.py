import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.length_buckets import Examples, padded_lengths, plan_epoch
from bert_tf.pipelines.randomness import Operation, bits, fold, permutation

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


def _plan_twin(lengths, batch_size, seed, epoch, sorted_together):
    """The plan by plain loops, from the same draws."""
    order = permutation(len(lengths), fold(seed, Operation.EXAMPLE_ORDER, epoch)).numpy().tolist()
    num_full = len(lengths) // batch_size
    draws = bits([num_full], fold(seed, Operation.BATCH_ORDER, epoch)).numpy().tolist()
    plan = []
    for begin in range(0, num_full, sorted_together):
        end = min(begin + sorted_together, num_full)
        window = sorted(order[begin * batch_size : end * batch_size], key=lambda i: lengths[i])
        batches = [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        for _, batch in sorted(zip(draws[begin:end], batches, strict=True)):
            plan += batch
    return plan + order[num_full * batch_size :]


@pytest.mark.parametrize(
    ("batch_size", "sorted_together"), [(1, 3), (4, 1), (4, 3), (5, 3), (44, 3), (45, 1), (46, 3)]
)
def test_the_plan_is_its_twins(batch_size, sorted_together):
    for epoch in (0, 5):
        plan = plan_epoch(tf.constant(LENGTHS), batch_size, 3, epoch, sorted_together)
        twin = _plan_twin(LENGTHS.tolist(), batch_size, 3, epoch, sorted_together)
        assert plan.numpy().tolist() == twin
        assert sorted(twin) == list(range(45))


@pytest.mark.parametrize(("sorted_together", "threads"), [(1, 1), (3, 8)])
def test_batches_are_slices_of_the_plan(examples, sorted_together, threads):
    sort = {"batches_sorted_together": sorted_together, "num_parallel_calls": threads}
    dataset = examples.training_batches(4, epochs=3, seed=7, **sort)
    assert dataset.cardinality().numpy() == 3 * examples.num_batches(4) == 36
    batches = _batches(dataset)
    assert len(batches) == 36
    for epoch in range(3):
        expected = plan_epoch(tf.constant(LENGTHS), 4, 7, epoch, sorted_together).numpy()
        for step, (indices, width) in enumerate(batches[12 * epoch : 12 * epoch + 12]):
            assert indices == expected[4 * step : 4 * step + 4].tolist()
            assert width == min(20, -(-max(LENGTHS[indices]) // 8) * 8)
    assert [len(indices) for indices, _ in batches[:12]] == [4] * 11 + [1]


def test_a_resumed_run_goes_on_with_the_same_batches(examples):
    whole = _batches(examples.training_batches(10, epochs=3, seed=1))
    # At an epoch's first batch, of more epochs, and within one.
    for first_step, epochs in ((5, 4), (7, 3)):
        rest = examples.training_batches(10, epochs=epochs, seed=1, first_step=first_step)
        assert rest.cardinality().numpy() == 5 * epochs - first_step
        assert _batches(rest)[: 15 - first_step] == whole[first_step:]


def test_each_pass_is_the_next_epoch_of_a_run(examples):
    """``fit`` makes a pass for each of its epochs."""
    batches = examples.training_batches(10)
    assert batches.cardinality().numpy() == 5
    passes = [*_batches(batches), *_batches(batches)]
    assert passes == _batches(examples.training_batches(10, epochs=2))
    # A resumed epoch has no others behind it.
    rest = examples.training_batches(10, first_step=3)
    assert _batches(rest) == _batches(rest) == passes[3:5]


def test_evaluation_in_the_examples_order_or_the_longest_first():
    examples = Examples(np.int32([5, 9, 3, 12, 9]), 12, _make_batch)
    dataset = examples.evaluation_batches(2)
    assert dataset.cardinality().numpy() == 3
    assert _batches(dataset) == [([0, 1], 12), ([2, 3], 12), ([4], 12)]
    sort = {"longest_first": True}
    dataset = examples.evaluation_batches(2, **sort)
    assert dataset.cardinality().numpy() == 3
    assert _batches(dataset) == [([3, 1], 12), ([4, 0], 12), ([2], 8)]
    exact = examples.evaluation_batches(2, **sort, length_multiple=1, num_parallel_calls=1)
    assert [width for _, width in _batches(exact)] == [12, 9, 3]
    full = examples.evaluation_batches(2, **sort, bucket_lengths=[])
    assert [width for _, width in _batches(full)] == [12, 12, 12]
    buckets = examples.evaluation_batches(2, **sort, bucket_lengths=[3, 9])
    assert [width for _, width in _batches(buckets)] == [12, 9, 3]


@pytest.mark.parametrize(
    ("most", "buckets", "expected"),
    [(20, None, [8, 16, 20]), (16, None, [8, 16]), (5, None, [5]), (20, [5, 20], [5, 20])],
)
def test_padded_lengths(most, buckets, expected):
    assert padded_lengths(most, 8, buckets).tolist() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected 1 or more; got 0"),
        ({"epochs": 0}, "epochs: expected 1 or more; got 0"),
        ({"batches_sorted_together": 0}, "batches_sorted_together: expected 1 or more; got 0"),
        ({"first_step": 12}, "expected 0 to 11, as 1 epochs have 12 batches of 4 each"),
        ({"seed": 2**63}, "seed: expected an integer of 64 bits"),
        ({"bucket_lengths": [8, 8]}, "bucket_lengths: expected .*ascending"),
    ],
)
def test_refuses_bad_arguments(examples, arguments, message):
    with pytest.raises(ValueError, match=message):
        examples.training_batches(**{"batch_size": 4, **arguments})


def test_refuses_bad_lengths():
    with pytest.raises(ValueError, match="length_multiple: expected 1 or more; got 0"):
        padded_lengths(20, 0, None)
    for wrong in ([8, 8], [9, 8], [0, 4], [8, 21]):
        with pytest.raises(ValueError, match="ascending, none over max_seq_length 20; got"):
            padded_lengths(20, 8, wrong)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "There are no examples: expected one at least"),
        ([3, 20], "lengths: expected 1 to 19, .* got lengths of 3 to 20"),
    ],
)
def test_refuses_bad_examples(lengths, message):
    with pytest.raises(ValueError, match=message):
        Examples(np.int32(lengths), 19, _make_batch)


def test_the_whole_batch_is_the_only_one_of_a_set_that_fits(examples):
    batch, width = examples.whole_batch()
    ((indices, expected),) = _batches(examples.evaluation_batches(45, longest_first=True))
    assert batch["example_index"].numpy().tolist() == indices
    assert width == int(batch["width"]) == expected == 20
    assert Examples(np.int32([9, 3]), 20, _make_batch).whole_batch()[1] == 16
