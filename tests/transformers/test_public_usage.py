"""What public scripts for transformers 4 write: each of these was found in many of them."""

import collections
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf.transformers as successor
from bert_tf.transformers.keras_callbacks import KerasMetricCallback
from bert_tf.transformers.modeling_tf_utils import (
    TFSequenceClassificationLoss,
    get_initializer,
    shape_list,
)

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "so", "no"]
CONFIG = successor.BertConfig(
    **{"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 8, "max_position_embeddings": 16},
)
IDS = np.array([[2, 5, 3], [2, 6, 3]])


@pytest.fixture
def file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return str(tmp_path / "vocab.txt")


def test_what_scripts_write_differently_in_compile():
    losses = []
    for is_method in (False, True):
        keras.utils.set_random_seed(0)
        model = successor.TFBertForSequenceClassification(CONFIG)
        loss = model.compute_loss if is_method else "auto"
        model.compile("sgd", loss=loss, metrics=keras.metrics.SparseCategoricalAccuracy("acc"))
        found = model.evaluate({"input_ids": IDS}, np.array([0, 1]), verbose=0, return_dict=True)
        losses.append(found["loss"])
        assert "acc" in found
    assert losses[0] == losses[1]


def test_a_frozen_model_is_made_frozen_and_its_name_is_given(tmp_path):
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


def test_a_distilberts_frozen_encoder_leaves_its_classifiers_first_layer_trained(tmp_path):
    config = successor.DistilBertConfig(
        **{"vocab_size": len(PIECES), "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}
    )
    model = successor.TFDistilBertForSequenceClassification(config)
    model.distilbert.trainable = False
    assert model.num_parameters(only_trainable=True) == 8 * 8 + 8 + 2 * 8 + 2
    assert [layer.name for layer in model.layers[:1]] == ["distilbert"]
    model.save_weights(tmp_path / "a.h5")
    other = successor.TFDistilBertForSequenceClassification(config)
    other.load_weights(tmp_path / "a.h5")
    np.testing.assert_array_equal(other(IDS).logits, model(IDS).logits)
    model.save_pretrained(tmp_path / "saved")
    other = successor.TFDistilBertForSequenceClassification.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(other(IDS).logits, model(IDS).logits)


class Ranker(successor.TFBertPreTrainedModel, TFSequenceClassificationLoss):
    """As scripts write one for transformers 2 to 4."""

    def __init__(self, config, *inputs, units=1, **kwargs):
        super().__init__(config, *inputs, **kwargs)
        self.bert = successor.TFBertMainLayer(config, name="bert")
        start = get_initializer(config.initializer_range)
        self.score = keras.layers.Dense(units, kernel_initializer=start)

    def call(self, inputs, **kwargs):
        self.was_training = kwargs.get("training")
        return self.score(self.bert(inputs, **kwargs)[1])


def test_a_class_of_ones_own_takes_its_arguments_and_is_told_that_it_trains(tmp_path):
    successor.TFBertModel(CONFIG).save_pretrained(tmp_path)
    model = Ranker.from_pretrained(tmp_path, units=2)
    assert tuple(model({"input_ids": IDS}).shape) == (2, 2)
    assert shape_list(tf.zeros((2, 3))) == [2, 3]
    assert model.hf_compute_loss(np.array([0, 1]), np.zeros((2, 2))).shape == (2,)
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit({"input_ids": IDS}, np.zeros((2, 2)), verbose=0)
    assert model.was_training is True
    model.predict({"input_ids": IDS}, verbose=0)
    assert not model.was_training


def test_another_classifier_is_trained_and_saved(tmp_path):
    model = successor.TFBertForSequenceClassification(CONFIG)
    model.classifier = keras.layers.Dense(2, name="classifier")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit({"input_ids": IDS}, np.array([0, 1]), verbose=0)
    model.save_pretrained(tmp_path)
    found = successor.TFBertForSequenceClassification.from_pretrained(tmp_path)
    np.testing.assert_allclose(found(IDS).logits, model(IDS).logits, atol=1e-6)
    model.classifier = keras.layers.Dense(3, name="classifier")
    model(IDS)
    with pytest.raises(ValueError, match="another classifier than its class, of other sizes"):
        model.save_pretrained(tmp_path)


def test_a_file_of_weights_is_read_with_a_config_from_elsewhere(tmp_path):
    files = pathlib.Path(__file__).parent / "keras2" / "classifier"
    shutil.copyfile(files / "tf_model.h5", tmp_path / "bert-tf_model.h5")
    shutil.copyfile(files / "config.json", tmp_path / "bert-config.json")
    config = successor.BertConfig.from_pretrained(tmp_path / "bert-config.json")
    path = tmp_path / "bert-tf_model.h5"
    found, expected = (
        successor.TFBertForSequenceClassification.from_pretrained(place, config=config)
        for place in (path, files)
    )
    np.testing.assert_array_equal(found(IDS).logits, expected(IDS).logits)


def test_arguments_of_older_tokenizers_columns_and_lists_of_tokens(file):
    tokenizer = successor.BertTokenizer(file, max_len=4)
    rows = tokenizer.batch_encode_plus(
        collections.deque(["the cats so no", "no"]),  # a sequence, as a column of datasets is one
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


def test_pipelines_by_their_classes_and_without_a_model(file, monkeypatch):
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
    with pytest.raises(ValueError, match="was given NoneType as its model"):
        successor.pipeline("fill-mask", tokenizer=tokenizer)


def test_verbosity():
    before = successor.logging.get_verbosity()
    successor.logging.set_verbosity_error()
    assert successor.logging.get_verbosity() == successor.logging.ERROR
    successor.logging.set_verbosity(before)


def test_examples_and_features():
    example = successor.InputExample(guid=None, text_a="so", text_b=None, label=1)
    features = successor.InputFeatures([2, 8, 3], token_type_ids=[0, 0, 0], label=example.label)
    assert (features.input_ids, features.attention_mask, features.label) == ([2, 8, 3], None, 1)


# === A metric of one's own after each epoch ===


@pytest.mark.parametrize("among", [True, False])
def test_a_metric_reads_all_predictions_and_labels(among):
    """Of batches of other lengths the shorter rows are filled, labels among or beside inputs."""
    model = successor.TFBertForTokenClassification(CONFIG)
    ids = [np.array([[2, 5, 3], [2, 6, 3]]), np.array([[2, 5, 6, 3]])]
    labels = [rows % 2 for rows in ids]

    def batches():
        for rows, tags in zip(ids, labels, strict=True):
            yield {"input_ids": rows, "labels": tags} if among else ({"input_ids": rows}, tags)

    spec = tf.TensorSpec([None, None], tf.int64)
    signature = {"input_ids": spec, "labels": spec} if among else ({"input_ids": spec}, spec)
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


def test_metrics_of_several_outputs_and_of_arrays():
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


def test_metrics_that_cannot_be():
    data = tf.data.Dataset.from_tensor_slices({"input_ids": IDS}).batch(1)
    for options, sentence in (
        ({"eval_dataset": IDS}, "is no tf.data.Dataset: give batch_size"),
        ({"eval_dataset": data}, "label_cols is None, and the dataset's inputs are input_ids: exp"),
        ({"eval_dataset": data, "label_cols": ["y"]}, r"label_cols is \['y'\], and"),
        ({"eval_dataset": data, "predict_with_generate": True}, "for models that write text"),
    ):
        with pytest.raises(ValueError, match=sentence):
            KerasMetricCallback(dict, **options)
    pairs = tf.data.Dataset.from_tensor_slices(({"input_ids": IDS}, [0, 1])).batch(2)
    callback = KerasMetricCallback(lambda found: 0.5, pairs)
    callback.set_model(successor.TFBertForSequenceClassification(CONFIG))
    with pytest.raises(TypeError, match="metric_fn gave 0.5: expected a dict of numbers"):
        callback.on_epoch_end(0)
