"""Reading and writing Hugging Face directories: tensor names, config keys and classes."""

import dataclasses
import functools
import json
import pathlib
import re
import shutil

import h5py
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.checkpoint import ModelSpec, Tokenization
from bert_tf.checkpoints.hugging_face_config import (
    config_values,
    model_spec,
    read_activation,
    read_labels,
)
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.checkpoints.tensor_files import open_hdf5
from bert_tf.modeling import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertTokenClassifier,
)
from tests.checkpoints.hugging_face_files import (
    ENCODER,
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    classifier,
    random_tensors,
    read_weights,
    with_prefix,
    write_directory,
    write_weights,
)
from tests.checkpoints.samples import DATA
from tests.checkpoints.small_checkpoints import (
    CONFIG,
    MODELS,
    PIECES,
    SMALL,
    UNCASED,
    assert_bit_equal,
    make_checkpoint,
    read_all,
    write,
)

WITH_POOLER = {**ENCODER, **POOLER}
PRETRAINING = {**WITH_POOLER, **MASKED_LM, **NEXT_SENTENCE}
SEQUENCES = {"architectures": ["BertForSequenceClassification"]}
TOKENS = {"architectures": ["BertForTokenClassification"]}
CHOICES = {"architectures": ["BertForMultipleChoice"]}


@pytest.fixture
def directory(tmp_path):
    """Returns a function that writes a directory and returns its path."""
    return lambda tensors, **changes: write_directory(tmp_path / "hf", tensors, **changes)


# === Reading ===


