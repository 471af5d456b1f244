"""Pre-training from a checkpoint of another run or another library."""

import shutil

import numpy as np
import pytest

import bert_tf

from .commands import assert_bit_equal, error_of_run, pretrain, weights

pytestmark = pytest.mark.slow
# The checkpoint defines these, so the command needs no flags.
FROM_CHECKPOINT = {"bert_config": None, "vocab_size": None}


def test_init_checkpoint_sets_weights_config_vocabulary_and_casing(finished, inputs, tmp_path):
    """Trains at a learning rate that only changes the optimizer's moments."""
    source = shutil.copytree(finished[0], tmp_path / "source")
    flags = {**FROM_CHECKPOINT, "init_checkpoint": source, "learning_rate": 1e-12}
    flags["export"] = "false"
    run = tmp_path / "run"
    printed = pretrain(inputs, run, **flags)
    assert "and new" not in printed  # no head is new
    expected, before = weights(run, 12), weights(source, 12)
    for name in before:
        if name.startswith("model/"):
            np.testing.assert_allclose(expected[name], before[name], rtol=0, atol=1e-9)
    for name in ("bert_config.json", "vocab.txt", "model.json"):
        assert (run / name).read_bytes() == (source / name).read_bytes()
    (run / "results.json").unlink()
    for step in (8, 12):
        shutil.rmtree(run / "checkpoints" / f"step-{step:08d}")
    source.rename(tmp_path / "moved")
    again = pretrain(inputs, run, **flags)
    assert "Continuing from the checkpoint at step 4." in again
    assert_bit_equal(weights(run, 12), expected)
    early = weights(run, 4)
    moments = [name for name in expected if name.endswith(("_momentum", "_velocity"))]
    assert moments and any((early[name] != expected[name]).any() for name in moments)


def test_special_tokens_setting_comes_from_checkpoint_or_flag(finished, inputs, tmp_path):
    """The run saves the setting."""
    flags = {**FROM_CHECKPOINT, "init_checkpoint": finished[0], "num_train_steps": 1}
    flags |= {"export": "false", "special_tokens_in_texts": "true"}
    first, second = tmp_path / "first", tmp_path / "second"
    pretrain(inputs, first, **flags)
    del flags["special_tokens_in_texts"]
    pretrain(inputs, second, **{**flags, "init_checkpoint": first})
    for path, found in ((finished[0], False), (first, True), (second, True)):
        tokenizer = bert_tf.load(path).preprocessor.tokenizer
        assert (tokenizer.tokenize(["[SEP]"]).to_list() == [[tokenizer.sep_id]]) == found


def test_flags_that_contradict_checkpoint_raise_error(finished, inputs, tmp_path):
    flags = {**FROM_CHECKPOINT, "init_checkpoint": finished[0]}
    bert_tf.BertEncoder.from_checkpoint(finished[0]).save(tmp_path / "encoder.keras")
    bare = "Pass --vocab_file and --do_lower_case."
    for changes, message in (
        (
            {"bert_config": "bert-tiny"},
            "--init_checkpoint sets --bert_config. Remove --bert_config.",
        ),
        (
            {"vocab_size": 100},
            "--init_checkpoint sets --vocab_size. Remove --vocab_size.",
        ),
        ({"do_lower_case": False}, "which has do_lower_case=True. Remove the flag."),
        (
            {"vocab_file": finished[0] / "vocab.txt"},
            "has its own vocabulary. Remove --vocab_file.",
        ),
        ({"init_checkpoint": tmp_path / "encoder.keras"}, bare),
        ({"init_checkpoint": tmp_path / "none"}, "No such checkpoint: "),
        (
            {"max_seq_length": 100},
            "expected at most 64, the model's max_position_embeddings. Lower --max_seq_length or "
            "the lengths of --phases.",
        ),
    ):
        assert message in error_of_run(inputs, tmp_path, **{**flags, **changes})
