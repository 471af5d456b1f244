"""Variables' names to weights' names; which head, by what holds it; which pooler."""

import pytest

from bert_tf.interchange.model_garden_names import find_weights
from bert_tf.interchange.object_graph import Variable

TABLE = Variable("table", "word_embeddings/embeddings", frozenset())


def variable(name, *attributes):
    return Variable(f"key of {name}", name, frozenset(attributes))


def find(*variables, shapes=None):
    shapes = {v.key: (8, 2) for v in variables} | (shapes or {})
    return find_weights([TABLE, *variables], shapes, "ckpt")


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("word_embeddings/embeddings", "embeddings/word_embeddings"),
        ("encoder_1/position_embedding/embeddings", "embeddings/position_embeddings"),
        ("type_embeddings/embeddings", "embeddings/token_type_embeddings"),
        ("a/b/embeddings/layer_norm/beta", "embeddings/layer_norm/beta"),
        ("transformer/layer_0/self_attention/key/bias", "layer_0/attention/key/bias"),
        ("e/transformer/layer_11/self_attention/query/kernel", "layer_11/attention/query/kernel"),
        ("transformer/layer_3/self_attention/value/kernel", "layer_3/attention/value/kernel"),
        (
            "transformer/layer_0/self_attention/attention_output/kernel",
            "layer_0/attention/output/kernel",
        ),
        (
            "transformer/layer_0/self_attention_layer_norm/gamma",
            "layer_0/attention_layer_norm/gamma",
        ),
        ("transformer/layer_0/intermediate/bias", "layer_0/intermediate/bias"),
        ("transformer/layer_0/output/kernel", "layer_0/output/kernel"),
        ("transformer/layer_0/output_layer_norm/beta", "layer_0/output_layer_norm/beta"),
        ("pooler_transform/kernel", "pooler/dense/kernel"),
        ("bert/cls/predictions/transform/dense/kernel", "masked_lm/dense/kernel"),
        ("cls/predictions/transform/LayerNorm/gamma", "masked_lm/layer_norm/gamma"),
        ("bert/cls/predictions/output_bias/bias", "masked_lm/output_bias"),
    ],
)
def test_names(there, here):
    found = find_weights([TABLE, variable(there)] if "word" not in there else [TABLE], {}, "ckpt")
    assert set(found.weights) == {"embeddings/word_embeddings", here}
    assert (found.head, found.own_pooler) == ("", "")


@pytest.mark.parametrize(
    "name",
    [
        "my_word_embeddings/embeddings",
        "word_embeddings/kernel",
        "transformer/layer_0/self_attention/query/gamma",
        "transformer/layer_0/self_attention/other/kernel",
        "transformer/layer_00/output/kernel",
        "transformer/layer_x/output/kernel",
        "transformer/layer_0",
        "embeddings/layer_norm/kernel",
        "global_step",
        "",
    ],
)
def test_what_is_no_weight(name):
    assert set(find(variable(name)).weights) == {"embeddings/word_embeddings"}


@pytest.mark.parametrize(
    ("name", "attributes", "head", "module"),
    [
        (
            "bert/next_sentence",
            ["out_proj", "classification_heads"],
            "next_sentence",
            "next_sentence/dense",
        ),
        ("predictions/transform", ["classification"], "next_sentence", "next_sentence/dense"),
        ("sentence_prediction", ["out_proj", "classifier"], "classifier", "classifier"),
        ("predictions/transform", ["classifier"], "token_classifier", "token_classifier"),
        ("predictions/transform", ["span_labeling"], "span", "span"),
        ("bert/another", ["out_proj", "classification_heads"], "", None),
        ("predictions/transform", ["layer_with_weights-1"], "", None),
    ],
)
def test_heads_by_what_holds_them(name, attributes, head, module):
    kernel = variable(f"{name}/logits/kernel", *attributes)
    bias = variable(f"{name}/logits/bias", *attributes)
    for variables in ((kernel, bias), (kernel,), (bias,)):
        found = find(*variables)
        assert found.head == head
        leaves = {v.name.rpartition("/")[2]: v for v in variables}
        expected = {f"{module}/{leaf}": v for leaf, v in leaves.items()} if module else {}
        assert found.weights == {"embeddings/word_embeddings": TABLE, **expected}


def test_one_class_is_a_regressor():
    kernel = variable("a/logits/kernel", "out_proj", "classifier")
    assert find(kernel, shapes={kernel.key: (8, 1)}).head == "regressor"
    assert find(kernel, shapes={kernel.key: ()}).head == "classifier"


def test_a_heads_own_layer_is_the_pooler():
    own = variable("bert/next_sentence/pooler_dense/kernel")
    encoders = variable("pooler_transform/kernel")
    kernel = variable("bert/next_sentence/logits/kernel", "classification_heads")
    other = variable("bert/another/pooler_dense/kernel")
    for variables in ((other, encoders, own, kernel), (own, encoders)):
        found = find(*variables)
        assert found.weights["pooler/dense/kernel"] == own
        assert found.own_pooler == "bert/next_sentence"
    assert find(encoders, kernel).weights["pooler/dense/kernel"] == encoders


@pytest.mark.parametrize("names", [[], ["dense/kernel"], ["pooler_transform/kernel"]])
def test_no_bert_is_an_error(names):
    with pytest.raises(
        ValueError, match=r"ckpt holds no variable of a BERT of Model Garden, no wo"
    ):
        find_weights(map(variable, names), {}, "ckpt")


def test_two_berts_are_an_error():
    second = variable("generator/word_embeddings/embeddings")
    sentence = r"holds 'table' and 'key of gen.*', both embeddings/word_embeddings: expected one mo"
    with pytest.raises(ValueError, match=sentence):
        find(second)


def test_factorised_embeddings_are_an_error():
    with pytest.raises(ValueError, match=r"has 'embedding_projection/kernel', embeddings of anoth"):
        find(variable("embedding_projection/kernel"))