def _old_names(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta")


WRAPPED = ("module.", "_orig_mod.", "model.", "module._orig_mod.model.")
RENAMED = {
    "without a prefix": lambda name: name.removeprefix("bert."),
    "old": _old_names,
    **{before: functools.partial("{}{}".format, before) for before in WRAPPED},
    "a compiled part": lambda name: name.replace("encoder.", "encoder._orig_mod."),
}


@pytest.mark.parametrize("names", RENAMED)
def test_alternative_tensor_names_are_read(directory, names):
    tensors = with_prefix(random_tensors(PRETRAINING))
    expected = read_all(hugging_face.read_checkpoint(directory(tensors)))
    renamed = {RENAMED[names](name): array for name, array in tensors.items()}
    assert renamed.keys() != tensors.keys()
    renamed[RENAMED[names]("bert.embeddings.position_ids")] = np.arange(12)[None]
    checkpoint = hugging_face.read_checkpoint(directory(renamed))
    assert_bit_equal(read_all(checkpoint), expected)
    assert checkpoint.unused == ()  # position_ids is not a weight
    notes = [f"removed from names such as '{names}"] if names in WRAPPED else []
    assert all(note in checkpoint.notes[0] for note in notes)


def test_copies_of_tied_weights_are_ignored(directory):
    tensors = random_tensors(PRETRAINING)
    copies = {
        "cls.predictions.decoder.weight": tensors["embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    expected = read_all(hugging_face.read_checkpoint(directory(tensors)))
    checkpoint = hugging_face.read_checkpoint(directory({**tensors, **copies}))
    assert_bit_equal(read_all(checkpoint), expected)
    assert checkpoint.unused == ()
    del tensors["cls.predictions.bias"]
    checkpoint = hugging_face.read_checkpoint(directory({**tensors, **copies}))
    assert_bit_equal(read_all(checkpoint), expected)


def test_transformers_weights_sets_the_weights_file(directory):
    path = directory(random_tensors(ENCODER), transformers_weights="other.safetensors")
    other = pathlib.Path(path, "other.safetensors")
    with pytest.raises(
        ValueError, match=r"has no other\.safetensors \(transformers_weights in config\.json\)"
    ):
        hugging_face.read_checkpoint(path)
    write_weights(other, random_tensors(ENCODER, seed=1))
    expected = random_tensors(ENCODER, seed=1)["embeddings.word_embeddings.weight"]
    for _ in range(2):  # with and without model.safetensors
        checkpoint = open_checkpoint(path)
        np.testing.assert_array_equal(
            checkpoint.tensors["embeddings/word_embeddings"].read(), expected
        )
        pathlib.Path(path, "model.safetensors").unlink(missing_ok=True)


@pytest.mark.parity
@pytest.mark.parametrize("is_separate", [False, True])
def test_proposed_call_merges_adapter(tmp_path, is_separate):
    """The call in the error message merges the adapter, so the outputs equal those of peft."""
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}
    config = transformers.BertConfig(**sizes, intermediate_size=8, initializer_range=0.5)
    base, adapter = tmp_path / "base", tmp_path / "adapter" if is_separate else tmp_path / "base"
    transformers.BertModel(config).save_pretrained(base)
    adapted = peft.get_peft_model(
        transformers.BertModel.from_pretrained(base),
        peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False),
    ).eval()
    adapted.save_pretrained(adapter)
    with pytest.raises(ValueError, match=r"an adapter\. Merge it with peft") as caught:
        open_checkpoint(adapter)
    for file in [] if is_separate else [*adapter.glob("adapter_*")]:
        (tmp_path / "adapter").mkdir(exist_ok=True)
        file.rename(tmp_path / "adapter" / file.name)
    call = re.search(r"PeftModel\..*?save_pretrained\(NEW\)", str(caught.value))[0]
    new, names = str(tmp_path / "new"), {"BASE": base, "ADAPTER": tmp_path / "adapter"}
    classes = {"PeftModel": peft.PeftModel, "AutoModel": transformers.AutoModel}
    exec(call, {**classes, **names, "NEW": new})
    ids = np.array([[2, 5, 6, 3]])
    with torch.no_grad():
        expected = adapted(torch.tensor(ids)).last_hidden_state.numpy()
        plain = transformers.BertModel.from_pretrained(new).eval()(torch.tensor(ids))
    np.testing.assert_allclose(plain.last_hidden_state.numpy(), expected, atol=1e-5)
    ours = bert_tf.load(new)
    inputs = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": 0 * ids}
    np.testing.assert_allclose(np.array(ours(inputs)["sequence_output"]), expected, atol=1e-5)


# === Writing ===


def test_unsupported_masked_lm_head_raises_error(tmp_path):
    arguments = {"mlm": True, "nsp": False, "mlm_activation": "relu", "mlm_layer_norm_eps": 1e-5}
    checkpoint = make_checkpoint(ModelSpec(BertPretrainer, arguments))
    message = (
        "^--format=huggingface: cannot store the masked-LM head in .* with mlm_activation=relu and "
        "mlm_layer_norm_eps=1e-05"
    )
    with pytest.raises(ValueError, match=message):
        hugging_face.write(checkpoint, str(tmp_path))


@pytest.mark.parametrize(
    "shapes, values, model_class, arguments",
    [
        (WITH_POOLER | MASKED_LM, {}, BertPretrainer, {"mlm": True, "nsp": False, "pooler": True}),
        # The pooler is missing, which the loader reports.
        (ENCODER | NEXT_SENTENCE, {}, BertPretrainer, {"mlm": False, "nsp": True, "pooler": True}),
        (WITH_POOLER | classifier(3), SEQUENCES | {"classifier_dropout": 0.25}, BertClassifier,
         {"num_classes": 3, "dropout": 0.25}),
        (WITH_POOLER | classifier(1), SEQUENCES, BertRegressor, {}),
        (WITH_POOLER | classifier(1), SEQUENCES | {"problem_type": "multi_label_classification"},
         BertClassifier, {"num_classes": 1}),
        (WITH_POOLER | classifier(3), TOKENS, BertTokenClassifier,
         {"num_classes": 3, "pooler": True}),
        (ENCODER | classifier(1), TOKENS | {"classifier_dropout": None}, BertTokenClassifier,
         {"num_classes": 1, "pooler": False}),
        (WITH_POOLER | classifier(1), CHOICES, BertMultipleChoice, {}),
    ],
)  # fmt: skip
def test_model_is_inferred_from_tensors_and_config(shapes, values, model_class, arguments):
    expected = ModelSpec(model_class, arguments)
    assert model_spec(values, shapes, "config.json") == (expected, ())


@pytest.mark.parametrize("named", [None, ["Unheard"], "BertForTokenClassification", [["x"]]])
@pytest.mark.parametrize(
    "shapes, expected, assumed",
    [(WITH_POOLER, "BertClassifier", "Sequence"), (ENCODER, "BertTokenClassifier", "Token")],
)
def test_unknown_architecture_of_classifier_adds_note(named, shapes, expected, assumed):
    values = {"architectures": named}
    spec, (note,) = model_spec(values, {**shapes, **classifier(2)}, "config.json")
    assert spec.class_name == expected and spec.arguments["num_classes"] == 2
    assert note.startswith("config.json: architectures: ")
    assert note.endswith(f" is not known; BertFor{assumed}Classification is assumed.")


TWO = ModelSpec(BertClassifier, {"num_classes": 2})


@pytest.mark.parametrize(
    "config, labels, expected_note",
    [
        ({"id2label": {"1": "yes", "0": "no"}, "label2id": {"no": 0, "yes": 1}}, ("no", "yes"), ""),
        ({"id2label": {"0": "no", "1": "yes"}}, ("no", "yes"), ""),
        ({"id2label": {"0": 5, "1": "yes"}}, ("5", "yes"), ""),
        ({"id2label": ["no", "yes"]}, ("no", "yes"), ""),
        ({"label2id": {"yes": 1, "no": 0}}, ("no", "yes"), "id2label is missing; label2id is used"),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, (), ""),
        ({"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}, (), ""),
        ({"id2label": None}, (), ""),
        ({}, (), ""),
        ({"id2label": {"1": "yes"}}, (), "id2label: expected the ids 0 to 1, got 1. The ids are "
         "used as labels"),
        ({"id2label": {"1": "no", "2": "yes"}}, (), "id2label: expected the ids 0 to 1, got "
         "1, 2"),
        ({"id2label": {"0": "no", "1": "yes", "2": "more"}}, (), "expected the ids 0 to 1, got "
         "0, 1, 2"),
        ({"label2id": {"yes": 1}}, (), "label2id: expected the ids 0 to 1, got 1"),
        ({"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 1, "yes": 0}}, ("no", "yes"),
         "label2id differs from id2label; id2label is used"),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"no": 0, "yes": 1}}, (),
         "label2id differs from id2label; id2label is used"),
    ],
)  # fmt: skip
def test_labels(config, labels, expected_note):
    found, notes = read_labels(config, TWO, "c.json")
    assert found == labels and len(notes) == bool(expected_note)
    assert all(note.startswith("c.json: ") and expected_note in note for note in notes)
    assert read_labels(config, MODELS["encoder"], "c.json") == ((), ())


