"""Models of bert_tf.transformers: calls, training, saving and errors."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
import bert_tf.transformers as successor
from bert_tf.transformers import BertConfig, TFBertForSequenceClassification, TFBertModel
from bert_tf.transformers.models import MODELS
from bert_tf.transformers.outputs import ModelOutput

SIZES = {
    **{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 8, "max_position_embeddings": 16, "initializer_range": 0.5},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
IDS = np.array([[2, 7, 9, 3], [2, 11, 3, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
TYPES = np.array([[0, 0, 1, 1], [0, 0, 0, 0]])
ENDS = ("start", "end")
ROWS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(0)
    return TFBertForSequenceClassification(BertConfig(**SIZES, num_labels=3))


CALLS = {
    "by position": lambda model: model(IDS, MASK, TYPES),
    "list": lambda model: model([tf.constant(IDS), tf.constant(MASK), tf.constant(TYPES)]),
    "dict": lambda model: model({**ROWS, "idx": [0, 1]}),
    "keywords": lambda model: model(
        input_ids=tf.constant(IDS, tf.int64), attention_mask=MASK, token_type_ids=TYPES.tolist()
    ),
    "BatchEncoding": lambda model: model(successor.BatchEncoding(ROWS, tensor_type="tf")),
}


@pytest.mark.parametrize("way", CALLS)
def test_all_call_forms_equal_the_native_model(classifier, way):
    native = classifier.native(
        {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": TYPES}
    ).numpy()
    outputs = CALLS[way](classifier)
    np.testing.assert_allclose(outputs.logits.numpy(), native, rtol=0, atol=1e-6)
    assert outputs[0] is outputs["logits"] is outputs.to_tuple()[0] is outputs.logits
    assert outputs.loss is None and list(outputs.keys()) == ["logits"]


def test_default_mask_and_token_types(classifier):
    expected = classifier(IDS, attention_mask=np.ones_like(IDS), token_type_ids=0 * IDS).logits
    np.testing.assert_array_equal(classifier(IDS.tolist()).logits.numpy(), expected.numpy())


def test_return_dict_false_returns_tuples(classifier):
    found = classifier(IDS, output_hidden_states=True, return_dict=False, labels=[0, 1])
    assert type(found) is tuple and not isinstance(found, ModelOutput)
    loss, logits, states = found
    assert tuple(loss.shape) == (2,) and tuple(logits.shape) == (2, 3) and len(states) == 2


def test_model_loss_equals_loss_of_logits():
    rows, labels = {"input_ids": IDS, "attention_mask": MASK}, np.array([2, 1])
    # Labels among the inputs and separate; then separate labels for a loss of the logits.
    batches_of_model_loss = [({**rows, "labels": labels}, None), (rows, labels)]
    histories = []
    for loss, batches in (
        ({}, batches_of_model_loss),
        ({"loss": keras.losses.SparseCategoricalCrossentropy(True)}, [(rows, labels)] * 2),
    ):
        keras.utils.set_random_seed(1)
        model = TFBertForSequenceClassification(BertConfig(**SIZES, num_labels=3))
        options = {"metrics": ["accuracy"], "run_eagerly": True}  # faster than four graphs
        model.compile(optimizer=keras.optimizers.Adam(0.01), **options, **loss)
        found = [model.fit(*batch, verbose=0).history for batch in batches]
        found.append(model.evaluate(rows, labels, verbose=0, return_dict=True))
        assert found[0]["loss"][0] > found[1]["loss"][0] > found[2]["loss"]
        histories.append([{key: np.ravel(value) for key, value in one.items()} for one in found])
    for one, other in zip(*histories, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_allclose(values, other[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["SequenceClassification", "QuestionAnswering"])
@pytest.mark.parametrize("way", ["evaluate", "by position", "batches", "fit", "validation_data"])
def test_sample_weights_with_labels_among_inputs(name, way):
    keras.utils.set_random_seed(0)
    model = getattr(successor, f"TFBertFor{name}")(BertConfig(**SIZES))
    labels = {label: np.array([0, 1]) for label in model.label_logits}
    batch, weights = {**ROWS, **labels}, np.array([0.5, 3.0])
    model.compile("sgd")
    expected = np.mean(model(batch).loss.numpy() * weights)
    if way == "evaluate":
        found = model.evaluate(batch, sample_weight=weights, verbose=0)
    elif way == "by position":
        found = model.evaluate(batch, None, None, 0, weights)
    elif way == "batches":
        y = labels if len(labels) > 1 else labels["labels"]
        dataset = tf.data.Dataset.from_tensor_slices((ROWS, y, weights)).batch(2)
        found = model.evaluate(dataset, verbose=0)
    elif way == "fit":
        found = model.fit(batch, sample_weight=weights, verbose=0).history["loss"][0]
    else:
        model.optimizer.learning_rate = 0.0
        given = {"validation_data": (batch, None, weights), "verbose": 0}
        found = model.fit(batch, **given).history["val_loss"][0]
    assert found == pytest.approx(expected, rel=1e-5)


def test_custom_model_with_frozen_encoder():
    encoder = TFBertModel(BertConfig(**SIZES))
    encoder.bert.trainable = False
    ids, mask = (keras.Input((None,), dtype="int32", name=name) for name in ("ids", "mask"))
    states = encoder(ids, attention_mask=mask)[0]
    model = keras.Model([ids, mask], keras.layers.Dense(1)(states[:, 0]))
    assert len(model.trainable_weights) == 2
    before = [weight.numpy() for weight in encoder.weights]
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse", run_eagerly=True)
    losses = model.fit([IDS, MASK], np.ones((2, 1)), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for weight, value in zip(encoder.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_saved_directory_has_dtype_of_weights_and_loads_also_with_new_head(tmp_path, caplog):
    rounded = {"dtype": "bfloat16", "torch_dtype": "float16"}
    config = BertConfig(**SIZES, **rounded, id2label={0: "bad", 1: "good"})
    model = TFBertForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["dtype"] == "float32" == config.dtype and "torch_dtype" not in values
    again = TFBertForSequenceClassification.from_pretrained(str(tmp_path))
    np.testing.assert_array_equal(again(IDS).logits.numpy(), model(IDS).logits.numpy())
    assert again.config.architectures == ["BertForSequenceClassification"]
    assert again.config.labels == bert_tf.load(str(tmp_path)).labels == ("bad", "good")
    sizes = r"classifier.weight: expected \(8, 5\), got \(8, 2\)"
    remedy = r"Fix the config, or pass ignore_mismatched_sizes=True to replace the head"
    with pytest.raises(ValueError, match=rf"{sizes}.* {remedy}\.$"):
        TFBertForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    with pytest.raises(ValueError, match=r"expected \(9, 8\), got .*\)\. Fix the config\.$"):
        TFBertForSequenceClassification.from_pretrained(tmp_path, vocab_size=9)
    caplog.clear()
    wide, info = successor.TFAutoModelForSequenceClassification.from_pretrained(
        tmp_path, num_labels=5, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert wide(IDS).logits.shape[-1] == 5 and info["mismatched_keys"]
    assert "(train before use): classifier/kernel, classifier/bias" in caplog.text
    tokens = successor.TFBertForTokenClassification.from_pretrained(
        tmp_path, hidden_dropout_prob=0.1
    )
    assert tuple(tokens(IDS).logits.shape) == (2, 4, 2)


def test_resized_vocabulary_keeps_rows_and_trains():
    model = successor.TFBertForMaskedLM(BertConfig(**SIZES))
    before = model(IDS).logits.numpy()
    assert model.get_input_embeddings().weight.shape[0] == 20
    embeddings = model.resize_token_embeddings(23)
    assert embeddings.weight.shape[0] == 23 == model.config.vocab_size
    found = model(IDS).logits.numpy()
    np.testing.assert_allclose(found[..., :20], before, rtol=0, atol=1e-6)
    model.compile(optimizer=keras.optimizers.Adam(0.1), run_eagerly=True)
    added = embeddings.weight.numpy()[20:]
    labels = np.where(IDS == 7, 22, -100)
    model.fit({"input_ids": IDS, "labels": labels}, epochs=1, verbose=0)
    assert np.abs(embeddings.weight.numpy()[20:] - added).max() > 0.01
    smaller = model.resize_token_embeddings(12)
    np.testing.assert_array_equal(smaller.weight.shape, (12, 8))


SAVED = {
    "save_pretrained": lambda model, folder: model.save_pretrained(folder, saved_model=True),
    "tf.saved_model.save": lambda model, folder: tf.saved_model.save(model, str(folder)),
    "export": lambda model, folder: model.export(folder, verbose=False),
}


@pytest.mark.parametrize("way", SAVED)
def test_saved_model_signatures(tmp_path, classifier, way):
    SAVED[way](classifier, tmp_path)
    folder = tmp_path / "saved_model" / "1" if way == "save_pretrained" else tmp_path
    signatures = tf.saved_model.load(folder).signatures
    expected = classifier(IDS, MASK, TYPES).logits.numpy()
    asked = {"serving_default": tf.int32}
    if way == "save_pretrained":
        asked["int64_serving"] = tf.int64
    for name, dtype in asked.items():
        found = signatures[name](**{key: tf.constant(rows, dtype) for key, rows in ROWS.items()})
        assert list(found) == ["logits"]
        np.testing.assert_allclose(found["logits"].numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_tf_lite_reads_saved_weights(tmp_path, classifier):
    """With only Keras' variables, TF Lite would read uninitialized memory."""
    ids = keras.Input((None,), dtype="int32")
    for number, model in enumerate((classifier, keras.Model(ids, classifier(ids).logits))):
        tf.saved_model.save(model, str(tmp_path / str(number)))
        converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / str(number)))
        run = tf.lite.Interpreter(model_content=converter.convert()).get_signature_runner()
        rows = {key: value.astype("int32") for key, value in ROWS.items()} if number == 0 else {}
        (found,) = run(**(rows or {"inputs": IDS.astype("int32")})).values()
        expected = classifier(**(rows or {"input_ids": IDS})).logits
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def _compiled(kind):
    model = kind(BertConfig(**SIZES))
    model.compile("sgd")
    return model


