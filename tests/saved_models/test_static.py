"""Static vectors: the table against a plain loop, what is served of it, what NumPy makes of it."""

import contextlib
import io
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import export
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.saved_models import operations, replay, verification
from bert_tf.tasks.embedding import Embedder
from tests.anew import run_main
from tests.finetuning.small_tasks import CONFIG, TOKENIZER, VOCAB, random_text

DIMS = 12


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(2)
    found = BertEncoder(CONFIG, pooler=False)
    found.preprocessor = BertPreprocessor(VOCAB, max_seq_length=32)
    found.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=32)
    return found


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(1)
    return ["a0 a0 a0 a0 b1", *dict.fromkeys(random_text(rng, 9) for _ in range(25))]


def export_static(model, texts, folder, dims):
    """Exports a model in memory; the export's directory."""
    folder.mkdir(exist_ok=True)
    (folder / "corpus.txt").write_text("\n".join(texts) + "\n")
    flags = {
        "corpus": str(folder / "corpus.txt"),
        "nearest": min(4, len(texts)),
        "static_dims": dims,
    }
    output = str(folder / "export" / "1")
    export.run(export.ExportSettings("in memory", output, **flags), model)
    return output


@pytest.fixture(scope="module")
def printing(model, texts, tmp_path_factory):
    """An export, and what was printed meanwhile."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        return export_static(model, texts, tmp_path_factory.mktemp("static"), DIMS), said.getvalue()


@pytest.fixture(scope="module")
def exported(printing):
    return printing[0]


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(exported)


def pieces_of(text):
    return TOKENIZER.tokenize(tf.constant([text])).values.numpy().tolist()


@pytest.fixture(scope="module")
def twin(model, texts):
    """The texts' directions by plain loops."""
    ids = tf.constant([[2, piece, 3] for piece in range(len(VOCAB))])
    batch = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    means = [states.mean(0) for states in model(batch)["sequence_output"].numpy()]
    vectors = np.array([mean / np.linalg.norm(mean) for mean in means], np.float64)
    vectors -= vectors.mean(0)
    axes = np.linalg.svd(vectors)[2][:DIMS]
    counts = np.bincount([piece for text in texts for piece in pieces_of(text)])
    counts = np.append(counts, np.zeros(len(VOCAB) - len(counts)))
    found = []
    for text in texts:
        total = np.zeros(DIMS)
        for piece in pieces_of(text):
            share = counts[piece] / counts.sum()
            total += axes @ vectors[piece] * 1e-3 / (1e-3 + share)
        found.append(total / np.linalg.norm(total))
    return np.array(found)


def test_the_vectors_are_those_of_a_plain_loop(loaded, twin, texts):
    found = loaded.signatures["embed"](text=tf.constant(texts))["sentence_embedding"].numpy()
    # An axis may point either way.
    np.testing.assert_allclose(found @ found.T, twin @ twin.T, atol=1e-4)
    empty = loaded.signatures["embed"](text=tf.constant(["", "[PAD] \u2603"]))
    assert not empty["sentence_embedding"].numpy().any()


def test_its_search_is_exact(loaded, exported, twin, texts, monkeypatch):
    found = loaded.signatures["search"](text=tf.constant([texts[3], "b1 c2 h4"]))
    assert found["places"][0, 0] == 3 and found["texts"][0, 0] == texts[3].encode()
    np.testing.assert_allclose(found["scores"][0], -np.sort(-twin @ twin[3])[:4], atol=1e-4)
    operations.check_loadable(exported)
    assert verification.check_hashes(exported)
    monkeypatch.setattr(replay, "load", lambda directory: loaded)
    assert [row["problems"] for row in replay.replay(exported)] == [[]] * len(loaded.signatures)


def test_numpy_reads_the_table(exported, loaded, texts):
    with np.load(f"{exported}/assets.extra/static.npz") as file:
        vectors, pieces = file["vectors"], file["pieces"].tolist()
    assert pieces == VOCAB and vectors.shape == (len(VOCAB), DIMS)
    assert not vectors[:5].any() and vectors[5:].any(1).all()
    total = vectors[pieces_of(texts[0])].sum(0)
    found = loaded.signatures["embed"](text=tf.constant(texts[:1]))["sentence_embedding"][0]
    np.testing.assert_allclose(found, total / np.linalg.norm(total), atol=1e-5)


def test_what_is_left_is_printed(printing, model, texts, tmp_path):
    said = printing[1]
    assert f"Static: {DIMS} numbers for each of {len(VOCAB)} pieces" in said
    kept = float(said.split("is the model's to ")[1].split()[0])
    assert 0.1 < kept < 1 and "texts a second, the model's" in said
    with pytest.raises(ValueError, match="--static_dims=17: expected 16 at most"):
        export_static(model, texts, tmp_path, 17)


def test_an_interrupt_leaves_nothing_and_two_texts_have_no_order(
    model, texts, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Embedder, "directions", mock.Mock(side_effect=KeyboardInterrupt))
        export_static(model, texts[:2], tmp_path / "stopped", DIMS)
    assert list((tmp_path / "stopped" / "export").iterdir()) == []
    export_static(model, texts[:2], tmp_path, DIMS)
    said = capsys.readouterr().out
    assert "similarities of 2 texts is not compared with the model's: that takes three" in said


def test_flags_that_a_table_has_no_place_for():
    given = ["--model=c", "--output=e/1", "--corpus=c.txt", "--static_dims=4"]
    for flag in ("--embedding_dims=4", "--weights=int8", "--precision=bfloat16", "--max_rows=3",
                 "--tflite=int8", "--normalize", "--layers=-1", "--pair"):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{flag.split('=')[0]} means nothing with --static_"):
            run_main(export, *given, flag)
