"""Reading, serving, extracting from and writing sentence-transformers directories."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.answering.served import serve
from bert_tf.checkpoints import conversion, hugging_face
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.load import make_preprocessor, open_checkpoint
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.modeling import BertClassifier, BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.signatures import model_signatures
from tests.checkpoints.small_checkpoints import (
    MODELS,
    SMALL,
    UNCASED,
    assert_bit_equal,
    make_checkpoint,
    read_all,
    write,
)
from tests.modeling.conftest import weights_by_path
from tests.modeling.numpy_bert import encode

CONFIG = dataclasses.replace(SMALL, hidden_act="gelu")  # the activation of numpy_bert
OLD = "sentence_transformers.models."
NEW = "sentence_transformers.base.modules.{0}.{0}"
TEXTS = ["a cat", "Cats sat .", "unable " * 9]
# TEXTS in the vocabulary UNCASED, truncated to ten tokens.
ROWS = ["[CLS] a cat [SEP]", "[CLS] cat ##s sat . [SEP]", "[CLS]" + 4 * " un ##able" + " [SEP]"]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def pooling_of(mode):
    """Returns a pooling config as written by sentence-transformers 2 to 5."""
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{name}": name == mode for name in modes}
    return {"word_embedding_dimension": 8, **flags}


def write_directory(
    path, pooling=None, *, kinds=("Transformer", "Pooling", "Normalize"), folder="", **files
):
    """Writes a directory as sentence-transformers 2 does, and additional JSON ``files``."""
    inner = path / folder
    inner.mkdir(parents=True)
    spec = MODELS[files.pop("model", "encoder")]
    checkpoint = make_checkpoint(spec, CONFIG, tokenization=files.pop("tokenization", UNCASED))
    hugging_face.write(checkpoint, str(inner))
    folders = [folder, *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": subfolder, "type": OLD + kind}
        for number, (kind, subfolder) in enumerate(zip(kinds, folders, strict=True))
    ]
    write_json(path / "modules.json", modules)
    write_json(inner / "sentence_bert_config.json", {"max_seq_length": 10, "do_lower_case": False})
    write_json(path / "1_Pooling" / "config.json", pooling or pooling_of("mean_tokens"))
    for name, value in files.items():
        write_json(path / f"{name}.json", value)
    return str(path)


def embed_numpy(encoder, pooling, normalize):
    """Computes the embeddings with NumPy."""
    weights, vocabulary = weights_by_path(encoder), list(encoder.preprocessor.tokenizer.vocab)
    vectors = []
    for row in ROWS:
        ids = [vocabulary.index(token) for token in row.split()]
        states, _ = encode(weights, CONFIG, ids, [1] * len(ids), [0] * len(ids))
        last = np.array(states[-1])
        vector = {"cls": last[0], "mean": last.mean(0), "max": last.max(0)}[pooling]
        vectors.append(vector / np.linalg.norm(vector) if normalize else vector)
    return np.array(vectors)


def embed(model, texts):
    batch = model.preprocessor(texts)
    return np.array(model.sentence_embedding(model(batch)["sequence_output"], batch["input_mask"]))


@pytest.mark.parametrize(
    ("flag", "pooling", "normalize", "folder"),
    [
        ("cls_token", "cls", False, ""),
        ("mean_tokens", "mean", True, "0_Transformer"),
        ("max_tokens", "max", False, ""),
    ],
)
def test_pooling_and_max_length_equal_numpy(tmp_path, flag, pooling, normalize, folder):
    kinds = ("Transformer", "Pooling", "Normalize")[: 2 + normalize]
    path = write_directory(tmp_path / "m", pooling_of(flag), kinds=kinds, folder=folder)
    checkpoint = open_checkpoint(path)
    assert (checkpoint.path, checkpoint.format) == (path, "sentence_transformers")
    model = bert_tf.load(checkpoint)
    assert model.sentence_embedding == SentenceEmbedding(pooling, normalize, 10)
    assert model.preprocessor.max_seq_length == 10
    np.testing.assert_allclose(
        embed(model, TEXTS), embed_numpy(model, pooling, normalize), atol=1e-5
    )
    if normalize:  # saving keeps the sentence embedding
        bert_tf.save(model, tmp_path / "saved")
        saved = open_checkpoint(tmp_path / "saved")
        assert saved.sentence_embedding == SentenceEmbedding("mean", True, 10)


def test_directory_of_version_6_is_read(tmp_path):
    """It has one pooling mode, and the maximum length is in the tokenizer config."""
    path = tmp_path / "m"
    write_directory(path, {"embedding_dimension": 8, "pooling_mode": "max", "include_prompt": True})
    modules = [
        {"idx": number, "name": str(number), "path": subfolder, "type": NEW.format(kind)}
        for number, (kind, subfolder) in enumerate(
            (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
        )
    ]
    write_json(path / "modules.json", modules)
    write_json(path / "sentence_bert_config.json", {"transformer_task": "feature-extraction"})
    values = json.loads((path / "tokenizer_config.json").read_text())
    for length, expected in ((7, 7), (int(1e30), 12), (1e30, 12), (10**400, 12), (None, 12)):
        write_json(path / "tokenizer_config.json", {**values, "model_max_length": length})
        found = open_checkpoint(str(path)).sentence_embedding
        assert found == SentenceEmbedding("max", True, expected)


def test_only_encoders_have_sentence_embedding(tmp_path):
    path = write_directory(tmp_path / "m")
    assert bert_tf.load(path, BertEncoder, pooler=False).sentence_embedding is not None
    assert BertClassifier.from_checkpoint(path, num_classes=2).sentence_embedding is None
    transformer_only = open_checkpoint(
        write_directory(tmp_path / "transformer_only", kinds=("Transformer",))
    )
    assert transformer_only.sentence_embedding is None
    assert make_preprocessor(transformer_only)[0].max_seq_length == 10


@pytest.mark.parametrize("name", ["masked lm", "classifier"])
def test_unused_head_is_dropped(tmp_path, name):
    model = bert_tf.load(write_directory(tmp_path / "m", model=name))
    assert type(model) is BertEncoder
    np.testing.assert_allclose(embed(model, TEXTS), embed_numpy(model, "mean", True), atol=1e-5)


# === Conversion ===


def test_conversion_keeps_pooling_and_reports_dropped_modules(tmp_path, without_comparison):
    path = write_directory(tmp_path / "m", pooling_of("cls_token"), folder="0_Transformer")
    conversion.convert(path, str(tmp_path / "converted"), "huggingface")
    found = open_checkpoint(tmp_path / "converted")
    assert found.sentence_embedding == SentenceEmbedding("cls", True, 10)
    path = write_directory(tmp_path / "n", kinds=("Transformer", "Pooling", "CNN"))
    done = conversion.convert(path, str(tmp_path / "out"), "huggingface")
    assert done.notes[-1].endswith(". Only the BERT encoder was written.")
    assert not (tmp_path / "out" / "modules.json").exists()


# === Dense layer, prompts and truncated dimensions ===


def full_checkpoint(activation="tanh", **changes):
    """Creates a model with all settings that a directory can store."""
    spec = ModelSpec(
        BertEncoder, {"pooler": False, "dense_size": 5, "dense_activation": activation}
    )
    embedding = SentenceEmbedding("mean", True, 10, query_prefix="cat ", document_prefix="sat. ")
    embedding = dataclasses.replace(embedding, **changes)
    return make_checkpoint(spec, CONFIG, tokenization=UNCASED, sentence_embedding=embedding)


@pytest.mark.parametrize("form", WRITTEN)
def test_all_formats_store_dense_layer_and_prefixes(tmp_path, form):
    checkpoint = full_checkpoint(dims=3)
    found = open_checkpoint(write(checkpoint, form, tmp_path))
    # Sentence-transformers normalizes before it truncates.
    expected = dataclasses.replace(checkpoint.sentence_embedding, rescale=form != "huggingface")
    assert found.sentence_embedding == expected
    assert found.model == checkpoint.model
    assert_bit_equal(read_all(found), read_all(checkpoint))


def test_model_applies_dense_layer_and_truncates_dimensions(tmp_path):
    checkpoint = full_checkpoint(dims=3)
    model = bert_tf.load(checkpoint)
    kernel, bias = (checkpoint.tensors[f"sentence_dense/{n}"].read() for n in ("kernel", "bias"))
    vectors = np.tanh(embed_numpy(model, "mean", False) @ kernel + bias)[:, :3]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(model.preprocessor(TEXTS)), vectors, atol=1e-5)
    assert model.embedding_size == 3
    # Saving keeps both.
    bert_tf.save(model, tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved")
    np.testing.assert_allclose(again.embed(model.preprocessor(TEXTS)), vectors, atol=1e-5)


def test_prompts_set_prefixes(tmp_path):
    for number, (values, prefixes, note) in enumerate(
        [
            ({"prompts": {"query": "Find: ", "document": "Text: "}}, ("Find: ", "Text: "), None),
            (
                {"prompts": {"query": "Find: ", "passage": "Text: "}},
                ("Find: ", "Text: "),
                "encode_document of sentence-transformers 6 does not use it",
            ),
            (
                {"prompts": {"q": "Find: "}, "default_prompt_name": "q"},
                ("Find: ", "Find: "),
                "default_prompt_name='q': encode prepends this prompt to every text; bert_tf uses "
                "'Find: ' for documents and 'Find: ' for queries",
            ),
            (
                {"prompts": {"query": "Find: ", "document": ""}, "default_prompt_name": "query"},
                ("Find: ", ""),
                "bert_tf uses '' for documents and 'Find: ' for queries",
            ),
            ({"prompts": {"document": "", "corpus": "Text: "}}, ("", ""), None),
            ({"prompts": {"query": "", "clustering": "Sort: "}}, ("", ""), "clustering: 'Sort: '"),
        ]
    ):
        path = write_directory(tmp_path / str(number), config_sentence_transformers=values)
        found = open_checkpoint(path)
        embedding = found.sentence_embedding
        assert (embedding.query_prefix, embedding.document_prefix) == prefixes
        assert len(found.notes) == (note is not None) and all(note in n for n in found.notes)
    path = write_directory(tmp_path / "bad", config_sentence_transformers={"prompts": ["Find: "]})
    with pytest.raises(ValueError, match=r"prompts: expected an object, got \['Find: '\]"):
        open_checkpoint(path)


def test_export_applies_dense_layer_and_prefixes():
    model = bert_tf.load(full_checkpoint())
    served = serve(model, model.preprocessor.tokenizer, ExportOptions())
    assert served.max_seq_length == 10
    signatures = model_signatures(served)
    for name, prefix in (("serving_default", "cat "), ("embed_documents", "sat. ")):
        answers = signatures[name].function(text=tf.constant(TEXTS))
        assert np.array(answers["truncated"]).tolist() == [False, False, True]
        texts = [prefix + text for text in TEXTS]
        expected = model.embed(model.preprocessor(texts))
        np.testing.assert_allclose(answers["sentence_embedding"], expected, atol=1e-5)
    assert "embed" in signatures
    assert np.linalg.norm(answers["mean_output"], axis=1) != pytest.approx(1)
    model.sentence_embedding = dataclasses.replace(
        model.sentence_embedding, query_prefix="", document_prefix=""
    )
    served = serve(model, model.preprocessor.tokenizer, ExportOptions())
    assert "embed_documents" not in model_signatures(served)


@pytest.mark.parametrize(
    ("scaled_by_model", "flags"),
    [(True, {}), (True, {"normalize": True}), (False, {"normalize": True})],
)
def test_extracted_features_are_document_embeddings(tmp_path, capsys, scaled_by_model, flags):
    path = write(full_checkpoint(normalize=scaled_by_model), "huggingface", tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    model = bert_tf.load(path)
    arguments = {"input": [str(tmp_path / "texts.txt")], "model": path, "format": "numpy", **flags}
    done = extraction.run(resolve(**arguments, output=str(tmp_path / "out")))
    message = f"Uses the pooling of {path}: mean, scaled to length 1"
    assert message in capsys.readouterr().out and done.flags["max_seq_length"] == 10
    with np.load(tmp_path / "out" / "part-000000.npz") as file:
        values = file["values"]
    expected = np.array(model.embed(model.preprocessor(["sat. " + text for text in TEXTS])))
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(values, expected, atol=1e-5)


# === Unsupported modules ===


def test_encoder_loads_from_directory_with_unsupported_module(tmp_path):
    path = write_directory(tmp_path / "m", kinds=("Transformer", "Pooling", "CNN"))
    assert bert_tf.load(path, BertEncoder).sentence_embedding is None
    settings = resolve(input=["a"], model=path, output="b")
    with pytest.raises(
        ValueError,
        match="to extract the hidden states of its encoder, pass --layers or --pooling",
    ):
        extraction._load(settings)
    encoder, _ = extraction._load(resolve(input=["a"], model=path, output="b", layers=["0"]))
    assert encoder.sentence_embedding is None


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("activation", ["linear", "tanh"])
@pytest.mark.parametrize("normalize", [False, True])
def test_embeddings_equal_sentence_transformers_in_both_directions(tmp_path, activation, normalize):
    library = pytest.importorskip("sentence_transformers")
    path = write(full_checkpoint(activation, normalize=normalize), "huggingface", tmp_path)
    ours, theirs = bert_tf.load(path), library.SentenceTransformer(path, device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    again = bert_tf.load(tmp_path / "theirs")
    assert again.sentence_embedding == ours.sentence_embedding
    expected = {"cat ": theirs.encode_query(TEXTS), "sat. ": theirs.encode_document(TEXTS)}
    for prefix, vectors in expected.items():
        batch = ours.preprocessor([prefix + text for text in TEXTS])
        for model in (ours, again):
            np.testing.assert_allclose(model.embed(batch), vectors, atol=1e-5)
