"""``--backward_checkpoint``: a tagger on the frozen states of an encoder of each direction."""

import dataclasses
import json

import numpy as np
import pytest

import bert_tf
from bert_tf.finetuning.model import with_backward
from bert_tf.finetuning.run import run
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling import BertFeatureTagger
from tests.predicting.prediction_models import predict

from .small_runs import TINY, VOCAB, results_of, write_checkpoint, write_model
from .test_feature_tagging import flags

LTR = dataclasses.replace(TINY, is_decoder=True)
RTL = dataclasses.replace(LTR, right_to_left=True)


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    """Two checkpoints by their directions; "other" is another one from right to left."""
    folder = tmp_path_factory.mktemp("starts")
    for seed, (name, config) in enumerate({"ltr": LTR, "rtl": RTL, "other": RTL}.items()):
        write_checkpoint(folder / name, config, seed=seed)
    return folder


def assert_has_weights(encoder, path):
    expected = bert_tf.load(path, bert_tf.BertEncoder, pooler=False).get_weights()
    for found, weight in zip(encoder.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, weight)


@pytest.mark.slow
def test_a_run_from_both_its_model_its_export_and_its_predictions(
    inputs, columns, starts, tmp_path, capsys
):
    def given(backward):
        return flags(
            inputs,
            columns,
            tmp_path / "run",
            init_checkpoint=starts / "ltr",
            backward_checkpoint=starts / backward,
            feature_based="weighted_sum_all",
            export=True,
        )

    run(given("rtl"))
    described = json.loads((tmp_path / "run/model.json").read_text())
    assert described["arguments"]["backward"] is True
    assert results_of(tmp_path / "run")["scores"]["dev"]["f1"] > 0.5
    card = (tmp_path / "run/README.md").read_text()
    assert "A BertFeatureTagger, fine-tuned by" in card and "from `ltr` and `rtl` on" in card
    model = bert_tf.load(tmp_path / "run")
    exported = bert_tf.load(tmp_path / "run/export")
    assert isinstance(model, BertFeatureTagger) and isinstance(exported, BertFeatureTagger)
    for one in (model, exported):
        assert_has_weights(one.encoder, starts / "ltr")
        assert_has_weights(one.backward, starts / "rtl")
        for found, weight in zip(one.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(found, weight)
    predict(tmp_path / "run", columns[1], tmp_path / "out.conll")
    tags = [
        [line.split(" ")[-1] for line in path.read_text().split("\n")]
        for path in (tmp_path / "out.conll", tmp_path / "run/dev/dev.conll")
    ]
    assert tags[0] == tags[1] and {*tags[0]} > {"", "O"}
    with pytest.raises(ValueError, match="^What --backward_checkpoint read is not what the run"):
        run(given("other"))


def test_each_encoder_gets_its_own_weights(starts):
    both = with_backward(open_checkpoint(str(starts / "ltr")), open_checkpoint(str(starts / "rtl")))
    for name, tensor in open_checkpoint(str(starts / "rtl")).tensors.items():
        np.testing.assert_array_equal(both.tensors[f"backward/{name}"].read(), tensor.read())
    first = open_checkpoint(str(starts / "ltr"))
    assert {*both.tensors} == {*first.tensors, *(f"backward/{name}" for name in first.tensors)}


@pytest.mark.parametrize(
    ("config", "vocabulary", "sentence"),
    [
        (LTR, VOCAB, "The backward encoder sees ltr, expected rtl: --objective=rtl trains on"),
        (
            dataclasses.replace(RTL, intermediate_size=12),
            VOCAB,
            "The backward encoder has intermediate_size 12, and the forward one",
        ),
        (RTL, VOCAB[:-1], "has another vocabulary or casing than .*ltr: pre-train both with"),
    ],
)
def test_a_second_start_that_does_not_fit(starts, tmp_path, config, vocabulary, sentence):
    write_model(tmp_path, "BertEncoder", {"pooler": False}, config=config, vocabulary=vocabulary)
    with pytest.raises(ValueError, match=rf"^--backward_checkpoint={tmp_path} .*{sentence}"):
        with_backward(open_checkpoint(str(starts / "ltr")), open_checkpoint(str(tmp_path)))
