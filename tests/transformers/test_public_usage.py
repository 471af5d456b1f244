"""Usage that is common in public scripts for transformers 4."""

import collections
import copy
import importlib
import json
import os
import pathlib
import pickle
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import bert_tf.transformers as successor
from bert_tf.transformers.keras_callbacks import KerasMetricCallback
from bert_tf.transformers.modeling_tf_utils import (
    TFSequenceClassificationLoss,
    get_initializer,
    shape_list,
)

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


def test_compile_with_model_loss_and_positional_metrics():
    for choose in (lambda m: "auto", lambda m: m.compute_loss, lambda m: m.hf_compute_loss):
        model = successor.TFBertForSequenceClassification(CONFIG)
        expected = np.mean(model(IDS, labels=[0, 1]).loss)
        metric = keras.metrics.SparseCategoricalAccuracy("acc")
        model.compile("sgd", choose(model), metric, run_eagerly=True)
        loss, _ = model.evaluate({"input_ids": IDS}, np.array([0, 1]), 2, 0)
        assert loss == pytest.approx(expected)


def test_loss_of_probabilities_warns():
    model = successor.TFBertForSequenceClassification(CONFIG)
    message = "outputs logits, but the loss expects probabilities. Pass from_logits=True to the"
    with pytest.warns(UserWarning, match=message):
        model.compile("sgd", loss="sparse_categorical_crossentropy")


def test_name_and_trainable_arguments(tmp_path):
    successor.TFBertModel(CONFIG).save_pretrained(save_directory=tmp_path)
    for kind in (successor.TFBertModel, successor.TFAutoModel):
        model = kind.from_pretrained(
            pretrained_model_name_or_path=tmp_path, name="encoder", trainable=False
        )
        ids = keras.Input((3,), dtype="int32")
        outer = keras.Model(ids, keras.layers.Dense(1)(model(ids)[1]))
        assert model.name == "encoder" and len(outer.trainable_weights) == 2
        outer.save(tmp_path / "outer.keras")
        assert len(keras.models.load_model(tmp_path / "outer.keras").trainable_weights) == 2
    main = successor.TFBertMainLayer(CONFIG, name="bert", trainable=False)
    assert not any(weight.trainable for weight in main.weights)


