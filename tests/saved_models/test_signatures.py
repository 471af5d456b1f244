"""Signatures: which there are, what they refuse, and the question to a model at hand."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models import heads, signatures

from .conftest import CONFIG, VOCAB


def test_names_inputs_and_one_tokenizer_graph(model, tokenizer):
    found = signatures.pretraining_signatures(model, tokenizer, max_seq_length=16, top_k=2)
    assert {name: set(function.structured_outputs) for name, function in found.items()} == {
        "serving_default": {"tokens", "token_ids", "scores", "counts", "filled", "truncated"},
        "embed": {"pooled_output", "mean_output", "truncated"},
        "tokens": {"sequence_output", "pooled_output"},
        "next_sentence": {"probability", "truncated"},
    }
    for function in found.values():
        for output in function.structured_outputs.values():
            assert output.shape[0] is None
            assert output.dtype in (tf.string, tf.int32, tf.float32, tf.bool)
    text = tf.constant(["the [MASK]", "[MASK] cat"])
    eager = heads.fill_masks(model, tokenizer, text, max_seq_length=16, top_k=2)
    traced = found["serving_default"](text)
    assert traced["filled"].numpy().tolist() == eager["filled"].numpy().tolist()
    np.testing.assert_allclose(traced["scores"], eager["scores"], atol=1e-6)
    # The tokenizer is a function that the signatures call, not a part of each.
    operations = {op.type for op in found["embed"].graph.get_operations()}
    assert "StatefulPartitionedCall" in operations or "PartitionedCall" in operations
    assert not any("Wordpiece" in operation for operation in operations)
    assert "tokenize" not in tokenizer.__dict__


def test_without_the_next_sentence_head(tokenizer, monkeypatch):
    # Untraced: what they compute is the same as with the head.
    monkeypatch.setattr(signatures, "signature", lambda function, inputs: function)
    found = signatures.pretraining_signatures(
        BertPretrainer(CONFIG, nsp=False), tokenizer, max_seq_length=16
    )
    assert set(found) == {"serving_default", "embed", "tokens"}
    text = tf.constant(["the [MASK]"])
    assert found["serving_default"](text)["counts"].numpy().tolist() == [1]
    # Nothing has trained a pooler, so there is none.
    assert set(found["embed"](text)) == {"mean_output", "truncated"}
    ids = tf.ones([1, 4], tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    assert set(found["tokens"](**inputs)) == {"sequence_output"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_seq_length": 25}, "max_seq_length is 25: expected 5 to 24, the model's max_pos"),
        ({"max_seq_length": 4}, "max_seq_length is 4: expected 5 to 24"),
        ({"max_seq_length": 16, "top_k": 0}, "top_k is 0: expected 1 or more guesses"),
    ],
)
def test_refuses(model, tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        signatures.pretraining_signatures(model, tokenizer, **arguments)


def test_refuses_a_model_that_fills_no_masks(tokenizer):
    with pytest.raises(ValueError, match="bert_pretrainer has no masked-LM head to fill masks"):
        signatures.pretraining_signatures(
            BertPretrainer(CONFIG, mlm=False), tokenizer, max_seq_length=16
        )


def test_refuses_a_vocabulary_larger_than_the_model(model):
    larger = BertTokenizer([*VOCAB, *"bcdef"])
    with pytest.raises(ValueError, match="of the tokenizer has 26 pieces, but .* vocab_size is 25"):
        signatures.pretraining_signatures(model, larger, max_seq_length=16)