ERRORS = {
    "head_mask": (
        lambda model: model(IDS, head_mask=MASK),
        r"head_mask \(masking attention heads\) is not supported",
    ),
    "past_key_values": (
        lambda model: model(IDS, past_key_values=[IDS]),
        r"past_key_values \(text generation\) is not supported",
    ),
    "neither ids nor vectors": (
        lambda model: model(attention_mask=MASK),
        "expected either input_ids or inputs_embeds, got neither",
    ),
    **{
        f"{name} of {value}": (
            lambda model, name=name, value=value: model(**{**ROWS, name: IDS * 0 + value}),
            rf"^\S+: expected {name} from 0 to {maximum}, got {value} to {value}\.$",
        )
        for name, value, maximum in (
            *(("input_ids", -5, 19), ("input_ids", 20, 19), ("token_type_ids", -1, 1)),
            ("position_ids", 16, 15),
        )
    },
    "long row": (
        lambda model: model(np.ones((1, 17), int)),
        r"^\S+: sequence length 17 exceeds the maximum of 16\. Pass truncation=True, "
        "max_length=16 to the tokenizer",
    ),
    "long row in graph": (
        lambda model: model.predict(np.ones((1, 17), int), verbose=0),
        "sequence length 17 exceeds the maximum of 16",
    ),
    "unknown argument": (lambda model: model(IDS, lables=[1]), "'lables'"),
    "three-dimensional mask": (
        lambda model: model(IDS, attention_mask=np.ones((2, 4, 4))),
        r"expected attention_mask \(B, S\), .* got shape \(2, 4, 4\)",
    ),
    "no config": (lambda model: type(model)("bert-base-uncased"), "from_pretrained"),
    "no labels": (
        lambda model: (model.compile(optimizer="sgd"), model.fit(IDS, verbose=0)),
        "the batch has no labels",
    ),
    "weights of rows for a mean over tokens": (
        lambda model: _compiled(successor.TFBertForTokenClassification).evaluate(
            {**ROWS, "labels": 0 * IDS}, sample_weight=np.ones(2), verbose=0
        ),
        r"^sample_weight: the loss of \S+ is a mean over all tokens of a batch\. Pass a",
    ),
    "unknown option": (
        lambda model: type(model).from_pretrained("no/where", nmu_labels=2),
        "no/where",
    ),
    "another family": (
        lambda model: type(model).from_pretrained("roberta-base"),
        "^'roberta-base' is neither a directory nor a BERT or DistilBERT model on the hub",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(classifier, case, monkeypatch):
    # The environment variable would be read only once per process.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    call, message = ERRORS[case]
    error = TypeError if case in ("unknown argument", "no config") else ValueError
    with pytest.raises(error, match=message):
        call(classifier)


@keras.saving.register_keras_serializable()
class Holder(keras.Model):
    """Custom model that contains a TFBertModel."""

    config_class = BertConfig

    def __init__(self, config=None, **options):
        super().__init__(**options)
        self.bert = TFBertModel(config or BertConfig(**SIZES))
        self.built = True


#: Functions that write a file and load it. Custom models can only have files "model.*".
FILES = {
    "model.ckpt": (
        lambda model, path: tf.train.Checkpoint(model=model).write(path),
        lambda model, path: tf.train.Checkpoint(model=model).read(path) and model,
    ),
    **dict.fromkeys(
        ("model.weights.h5", "weights.h5", "checkpoint/best"),
        (
            lambda model, path: model.save_weights(path),
            lambda model, path: model.load_weights(path) or model,
        ),
    ),
    "model.keras": (
        lambda model, path: model.save(path),
        lambda model, path: keras.models.load_model(path),
    ),
}


# Different structures: two heads, a layer before the classifier, two outputs, a custom model.
_KINDS = ("TFBertForPreTraining", "TFDistilBertForSequenceClassification")
_KINDS += ("TFBertForMultipleChoice", "TFBertForQuestionAnswering")


@pytest.mark.parametrize("kind", [*map(MODELS.get, _KINDS), Holder], ids=lambda kind: kind.__name__)
def test_all_file_formats_contain_all_variables(tmp_path, kind):
    sizes = {**SIZES, "n_layers": 1} if "Distil" in kind.__name__ else SIZES
    saved, other = (kind(kind.config_class.from_dict(sizes)) for _ in range(2))
    for name in FILES if kind is not Holder else (n for n in FILES if n.startswith("model")):
        path, (write, read) = str(tmp_path / name), FILES[name]
        write(saved, path)
        other.set_weights([np.zeros(weight.shape) for weight in other.weights])
        found = read(other, path)
        for weight, restored in zip(saved.weights, found.weights, strict=True):
            where = f"{name}: {weight.path}"
            np.testing.assert_array_equal(weight.numpy(), restored.numpy(), err_msg=where)


def test_compiled_model_resumes_with_loss_metrics_and_moments(tmp_path):
    rows, labels = {"input_ids": IDS, "attention_mask": MASK}, np.array([2, 1])
    given = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loss in ({}, {"loss": given}):
        model = TFBertForSequenceClassification(BertConfig(**SIZES, num_labels=3))
        model.bert.trainable = False
        model.compile(keras.optimizers.Adam(0.01), metrics=["accuracy"], run_eagerly=True, **loss)
        model.fit(rows, labels, verbose=0)
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        states, restored = ([v.numpy() for v in m.optimizer.variables] for m in (model, again))
        for one, other in zip(states, restored, strict=True):
            np.testing.assert_array_equal(one, other)
        assert again.evaluate(rows, labels, verbose=0) == model.evaluate(rows, labels, verbose=0)


@pytest.mark.parametrize("where", ["in inputs", "separate", "in a tuple"])
@pytest.mark.parametrize("metrics", [["accuracy"], [keras.metrics.SparseCategoricalAccuracy()]])
def test_list_of_metrics_applies_to_each_output(where, metrics):
    model = successor.TFBertForQuestionAnswering(BertConfig(**SIZES))
    found = model(IDS)
    right = {f"{end}_positions": found[f"{end}_logits"].numpy().argmax(-1) for end in ENDS}
    right["end_positions"][0] -= 1 if right["end_positions"][0] else -1
    model.compile("sgd", metrics=metrics, run_eagerly=True)
    batch = {
        "in inputs": ({"input_ids": IDS, **right},),
        "separate": ({"input_ids": IDS}, right),
        "in a tuple": ({"input_ids": IDS, **right}, tuple(right.values())),
    }[where]
    scores = model.evaluate(*batch, verbose=0, return_dict=True)
    name = "accuracy" if metrics == ["accuracy"] else metrics[0].name
    assert [scores[f"{end}_logits_{name}"] for end in ENDS] == [1.0, 0.5]


_NOTHING = {
    "labels": -100 + 0 * IDS[:, 0],
    "next_sentence_label": -100 + 0 * IDS[:, 0],
    "start_positions": np.array([4, -100]),  # after the row
    "end_positions": np.array([9, -100]),
}


@pytest.mark.parametrize("name", [key for key in MODELS if MODELS[key].head.loss is not None])
def test_batch_of_ignored_labels_has_no_loss(name):
    model = MODELS[name](MODELS[name].config_class.from_dict(SIZES))
    ids = np.stack([IDS, IDS]) if "Choice" in name else IDS
    labels = {key: _NOTHING[key] for key in model.label_logits}
    if any(part in name for part in ("LM", "PreTraining", "Token")):
        labels["labels"] = np.full(IDS.shape, -100)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(ids, **labels).loss)
    assert loss.numpy() == 0.0
    gradients = tape.gradient(loss, model.trainable_weights)
    for gradient in tf.nest.flatten(gradients):
        assert gradient is None or not np.any(tf.convert_to_tensor(gradient).numpy())


def test_training_argument_inside_functional_model():
    encoder = TFBertModel(BertConfig(**{**SIZES, "hidden_dropout_prob": 0.5}))
    ids = keras.Input((None,), dtype="int32")
    states = [encoder(ids, training=training)[0] for training in (False, True)]
    still, moving = keras.Model(ids, states)(IDS, training=True)
    np.testing.assert_array_equal(still, encoder(IDS)[0])
    assert np.any(moving.numpy() != still.numpy())
    _, moving = keras.Model(ids, states)(IDS, training=False)
    assert np.any(moving.numpy() != still.numpy())


def _three_classes(**settings):
    return TFBertForSequenceClassification(BertConfig(**SIZES, num_labels=3, **settings))


_USE_TOKENIZER = r"\. Use tokenizer\(list_of_texts, padding=True, return_tensors='tf'\)"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        *(
            (inputs, rf"expected input_ids \(B, S\), got {got}{_USE_TOKENIZER}")
            for inputs, got in (
                *(("a text", "strings"), (IDS[0], r"shape \(4,\)")),
                (IDS[:, :0], r"shape \(2, 0\)"),
            )
        ),
        (
            {"input_ids": IDS, "attention_masks": MASK},
            "has no input 'attention_masks': expected input_ids, attention_mask, token_type_ids, "
            "position_ids, head_mask, inputs_embeds, output_attentions, output_hidden_states, "
            "return_dict, labels, training",
        ),
        ({"input_ids": IDS, "token_types_ids": TYPES.tolist()}, "has no input 'token_types_ids'"),
        ({"input_ids": IDS, "masks": [[1, 1], [1]]}, "has no input 'masks'"),
        (
            {"input_ids": IDS, "labels": np.eye(3)[:2]},
            r"expected shape \(B,\), class ids, .*, got \(2, 3\)\. .* pass a loss to compile\(\)",
        ),
    ],
)
def test_invalid_inputs_are_rejected(classifier, inputs, message):
    with pytest.raises(ValueError, match=message):
        classifier(inputs)


