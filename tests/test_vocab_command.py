"""``python -m bert_tf.vocab``: files, output and errors."""

import gzip
import os
import re

import pytest
import tensorflow as tf

from bert_tf import vocab
from bert_tf.pipelines.corpora import formats as corpus_formats
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS, load_vocabulary
from bert_tf.pipelines.vocabulary_learning import learn_vocabulary
from tests.processes import run_main

SENTENCES = [f"The {a} sees {b} {c}." for a in ("cat", "dog") for b in ("two", "six")
             for c in ("birds", "Mäuse")]  # fmt: skip


def learn(*texts, output, **flags):
    vocab.learn(vocab.VocabularySettings(input=[*map(str, texts)], output=str(output), **flags))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(SENTENCES[i : i + 2]) for i in range(0, 8, 2)) + "\n")
    return str(path)


@pytest.fixture
def without_coverage(monkeypatch):
    """Skips applying the vocabulary to the text, which is slower than learning it."""
    monkeypatch.setattr(vocab, "_coverage", lambda *_: "")


def test_vocabulary_is_written_and_reported(text, tmp_path, capsys):
    output = str(tmp_path / "new" / "vocab.txt")
    flags = [f"--input={text}", f"--output={output}", "--input_format=google", "--vocab_size=80"]
    run_main(vocab, *flags)
    learned = load_vocabulary(output)
    assert learned == learn_vocabulary(SENTENCES, 80)
    assert learned[:5] == list(SPECIAL_TOKENS) and "cat" in learned and "mause" in learned
    corpus, learning, size, fewer, sample, coverage, *rest = capsys.readouterr().out.splitlines()
    assert corpus == "Corpus: 1 file, google, 4 documents, 0.0 MB, 1 block."
    assert learning == "Learning 80 pieces."
    seconds = r"\d+"
    expected = rf"Learned {len(learned)} pieces in {seconds} s: {output}"
    assert re.fullmatch(expected, size)
    assert fewer == (
        "These are fewer than --vocab_size=80: no other pair of pieces occurs 2 times. To learn "
        "more pieces, use more text."
    )
    examples = sample.removeprefix("Examples: ").split(" ")
    assert len(examples) == 20 and set(examples) <= set(learned)
    # The eight sentences consist of words and full stops of one piece each.
    assert coverage == (
        "In a sample of 48 words: 1.00 pieces per word, 0 unknown words (0.000%)."
    )  # fmt: skip
    assert rest == [
        "",
        "Next steps:",
        f"  python -m bert_tf.pretrain --input={text} --input_format=google --vocab_file={output}",
    ]


def test_invalid_output_path_is_rejected_before_learning(text, monkeypatch):
    monkeypatch.setattr("bert_tf.pipelines.vocabulary_learning.learn_vocabulary", None)
    with pytest.raises((OSError, tf.errors.OpError), match="text.txt"):
        learn(text, output=f"{text}/vocab.txt", input_format="google")


def test_unknown_words_are_counted(text, tmp_path, capsys):
    output = str(tmp_path / "vocab.txt")
    learn(
        text, output=output, input_format="google", vocab_size=60, do_lower_case=False,
        min_frequency=5,
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    # The letters c, g, w, x, b and M occur only four times. Words with them are unknown.

    assert "24 unknown words (50.000%)" in lines[-4]
    assert lines[-1].endswith(" --do_lower_case=false")


def test_byte_limit_reduces_the_text(without_coverage, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vocab, "_MAX_BYTES", 10_000)
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"Here is the number {number}.\n" * 400)
    output = str(tmp_path / "vocab.txt")
    learn(folder, output=output, input_format="google", vocab_size=99)
    digits = [piece for piece in load_vocabulary(output) if piece.isdigit()]
    assert len(digits) == 2


def test_decompressed_copies_are_removed(without_coverage, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_formats, "MAX_DOCUMENT_BYTES", 2_000)
    path = tmp_path / "large.txt.gz"
    with gzip.open(path, "wt") as file:
        for number in range(600):
            file.write(f"This is the sentence number {number} of it.\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    learn(path, output=tmp_path / "vocab.txt", input_format="google", vocab_size=50)
    assert not os.listdir(temporary)
