"""``python -m bert_tf.convert``: what it prints, writes and refuses."""

import functools
import os
import re
import types

import pytest

from bert_tf import convert
from bert_tf.interchange import conversion, hugging_face
from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.modeling import BertSpanPredictor
from tests.anew import run_main
from tests.interchange.small_checkpoints import MODELS, UNCASED, make_checkpoint


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.mkdir()
    hugging_face.write(make_checkpoint(MODELS["pretrainer"], tokenization=UNCASED), str(path))
    return str(path)


run = functools.partial(run_main, convert)


def test_what_went_where(source, tmp_path, capsys):
    target = str(tmp_path / "target")
    run(f"--model={source}", f"--output={target}", "--format=google_tf1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Reading {source}."
    header, *rows = lines[1:32]
    assert header.split() == ["from", "to", "shape", "dtype"]
    assert [row.split() for row in rows[:6]] == [
        ["bert.embeddings.word_embeddings.weight", "bert/embeddings/word_embeddings", "20x8",
         "float32", "x1"],
        ["bert.embeddings.position_embeddings.weight", "bert/embeddings/position_embeddings",
         "12x8", "float32", "x1"],
        ["bert.embeddings.token_type_embeddings.weight", "bert/embeddings/token_type_embeddings",
         "3x8", "float32", "x1"],
        ["bert.embeddings.LayerNorm.weight", "bert/embeddings/LayerNorm/gamma", "8", "float32",
         "x1"],
        ["bert.embeddings.LayerNorm.bias", "bert/embeddings/LayerNorm/beta", "8", "float32", "x1"],
        ["bert.encoder.layer.*.attention.self.query.weight",
         "bert/encoder/layer_*/attention/self/query/kernel", "8x8", "float32", "x2"],
    ]  # fmt: skip
    assert len(rows) == 5 + 16 + 2 + 5 + 2
    # The columns are aligned.
    assert len({row.index("float32") for row in rows}) == 1
    size = sum(os.path.getsize(os.path.join(target, name)) for name in os.listdir(target))
    assert lines[32:] == [
        "46 weights are equal bit for bit.",
        "Largest difference of masked_lm_logits: 0",
        "Largest difference of next_sentence_logits: 0",
        f"{target}: BertPretrainer, {size / 1e6:.1f} MB, verified against {source}.",
    ]


def test_the_layers_share_their_rows_in_keras_names_too(source, tmp_path, capsys):
    run(f"--model={source}", f"--output={tmp_path}/t.keras", "--format=keras")
    printed = capsys.readouterr().out
    place = "layers/bert_encoder/layers/transformer_block_*/intermediate/vars/0"
    assert len(re.findall(re.escape(place), printed)) == 1
    assert "transformer_block/" not in printed and "transformer_block_1" not in printed
    assert len(printed.splitlines()) == 1 + 1 + 30 + 4


def test_what_is_left_out_unused_and_assumed(tmp_path, capsys, monkeypatch):
    checkpoint = make_checkpoint(ModelSpec(BertSpanPredictor, {"pooler": True}))
    done = conversion.Conversion(
        checkpoint=types.SimpleNamespace(
            tensors=checkpoint.tensors, model=checkpoint.model, unused=tuple("abcdefghijk")
        ),
        went={"span/bias": "qa_outputs.bias"},
        left_out=("pooler/dense/kernel", "pooler/dense/bias"),
        differences={"start_logits": 1.5e-6},
        notes=("It was assumed.",),
    )
    monkeypatch.setattr(conversion, "convert", lambda *args, **kwargs: done)
    (tmp_path / "t").write_text("12")
    run("--model=gs://s", f"--output={tmp_path}/t", "--format=huggingface")
    assert capsys.readouterr().out.splitlines() == [
        "Reading gs://s.",
        "from       to               shape  dtype",
        "span/bias  qa_outputs.bias  2      float32  x1",
        "Left out, as huggingface has no place for them: pooler/dense/kernel, pooler/dense/bias.",
        "In gs://s, but no weights of the model: a, b, c, d, e, f, g, h and 3 more.",
        "It was assumed.",
        "1 weights are equal bit for bit.",
        "Largest difference of start_logits: 1.5e-06",
        f"{tmp_path}/t: BertSpanPredictor, 0.0 MB, verified against gs://s.",
    ]


@pytest.mark.parametrize("allowed", [False, True])
def test_the_flag_for_pickles_reaches_the_reader(tmp_path, monkeypatch, allowed):
    def open_checkpoint(path, allow_pickle):
        raise ZeroDivisionError(path, allow_pickle)

    monkeypatch.setattr(conversion, "open_checkpoint", open_checkpoint)
    with pytest.raises(ZeroDivisionError, match=f"^..gs://s., {allowed}.$"):
        run("--model=gs://s", f"--output={tmp_path}/t.keras", "--format=keras",
            *["--allow_pickle"] * allowed)  # fmt: skip