def test_frozen_distilbert_encoder_trains_pre_classifier(tmp_path):
    config = successor.DistilBertConfig(
        **{"vocab_size": len(PIECES), "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}
    )
    model = successor.TFDistilBertForSequenceClassification(config)
    model.distilbert.trainable = False
    assert model.num_parameters(only_trainable=True) == 8 * 8 + 8 + 2 * 8 + 2
    assert [layer.name for layer in model.layers[:1]] == ["distilbert"]
    model.save_pretrained(tmp_path / "saved")
    other = successor.TFDistilBertForSequenceClassification.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(other(IDS).logits, model(IDS).logits)


class Ranker(successor.TFBertPreTrainedModel, TFSequenceClassificationLoss):
    """Custom model as in scripts for transformers 2 to 4."""

    def __init__(self, config, *inputs, units=1, **kwargs):
        super().__init__(config, *inputs, **kwargs)
        self.bert = successor.TFBertMainLayer(config, name="bert")
        start = get_initializer(config.initializer_range)
        self.score = keras.layers.Dense(units, kernel_initializer=start)

    def call(self, inputs, **kwargs):
        self.was_training = kwargs.get("training")
        return self.score(self.bert(inputs, **kwargs)[1])


def test_custom_class_gets_arguments_and_training(tmp_path):
    saved = successor.TFBertModel(CONFIG)
    saved.save_pretrained(tmp_path)
    model = Ranker.from_pretrained(tmp_path, units=2)
    assert tuple(model({"input_ids": IDS}).shape) == (2, 2)
    np.testing.assert_array_equal(model.bert(IDS)[0], saved(IDS)[0])
    assert shape_list(tf.zeros((2, 3))) == [2, 3]
    assert model.hf_compute_loss(np.array([0, 1]), np.zeros((2, 2))).shape == (2,)
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit({"input_ids": IDS}, np.zeros((2, 2)), verbose=0)
    assert model.was_training is True
    model.predict({"input_ids": IDS}, verbose=0)
    assert not model.was_training


def test_replaced_classifier_is_trained_and_saved(tmp_path):
    model = successor.TFBertForSequenceClassification(CONFIG)
    model.classifier = keras.layers.Dense(2, name="classifier")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit({"input_ids": IDS}, np.array([0, 1]), verbose=0)
    model.save_pretrained(tmp_path)
    found = successor.TFBertForSequenceClassification.from_pretrained(tmp_path)
    np.testing.assert_allclose(found(IDS).logits, model(IDS).logits, atol=1e-6)
    model.classifier = keras.layers.Dense(3, name="classifier")
    model(IDS)
    message = "the weight shapes of layer classifier do not match the model. Use save_weights"
    with pytest.raises(ValueError, match=message):
        model.save_pretrained(tmp_path)


def test_weights_file_with_separate_config(tmp_path):
    files = pathlib.Path(__file__).parent / "keras2" / "classifier"
    shutil.copyfile(files / "tf_model.h5", tmp_path / "bert-tf_model.h5")
    shutil.copyfile(files / "config.json", tmp_path / "bert-config.json")
    config = successor.BertConfig.from_pretrained(tmp_path / "bert-config.json")
    path = tmp_path / "bert-tf_model.h5"
    found, expected = (
        successor.TFBertForSequenceClassification.from_pretrained(source, config=config)
        for source in (path, files)
    )
    np.testing.assert_array_equal(found(IDS).logits, expected(IDS).logits)


def test_older_tokenizer_arguments_and_inputs(file):
    tokenizer = successor.BertTokenizer(file, max_len=4)
    rows = tokenizer.batch_encode_plus(
        collections.deque(["the cats so no", "no"]),  # a sequence, like a column of datasets
        return_attention_masks=False,
        pad_to_max_length=True,
        max_length=4,
    )
    assert rows["input_ids"] == [[2, 5, 6, 3], [2, 9, 3, 0]]
    with pytest.raises(TypeError, match="unexpected keyword argument 'paddin'"):
        tokenizer("no", paddin=True)
    assert tokenizer("the cats so", truncation_strategy="only_first").input_ids == [2, 5, 6, 3]
    assert tokenizer.encode(["cat", "##s"]) == [2, 6, 7, 3]
    tokenizer = successor.BertTokenizer(file)
    expected = tokenizer("the cats", "so no", padding="max_length", max_length=9)
    for first, second in ((["the", "cat", "##s"], ["so", "no"]), ([5, 6, 7], [8, 9])):
        row = tokenizer.encode_plus(first, second, padding="max_length", max_length=9)
        assert dict(row) == dict(expected)
    assert tokenizer.encode(["cat", "xyz"], add_special_tokens=False) == [6, 1]


def test_batch_encoding_is_a_model_input(file):
    class Custom(keras.Model):
        def __init__(self):
            super().__init__()
            self.bert = successor.TFBertModel(CONFIG)

        def call(self, inputs):
            return self.bert(inputs)[1]

    tokenizer, model = successor.BertTokenizerFast(file), Custom()
    rows = tokenizer(["the cats", "no"], padding=True, return_tensors="np")
    np.testing.assert_array_equal(model(rows), model(dict(rows)))
    model.compile("sgd", "mse", run_eagerly=True)
    assert model.fit(rows, np.zeros((2, 8)), verbose=0).history["loss"]


def test_custom_config(tmp_path):
    class Settings(successor.BertConfig):
        def __init__(self, extra=3, **others):
            super().__init__(**others)
            self.extra = extra

    class Custom(successor.TFBertForSequenceClassification):
        config_class = Settings

    model = Custom(Settings(extra=5, **SIZES))
    model.save_pretrained(tmp_path)
    for config in (
        Settings.from_pretrained(tmp_path),
        Custom.from_pretrained(tmp_path).config,
        Custom.from_config(model.get_config()).config,
    ):
        assert isinstance(config, Settings) and config.extra == 5


def test_functional_model_with_slice_loads_from_hdf5(tmp_path):
    ids = keras.Input((3,), dtype="int32")
    model = keras.Model(ids, successor.TFBertModel(CONFIG)(ids)[0][:, 0, :])
    model.save(tmp_path / "a.h5")
    found = keras.models.load_model(tmp_path / "a.h5", compile=False)
    np.testing.assert_array_equal(found(IDS), model(IDS))


@pytest.mark.parametrize("name", ["TFBertMainLayer", "TFBertModel"])
def test_full_model_of_keras_2_is_rejected(name):
    file = pathlib.Path(__file__).parent / "keras2" / "main_layer" / "model.h5"
    message = rf"a {name} saved by Keras 2\. Build the model in Python and use load_weights\(file\)"
    with pytest.raises(ValueError, match=message):
        if name == "TFBertMainLayer":
            keras.models.load_model(file)
        else:  # the config of transformers contains settings
            successor.TFBertModel.from_config(CONFIG.to_dict())


def test_all_names_exist_or_have_a_replacement():
    for name in successor.NAMES:
        assert getattr(successor, name).__doc__
    # Names of transformers 4.46 for BERT or DistilBERT in TensorFlow, and for tokenizers.
    listed = (pathlib.Path(__file__).parent / "names.txt").read_text().split()
    for module, _, name in (entry.rpartition(".") for entry in listed):
        for path in {"", module}:  # also the original module
            found = importlib.import_module(f"bert_tf.transformers.{path}".rstrip("."))
            if name in successor.NAMES:
                assert getattr(found, name) is getattr(successor, name)
            else:
                with pytest.raises(ImportError, match=rf"no {name}\. \w+"):
                    getattr(found, name)
    with pytest.raises(AttributeError, match="TFGPT2Model"):
        _ = successor.TFGPT2Model
    logging = importlib.import_module("bert_tf.transformers.utils.logging")
    assert logging is successor.logging
    import bert_tf.transformers.optimization_tf as optimization

    assert optimization.create_optimizer is successor.create_optimizer


@pytest.mark.parametrize("name", ["TFBertModel", "TFAutoModel", "TFBaseModelOutput"])
def test_classes_models_and_outputs_are_pickled(name):
    assert pickle.loads(pickle.dumps(getattr(successor, name))) is getattr(successor, name)
    if name == "TFBertModel":
        model = successor.TFBertModel(CONFIG)
        outputs, again = model(IDS), pickle.loads(pickle.dumps(model))(IDS)
        for found in (again, pickle.loads(pickle.dumps(outputs)), copy.deepcopy(outputs)):
            assert type(found).__name__ == type(outputs).__name__ and found.keys() == outputs.keys()
            np.testing.assert_array_equal(found.pooler_output, outputs.pooler_output)


def test_positional_config_arguments_and_name_or_path(tmp_path, file):
    config = successor.BertConfig(13, 8, 1, 2, 8, "relu", 0, 0, 16, 2, 0.02, 1e-9, 0, "absolute")
    assert (config.hidden_act, config.layer_norm_eps) == ("relu", 1e-9)
    assert successor.DistilBertConfig(13, 16, False, 1, 2, 8).dim == 8
    successor.BertTokenizer(file).save_pretrained(tmp_path)
    successor.TFBertForMaskedLM(config).save_pretrained(tmp_path)
    model = successor.TFBertForMaskedLM.from_pretrained(tmp_path)
    assert {model.name_or_path, model.config.name_or_path, model.config._name_or_path} == {
        str(tmp_path)
    }
    assert str(tmp_path) not in (tmp_path / "config.json").read_text()
    assert successor.pipeline("fill-mask", model)("the [MASK]")  # the tokenizer in the same folder


def test_members_of_models():
    model = successor.TFBertForMaskedLM(successor.BertConfig(**SIZES))
    assert successor.TFBertForSequenceClassification(CONFIG).num_labels == 2
    assert model.get_output_embeddings() is model.get_input_embeddings()
    model.get_bias()["bias"].assign(np.arange(len(PIECES)))
    assert model.get_lm_head().output_bias.numpy()[2] == 2
    for rows in (len(PIECES), 5):
        model.set_input_embeddings(tf.fill((rows, 8), 0.5))
        assert model.bert.embeddings.weight.numpy().tolist() == [[0.5] * 8] * rows
    encoder = successor.TFBertModel(CONFIG)
    names = list(encoder.input_signature)
    served = encoder.serving({name: tf.ones_like(IDS, tf.int32) for name in names})
    np.testing.assert_allclose(
        served["pooler_output"], encoder(IDS * 0 + 1, None, IDS * 0 + 1)[1], atol=1e-6
    )
    assert encoder.get_bias() is None and encoder.get_output_embeddings() is None
    embedded = encoder.bert.embeddings(IDS, token_type_ids=IDS * 0)
    np.testing.assert_array_equal(embedded, encoder(IDS, output_hidden_states=True)[2][0])
    vectors = tf.gather(encoder.bert.embeddings.weight, IDS)
    np.testing.assert_array_equal(encoder.bert.embeddings(inputs_embeds=vectors), embedded)
    sizes = {"vocab_size": 20, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}
    distil = successor.TFDistilBertForSequenceClassification(successor.DistilBertConfig(**sizes))
    assert distil.pre_classifier.kernel.shape == (8, 8)


def test_encoder_without_pooler_is_saved(tmp_path):
    successor.TFBertModel(CONFIG).save_pretrained(tmp_path)
    found = successor.TFBertModel.from_pretrained(tmp_path, add_pooling_layer=False)
    for model in (found, successor.TFBertModel(CONFIG, False)):
        model = type(model).from_config(model.get_config())
        assert model(IDS).keys() == ("last_hidden_state",)


def test_older_tokenizer_members(file):
    tokenizer = successor.BertTokenizer(file, max_len=9)
    assert tokenizer.add_tokens(["covid"]) == 1
    assert (tokenizer.vocab_size, len(tokenizer)) == (len(PIECES), len(PIECES) + 1)
    assert (tokenizer.max_len, tokenizer.max_len_single_sentence) == (9, 7)
    assert tokenizer.max_len_sentences_pair == 6 and tokenizer.pad_token_type_id == 0
    assert tokenizer.ids_to_tokens[5] == "the" and tokenizer.vocab["the"] == 5
    assert str(tokenizer.added_tokens_decoder[len(PIECES)]) == "covid"
    assert tokenizer.clean_up_tokenization("do n't , so .") == "don't, so."
    assert tokenizer.all_special_ids == [1, 3, 0, 2, 4]


def test_errors_contain_replacements(file):
    model = successor.TFBertModel(CONFIG)
    outputs = model(IDS)
    for act, error, words in (
        (lambda: model.prune_heads, AttributeError, "Pruning attention heads is not supported"),
        (lambda: model.none_such, AttributeError, "^TFBertModel has no 'none_such'.$"),
        (
            lambda: successor.BertTokenizer(file).truncate_sequences,
            AttributeError,
            "max_length= and stride= to the tokenizer",
        ),
        (lambda: outputs.__setitem__("a", 1), TypeError, r"Use dict\(outputs.items\(\)"),
        (lambda: successor.pipeline("zero-shot-classification"), ValueError, "'text_pair': "),
    ):
        with pytest.raises(error, match=words):
            act()


def test_pipeline_classes_and_default_models(file, monkeypatch):
    tokenizer = successor.BertTokenizerFast(file)
    model = successor.TFBertForSequenceClassification(CONFIG)
    classify = successor.TextClassificationPipeline(
        model=model, tokenizer=tokenizer, framework="tf", device=0
    )
    assert "label" in classify("so")[0]
    asked = []
    monkeypatch.setattr(
        successor.TFAutoModelForTokenClassification,
        "from_pretrained",
        lambda name, **options: asked.append(name) or model,
    )
    successor.pipeline("ner", tokenizer=tokenizer, framework="tf")
    assert asked == ["dbmdz/bert-large-cased-finetuned-conll03-english"]
    with pytest.raises(
        ValueError, match="expected a model of bert_tf.transformers, .* got NoneType"
    ):
        successor.pipeline("fill-mask", tokenizer=tokenizer)


# === Custom metric after each epoch ===


@pytest.mark.parametrize("in_inputs", [True, False])
def test_metric_callback(in_inputs):
    """Shorter rows are padded; labels are among the inputs or separate."""
    model = successor.TFBertForTokenClassification(CONFIG)
    ids = [np.array([[2, 5, 3], [2, 6, 3]]), np.array([[2, 5, 6, 3]])]
    labels = [rows % 2 for rows in ids]

    def batches():
        for rows, tags in zip(ids, labels, strict=True):
            yield (
                {"input_ids": rows, "labels": tags} if in_inputs else ({"input_ids": rows}, tags)
            )

    spec = tf.TensorSpec([None, None], tf.int64)
    signature = {"input_ids": spec, "labels": spec} if in_inputs else ({"input_ids": spec}, spec)
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    seen = []

    def metric(found):
        seen.append(found)
        return {"share": float((found[0].argmax(-1) == found[1]).mean())}

    callback = KerasMetricCallback(metric, data)
    model.compile("sgd")
    first = {"input_ids": ids[0], "labels": labels[0]}
    history = model.fit(first, epochs=2, verbose=0, callbacks=[callback])
    assert len(history.history["share"]) == 2
    logits, tags = seen[-1]
    assert tags.tolist() == [[0, 1, 1, -100], [0, 0, 1, -100], [0, 1, 0, 1]]
    np.testing.assert_allclose(logits[:2, :3], model(ids[0]).logits, atol=1e-6)
    np.testing.assert_allclose(logits[2:], model(ids[1]).logits, atol=1e-6)
    assert (logits[:2, 3] == -100).all()


def test_metric_callback_with_several_outputs_and_arrays():
    model = successor.TFBertForQuestionAnswering(CONFIG)
    ends = {"start_positions": np.array([0, 1]), "end_positions": np.array([1, 1])}
    seen = []
    callback = KerasMetricCallback(
        lambda found: seen.append(found) or {}, {"input_ids": IDS, **ends}, batch_size=1
    )
    callback.set_model(model)
    callback.on_epoch_end(0, logs := {"loss": 1.0})
    predicted, labels = seen[0]
    assert list(predicted) == ["start_logits", "end_logits"] and list(labels) == list(ends)
    np.testing.assert_allclose(predicted["end_logits"], model(IDS).end_logits, atol=1e-6)
    assert logs == {"loss": 1.0}
    one = KerasMetricCallback(callback.metric_fn, callback.eval_dataset, ["start_logits"])
    one.set_model(model)
    one.on_epoch_end(0)
    np.testing.assert_allclose(seen[1][0], model(IDS).start_logits, atol=1e-6)


def test_invalid_metric_callbacks():
    data = tf.data.Dataset.from_tensor_slices({"input_ids": IDS}).batch(1)
    for options, message in (
        ({"eval_dataset": IDS}, "batch_size=None: arrays require a batch_size"),
        (
            {"eval_dataset": data},
            "label_cols=None: expected names of inputs, got a dataset with input_ids",
        ),
        (
            {"eval_dataset": data, "label_cols": ["y"]},
            r"label_cols=\['y'\]: expected names of inputs, got a dataset with input_ids",
        ),
        ({"eval_dataset": data, "predict_with_generate": True}, "text generation is not supported"),
    ):
        with pytest.raises(ValueError, match=message):
            KerasMetricCallback(dict, **options)
    pairs = tf.data.Dataset.from_tensor_slices(({"input_ids": IDS}, [0, 1])).batch(2)
    callback = KerasMetricCallback(lambda found: 0.5, pairs)
    callback.set_model(successor.TFBertForSequenceClassification(CONFIG))
    with pytest.raises(TypeError, match="metric_fn: expected a dict of numbers, got 0.5"):
        callback.on_epoch_end(0)


# === Labels, losses, tokenizers, optimizers ===


def test_custom_loss():
    class Doubled(successor.TFBertForSequenceClassification):
        def hf_compute_loss(self, labels, logits):
            return 2 * super().hf_compute_loss(tf.cast(labels, tf.int32), tf.identity(logits))

    model = Doubled(CONFIG)
    found = model(IDS, labels=np.array([0, 1]))
    expected = model.head.loss(np.array([0, 1]), found.logits)
    np.testing.assert_allclose(found.loss, 2 * expected, rtol=1e-6)


def test_subfolder(tmp_path):
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


def test_token_index_conversions(file):
    row = successor.BertTokenizerFast(file)("the cats")
    assert row.token_to_chars(3) == (7, 8) and row.token_to_chars(0) is None
    assert row.token_to_word(3) == 1 == row.char_to_word(5)


def test_pad_single_row_and_columns(file):
    tokenizer = successor.BertTokenizerFast(file)
    row = tokenizer.pad({"input_ids": [2, 5, 3]}, padding="max_length", max_length=4)
    assert dict(row) == {"input_ids": [2, 5, 3, 0], "attention_mask": [1, 1, 1, 0]}
    collate = successor.DataCollatorWithPadding(tokenizer, return_tensors="np")
    assert collate({"input_ids": [[2, 3], [2, 5, 3]], "label": [0, 1]})["input_ids"][0, 2] == 0
    assert not successor.DataCollatorForLanguageModeling(tokenizer, False).mlm


def test_pad_token_labels(file):
    tokenizer = successor.BertTokenizerFast(file)
    rows = tokenizer([["the", "cats"], ["no"]], is_split_into_words=True)
    assert rows.word_ids(0) == [None, 0, 1, 1, None] and rows.tokens(1) == ["[CLS]", "no", "[SEP]"]
    collate = successor.DataCollatorForTokenClassification(tokenizer, return_tensors="np")
    examples = [{"input_ids": ids, "labels": [1] * len(ids)} for ids in rows["input_ids"]]
    assert collate(examples)["labels"].tolist() == [[1] * 5, [1] * 3 + [-100] * 2]


def test_special_tokens_and_normalization_are_saved(file, tmp_path):
    tokenizer = successor.BertTokenizer(
        file, additional_special_tokens=["[E1]"], strip_accents=False, padding_side="left"
    )
    tokenizer.add_tokens(successor.AddedToken("covid"))
    in_graph = successor.TFBertTokenizer.from_tokenizer(tokenizer)
    text = "[E1] é covid [SEP]"
    assert in_graph(tf.constant([text]))["input_ids"].numpy().tolist() == [tokenizer.encode(text)]
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    tokenizer.save_pretrained(tmp_path / "saved")
    for found in (tokenizer, successor.BertTokenizer.from_pretrained(tmp_path / "saved")):
        assert found.tokenize("[E1] é covid") == ["[E1]", "é", "covid"]
        assert found.all_special_tokens[-2:] == ["<mask>", "[E1]"]
        assert found.padding_side == "left"
        row = found("so covid", return_tensors="np")["input_ids"]
        np.testing.assert_array_equal(row, [[2, 8, len(PIECES) + 1, 3]])


def test_added_tokens_file_and_unsupported_model(file, tmp_path):
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": len(PIECES)}))
    assert successor.BertTokenizer.from_pretrained(tmp_path).tokenize("covid") == ["covid"]
    for ids in ({"covid": len(PIECES) + 1}, {"covid": "x"}, {"a": len(PIECES), "b": len(PIECES)}):
        (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
        message = r"added_tokens\.json: .*expected (\d+ \(its id in the vocabulary|an added token)"
        with pytest.raises(ValueError, match=message):
            successor.BertTokenizer.from_pretrained(tmp_path)
    os.remove(file)
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="expected a WordPiece tokenizer, got BPE"):
        successor.AutoTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "named, has_types",
    [("BertTokenizer", True), ("DistilBertTokenizer", False), ("DistilBertTokenizerFast", False),
     ("PreTrainedTokenizerFast", False), (None, True), (["odd"], True)],
)  # fmt: skip
def test_tokenizer_class_decides_on_token_types(file, tmp_path, named, has_types):
    successor.BertTokenizer(file).save_pretrained(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    values = {**json.loads(config.read_text()), "tokenizer_class": named}
    values.pop("model_input_names", None)
    config.write_text(json.dumps(values))
    found = successor.AutoTokenizer.from_pretrained(tmp_path)
    types = ["token_type_ids"] if has_types else []
    assert list(found("so", "no")) == ["input_ids", *types, "attention_mask"]
    assert "token_type_ids" in found("so", return_token_type_ids=True)


def test_pipeline_result_shapes(file):
    tokenizer = successor.BertTokenizerFast(file)
    classifier = successor.TFBertForSequenceClassification(CONFIG)
    classify = successor.pipeline("text-classification", classifier, tokenizer=tokenizer)
    assert "label" in classify({"text": "so", "text_pair": "no"})
    classify.options = {"top_k": None}
    assert len(classify("so")[0]) == 2
    classify.options = {"return_all_scores": True}
    assert [one["label"] for one in classify("so")[0]] == ["LABEL_0", "LABEL_1"]
    unmask = successor.pipeline(
        "fill-mask", successor.TFBertForMaskedLM(CONFIG), tokenizer=tokenizer
    )
    assert {one["token_str"] for one in unmask(["so [MASK]"], targets=["Patient", "nurse"])} == {
        *("patient", "nurse")
    }


def test_gradient_accumulator_in_graph():
    accumulator = successor.GradientAccumulator()
    step = tf.function(lambda gradient: accumulator([gradient, None]))
    for _ in range(3):
        step(tf.ones(2))
    assert int(accumulator.step) == 3 and accumulator.gradients[0].numpy().tolist() == [3, 3]
    accumulator.reset()
    assert accumulator.gradients[0].numpy().tolist() == [0, 0]


def test_optimizer_serialization_and_layer_norm_names():
    optimizer, rate = successor.create_optimizer(1e-3, 10, 4, weight_decay_rate=0.1)
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(optimizer)))
    again = keras.saving.deserialize_keras_object(saved)
    assert float(again._learning_rate(6)) == float(rate(6))
    gamma = keras.Variable([1.0], name="layer_norm_gamma")
    decay = {"weight_decay_rate": 0.5, "exclude_from_weight_decay": ["LayerNorm"]}
    successor.AdamWeightDecay(1.0, **decay).apply([tf.zeros(1)], [gamma])
    assert float(gamma[0]) == 1.0


def test_graph_tokenizer_call_options():
    tokenizer = successor.TFBertTokenizer(PIECES)
    texts = tf.constant(["the cats"])
    assert tokenizer(texts, padding="longest", truncation=True)["input_ids"].shape == (1, 5)
    assert tokenizer(texts, padding="max_length", max_length=8)["input_ids"].shape == (1, 8)
