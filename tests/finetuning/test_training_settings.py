"""Accumulated gradients, rates by layer, decay, dropout and steps: what each makes of a run."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.finetuning.model import rate_shares
from bert_tf.finetuning.run import run
from bert_tf.training.optimizers import create_optimizer

from .small_runs import (
    parse,
    write_checkpoint,
)


def test_rates_by_layer_are_those_of_a_plain_loop():
    config = BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8,
    )  # fmt: skip
    model = bert_tf.BertClassifier(config, num_classes=2)
    variables = model.trainable_variables
    shares = rate_shares(variables, 3, 0.5)
    optimizer = create_optimizer("adamw", 0.01, variables, weight_decay=0.1, rate_shares=shares)
    rng = np.random.default_rng(1)
    before = [variable.numpy() for variable in variables]
    gradients = [rng.normal(size=value.shape).astype(np.float32) for value in before]
    optimizer.apply(gradients, variables)
    for variable, value, gradient in zip(variables, before, gradients, strict=True):
        path = variable.path
        depth = 4 if "embeddings/" in path else 0
        for block in range(3):
            depth = 3 - block if f"layer_{block}/" in path else depth
        rate = 0.01 * 0.5**depth
        leaf = path.rsplit("/", 1)[-1]
        decay = 0 if leaf in ("gamma", "beta") or leaf.endswith("bias") else 0.1
        # Adam's first update, corrected, is the gradient's sign.
        expected = value * (1 - rate * decay) - rate * gradient / (np.abs(gradient) + 1e-8)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-7, err_msg=path)
    assert {round(share, 4) for share in shares.values()} == {1.0, 0.5, 0.25, 0.125, 0.0625}
    assert rate_shares(variables, 3, 1.0) == {}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--max_steps=5", "--num_train_epochs=2"], "--max_steps and --num_train_epochs both set"),
        (["--max_steps=5", "--sweep=paper"], "--max_steps and --sweep both set the schedule"),
        (["--train_batch_size=8", "--gradient_accumulation_steps=3"],
         "--train_batch_size=8 is not a multiple of --gradient_accumulation_steps=3"),
        (["--layer_decay=0"], "--layer_decay=0.0: expected a number above 0 and at most 1"),
        (["--hidden_dropout_prob=1"], "--hidden_dropout_prob=1.0: expected a number from 0 to bel"),
    ],
)  # fmt: skip
def test_what_contradicts(flags, sentence):
    given = ["--task=classification", "--train_file=a.csv", "--text_columns=a", "--label_column=b"]
    with pytest.raises(ValueError, match=sentence):
        parse(*given, "--init_checkpoint=c", *flags)


@pytest.mark.slow
def test_a_head_without_dropout(inputs, tmp_path):
    asked = {"id": "1", "question": "so", "answers": [{"text": "good", "answer_start": 0}]}
    paragraph = {"context": "good film", "qas": [asked]}
    data = {"data": [{"title": "a", "paragraphs": [paragraph]}]}
    (tmp_path / "a.json").write_text(json.dumps(data))
    write_checkpoint(tmp_path / "tiny")
    flags, _ = parse(
        "--task=squad", f"--train_file={tmp_path}/a.json", f"--dev_file={tmp_path}/a.json",
        f"--init_checkpoint={tmp_path}/tiny", "--max_seq_length=16", "--classifier_dropout=0.5",
    )  # fmt: skip
    with pytest.raises(ValueError, match="--classifier_dropout=0.5: the head of squad has no drop"):
        run(flags)
