"""Model Garden checkpoints: configs, variable names and object graphs."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf.checkpoints import model_garden
from bert_tf.checkpoints.model_garden import find_weights
from bert_tf.checkpoints.tensor_files import Bundle
from bert_tf.io.checkpoint_formats import OBJECT_GRAPH
from tests.checkpoints.samples import DATA, SAMPLES

CHECKPOINTS = DATA / "model_garden"
CONFIG = SAMPLES["garden"].config


def keys(names):
    return [f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names]


def test_weights_are_found_by_variable_name():
    """The keys place the word embeddings in the masked-LM head, and the pooler in the NSP head."""
    checkpoint = model_garden.read_checkpoint(str(CHECKPOINTS / "pretrainer" / "ckpt-7"))
    names = {name: tensor.name for name, tensor in checkpoint.tensors.items()}
    expected = {
        "embeddings/word_embeddings": "masked_lm/embedding_table",
        "pooler/dense/kernel": "next_sentence..pooler_dense/kernel",
        "next_sentence/dense/kernel": "model/classification_heads/0/out_proj/kernel",
        "layer_1/attention/output/kernel": (
            "encoder/_transformer_layers/1/_attention_layer/_output_dense/kernel"
        ),
    }
    assert [names[name] for name in expected] == keys(expected.values())
    slots = [f"optimizer/_variables/{number}" for number in range(1, 97)]
    others = [f"encoder/_pooler_layer/{leaf}" for leaf in ("kernel", "bias")]
    others += ["global_step", "optimizer/_iterations", "optimizer/_learning_rate", "save_counter"]
    assert checkpoint.unused == tuple(sorted(keys([*slots, *others])))
    assert "and activation (tanh GELU) and dropout are Model Garden's def" in checkpoint.notes[0]
    old = model_garden.read_checkpoint(str(CHECKPOINTS / "old_pretrainer")).unused
    assert sum("/.OPTIMIZER_SLOT/optimizer/" in key for key in old) == 2 * 46


def test_vocabulary_and_casing():
    checkpoint = model_garden.read_checkpoint(str(CHECKPOINTS / "encoder"))
    assert checkpoint.tokenization.vocabulary[-2:] == ("##s", "The")
    assert not checkpoint.tokenization.do_lower_case
    assert (
        "does not specify do_lower_case. Assumed from the vocabulary: cased" in checkpoint.notes[0]
    )


def test_config_file_sets_sizes_but_not_layer_norm_eps(tmp_path):
    path = shutil.copytree(CHECKPOINTS / "encoder", tmp_path / "a")
    values = {**CONFIG.to_dict(), "hidden_act": "GELU", "layer_norm_eps": 1e-6, "x": 1}
    (path / "bert_config.json").write_text(json.dumps(values))
    assert model_garden.read_checkpoint(str(path)).config == CONFIG


# === Names ===


def test_find_weights():
    """Names that the recorded checkpoints lack, and names of other variables."""
    names = {
        "embeddings/word_embeddings": "word_embeddings/embeddings",
        "embeddings/position_embeddings": "encoder_1/position_embedding/embeddings",
        "embeddings/layer_norm/beta": "a/b/embeddings/layer_norm/beta",
        "layer_0/attention/key/bias": "transformer/layer_0/self_attention/key/bias",
        "layer_11/attention/query/kernel": "e/transformer/layer_11/self_attention/query/kernel",
        "masked_lm/layer_norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
        "masked_lm/output_bias": "bert/cls/predictions/output_bias/bias",
    }
    assert find_weights({name: name for name in names.values()}, "ckpt") == names
    table = {"table": "word_embeddings/embeddings"}
    for name in (
        "my_word_embeddings/embeddings",
        "word_embeddings/kernel",
        *(f"transformer/layer_0/self_attention/{leaf}" for leaf in ("query/gamma", "other/kernel")),
        *(f"transformer/layer_{number}/output/kernel" for number in ("00", "x")),
        "transformer/layer_0",
        "embeddings/layer_norm/kernel",
        "predictions/transform/logits/kernel",  # of a task without a masked-LM head
        "global_step",
        "",
    ):
        weights = find_weights({**table, "key": name}, "ckpt")
        assert weights == {"embeddings/word_embeddings": "table"}


# === Errors ===


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["pooler_transform/kernel"], "ckpt: expected variables of a Model Garden BERT, "
         "such as word_embeddings/embeddings"),
        (["word_embeddings/embeddings", "generator/word_embeddings/embeddings"],
         "ckpt: expected one model, got two tensors for embeddings/word_embeddings: 'key of wo.*' "
         "and 'key of gen.*'"),
        (["embedding_projection/kernel"],
         "'embedding_projection/kernel': embeddings of a different size than the hidden layers"),
    ],
)  # fmt: skip
def test_unsupported_variables_raise_error(names, message):
    with pytest.raises(ValueError, match=message):
        find_weights({f"key of {name}": name for name in names}, "ckpt")


def test_checkpoint_without_encoder_raises_error(tmp_path):
    root = tf.train.Checkpoint()
    root.held = [tf.Variable(np.zeros((25, 8), "float32"), name="word_embeddings/embeddings")]
    message = (
        r"max_position_embeddings is not in bert_config\.json, and embeddings/position_embeddings "
        "does not determine it"
    )
    with pytest.raises(ValueError, match=message):
        model_garden.read_checkpoint(root.write(str(tmp_path / "ckpt")))


def make_graph(*children):
    """Returns a serialized graph of objects, each with one child or none."""
    graph = TrackableObjectGraph()
    for child in children:
        node = graph.nodes.add()
        if child:
            node.children.add(local_name="a", **child)
    return graph.SerializeToString()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (b"\x0a\x05abc", "ckpt is damaged: _CHECKPOINTABLE_OBJECT_GRAPH is not an object graph"),
        (make_graph({"node_id": 2}, {}), "is damaged: .* refers to object 2 of 2"),
        (make_graph({"node_id": -1}, {}), "is damaged: .* refers to object -1 of 2"),
    ],
)
def test_damaged_graph_raises_error(tmp_path, graph, message):
    prefix = str(tmp_path / "ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[OBJECT_GRAPH],
        shape_and_slices=[""],
        tensors=[tf.constant(graph)],
    )
    with pytest.raises(ValueError, match=message):
        model_garden.read_variables(Bundle(prefix))
