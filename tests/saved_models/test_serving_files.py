"""What TensorFlow Serving reads beside the SavedModel."""

import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.saved_models import serving_files
from bert_tf.saved_models.samples import Sample
from bert_tf.saved_models.served import Signature
from bert_tf.saved_models.serving_protos import predict_request, prediction_log

TEXT = {"text": tf.TensorSpec([None], tf.string)}
IDS = dict.fromkeys(("input_word_ids", "input_mask"), tf.TensorSpec([None, None], tf.int32))


def sample(signature, rows, number=0):
    return Sample(signature, number, {"text": np.array([b"a"] * rows, object)}, {})


def signature(inputs):
    return Signature(lambda: {}, inputs, (), "It does.")


def settings(text):
    """A file's lines without comments."""
    return [line for line in re.sub("#.*", "", text).splitlines() if line.strip()]


def test_warm_up_asks_every_signature_once_and_nothing_that_is_refused(tmp_path):
    path = str(tmp_path / "warm_up")
    asked = [sample("serving_default", 2), sample("embed", 1)]
    refused = [sample("embed", 0), sample("embed", 65)]
    long = [sample("embed", 1, number=1)]
    serving_files.write_warm_up(path, [*asked, *refused, *long], "mine")
    assert [record.numpy() for record in tf.data.TFRecordDataset(path)] == [
        prediction_log(predict_request("mine", one.signature, one.inputs)) for one in asked
    ]


def test_batching_is_set_for_requests_that_may_differ():
    of_strings = serving_files.batching_parameters({"serving_default": signature(TEXT)})
    expected = [
        "max_batch_size { value: 64 }",
        "batch_timeout_micros { value: 2000 }",
        "max_enqueued_batches { value: 100 }",
    ]
    assert settings(of_strings) == expected
    assert of_strings.endswith(
        "Every input is one string a row, so any requests can share a batch.\n"
    )
    both = {"serving_default": signature(TEXT), "tokens": signature(IDS)}
    of_ids = serving_files.batching_parameters(both)
    assert settings(of_ids) == expected
    assert "concerns `input_word_ids` of `tokens`,\n# `input_mask` of `tokens`:\n" in of_ids


def test_a_servers_config_names_the_model():
    assert settings(serving_files.model_config("mine")) == [
        "model_config_list {",
        "  config {",
        '    name: "mine"',
        '    base_path: "/models/mine"',
        '    model_platform: "tensorflow"',
        "  }",
        "}",
    ]


@pytest.mark.parametrize(
    "name", ["", "my model", "a/b", 'a"', "ä", ".", "..", ".a", "-a", "_a", "a" * 256, "a\n"]
)
def test_a_name_that_is_no_part_of_an_address(name):
    with pytest.raises(ValueError, match=r"The name is .*: expected letters, digits"):
        serving_files.check_name(name)


def test_names_that_are():
    for name in ("bert", "sst2", "my_model-1.0"):
        serving_files.check_name(name)


@pytest.mark.parity
def test_tensorflow_serving_reads_its_config():
    config = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    from google.protobuf import text_format

    read = text_format.Parse(serving_files.model_config("mine"), config.ModelServerConfig())
    (model,) = read.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == (
        "mine", "/models/mine", "tensorflow",
    )  # fmt: skip
