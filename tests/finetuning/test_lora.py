"""LoRA: what trains, that merged is unmerged, that runs resume, and what is refused."""

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.finetuning import lora, training
from bert_tf.finetuning.run import run
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.training import checkpoints

from .small_runs import TINY, saved, settings

FLAGS = {"lora_rank": 2, "learning_rate": 1e-2, "num_train_epochs": 1}
ATTENTION = [f"bert_encoder/layer_0/attention/{name}" for name in ("query_key_value", "output")]
FACTORS = [f"{name}/lora_kernel_{which}" for name in ATTENTION for which in "ab"]
HEAD = [
    *("bert_encoder/pooler/dense/kernel", "bert_encoder/pooler/dense/bias"),
    *("bert_classifier/classifier/kernel", "bert_classifier/classifier/bias"),
]


def classifier():
    keras.utils.set_random_seed(3)
    return MODEL_CLASSES["BertClassifier"](TINY, num_classes=2)


def ids():
    random = np.random.default_rng(2)
    words = random.integers(5, TINY.vocab_size, (3, 7), np.int32)
    mask = np.ones_like(words)
    mask[1, 4:] = 0
    return {"input_word_ids": words, "input_mask": mask, "input_type_ids": 0 * words}


def test_what_trains_and_that_merged_is_unmerged():
    model, plain, inputs = classifier(), classifier(), ids()
    before = model(inputs)
    lora.add_factors(model, 2)
    np.testing.assert_array_equal(model(inputs), before)  # the second factors are 0
    assert sorted(v.path for v in model.trainable_variables) == sorted([*FACTORS, *HEAD])
    # (16 + 48) * 2 and (16 + 16) * 2 of attention, 16 * 16 + 16 of the pooler, 16 * 2 + 2.
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == 128 + 64 + 272 + 34
    assert lora.describe(model) == "LoRA: 498 of 3,570 weights train."

    for variable in model.trainable_variables:
        random = np.random.default_rng(len(variable.path))
        variable.assign(random.normal(0, 0.3, variable.shape))
    unmerged, values = model(inputs), lora.plain_values(model)
    assert np.abs(unmerged - before).max() > 0.1
    assert values.keys() == {weight.path for weight in plain.weights}
    by_path = {weight.path: weight.numpy() for weight in model.weights}
    for name in ATTENTION:
        product = by_path[f"{name}/lora_kernel_a"] @ by_path[f"{name}/lora_kernel_b"]
        expected = by_path[f"{name}/kernel"] + product
        np.testing.assert_allclose(values[f"{name}/kernel"], expected, atol=1e-6)
    for weight in plain.weights:
        weight.assign(values[weight.path])
    np.testing.assert_allclose(plain(inputs), unmerged, atol=1e-6)
    # As a training ends: merged matrices, and factors that add nothing.
    for path, variable in lora.plain_variables(model).items():
        variable.assign(values[path])
    lora.clear_factors(model)
    np.testing.assert_allclose(model(inputs), unmerged, atol=1e-6)


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """A run's directory, and what its model answered when the kept weights were saved."""
    folder, seen = tmp_path_factory.mktemp("lora") / "run", {}
    before = training.Training._keep_weights

    def keep(self):
        before(self)
        seen[self.state.step] = self.model(ids())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Training, "_keep_weights", keep)
        run(settings(inputs, folder, **FLAGS))
    return folder, seen[checkpoints.find_latest(str(folder / "checkpoints")).step]


def test_a_run_keeps_plain_weights(inputs, trained):
    folder, answers = trained
    kept = saved(folder / "checkpoints")
    start, model = bert_tf.load(str(inputs / "tiny")), bert_tf.load(str(folder))
    np.testing.assert_allclose(model(ids()), answers, atol=1e-6)
    assert kept.keys() == {f"model/{weight.path}" for weight in model.weights}
    merged = {f"{name}/kernel" for name in ATTENTION}
    for weight in start.weights:
        value = kept[f"model/{weight.path}"]
        if weight.path in merged or "/pooler/" in weight.path:
            assert np.abs(value - weight).max() > 1e-4, weight.path
        else:
            np.testing.assert_array_equal(value, weight, err_msg=weight.path)
    # The state to resume from has the factors and the matrices as they were, and the optimizer's
    # two moments of what trains alone.
    last = saved(folder / "last")
    assert {f"model/{path}" for path in FACTORS} <= last.keys()
    for name in merged:
        np.testing.assert_array_equal(
            last[f"model/{name}"], next(w for w in start.weights if w.path == name)
        )
    moments = [name for name in last if name.endswith(("_momentum", "_velocity"))]
    assert len(moments) == 2 * len([*FACTORS, *HEAD])
