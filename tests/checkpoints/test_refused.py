"""What a stranger, or an accident, changed in a checkpoint is refused in a sentence: one table.

It holds the page docs/security.md; test_keras_files.py has what is refused of a zip.
"""

import json
import shutil

import h5py
import numpy as np
import pytest

import bert_tf
from tests.checkpoints import hugging_face_files as hf
from tests.checkpoints.samples import SAMPLES


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


def pickled(path):
    path.rename(path.with_name("pytorch_model.bin"))


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


def renamed(old, new):
    """Writes the weights under other names."""

    def change(path):
        hf.write_weights(path, {n.replace(old, new): t for n, t in hf.read_weights(path).items()})

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

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
REFUSED = [
    ("bert_tf", MODEL, {"class_name": "Lambda"}, r"model\.json: class_name is 'Lambda', expected "
     "one of BertEncoder, BertPretrainer, BertClassifier, BertRegressor, BertTokenClassifier, "
     "BertFeatureTagger, BertSpanPredictor, BertMultipleChoice"),
    ("bert_tf", MODEL, b"\xff{", r"model\.json is not JSON"),
    ("bert_tf", BERT, {"hidden_size": 6}, r"query_key_value/\w+ is \(.*24.*\): expected 18 "
     "columns, those of query, key and value beside each other, for a hidden_size of 6"),
    ("bert_tf", BERT, {"num_hidden_layers": 10**8}, "num_hidden_layers=100000000: expected at "
     "most 1,000"),
    ("bert_tf", "checkpoints", None, "has no checkpoint yet, as its run was stopped before the "
     "first"),
    ("bert_tf", "checkpoints/step-00000000/variables.index", b"",
     "^No checkpoint in .* is intact. Restore one from a copy, or delete them to start again"),
    ("bert_tf", MODEL, {EMBEDS: 1},
     "sentence_embedding is 1, expected an object with pooling, normalize, max_seq_length, "
     "query_prefix, document_prefix, dims, rescale"),
    ("hf", CONFIG, {"model_type": "roberta"}, r"config\.json: model_type='roberta': expected "
     "'bert'"),
    ("hf", CONFIG, {"hidden_size": "8"}, r"config\.json: hidden_size='8': expected a positive "
     "integer"),
    ("hf", CONFIG, b"[" * 10**5, r"config\.json is not JSON that is read"),
    ("hf", "model.safetensors", pickled, r"pytorch_model\.bin is a pickle, which can run code of "
     "whoever made it"),
    ("hf", "model.safetensors", added("bert.pooler.dense.bias", 8),
     r"both 'bert\.pooler\.dense\.bias' and 'pooler\.dense\.bias', which mean the same weight"),
    ("hf", CONFIG, {"transformers_weights": "../model.safetensors"},
     r"transformers_weights is '\.\./model\.safetensors', expected the plain name of a "
     r"\.safetensors file, or of its \.safetensors\.index\.json"),
    ("hf", CONFIG, {"transformers_weights": "model.bin"}, "expected the plain name of a "
     r".safetensors file, or of its \.safetensors\.index\.json"),
    ("hf", "adapter_config.json", {},
     r"has more than weights: its adapter_config\.json is an adapter's, which transformers puts "
     r"on a model's weights: merge it first, .*merge_and_unload\(\)\.save_pretrained.*; or move "
     "the adapter's files away, for the weights without it"),
    ("sharded", "model.safetensors.index.json", None,
     r"its model-00003-of-00003\.safetensors is one of several parts: put their index, "
     r"NAME\.index\.json, beside them, and name the directory"),
    ("hf", "model.safetensors", renamed("self.query", "self.Wqkv"),
     r"self\.Wqkv\.bias': it is a model with code of its own"),
    ("hf", "model.safetensors", renamed("query.weight", "query.qweight"),
     r"query\.qweight': it belongs to quantised weights, which are not read: save the model "
     "dequantised"),
    ("hf", "model.safetensors", renamed("query.", "query.base_layer."),
     r"base_layer\.bias': it is of an adapter, which is to be merged into the weights"),
    ("hf", "model.safetensors", renamed("embeddings.word", "embedding.word"),
     r"lacks embeddings/word_embeddings \(it has embedding\.word_embeddings\.weight\), which "
     "the model needs that its files describe or that you asked for"),
    *(
        (form, file, POINTER, r"is Git LFS's pointer to the file, not the file: git lfs pull it\.$")
        for form, file in (
            *(("hf", "model.safetensors"), ("hf", CONFIG)),
            ("sharded", "model.safetensors.index.json"),
            ("model", "tf_model.h5"), ("tf shards", "tf_model-00002-of-00002.h5"),
            ("google", "bert_model.ckpt.index"), ("hub", "model.weights.h5"),
            ("google", "bert_model.ckpt.data-00000-of-00001"),
            ("st", "modules.json"), ("dense", "2_Dense/model.safetensors"),
        )
    ),
    ("pretrained", "model.safetensors", added("cls.predictions.decoder.weight", (hf.V, hf.H)),
     r"decoder\.weight differs from embeddings\.word_embeddings\.weight: in BERT as published "
     "the masked-LM head multiplies by the word embeddings, so it cannot be built"),
    ("sharded", "model.safetensors.index.json", {"weight_map": {"a": "../a.safetensors"}},
     "expected a plain file name, without a folder"),
    ("st", "modules.json", [], r"modules\.json: expected a list of modules, got \[\]\.$"),
    ("st", "modules.json", modules("Transformer", folder="../x"),
     r"has a module in '\.\./x': expected a plain folder's name, within the directory\.$"),
    ("st", "modules.json", modules("Router", folder="x"),
     "as the place of a 'Router', and no .*: its Router is of several models: name the folder "
     "of one, .* for example"),
    ("st", "modules.json", modules("StaticEmbedding", folder="x"),
     "its StaticEmbedding is a table of words' vectors, without a transformer"),
    ("st", "modules.json", modules("Transformer", "Pooling", "Dropout", "Normalize"),
     "has the modules Transformer, Pooling, Dropout, Normalize, and no Dropout is computed: "
     "expected Transformer, Pooling, and Dense, Normalize or nothing after them; for its BERT "
     r"alone pass model_class=BertEncoder, or convert it first \(python -m bert_tf\.convert\)\.$"),
    ("st", "modules.json", modules("Transformer", "Normalize", "Pooling"),
     "has the modules Transformer, Normalize, Pooling: expected Transformer, Pooling, and "
     "Dense, Normalize or nothing after them"),
    ("st", LENGTH, {"max_seq_length": 0}, "max_seq_length is 0, expected a positive whole number"),
    ("st", POOLING, {"include_prompt": False}, "leaves prompts out of its pooling, which is not "
     "done"),
    ("dense", DENSE, {"activation_function": "torch.nn.modules.activation.ReLU"},
     "has a Dense layer with the activation 'torch.nn.modules.activation.ReLU', or without a "
     "bias, which is not computed"),
    ("dense", DENSE, {"out_features": 6}, r"linear\.weight is \(8, 5\), expected \(8, 6\)"),
    ("masked_lm", "tf_model.h5", hdf5(WORDS, 7.0), " mean the same weight and differ: expected "
     "one, or copies of it"),
    ("model", "tf_model.h5", hdf5(TF + "intermediate/dense/kernel:0", np.zeros((12, 8), "f")),
     r"layer_\._1/inter\S* is \(12, 8\), expected \(8, 12\)"),
    ("model", "tf_model.h5", cut_off, r"tf_model\.h5 is no HDF5 file that can be read, it is "
     "damaged or cut off"),
    ("hub", CONFIG, {"class_name": "RobertaBackbone"}, "class_name is 'RobertaBackbone', "
     "expected 'BertBackbone', as in a preset of KerasHub"),
    ("hub", CONFIG, {"config/num_heads": 4}, "says that attention has 4 heads, but "
     r"model\.weights\.h5/layers/transformer_encoder/_self_attention_layer/key_dense/vars/0 of "
     r"shape \(8, 2, 4\) has 2"),
    ("hub", "model.weights.h5", hdf5(KERNEL, np.zeros((8, 8), "int8")),
     f"{KERNEL} is stored as int8, expected one of float32, float16, bfloat16, float64"),
    ("hub", "task.weights.h5", hdf5(KERNEL, np.zeros((8, 4), "float32")),
     rf"task\.weights\.h5/{KERNEL} is \(8, 4\), expected \(8, 3\)"),
    ("hub", "model.weights.h5", twice, r"are both layer_0/attention/key/kernel: expected one\."),
    ("hub shards", "model.weights.json", {"weight_map": {"/a": ["/etc/hosts"]}},
     "names the file '/etc/hosts': expected a plain file name, without a folder"),
    ("garden", BERT, {"num_attention_heads": 4}, r"bert_config\.json says that attention has 4 "
     r"heads, but encoder/layer_with_weights-4/_attention_layer/_query_dense/kernel\S* of shape "
     r"\(8, 2, 4\) has 2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "file", "change", "sentence"),
    REFUSED,
    ids=[f"{number} {form} {file}" for number, (form, file, *_) in enumerate(REFUSED)],
)
def test_what_was_changed_is_refused(tmp_path, form, file, change, sentence):
    path = tmp_path / "m"
    SAMPLES[form].make(path)
    damage(path / file, change)
    with pytest.raises(ValueError, match=sentence) as caught:
        bert_tf.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