@pytest.mark.parametrize(
    "column",
    [
        *(None, 3, "x", (1, 2), [1, 2], ["a", "b"], [["a", "b"], ["c"]], [[1], [2]]),
        *(np.ones([2, 1]), np.array(["a", "b"]), tf.constant(1)),
    ],
)
def test_unknown_columns_are_ignored(classifier, column):
    found = classifier({"input_ids": IDS, "foo": column}).logits
    np.testing.assert_array_equal(found, classifier(IDS).logits)


@pytest.mark.parametrize("inputs", [["a text"], np.array(["a text"]), {"input_ids": [[1], [2, 3]]}])
def test_predict_accepts_lists_and_rejects_strings_and_ragged_rows(classifier, inputs):
    found = classifier.predict({"input_ids": IDS.tolist()}, verbose=0).logits
    np.testing.assert_allclose(found, classifier(IDS).logits.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match=r"padding=True"):
        classifier.predict(inputs, verbose=0)


def test_losses_of_multi_label_and_regression():
    labels = np.array([[1, 0, 1], [0, 0, 1]])
    for problem, loss in (
        ("multi_label_classification", keras.losses.BinaryCrossentropy(from_logits=True)),
        ("regression", keras.losses.MeanSquaredError()),
    ):
        model = _three_classes(problem_type=problem)
        for given in (labels, labels.astype("float32")):
            outputs = model(IDS, labels=given)
            expected = float(loss(labels.astype("float32"), outputs.logits))
            np.testing.assert_allclose(np.mean(outputs.loss), expected, rtol=1e-6)
        message = (
            r"labels: expected shape \(B, 3\), for "
            rf"config\.problem_type='{problem}', got \(2,\)\."
        )
        with pytest.raises(ValueError, match=message):
            model(IDS, labels=[0.5, 1.0])


