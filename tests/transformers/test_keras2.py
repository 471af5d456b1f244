"""Files that Keras 2 wrote, and their recorded outputs.

``make_keras2_data.py`` describes the files.
"""

import functools
import pathlib
import shutil

import h5py
import numpy as np
import pytest

import bert_tf
import bert_tf.transformers as successor

FILES = pathlib.Path(__file__).parent / "keras2"
#: Class and recorded outputs of each file.
ENCODER = ("TFBertModel", ("last_hidden_state", "pooler_output"))
READ = {
    "functional/weights.h5": ENCODER,
    "main_layer/model.h5": ENCODER,
    "subclassed/ranker.h5": ENCODER,
    "classifier/tf_model.h5": ("TFBertForSequenceClassification", ("logits",)),
    "classifier": ("TFBertForSequenceClassification", ("logits",)),
}


def config(**changed):
    """Returns the config of all models."""
    return successor.BertConfig.from_pretrained(FILES / "classifier", **changed)


@functools.cache
def _made(name, **changed):
    return getattr(successor, name)(config(**changed))


def make(name="TFBertModel", **changed):
    """Builds a model once, with weights of 0, so that all have to be loaded."""
    model = _made(name, **changed)
    model.set_weights([np.zeros(weight.shape, "float32") for weight in model.weights])
    return model


def recorded(file):
    with np.load(FILES / file.split("/")[0] / "outputs.npz") as arrays:
        return dict(arrays)


def batch_of(arrays, file):
    """Returns the batch; the model with the main layer got no token types."""
    names = ["input_ids", "attention_mask"]
    return {n: arrays[n] for n in (*names, *["token_type_ids"] * ("main" not in file))}


@pytest.mark.parametrize("file", READ)
def test_load_weights(file):
    name, outputs = READ[file]
    model = make(name)
    model.load_weights(FILES / file)
    arrays = recorded(file)
    found = model(batch_of(arrays, file))
    compared = [output for output in outputs if output in arrays]
    assert compared
    for output in compared:
        np.testing.assert_allclose(found[output], arrays[output], rtol=0, atol=1e-5)


def test_load_weights_of_custom_model_with_main_layer():
    class Ranker(successor.TFBertPreTrainedModel):
        def __init__(self, settings):
            super().__init__(settings)
            self.bert = successor.TFBertMainLayer(settings, name="bert")

        def call(self, inputs, **switches):
            return self.bert(inputs, **switches).pooler_output

    ranker = Ranker(config())
    ranker.load_weights(FILES / "subclassed" / "ranker.h5")
    arrays = recorded("subclassed")
    found = ranker(batch_of(arrays, "subclassed"))
    np.testing.assert_allclose(found, arrays["pooler_output"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["config.json", "bert_config.json"])
def test_load_reads_sizes_from_config_file(tmp_path, name):
    file = "functional/weights.h5"
    path = shutil.copyfile(FILES / file, tmp_path / "weights.h5")
    with pytest.raises(ValueError, match=rf"expected config.json .* in {tmp_path}\."):
        bert_tf.load(path, bert_tf.BertEncoder)
    (tmp_path / name).write_text(config().to_json_string())
    shutil.copyfile(FILES / "classifier" / "vocab.txt", tmp_path / "vocab.txt")
    encoder = bert_tf.load(path)
    assert isinstance(encoder, bert_tf.BertEncoder) and encoder.preprocessor is not None
    arrays = recorded(file)
    found = encoder(
        {
            "input_word_ids": arrays["input_ids"],
            "input_mask": arrays["attention_mask"],
            "input_type_ids": arrays["token_type_ids"],
        }
    )
    expected = arrays["last_hidden_state"]
    np.testing.assert_allclose(found["sequence_output"], expected, rtol=0, atol=1e-5)


def write_datasets(path, names):
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = np.zeros((26, 8), "float32")
    return path


def rewrite(path, change):
    """Writes a copy of a model file with changed arrays."""
    arrays = {}
    with h5py.File(FILES / "main_layer" / "model.h5") as found:
        found.visititems(lambda k, v: arrays.update({k: v[()]}) if hasattr(v, "shape") else None)
    with h5py.File(path, "w") as file:
        for name, array in change(arrays).items():
            file[name] = array
    return path


SLOTS = "optimizer_weights/Adam/m/bert/embeddings/word_embeddings/weight:0"
QUERY = "model_weights/bert/bert/encoder/layer_._1/attention/self/query/kernel:0"


def test_optimizer_variables_are_ignored(tmp_path):
    path = rewrite(tmp_path / "m.h5", lambda a: {**a, SLOTS: np.zeros((26, 8), "float32")})
    model = make()
    model.load_weights(path)
    arrays = recorded("main_layer")
    found = model(batch_of(arrays, "main_layer")).last_hidden_state
    np.testing.assert_allclose(found, arrays["last_hidden_state"], rtol=0, atol=1e-5)


#: Path, settings of the model, and error message of each case.
ERRORS = {
    "no BERT in the file": (
        lambda folder: write_datasets(folder / "a.h5", ["a/b/kernel:0", "a/b/bias:0"]),
        {},
        "{path}: expected a variable NAME/embeddings/word_embeddings/weight, got b/bias, b/kernel. "
        "See docs/guides/weights.md.",
    ),
    "two BERTs": (
        lambda folder: write_datasets(
            folder / "a.h5", [f"{n}/{n}/bert/embeddings/word_embeddings/weight:0" for n in "ab"]
        ),
        {},
        "{path}: expected one BERT model, got 2, such as 'a/bert' and 'b/bert'. Save one of them "
        "separately.",
    ),
    "another width": (
        lambda folder: FILES / "functional" / "weights.h5",
        {"intermediate_size": 16},
        "{path} has tensors whose shapes do not match its config or the arguments: "
        "tf_bert_model/tf_bert_model/bert/encoder/layer_._0/intermediate/dense/kernel:0: expected "
        "(8, 16), got (8, 12);",
    ),
    "fewer layers": (
        lambda folder: FILES / "functional" / "weights.h5",
        {"num_hidden_layers": 1},
        "{path} has 2 layers, expected 1 (num_hidden_layers). Use the config of this model.",
    ),
    "more layers": (
        lambda folder: FILES / "functional" / "weights.h5",
        {"num_hidden_layers": 3},
        "{path} lacks weights of the model: layer_2/attention/query/kernel, ",
    ),
    "missing weight": (
        lambda folder: rewrite(
            folder / "a.h5", lambda a: {k: v for k, v in a.items() if k != QUERY}
        ),
        {},
        "{path} lacks weights of the model: layer_1/attention/query/kernel (unused: "
        "model_weights/tags/tags/bias:0, model_weights/tags/tags/kernel:0). ",
    ),
    "nothing there": (
        lambda folder: folder / "ckpt-1",
        {},
        "No such checkpoint: {path}. Expected a directory, a prefix such as DIR/bert_model.ckpt, "
        "a .keras file, hf://OWNER/NAME, or tiny. ",
    ),
    "variables by their numbers": (
        lambda folder: write_datasets(
            folder / "a.weights.h5", ["layers/b/attention/dense_output/dense/vars/0"]
        ),
        {},
        "{path}: expected variable names, got numbers, which Keras 2 writes to .weights.h5 "
        'files. Load the file in the original program, then call save_weights("bert.h5").',
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(tmp_path, case):
    write, changed, message = ERRORS[case]
    path = write(tmp_path)
    with pytest.raises(ValueError) as caught:
        make(**changed).load_weights(path)
    assert str(caught.value).startswith(message.format(path=path))
    assert "pass " not in str(caught.value)  # load_weights has no option for it
