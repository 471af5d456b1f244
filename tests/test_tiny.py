"""The included model ``tiny``: name, files, packaging and predictions."""

import os
import pathlib
import warnings

import numpy as np
import pytest
import setuptools

import bert_tf
import bert_tf.transformers
from bert_tf.checkpoints.tensor_files import open_safetensors
from bert_tf.finetuning.run import run
from bert_tf.io import paths
from tests.documents import ROOT, commands
from tests.finetuning.small_runs import parse

FOLDER = pathlib.Path(bert_tf.__file__).parent / "models" / "tiny"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Changes to an empty working directory and returns it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_loading_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", bert_tf.DifferenceWarning)
        bert_tf.load("tiny")


def test_existing_path_takes_precedence_over_the_name(folder):
    shipped = str(FOLDER)
    assert paths.resolve_model("tiny") == shipped
    others = ["", ".", "..", "./tiny", "tiny/", "models/tiny", "small", "/tiny", "hf://a/tiny"]
    assert [paths.resolve_model(path) for path in others] == others
    (folder / "tiny").symlink_to("gone")  # for example, a run on a disk that is not mounted
    assert paths.resolve_model("tiny") == "tiny"


def test_data_files_are_packaged(monkeypatch):
    if not (ROOT / "setup.cfg").exists():
        pytest.skip("needs setup.cfg of a checkout")
    monkeypatch.chdir(ROOT)
    distribution = setuptools.Distribution()
    distribution.parse_config_files([str(ROOT / "setup.cfg")])
    command = distribution.get_command_obj("build_py")
    command.ensure_finalized()
    packaged = {
        os.path.join(source, name) for _, source, _, names in command.data_files for name in names
    }
    existing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "bert_tf").rglob("*.*")
        if path.suffix not in (".py", ".pyc")
    }
    assert {pathlib.Path(path).name for path in existing} >= {
        *("README.md", "config.json", "model.safetensors", "results.json", "vocab.txt"),
        *("run.md", "converted.md", "use.md", "export.md", "page.html", "report.html"),
    }
    assert existing <= packaged


def test_file_is_small_and_in_bfloat16():
    file = FOLDER / "model.safetensors"
    assert file.stat().st_size <= 4_000_000
    tensors = open_safetensors(str(file))
    assert {tensor.dtype for tensor in tensors.values()} == {"bfloat16"}


def test_masked_words_are_predicted(folder):
    model = bert_tf.load("tiny")
    tokenizer = model.preprocessor.tokenizer
    words = {"he was [MASK] in 1950 .": "born", "the united [MASK] of america": "states"}
    pieces = tokenizer.tokenize([text.replace("[MASK]", "x") for text in words])
    for ids, word in zip(pieces.to_list(), words.values(), strict=True):
        row = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]], np.int32)
        (hidden,) = np.flatnonzero(row[0] == tokenizer.vocab.index("x"))
        row[0, hidden] = tokenizer.mask_id
        logits = model(
            {
                "input_word_ids": row,
                "input_mask": np.ones_like(row),
                "input_type_ids": np.zeros_like(row),
                "masked_lm_positions": np.array([[hidden]], np.int32),
            },
            training=False,
        )["masked_lm_logits"]
        best = np.argsort(-np.array(logits)[0, 0])[:5]
        assert word in [tokenizer.vocab[index] for index in best]


FLAGS = ["--task=classification", "--train_file=a.csv", "--text_columns=a", "--label_column=b"]


def test_model_dir_tiny_is_rejected(folder):
    (folder / "a.csv").write_text("a,b\n" + "x,y\nz,w\n" * 20)
    settings = parse(*FLAGS, "--init_checkpoint=tiny", "--model_dir=tiny")
    with pytest.raises(
        ValueError,
        match="^--init_checkpoint=tiny is in --model_dir=tiny. Use another --model_dir",
    ):
        run(settings)
    assert not (folder / "tiny").exists()


def test_from_pretrained_accepts_the_name(folder):
    model = bert_tf.transformers.TFAutoModelForMaskedLM.from_pretrained("tiny")
    tokenizer = bert_tf.transformers.AutoTokenizer.from_pretrained("tiny")
    assert model.config.vocab_size == len(tokenizer) == 8000


def test_card_has_license_data_and_command():
    card = (FOLDER / "README.md").read_text()
    for expected in ("license: apache-2.0", "CC BY-SA 3.0", "public domain", "137 billion"):
        assert expected in card
    assert [name for name, _ in commands(card)] == ["pretrain"]