@pytest.mark.parametrize(
    ("kind", "labels", "settings"),
    [
        ("SequenceClassification", [1, 2], {}),
        (
            "SequenceClassification",
            [[1.0, 0, 1], [0, 0, 1]],
            {"problem_type": "multi_label_classification"},
        ),
        ("TokenClassification", [[0, 1, 2, -100], [-100, 1, -100, -100]], {}),
    ],
)
def test_labels_of_unknown_rank(kind, labels, settings):
    config = BertConfig(**SIZES, num_labels=3, **settings)
    model, labels = getattr(successor, f"TFBertFor{kind}")(config), tf.constant(labels)
    unknown = tf.function(
        lambda labels: model(IDS, labels=labels).loss,
        input_signature=[tf.TensorSpec(None, labels.dtype)],
    )
    np.testing.assert_allclose(unknown(labels), model(IDS, labels=labels).loss, rtol=1e-6)


def test_invalid_label_has_no_finite_loss(classifier):
    tokens = successor.TFBertForTokenClassification(BertConfig(**SIZES, num_labels=3))
    words = successor.TFBertForMaskedLM(BertConfig(**SIZES))
    expected = classifier(IDS, labels=[1.0, 2.0]).loss
    np.testing.assert_array_equal(expected, classifier(IDS, labels=[1, 2]).loss)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"outside the valid range of \[0, 3\)"
    ):
        classifier(IDS, labels=[0.5, 0.0])
    for model, label in ((tokens, 3), (tokens, 0.5), (words, 20), (words, -1)):
        run = tf.function(lambda ids, labels, model=model: model(ids, labels=labels).loss)
        try:
            assert np.isnan(run(tf.constant(IDS), tf.constant(np.where(IDS == 7, label, 0)))).all()
        except tf.errors.InvalidArgumentError as error:
            assert "indices" in str(error)


def test_unsupported_settings_raise_or_warn(tmp_path):
    causal = BertConfig(**SIZES, is_decoder=True)
    message = "is_decoder=True: .* would pool the last token, unlike in transformers"
    with pytest.raises(ValueError, match=message):
        TFBertForSequenceClassification(causal)
    TFBertModel(causal, add_pooling_layer=False)
    words = successor.TFBertForMaskedLM
    message = "tie_word_embeddings=False is ignored: the masked-LM head shares the embeddings"
    with pytest.warns(bert_tf.DifferenceWarning, match=message):
        words(BertConfig(**SIZES, tie_word_embeddings=False))
    words(BertConfig(**SIZES)).save_pretrained(tmp_path)
    with pytest.warns(
        bert_tf.DifferenceWarning, match=r"dtype=float16 is ignored: .* applies, float32 \("
    ):
        words.from_pretrained(tmp_path, dtype="float16")
    with pytest.raises(ValueError, match="variant='fp16': variants are not supported"):
        words.from_pretrained(tmp_path, variant="fp16")
