"""``python -m bert_tf.convert``: output and flags."""

import dataclasses
import functools
import os

import pytest

from bert_tf import convert
from bert_tf.checkpoints import conversion, hugging_face
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.modeling import BertSpanPredictor
from tests.checkpoints.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.processes import run_main


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.mkdir()
    hugging_face.write(make_checkpoint(MODELS["pretrainer"], tokenization=UNCASED), str(path))
    return str(path)


run = functools.partial(run_main, convert)


def test_printed_output(source, tmp_path, capsys):
    target = str(tmp_path / "target")
    run(f"--model={source}", f"--output={target}", "--format=google_tf1")
    size = sum(os.path.getsize(os.path.join(target, name)) for name in os.listdir(target))
    assert capsys.readouterr().out.splitlines() == [
        f"Reading {source}.",
        "46 weights are equal.",
        "Maximum difference of masked_lm_logits: 0",
        "Maximum difference of next_sentence_logits: 0",
        f"{target}: BertPretrainer, {size / 1e6:.1f} MB, verified against {source}.",
    ]


def test_omitted_and_unused_tensors_are_printed(tmp_path, capsys, monkeypatch):
    checkpoint = make_checkpoint(ModelSpec(BertSpanPredictor, {"pooler": True}))
    checkpoint = dataclasses.replace(checkpoint, unused=tuple("abcdefghijk"))
    done = conversion.Conversion(
        checkpoint=checkpoint,
        left_out=("pooler/dense/kernel", "pooler/dense/bias"),
        differences={"start_logits": 1.5e-6},
        notes=(),
    )
    monkeypatch.setattr(conversion, "convert", lambda *args, **kwargs: done)
    (tmp_path / "t").write_text("12")
    run("--model=gs://s", f"--output={tmp_path}/t", "--format=huggingface")
    assert capsys.readouterr().out.splitlines() == [
        "Reading gs://s.",
        "Omitted, not part of huggingface: pooler/dense/kernel, pooler/dense/bias.",
        "Unused tensors of gs://s: a, b, c, d, e, f, g, h and 3 more.",
        f"{len(checkpoint.tensors) - 2} weights are equal.",
        "Maximum difference of start_logits: 1.5e-06",
        f"{tmp_path}/t: BertSpanPredictor, 0.0 MB, verified against gs://s.",
    ]


@pytest.mark.parametrize("allowed", [False, True])
def test_allow_pickle_is_passed_to_the_reader(tmp_path, monkeypatch, allowed):
    def open_checkpoint(path, allow_pickle):
        raise ZeroDivisionError(path, allow_pickle)

    monkeypatch.setattr(conversion, "open_checkpoint", open_checkpoint)
    with pytest.raises(ZeroDivisionError, match=f"^..gs://s., {allowed}.$"):
        run("--model=gs://s", f"--output={tmp_path}/t", "--format=bert_tf",
            *["--allow_pickle"] * allowed)  # fmt: skip
