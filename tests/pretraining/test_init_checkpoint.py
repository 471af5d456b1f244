"""Pre-training that starts from a checkpoint: of another run, or of another library."""

import json
import shutil

import numpy as np
import pytest

import bert_tf

from .commands import assert_bit_equal, error_of, pretrain, refusal_of, weights

# What the checkpoint says, so that the command has to be told nothing.
FROM_CHECKPOINT = {"bert_config": None, "vocab_size": None}


@pytest.fixture(scope="module")
def started(finished, inputs, tmp_path_factory):
    """A run from the weights of another, at a rate that changes nothing of them.

    Its directory, what it printed, and its flags, which name a copy of the other.
    """
    folder = tmp_path_factory.mktemp("started")
    source = shutil.copytree(finished[0], folder / "source")
    flags = {**FROM_CHECKPOINT, "init_checkpoint": source, "learning_rate": 1e-30}
    done = pretrain(inputs, folder / "run", **flags)
    assert done.returncode == 0, done.stderr
    return folder / "run", done.stdout, flags


@pytest.mark.exhaustive
@pytest.mark.slow
def test_weights_config_vocabulary_and_casing_are_the_checkpoints(finished, started):
    before, after = weights(finished[0], 12), weights(started[0], 12)
    assert_bit_equal(
        {name: value for name, value in before.items() if name.startswith("model/")},
        {name: value for name, value in after.items() if name.startswith("model/")},
    )
    for name in ("bert_config.json", "vocab.txt", "model.json"):
        assert (started[0] / name).read_bytes() == (finished[0] / name).read_bytes()
    assert "and new" not in started[1]  # every head was there


@pytest.mark.exhaustive
@pytest.mark.slow
def test_it_goes_on_when_the_checkpoint_is_gone(started, inputs, tmp_path):
    whole, _, flags = started
    half = shutil.copytree(whole, tmp_path / "half")
    (half / "results.json").unlink()
    for step in (8, 12):
        shutil.rmtree(half / "checkpoints" / f"step-{step:08d}")
    moved = flags["init_checkpoint"].rename(tmp_path / "moved")
    again = pretrain(inputs, half, **flags)
    moved.rename(flags["init_checkpoint"])
    assert again.returncode == 0, again.stderr
    assert "Going on from the checkpoint at step 4." in again.stdout
    # The weights hardly move at that rate; the optimizer's moments do.
    one, other = weights(half, 12), weights(whole, 12)
    assert_bit_equal(one, other)
    early = weights(half, 4)
    moments = [name for name in one if name.endswith(("_momentum", "_velocity"))]
    assert moments and any((early[name] != one[name]).any() for name in moments)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_head_that_the_checkpoint_lacks_is_new_and_told(finished, inputs, tmp_path):
    encoder = bert_tf.BertEncoder.from_checkpoint(finished[0])
    encoder.save(tmp_path / "encoder.keras")
    flags = {**FROM_CHECKPOINT, "init_checkpoint": tmp_path / "encoder.keras"}
    message = error_of(inputs, tmp_path, **flags)
    assert "encoder.keras has no vocabulary to go on with" in message
    assert "give it by --vocab_file, and its casing by --do_lower_case." in message
    flags |= {
        "vocab_file": finished[0] / "vocab.txt",
        "do_lower_case": True,
        "learning_rate": 1e-30,
    }
    done = pretrain(inputs, tmp_path / "run", **flags)
    assert done.returncode == 0, done.stderr
    assert "and new (train before use): masked_lm/dense/kernel" in done.stdout
    model = bert_tf.load(tmp_path / "run")
    for one, other in zip(encoder.weights, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.slow
def test_flags_that_contradict_the_checkpoint_are_refused(finished, inputs, tmp_path):
    flags = {**FROM_CHECKPOINT, "init_checkpoint": finished[0]}
    for changes, message in (
        ({"bert_config": "bert-tiny"}, "--init_checkpoint says its own --bert_config: leave"),
        ({"vocab_size": 100}, "--init_checkpoint says its own --vocab_size: leave"),
        ({"do_lower_case": False}, "whose do_lower_case is True: leave the flag out."),
        ({"vocab_file": finished[0] / "vocab.txt"}, "a vocabulary of its own: leave --vocab_file"),
        ({"init_checkpoint": tmp_path / "none"}, "There is no checkpoint at "),
        ({"max_seq_length": 100}, "model's 64 positions (max_position_embeddings): lower --max_s"),
    ):
        assert message in refusal_of(inputs, tmp_path, **{**flags, **changes})


@pytest.mark.slow
def test_what_it_leaves_is_loaded_as_it_was_trained(finished):
    model = bert_tf.load(finished[0])
    assert type(model) is bert_tf.BertPretrainer
    assert model.preprocessor.tokenizer.vocab == (finished[0] / "vocab.txt").read_text().split()
    assert json.loads((finished[0] / "flags.json").read_text())["do_lower_case"] is True
    saved = weights(finished[0], 12)
    kept = {name: value for name, value in saved.items() if name.startswith("model/")}
    assert_bit_equal({f"model/{v.path}": v.numpy() for v in model.weights}, kept)
