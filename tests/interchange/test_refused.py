"""What a stranger, or an accident, changed in a checkpoint is refused in a sentence: one table."""

import json
import shutil

import h5py
import numpy as np
import pytest

import bert_tf
from bert_tf.interchange import model_directory, sentence_transformers
from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from tests.interchange import hugging_face_files as hf
from tests.interchange.recorded import DATA
from tests.interchange.small_checkpoints import CASED, MODELS, UNCASED, make_checkpoint

CLASSIFIER = {**hf.ENCODER, **hf.POOLER, **hf.classifier(3)}
EMBEDDING = SentenceEmbedding("mean", normalize=True, max_seq_length=10)


def _bert_tf(path):
    path.mkdir()
    checkpoint = make_checkpoint(
        MODELS["pretrainer"], tokenization=UNCASED, sentence_embedding=EMBEDDING
    )
    model_directory.write(checkpoint, str(path))
    # As a user does who changes a file: the hashes go.
    values = json.loads((path / "model.json").read_text())
    del values["sha256"]
    (path / "model.json").write_text(json.dumps(values))


def _hugging_face(path):
    architectures = ["BertForSequenceClassification"]
    hf.write_directory(path, hf.random_tensors(CLASSIFIER), architectures=architectures)


def _pretrained(path):
    hf.write_directory(
        path, hf.random_tensors({**hf.ENCODER, **hf.POOLER, **hf.MASKED_LM, **hf.NEXT_SENTENCE})
    )


def _sharded(path):
    path.mkdir()
    hf.write_directory(path, {})
    (path / "model.safetensors").unlink()
    hf.write_shards(path, hf.random_tensors(hf.ENCODER))


def _sentence_transformers(path):
    path.mkdir()
    checkpoint = make_checkpoint(
        MODELS["encoder"], tokenization=CASED, sentence_embedding=EMBEDDING
    )
    sentence_transformers.write(checkpoint, str(path))


def _dense(path):
    path.mkdir()
    spec = ModelSpec(BertEncoder, {"pooler": False, "dense_size": 5})
    checkpoint = make_checkpoint(spec, tokenization=UNCASED, sentence_embedding=EMBEDDING)
    sentence_transformers.write(checkpoint, str(path))


def _copy(*place):
    return lambda path: shutil.copytree(DATA.joinpath(*place), path)


ORIGINALS = {
    "bert_tf": _bert_tf,
    "hf": _hugging_face,
    "pretrained": _pretrained,
    "sharded": _sharded,
    "st": _sentence_transformers,
    "dense": _dense,
    "tf": _copy("tf_model", "model"),
    "masked": _copy("tf_model", "masked_lm"),
    "hub": _copy("keras_hub", "classifier"),
    "hub shards": _copy("keras_hub", "sharded"),
    "garden": _copy("model_garden", "encoder"),
}


def damage(path, change):
    """Changes a file: merges into its JSON, writes JSON or bytes, or calls a function."""
    if callable(change):
        return change(path)
    if change is None:
        return shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not isinstance(change, dict):
        is_content = isinstance(change, bytes)
        return path.write_bytes(change if is_content else json.dumps(change).encode())
    values = json.loads(path.read_text()) if path.exists() else {}
    for key, value in change.items():
        *above, last = key.split("/")
        inner = values
        for part in above:
            inner = inner[part]
        inner[last] = value
    path.write_text(json.dumps(values))


def hdf5(place, value=None):
    """Puts something else in a dataset's place, or changes its first number."""

    def change(path):
        with h5py.File(path, "r+") as file:
            if np.ndim(value) == 0 and isinstance(value, float):
                file[place][0, 0] = value
                return
            del file[place]
            if value is not None:
                file[place] = value

    return change


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def twice(path):
    with h5py.File(path, "a") as file:
        block = file["layers/transformer_encoder/_self_attention_layer"]
        block.copy("key_dense", "_key_dense")


def added(name, shape):
    """Writes the weights again, and one more."""

    def change(path):
        hf.write_weights(path, {**hf.read_weights(path), name: np.zeros(shape, np.float32)})

    return change