ONE, THREE = ModelSpec(BertRegressor, {}), ModelSpec(BertClassifier, {"num_classes": 3})
TORCH = "torch.nn.modules"


@pytest.mark.parametrize(
    "spec, config, activation, notes",
    [
        (ONE, {}, "sigmoid", []),
        (ONE, {"problem_type": "regression"}, "",
         ["c.json: problem_type='regression': predictions are logits, but CrossEncoder of "
          "sentence-transformers applies a sigmoid. Set sentence_transformers.activation_fn."]),
        (ONE, {"problem_type": "regression",
               "sentence_transformers": {"activation_fn": f"{TORCH}.linear.Identity"}}, "", []),
        (ONE, {"sentence_transformers": {"activation_fn": f"{TORCH}.linear.Identity"}}, "", []),
        (ONE, {"sbert_ce_default_activation_function": f"{TORCH}.activation.Sigmoid"}, "sigmoid",
         []),
        (ONE, {"sentence_transformers": {"activation_fn": f"{TORCH}.activation.Tanh"}}, "",
         ["c.json: activation_fn='torch.nn.modules.activation.Tanh' is not supported and not "
          "applied."]),
        (THREE, {}, "", []),
        (THREE, {"sentence_transformers": {"activation_fn": f"{TORCH}.linear.Identity"}}, "", []),
        (THREE, {"sentence_transformers": {"activation_fn": f"{TORCH}.activation.Sigmoid"}}, "",
         ["c.json: activation_fn='torch.nn.modules.activation.Sigmoid' is not supported and not "
          "applied."]),
    ],
)  # fmt: skip
def test_activation_of_regression_head(spec, config, activation, notes):
    assert read_activation(config, spec, "c.json") == (activation, notes)


def test_config_values_equal_literal():
    checkpoint = make_checkpoint(MODELS["classifier"], labels=("a", "b", "c"))
    assert config_values(checkpoint) == {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        **CONFIG.to_dict(),
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "dtype": "float32",
        "classifier_dropout": 0.4,
        "problem_type": "single_label_classification",
        "id2label": {"0": "a", "1": "b", "2": "c"},
        "label2id": {"a": 0, "b": 1, "c": 2},
    }


