"""The command, as far as it goes without the compiler, and with it where it is installed."""

import importlib.metadata
import subprocess
import sys

import pytest

from bert_tf.tpu_compiler import run as tpu_run
from tests.pretraining.commands import parse

MODEL = ["--bert_config=bert-tiny", "--vocab_size=1000", "--precision=bfloat16"]
SIZES = ["--train_batch_size=8", "--max_seq_length=64", "--max_predictions_per_seq=8"]


def compiled(topology="v5e:2x2", cores=1, hlo_file=None):
    settings, _ = parse(*MODEL, *SIZES)
    tpu_run.run(settings, topology, cores, hlo_file)


def versions(**installed):
    def version(name):
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    return version


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        ({}, "which the package jax brings: pip install 'bert_tf\\[tpu-compiler\\]'."),
        ({"jax": "0.10.2"}, "which the package libtpu brings: pip install"),
        ({"jax": "0.11.0", "libtpu": "1"}, "needs jax 0.10.2, and 0.11.0 is installed: pip"),
    ],
)
def test_without_the_compiler_the_sentence_says_how_to_install_it(monkeypatch, installed, sentence):
    monkeypatch.setattr(importlib.metadata, "version", versions(**installed))
    with pytest.raises(ImportError, match=sentence):
        compiled()


def test_refusals(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="--topology=v9:2x2: expected v4, v5e, v5p, v6e with the"):
        compiled("v9:2x2")
    with pytest.raises(ValueError, match="--train_batch_size=8 cannot be shared by 3 --cores"):
        compiled(cores=3)
    monkeypatch.setattr(importlib.metadata, "version", versions(jax="0.10.2", libtpu="1"))
    (tmp_path / "hlo").write_text("mine")
    with pytest.raises(ValueError, match="hlo"):
        compiled(hlo_file=str(tmp_path / "hlo"))
    assert (tmp_path / "hlo").read_text() == "mine"
    settings, _ = parse(*MODEL, "--phases=64:0.5,32:0.5")
    with pytest.raises(ValueError, match="takes one program, and --phases has 2: give the length"):
        tpu_run.run(settings, "v5e:2x2", 1, str(tmp_path / "new"))


def test_the_model_has_the_vocabulary_that_is_given(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.metadata, "version", versions(jax="0.10.2", libtpu="1"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    found = []

    def lower(settings, config, *_):
        found.append(config.vocab_size)
        raise InterruptedError

    monkeypatch.setattr(tpu_run, "_lower", lower)
    for own in (f"--vocab_file={tmp_path}/vocab.txt", "--init_checkpoint=tiny"):
        with pytest.raises(InterruptedError):
            tpu_run.run(parse(own, *SIZES)[0], "v5e:2x2", 1, None)
    assert found == [6, 8000]


def test_a_compiler_that_ends_says_why(monkeypatch, tmp_path):
    """Its process is another one here, which ends as a compiler does that refuses a topology."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ValueError, match="ended with status 1 on v5e:9x9: no message"):
        tpu_run._compile("", "v5e:9x9", str(tmp_path))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_tiny_step_through_the_compiler(tmp_path):
    try:
        importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the TPU's compiler is not installed: pip install 'bert_tf[tpu-compiler]'")
    done = subprocess.run(
        [sys.executable, "-m", "bert_tf.compile_tpu", *MODEL, *SIZES, f"--hlo_file={tmp_path}/hlo"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "bert-tiny, 8 rows of 64 tokens, bfloat16, on a core of v5e:2x2:"
    assert sum("GB" in line for line in lines) == 3 and len(lines) == 2 + 4 + 1 + 10
    assert "ENTRY" in (tmp_path / "hlo").read_text()
    wrong = [sys.executable, "-m", "bert_tf.compile_tpu", *MODEL, *SIZES, "--topology=v5e:7x9x3"]
    done = subprocess.run(wrong, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: The TPU's compiler ended with status 1")