def modules(*kinds, folder=""):
    """A list of modules, the first in a folder of its own."""
    folders = [folder, *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    return [
        {"type": f"a.{kind}", "path": place} for kind, place in zip(kinds, folders, strict=True)
    ]


EMBEDS = "sentence_embedding"
CONFIG, MODEL, POOLING, LENGTH, TASK = (
    *("config.json", "model.json", "1_Pooling/config.json", "sentence_bert_config.json"),
    "task.json",
)
DENSE, PROMPTS = "2_Dense/config.json", "config_sentence_transformers.json"
BERT = "bert_config.json"
TF = "bert/tf_bert_model/bert/encoder/layer_._1/"
WORDS = "bert/tf_bert_for_masked_lm/bert/embeddings/word_embeddings/weight:0"
KERNEL = "layers/dense/vars/0"
COUNT = "max_seq_length is {}, expected a positive whole number, of a million at"

REFUSED = [
    ("bert_tf", MODEL, {"class_name": "Lambda"}, r"model\.json: class_name is 'Lambda', expec"),
    ("bert_tf", MODEL, {"format_version": 9}, r"model\.json: format_version is 9, expected 1"),
    ("bert_tf", MODEL, {"more": 1}, r"model\.json: expected the keys .*, got more besides"),
    ("bert_tf", MODEL, b"\xff{", r"model\.json is not JSON"),
    ("bert_tf", BERT, b"\xff{", r"bert_config\.json is not JSON"),
    ("bert_tf", BERT, {"hidden_size": 6}, r"query_key_value/\w+ is \(.*24.*\): expected 18 "),
    ("bert_tf", BERT, {"num_hidden_layers": 10**8}, "num_hidden_layers is 100000000: expected"),
    ("bert_tf", BERT, {"hidden_act": "evil"}, r"bert_config\.json: hidden_act 'evil' is unk"),
    ("bert_tf", "checkpoints", None, "has no checkpoint yet, as its run was stopped before the"),
    ("bert_tf", "checkpoints/step-00000000/variables.index", b"",
     r"^No checkpoint in .* is intact: restore one"),
    ("bert_tf", MODEL, {EMBEDS: 1},
     "sentence_embedding is 1, expected an object with pooling, normalize, max_seq_length"),
    ("bert_tf", MODEL, {EMBEDS: {"pooling": "mean"}}, r"embedding is \{'pooling': 'mean'\}, exp"),
    ("bert_tf", MODEL, {f"{EMBEDS}/pooling": "none"},
     "pooling is 'none' and normalize True, expected one of cls, mean, max, last, and true"),
    ("bert_tf", MODEL, {f"{EMBEDS}/normalize": 1}, "normalize 1, expected one of"),
    ("bert_tf", MODEL, {f"{EMBEDS}/max_seq_length": 10**400},
     COUNT.format(r"1000\d*\.\.\.0*")),
    ("hf", CONFIG, {"model_type": "roberta"}, r"config\.json: model_type is 'roberta', exp"),
    ("hf", CONFIG, {"hidden_size": "8"}, r"config\.json: hidden_size must be a positive integer"),
    ("hf", CONFIG, {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000: expected at m"),
    ("hf", CONFIG, {"classifier_dropout": 1.5}, r"BertClassifier cannot be made with dropout=1\.5"),
    ("hf", CONFIG, {"id2label": {"0": "a", "1": ["b"]}}, r"the label \['b'\] is not a text"),
    ("hf", CONFIG, b"[" * 10**5, r"config\.json is not JSON"),
    ("hf", CONFIG, b"{}", r"no vocab_size: expected the keys of a bert_config\.json"),
    ("hf", "model.safetensors", None, r"is not a checkpoint of a .*with config\.json in it"),
    ("hf", "model.safetensors", added("bert.pooler.dense.bias", 8),
     r"both 'bert\.pooler\.dense\.bias' and 'pooler\.dense\.bias', which mean the same"),
    ("pretrained", "model.safetensors", added("cls.predictions.decoder.weight", (hf.V, hf.H)),
     r"decoder\.weight differs from embeddings\.word_embeddings\.weight: in BERT as pub"),
    ("sharded", "model.safetensors.index.json", {"weight_map": {"a": "../a.safetensors"}},
     "expected a plain file name"),
    ("st", "modules.json", [], r"modules\.json: expected a list of modules, got \[\]\.$"),
    ("st", "modules.json", [{"type": 1}], r"expected modules with a type and a path, got \{'typ"),
    ("st", "modules.json", modules("Transformer", folder="../x"),
     r"has a module in '\.\./x': expected a plain folder's name, within the directory\.$"),
    ("st", "modules.json", modules("Transformer", folder="nowhere"),
     r"names 'nowhere' as the place of a 'Transformer', and no config\.json with model\.safet"),
    ("st", "modules.json", modules("Transformer", "Pooling", "Dropout", "Normalize"),
     "has the modules Transformer, Pooling, Dropout, Normalize, and no Dropout is computed: "
     "expected Transformer, Pooling, and Dense, Normalize or nothing after them; for its BERT "
     r"alone pass model_class=BertEncoder, or convert it first \(python -m bert_tf\.convert\)\.$"),
    ("st", "modules.json", modules("Transformer", "Normalize", "Pooling"),
     "has the modules Transformer, Normalize, Pooling: expected Transformer, Pooling, and"),
    ("st", POOLING, {"pooling_mode": ["cls", "mean"]}, r"pools by \['cls', 'mean'\], and only one"),
    ("st", POOLING, {"pooling_mode_new": True, "pooling_mode_mean_tokens": False},
     r"pools by \['pooling_mode_new'\], and only one of cls, mean"),
    ("st", POOLING, {"pooling_mode_mean_tokens": False}, r"pools by \[\], and only one of cls"),
    ("st", POOLING, {"pooling_mode_mean_tokens": 1}, "mean_tokens is 1, expected true or false"),
    ("st", LENGTH, {"transformer_task": "fill-mask"},
     "runs its transformer for 'fill-mask', which makes no embeddings"),
    ("st", LENGTH, {"do_lower_case": True}, "lowers the case of text before a tokenizer that is c"),
    *(
        ("st", LENGTH, {"max_seq_length": length}, COUNT.format(length))
        for length in (0, 9.5, True, float("nan"))
    ),
    ("st", POOLING, {"include_prompt": False}, "leaves prompts out of its pooling, which is not"),
    ("st", PROMPTS, {"prompts": {"query": 1}}, r"query_prefix and document_prefix are \(1, ''\), "),
    ("st", PROMPTS, {"truncate_dim": 0}, "dims is 0, expected a positive number or null"),
    ("dense", DENSE, {"activation_function": "torch.nn.modules.activation.ReLU"},
     "has a Dense layer with the activation 'torch.nn.modules.activation.ReLU', or without a bias"),
    ("dense", DENSE, {"bias": False}, "or without a bias, which is not computed"),
    ("dense", DENSE, {"module_input_name": "token_embeddings"}, "of something else than the vect"),
    ("dense", DENSE, {"out_features": 0}, "BertEncoder cannot be made with dense_size=0"),
    ("dense", DENSE, {"out_features": 6}, r"linear\.weight is \(8, 5\), expected \(8, 6\)"),
    ("dense", "2_Dense/model.safetensors", None, "2_Dense has no model.safetensors, tf_model.h5"),
    ("masked", "tf_model.h5", hdf5(WORDS, 7.0), " mean the same weight and differ: expected one"),
    ("tf", "tf_model.h5", hdf5(TF + "output/dense/bias:0"),
     "m lacks layer_1/output/bias, which the model needs"),
    ("tf", "tf_model.h5", hdf5(TF + "intermediate/dense/kernel:0", np.zeros((12, 8), "f")),
     r"layer_\._1/inter\S* is \(12, 8\), expected \(8, 12\)"),
    ("tf", "tf_model.h5", cut_off, r"tf_model\.h5 is not an HDF5 file that can be read, it "),
    ("hub", CONFIG, {"class_name": "RobertaBackbone"}, "class_name is 'RobertaBackbone', exp"),
    ("hub", CONFIG, {"config": []}, r"expected config to be an object, got \[\]\."),
    ("hub", CONFIG, {"config": {"num_heads": 2}}, "has no vocabulary_size, num_layers, hidden"),
    ("hub", CONFIG, {"config/num_layers": "2"}, "num_hidden_layers must be a positive integer"),
    ("hub", CONFIG, {"config/num_heads": 4}, r"says that attention has 4 heads, but model\.w"),
    ("hub", TASK, {"config/num_classes": True}, "num_classes is True, expected a positive integer"),
    ("hub", TASK, {"config/dropout": 1}, r"dropout is 1, expected a number in \[0, 1\)"),
    ("hub", TASK, {"config/dropout": False}, r"dropout is False, expected a number in \[0, 1\)"),
    ("hub", "tokenizer.json", {"config/lowercase": "false"}, "lowercase is 'false', expected true"),
    ("hub", "tokenizer.json", {"class_name": "Other"}, "class_name is 'Other', expected 'BertTo"),
    ("hub", "assets/tokenizer/vocabulary.txt", None, r"no vocabulary file at '.*vocabulary\.txt'"),
    ("hub", "model.weights.h5", None, r"has no model\.weights\.h5, and no model\.weights\.json"),
    ("hub", "model.weights.h5", hdf5(KERNEL, np.zeros((8, 8), "int8")),
     f"{KERNEL} is int8, expected a floating-poi"),
    ("hub", "task.weights.h5", hdf5(KERNEL, h5py.ExternalLink("model.weights.h5", KERNEL)),
     rf"task\.weights\.h5: '{KERNEL}' is a link of"),
    ("hub", "task.weights.h5", hdf5(KERNEL, np.zeros((8, 4), "float32")),
     rf"task\.weights\.h5/{KERNEL} is \(8, 4\), expected \(8, 3\)"),
    ("hub", "model.weights.h5", twice, r"are both layer_0/attention/key/kernel: expected one\."),
    *(
        ("hub shards", "model.weights.json", {"weight_map": weight_map}, sentence)
        for weight_map, sentence in (
            (None, "expected weight_map to be an object, got None"),
            ({"/a": "../model_00000.weights.h5"}, r"names the file '\.\./model_00000\.weights"),
            ({"/a": ["model_00000.weights.h5", "/etc/hosts"]}, "names the file '/etc/hosts': exp"),
            ({"/a": 1}, "names the file 1: expected"),
            ({"/a": "model_7.weights.h5"}, "cannot be read: .*No such file"),
        )
    ),
    ("garden", BERT, {"num_attention_heads": 4}, r"bert_config\.json says that attention has 4 he"),
    ("garden", BERT, {"vocab_size": 30}, r"is \(25, 8\), expected \(30, 8\)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "file", "change", "sentence"),
    REFUSED,
    ids=[f"{number} {form} {file}" for number, (form, file, *_) in enumerate(REFUSED)],
)
def test_what_was_changed_is_refused(tmp_path, form, file, change, sentence):
    path = tmp_path / "m"
    ORIGINALS[form](path)
    damage(path / file, change)
    with pytest.raises(ValueError, match=sentence) as caught:
        bert_tf.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
