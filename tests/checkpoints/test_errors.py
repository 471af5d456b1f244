"""Damaged or manipulated checkpoints raise errors.

The table covers docs/security.md. Zip files are tested in test_model_directory.py.
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
    path.parent.mkdir(exist_ok=True)
    if callable(change):
        return change(path)
    if change is None:
        return shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not isinstance(change, dict):
        is_content = isinstance(change, bytes)
        return path.write_bytes(change if is_content else json.dumps(change).encode())
    values = json.loads(path.read_text()) if path.exists() else {}
    for key, value in change.items():
        *parents, last = key.split("/")
        inner = values
        for part in parents:
            inner = inner[part]
        inner[last] = value
    path.write_text(json.dumps(values))


def set_hdf5(name, value=None):
    """Returns a change that replaces a dataset, or sets its first value to a float."""

    def change(path):
        with h5py.File(path, "r+") as file:
            if np.ndim(value) == 0 and isinstance(value, float):
                file[name][0, 0] = value
                return
            del file[name]
            if value is not None:
                file[name] = value

    return change


def rename_to_pickle(path):
    path.rename(path.with_name("pytorch_model.bin"))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def copy_layer(path):
    with h5py.File(path, "a") as file:
        block = file["layers/transformer_encoder/_self_attention_layer"]
        block.copy("key_dense", "_key_dense")


def add_tensor(name, shape):
    """Returns a change that adds a tensor."""

    def change(path):
        hf.write_weights(path, {**hf.read_weights(path), name: np.zeros(shape, np.float32)})

    return change


def rename_tensors(old, new):
    """Returns a change that renames tensors."""

    def change(path):
        hf.write_weights(path, {n.replace(old, new): t for n, t in hf.read_weights(path).items()})

    return change


def modules(*kinds, folder=""):
    """Returns the contents of modules.json. The first module is in `folder`."""
    folders = [folder, *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    return [{"type": f"a.{kind}", "path": path} for kind, path in zip(kinds, folders, strict=True)]


EMBEDS = "sentence_embedding"
CONFIG, MODEL, POOLING, LENGTH, TASK = (
    *("config.json", "model.json", "1_Pooling/config.json", "sentence_bert_config.json"),
    "task.json",
)
DENSE, NORMALIZE = "2_Dense/config.json", "2_Normalize/config.json"
PROMPTS = "config_sentence_transformers.json"
BERT = "bert_config.json"
TF = "bert/tf_bert_model/bert/encoder/layer_._1/"
WORDS = "bert/tf_bert_for_masked_lm/bert/embeddings/word_embeddings/weight:0"
KERNEL = "layers/dense/vars/0"

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
CASES = [
    ("bert_tf", MODEL, {"class_name": "Lambda"}, r"model\.json: class_name: expected "
     "one of BertEncoder, BertPretrainer, BertClassifier, BertRegressor, BertTokenClassifier, "
     "BertFeatureTagger, BertSpanPredictor, BertMultipleChoice, got 'Lambda'"),
    ("bert_tf", MODEL, b"\xff{", r"model\.json is not JSON"),
    ("bert_tf", BERT, {"hidden_size": 6}, r"query_key_value/\w+: expected 18 columns "
     r"\(3 \* hidden_size\), got the shape \(.*24"),
    ("bert_tf", BERT, {"num_hidden_layers": 10**8}, "num_hidden_layers=100000000: expected at "
     "most 1,000"),
    ("bert_tf", "checkpoints", None, "has no checkpoint, because the run was interrupted before"),
    ("bert_tf", "checkpoints/step-00000000/variables.index", b"",
     "^No checkpoint in .* is intact. Restore one from a copy, or delete all to start again"),
    ("bert_tf", MODEL, {EMBEDS: 1},
     "sentence_embedding: expected an object with pooling, normalize, max_seq_length, "
     "query_prefix, document_prefix, dims, rescale, got 1"),
    ("hf", CONFIG, {"model_type": "roberta"}, r"config\.json: model_type='roberta': expected "
     "'bert'"),
    ("hf", CONFIG, {"hidden_size": "8"}, r"config\.json: hidden_size='8': expected a positive "
     "integer"),
    ("hf", CONFIG, b"[" * 10**5, r"config\.json cannot be read as JSON"),
    ("hf", "model.safetensors", rename_to_pickle, r"pytorch_model\.bin is a pickle, which can run "
     "arbitrary code"),
    ("hf", "model.safetensors", add_tensor("bert.pooler.dense.bias", 8),
     r"'bert\.pooler\.dense\.bias' and 'pooler\.dense\.bias' are the same weight"),
    ("hf", CONFIG, {"transformers_weights": "../model.safetensors"},
     r"transformers_weights='\.\./model\.safetensors': expected the name of a \.safetensors or "
     r"\.safetensors\.index\.json file, without a directory"),
    ("hf", CONFIG, {"transformers_weights": "model.bin"}, "expected the name of a .safetensors"),
    ("hf", "adapter_config.json", {},
     r"is not a supported checkpoint: its adapter_config\.json is an adapter\. Merge it with "
     r"peft: .*merge_and_unload\(\)\.save_pretrained.*, or remove the adapter's files to load "
     "the base weights"),
    ("sharded", "model.safetensors.index.json", None,
     r"its model-00003-of-00003\.safetensors is a shard\. Add the index, NAME\.index\.json, and "
     "pass the directory"),
    ("hf", "model.safetensors", rename_tensors("self.query", "self.Wqkv"),
     r"self\.Wqkv\.bias': models with custom code"),
    ("hf", "model.safetensors", rename_tensors("query.weight", "query.qweight"),
     r"query\.qweight': quantized weights are not supported\. Dequantize the model"),
    ("hf", "model.safetensors", rename_tensors("query.", "query.base_layer."),
     r"base_layer\.bias': adapters are not supported\. Merge the adapter"),
    ("hf", "model.safetensors", rename_tensors("embeddings.word", "embedding.word"),
     r"lacks weights of the model: embeddings/word_embeddings \(unused: "
     r"embedding\.word_embeddings\.weight\)"),
    *(
        (form, file, POINTER, r": expected the file, got a Git LFS pointer\. Run git lfs pull\.$")
        for form, file in (
            *(("hf", "model.safetensors"), ("hf", CONFIG)),
            ("sharded", "model.safetensors.index.json"),
            ("model", "tf_model.h5"), ("tf shards", "tf_model-00002-of-00002.h5"),
            ("google", "bert_model.ckpt.index"), ("hub", "model.weights.h5"),
            ("google", "bert_model.ckpt.data-00000-of-00001"),
            ("st", "modules.json"), ("dense", "2_Dense/model.safetensors"),
        )
    ),
    ("pretrained", "model.safetensors", add_tensor("cls.predictions.decoder.weight", (hf.V, hf.H)),
     r"decoder\.weight differs from embeddings\.word_embeddings\.weight\. Only masked-LM heads "
     "with tied word embeddings are supported"),
    ("sharded", "model.safetensors.index.json", {"weight_map": {"a": "../a.safetensors"}},
     r"expected file names without a directory, got '\.\./a\.safetensors'"),
    ("st", "modules.json", [], r"modules\.json: expected a list of modules, got \[\]\.$"),
    ("st", "modules.json", modules("Transformer", folder="../x"),
     r"path='\.\./x': expected the name of a subdirectory\.$"),
    ("st", "modules.json", modules("Router", folder="x"),
     r"of a 'Router' in 'x' .*: its Router is a container of several models\. Pass the directory "
     "of one, such as "),
    ("st", "modules.json", modules("StaticEmbedding", folder="x"),
     "its StaticEmbedding is a table of word vectors, not a transformer"),
    ("st", "modules.json", modules("Transformer", "Pooling", "Dropout", "Normalize"),
     r"has the modules Transformer, Pooling, Dropout, Normalize \(Dropout not supported\); "
     "expected Transformer, Pooling, and optionally Dense and Normalize. To load only the BERT "
     r"encoder, pass model_class=BertEncoder, or convert the directory first\.$"),
    ("st", "modules.json", modules("Transformer", "Normalize", "Pooling"),
     "has the modules Transformer, Normalize, Pooling; expected Transformer, Pooling, and "
     "optionally Dense and Normalize"),
    ("st", LENGTH, {"max_seq_length": 0}, "max_seq_length: expected a positive integer, got 0"),
    ("st", LENGTH, {"processing_kwargs": []}, r"processing_kwargs: expected an object, got \[\]"),
    ("st", PROMPTS, {"model_type": ["x"]}, r"is a \['x'\] with modules that are not supported"),
    ("st", PROMPTS, {"model_type": "SparseEncoder"}, "'SparseEncoder' with modules that are not "
     "supported"),
    ("st", NORMALIZE, {"module_input_name": ["a"]},
     r"the input and output \['a'\], sentence_embedding; expected sentence_embedding"),
    ("st", NORMALIZE, {"module_output_name": 5}, "the input and output sentence_embedding, 5; "
     "expected sentence_embedding"),
    ("st", POOLING, {"include_prompt": False}, "excludes prompts from pooling"),
    ("dense", DENSE, {"activation_function": "torch.nn.modules.activation.ReLU"},
     "has a Dense layer with the activation 'torch.nn.modules.activation.ReLU', or without a "
     "bias; expected "),
    ("dense", DENSE, {"out_features": 6}, r"linear\.weight: expected \(8, 6\), got \(8, 5\)"),
    ("masked_lm", "tf_model.h5", set_hdf5(WORDS, 7.0), "the same weight, but their values differ"),
    ("model", "tf_model.h5", set_hdf5(TF + "intermediate/dense/kernel:0", np.zeros((12, 8), "f")),
     r"layer_\._1/inter\S*: expected \(8, 12\), got \(12, 8\)"),
    ("model", "tf_model.h5", truncate, r"tf_model\.h5 cannot be read as HDF5"),
    ("hub", CONFIG, {"class_name": "RobertaBackbone"}, "class_name='RobertaBackbone': "
     "expected 'BertBackbone'"),
    ("hub", CONFIG, {"config/num_heads": 4}, "expected 4 attention heads in "
     r"model\.weights\.h5/layers/transformer_encoder/_self_attention_layer/key_dense/vars/0, "
     "got 2"),
    ("hub", "model.weights.h5", set_hdf5(KERNEL, np.zeros((8, 8), "int8")),
     f"{KERNEL}: expected one of float32, float16, bfloat16, float64, got int8"),
    ("hub", "task.weights.h5", set_hdf5(KERNEL, np.zeros((8, 4), "float32")),
     rf"task\.weights\.h5/{KERNEL}: expected \(8, 3\), got \(8, 4\)"),
    ("hub", "model.weights.h5", copy_layer, "are the same weight, layer_0/attention/key/kernel"),
    ("hub shards", "model.weights.json", {"weight_map": {"/a": ["/etc/hosts"]}},
     "expected file names without a directory, got '/etc/hosts'"),
    ("google", BERT, None, r"No such file: .*json\. Add the bert_config\.json of the model next to "
     r"bert_model\.ckpt"),
    ("google", BERT, {"bert_tf/class_name": "os.system"}, r"config\.json, bert_tf: class_name: "
     r"expected one of BertEncoder, .*, got 'os\.system'"),
    ("garden", BERT, {"num_attention_heads": 4}, r"bert_config\.json: expected 4 attention "
     r"heads in encoder/layer_with_weights-4/_attention_layer/_query_dense/kernel\S*, got 2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "file", "change", "message"),
    CASES,
    ids=[f"{number} {form} {file}" for number, (form, file, *_) in enumerate(CASES)],
)
def test_damaged_checkpoint_raises_error(tmp_path, form, file, change, message):
    path = tmp_path / "m"
    SAMPLES[form].make(path)
    damage(path / file, change)
    with pytest.raises(ValueError, match=message) as caught:
        bert_tf.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
