"""What scripts for transformers 4 do besides: labels, losses, tokenizers, pipelines, optimizers."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import bert_tf.transformers as successor

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "so", "no", "é"),
    *("nurse", "patient"),
]
SIZES = {
    **{"vocab_size": len(PIECES), "hidden_size": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16},
}
IDS = np.array([[2, 5, 3], [2, 6, 3]])
CONFIG = successor.BertConfig(**SIZES)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return str(tmp_path / "vocab.txt")


def test_the_models_loss_by_its_name_is_a_loss_of_compile_and_metrics_are_its_third_argument():
    model = successor.TFBertForSequenceClassification(CONFIG)
    expected = np.mean(model(IDS, labels=[0, 1]).loss)
    model.compile("sgd", model.hf_compute_loss, ["accuracy"], run_eagerly=True)
    loss, _ = model.evaluate({"input_ids": IDS}, np.array([0, 1]), 2, 0)
    assert loss == pytest.approx(expected)


def test_a_loss_of_ones_own_gets_the_labels_and_the_logits():
    class Doubled(successor.TFBertForSequenceClassification):
        def hf_compute_loss(self, labels, logits):
            return 2 * super().hf_compute_loss(tf.cast(labels, tf.int32), tf.identity(logits))

    model = Doubled(CONFIG)
    found = model(IDS, labels=np.array([0, 1]))
    expected = model.head.loss(np.array([0, 1]), found.logits)
    np.testing.assert_allclose(found.loss, 2 * expected, rtol=1e-6)


def test_next_sentence_labels_have_their_name():
    model = successor.TFBertForNextSentencePrediction(CONFIG)
    for found in (
        model(IDS, next_sentence_label=[0, 1]),
        model({"input_ids": IDS, "next_sentence_label": [0, 1]}),
    ):
        assert tuple(found.loss.shape) == (2,)


def test_a_folder_below_is_read_where_it_is_said(tmp_path):
    names = ("run", "run/checkpoint-5")
    outer, inner = (successor.TFBertForSequenceClassification(CONFIG) for _ in names)
    for model, name in zip((outer, inner), names, strict=True):
        model.save_pretrained(tmp_path / name)
    found = successor.TFAutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run", subfolder="checkpoint-5"
    )
    np.testing.assert_array_equal(found(IDS).logits, inner(IDS).logits)
    found = successor.TFAutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run", from_pt=True
    )
    np.testing.assert_array_equal(found(IDS).logits, outer(IDS).logits)


def test_places_of_tokens(file):
    row = successor.BertTokenizerFast(file)("the cats")
    assert row.token_to_chars(3) == (7, 8) and row.token_to_chars(0) is None
    assert row.token_to_word(3) == 1 == row.char_to_word(5)


def test_one_row_and_a_dict_of_columns_are_padded(file):
    tokenizer = successor.BertTokenizerFast(file)
    row = tokenizer.pad({"input_ids": [2, 5, 3]}, padding="max_length", max_length=4)
    assert dict(row) == {"input_ids": [2, 5, 3, 0], "attention_mask": [1, 1, 1, 0]}
    collate = successor.DataCollatorWithPadding(tokenizer, return_tensors="np")
    assert collate({"input_ids": [[2, 3], [2, 5, 3]], "label": [0, 1]})["input_ids"][0, 2] == 0
    assert not successor.DataCollatorForLanguageModeling(tokenizer, False).mlm


def test_special_tokens_and_normalization_are_arguments_and_are_saved(file, tmp_path):
    tokenizer = successor.BertTokenizer(
        file, additional_special_tokens=["[E1]"], strip_accents=False, padding_side="left"
    )
    with pytest.raises(ValueError, match="strip_accents is False, tokenize_chinese_chars True"):
        successor.TFBertTokenizer.from_tokenizer(tokenizer)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    tokenizer.add_tokens(successor.AddedToken("covid"))
    tokenizer.save_pretrained(tmp_path / "saved")
    for found in (tokenizer, successor.BertTokenizer.from_pretrained(tmp_path / "saved")):
        assert found.tokenize("[E1] é covid") == ["[E1]", "é", "covid"]
        assert found.all_special_tokens[-2:] == ["<mask>", "[E1]"]
        assert found.padding_side == "left"


def test_tokens_that_the_slow_tokenizer_added_and_another_familys_tokenizer(file, tmp_path):
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": len(PIECES)}))
    assert successor.BertTokenizer.from_pretrained(tmp_path).tokenize("covid") == ["covid"]
    for ids in ({"covid": len(PIECES) + 1}, {"covid": "x"}, {"a": len(PIECES), "b": len(PIECES)}):
        (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
        with pytest.raises(ValueError, match=r"added_tokens\.json: expected ids that follow"):
            successor.BertTokenizer.from_pretrained(tmp_path)
    os.remove(file)
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="is a tokenizer of BPE: expected a BERT's"):
        successor.AutoTokenizer.from_pretrained(tmp_path)


def test_pipelines_shapes_are_theirs(file):
    tokenizer = successor.BertTokenizerFast(file)
    classifier = successor.TFBertForSequenceClassification(CONFIG)
    classify = successor.pipeline("text-classification", classifier, tokenizer=tokenizer)
    assert "label" in classify({"text": "so", "text_pair": "no"})
    classify.options = {"top_k": None}
    assert len(classify("so")[0]) == 2
    unmask = successor.pipeline(
        "fill-mask", successor.TFBertForMaskedLM(CONFIG), tokenizer=tokenizer
    )
    assert {one["token_str"] for one in unmask(["so [MASK]"], targets=["Patient", "nurse"])} == {
        *("patient", "nurse")
    }


def test_gradients_add_up_in_a_graph():
    accumulator = successor.GradientAccumulator()
    step = tf.function(lambda gradient: accumulator([gradient, None]))
    for _ in range(3):
        step(tf.ones(2))
    assert int(accumulator.step) == 3 and accumulator.gradients[0].numpy().tolist() == [3, 3]
    accumulator.reset()
    assert accumulator.gradients[0].numpy().tolist() == [0, 0]


def test_the_optimizer_is_written_and_knows_normalisations_by_transformers_name():
    optimizer, rate = successor.create_optimizer(1e-3, 10, 4, weight_decay_rate=0.1)
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(optimizer)))
    again = keras.saving.deserialize_keras_object(saved)
    assert float(again._learning_rate(6)) == float(rate(6))
    gamma = keras.Variable([1.0], name="layer_norm_gamma")
    decay = {"weight_decay_rate": 0.5, "exclude_from_weight_decay": ["LayerNorm"]}
    successor.AdamWeightDecay(1.0, **decay).apply([tf.zeros(1)], [gamma])
    assert float(gamma[0]) == 1.0


def test_an_end_to_end_tokenizer_takes_options_of_a_call():
    tokenizer = successor.TFBertTokenizer(PIECES)
    texts = tf.constant(["the cats"])
    assert tokenizer(texts, padding="longest", truncation=True)["input_ids"].shape == (1, 5)
    assert tokenizer(texts, padding="max_length", max_length=8)["input_ids"].shape == (1, 8)