def test_config_values_of_other_models():
    config = dataclasses.replace(CONFIG, hidden_act="gelu_approximate")
    encoder = make_checkpoint(MODELS["encoder"], config)
    assert config_values(encoder)["hidden_act"] == "gelu_pytorch_tanh"  # the name in transformers
    regressor = config_values(make_checkpoint(MODELS["regressor"]))
    assert (regressor["problem_type"], regressor["id2label"]) == ("regression", {"0": "LABEL_0"})
    several = config_values(make_checkpoint(MODELS["classifier"], multi_label=True))
    assert several["problem_type"] == "multi_label_classification"
    assert "problem_type" not in config_values(make_checkpoint(MODELS["token classifier"]))
    moved = Tokenization((*PIECES[1:], PIECES[0]), True)
    values = config_values(make_checkpoint(MODELS["encoder"], tokenization=moved))
    assert values["pad_token_id"] == len(PIECES) - 1


# === tf_model.h5 of the TensorFlow classes of transformers ===

RECORDED = DATA / "tf_model" / "model"


@pytest.fixture
def recorded(tmp_path):
    """Returns a copy of a recorded model for modification."""
    return shutil.copytree(RECORDED, tmp_path / "model")


def test_safetensors_precede_tf_model_h5_which_precedes_pickle(recorded):
    (recorded / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    found = open_checkpoint(recorded, allow_pickle=True)
    assert found.tensors["pooler/dense/bias"].name.endswith(":0")
    hugging_face.write(open_checkpoint(RECORDED), str(recorded))
    assert open_checkpoint(recorded).tensors["pooler/dense/bias"].name == "pooler.dense.bias"


def test_older_names_and_nested_model_are_read(recorded):
    """transformers 2 and 3 name embeddings differently; Keras numbers models of one class."""

    def change(name):
        name = name.replace("word_embeddings/weight", "word_embeddings/embeddings")
        return name.replace("tf_bert_model/", "mine/tf_bert_model_1/")

    with h5py.File(recorded / "tf_model.h5", "w") as file:
        for name, tensor in open_hdf5(str(RECORDED / "tf_model.h5")).items():
            file[change(name)] = tensor.read()
    found = open_checkpoint(recorded)
    assert found.unused == ()
    assert_bit_equal(read_all(found), read_all(open_checkpoint(RECORDED)))


def test_additional_tensors_are_unused(recorded):
    extra = ("bert/tf_bert_model/bert/extra/kernel:0", "dropout/rate:0")
    with h5py.File(recorded / "tf_model.h5", "r+") as file:
        for name in extra:
            file[name] = np.zeros((2, 3), "float32")
    assert open_checkpoint(recorded).unused == extra


# === DistilBERT ===

DISTILLED = dataclasses.replace(SMALL, type_vocab_size=0, layer_norm_eps=1e-12, hidden_act="gelu")
# Layer names in the published distilbert-base-uncased, and in bert_tf.
BLOCK = {
    "attention.q_lin": "attention/query",
    "attention.k_lin": "attention/key",
    "attention.v_lin": "attention/value",
    "attention.out_lin": "attention/output",
    "sa_layer_norm": "attention_layer_norm",
    "ffn.lin1": "intermediate",
    "ffn.lin2": "output",
    "output_layer_norm": "output_layer_norm",
}
TABLES = {
    "distilbert.embeddings.word_embeddings.weight": "embeddings/word_embeddings",
    "distilbert.embeddings.position_embeddings.weight": "embeddings/position_embeddings",
}
NORM = {"distilbert.embeddings.LayerNorm": "embeddings/layer_norm"}
HEADS = {
    "masked lm": (
        "DistilBertForMaskedLM",
        {"vocab_transform": "masked_lm/dense", "vocab_layer_norm": "masked_lm/layer_norm"},
    ),
    "classifier": (
        "DistilBertForSequenceClassification",
        {"pre_classifier": "pooler/dense", "classifier": "classifier"},
    ),
    "token classifier": ("DistilBertForTokenClassification", {"classifier": "token_classifier"}),
    "span predictor": ("DistilBertForQuestionAnswering", {"qa_outputs": "span"}),
    "multiple choice": (
        "DistilBertForMultipleChoice",
        {"pre_classifier": "pooler/dense", "classifier": "choice"},
    ),
    "encoder without pooler": ("DistilBertModel", {}),
}


def _expected(arrays, modules):
    """Returns the tensors under their published names, with transposed matrices."""
    block = {
        f"distilbert.transformer.layer.0.{name}": f"layer_0/{module}"
        for name, module in BLOCK.items()
    }
    found = {name: arrays[module] for name, module in TABLES.items()}
    for name, module in {**NORM, **block, **modules}.items():
        if module.endswith("norm"):
            found[f"{name}.weight"] = arrays[f"{module}/gamma"]
            found[f"{name}.bias"] = arrays[f"{module}/beta"]
        else:
            found[f"{name}.weight"] = arrays[f"{module}/kernel"].T
            found[f"{name}.bias"] = arrays[f"{module}/bias"]
    if "vocab_transform" in modules:
        found["vocab_projector.bias"] = arrays["masked_lm/output_bias"]
    return found


@pytest.mark.parametrize("name", HEADS)
def test_distilbert_is_written_with_published_names_and_read_back(tmp_path, name):
    architecture, modules = HEADS[name]
    checkpoint = make_checkpoint(MODELS[name], DISTILLED, tokenization=UNCASED)
    path = write(checkpoint, "huggingface", tmp_path)
    arrays = read_all(checkpoint)
    expected = _expected(arrays, modules)
    if architecture == "DistilBertModel":
        expected = {key.removeprefix("distilbert."): value for key, value in expected.items()}
    assert_bit_equal(read_weights(f"{path}/model.safetensors"), expected)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    expected_values = {
        **{"architectures": [architecture], "model_type": "distilbert", "dim": 8, "n_heads": 2},
        **{"n_layers": 1, "hidden_dim": 12, "activation": "gelu", "dropout": 0.2},
        **{"attention_dropout": 0.3, "vocab_size": 20, "max_position_embeddings": 12},
    }
    assert {key: config[key] for key in expected_values} == expected_values
    assert "type_vocab_size" not in config and "hidden_size" not in config
    again = open_checkpoint(path)
    assert again.config == DISTILLED and again.model.class_name == checkpoint.model.class_name
    assert again.model.arguments.get("dropout") == checkpoint.model.arguments.get("dropout")
    assert not again.unused
    assert_bit_equal(read_all(again), arrays)


def test_distilbert_reads_tensorflow_weights(tmp_path):
    checkpoint = make_checkpoint(MODELS["classifier"], DISTILLED)
    path = write(checkpoint, "huggingface", tmp_path)
    stored = read_weights(f"{path}/model.safetensors")
    (tmp_path / "m" / "model.safetensors").unlink()
    with h5py.File(tmp_path / "m" / "tf_model.h5", "w") as file:
        for name, array in stored.items():
            *modules, leaf = name.replace("layer.0", "layer_._0").split(".")
            norm = modules[-1].lower().endswith("norm")
            table = modules[-1].endswith("embeddings")
            names = {"weight": "gamma", "bias": "beta"} if norm else {"weight": "kernel"}
            leaf = "embeddings" if table else names.get(leaf, leaf)
            group = "/".join([modules[0], "tf_distil_bert_for_sequence_classification", *modules])
            array = array.T if leaf == "kernel" else array
            file[f"{group.replace('layer_/_0', 'layer_._0')}/{leaf}:0"] = array
    assert_bit_equal(read_all(open_checkpoint(path)), read_all(checkpoint))


def test_distilbert_equals_bert_without_token_types_and_with_relu_pooler():
    ids = np.array([[2, 6, 7, 3], [2, 8, 3, 0]], "int32")
    rows = {"input_word_ids": ids, "input_mask": (ids > 0).astype("int32")}
    rows["input_type_ids"] = np.array([[0, 0, 1, 1]] * 2, "int32")  # DistilBERT ignores them
    distilled, bert = (
        BertClassifier(config, num_classes=3)
        for config in (DISTILLED, dataclasses.replace(DISTILLED, type_vocab_size=2))
    )
    paths = {weight.path: weight for weight in distilled.weights}
    for weight in bert.weights:
        if "token_type" in weight.path:
            weight.assign(np.zeros(weight.shape))
            assert weight.path not in paths
        else:
            weight.assign(paths[weight.path])
    states = [model.encoder(rows) for model in (distilled, bert)]
    np.testing.assert_array_equal(states[0]["sequence_output"], states[1]["sequence_output"])
    assert np.min(states[0]["pooled_output"]) == 0 > np.min(states[1]["pooled_output"])


def test_distilbert_without_hugging_face_class_raises_error(tmp_path):
    for name, peer in (
        ("pretrainer", "BertForPreTraining"),
        ("next sentence", "BertForNextSentencePrediction"),
        ("encoder", "BertModel"),
    ):
        checkpoint = make_checkpoint(MODELS[name], DISTILLED)
        message = (
            f"Hugging Face has no {peer} for DistilBERT. Convert the encoder without its pooler"
        )
        with pytest.raises(ValueError, match=message):
            write(checkpoint, "huggingface", tmp_path, name.replace(" ", "_"))
