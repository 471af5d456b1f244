"""Vectors compared with plain loops, the order of lines, and errors."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.modeling import BertPretrainer
from tests.checkpoints.small_checkpoints import UNCASED, make_checkpoint
from tests.extraction.conftest import CONFIG, run, write_many
from tests.modeling.conftest import weights_by_path
from tests.modeling.numpy_bert import encode

# Tokens of Google's script for the lines in conftest.py with --max_seq_length=12.
TOKENS = [
    "[CLS] a cat sat . [SEP]",
    "[CLS] [SEP]",
    "[CLS] cat ##s [SEP] un ##able 中 [UNK] [SEP]",
    "[CLS]" + 10 * " sat" + " [SEP]",
    "[CLS] a [UNK] [UNK] [UNK] cat [SEP] sat [SEP]",
    "[CLS] a [UNK] [UNK] [UNK] [SEP]",
]


@pytest.fixture(scope="module")
def states(loaded):
    """Computes the embeddings and all hidden states of each line with plain loops."""
    encoder, preprocessor = loaded
    weights, vocab = weights_by_path(encoder), preprocessor.tokenizer.vocab
    found = []
    for line in TOKENS:
        tokens = line.split()
        types = [int("[SEP]" in tokens[:position]) for position in range(len(tokens))]
        ids = [vocab.index(token) for token in tokens]
        all_states, _ = encode(weights, CONFIG, ids, [1] * len(ids), types)
        found.append(np.array(all_states))
    return found


def read_lines(tmp_path, output="output"):
    paths = sorted((tmp_path / output).glob("part-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_jsonl_equals_googles_script(extract, text, states, tmp_path):
    done = extract(text)
    lines = read_lines(tmp_path)
    assert [line["linex_index"] for line in lines] == list(range(6))
    for line, tokens, expected_line in zip(lines, TOKENS, states, strict=True):
        assert list(line) == ["linex_index", "features"]
        assert [feature["token"] for feature in line["features"]] == tokens.split()
        for position, feature in enumerate(line["features"]):
            assert list(feature) == ["token", "layers"]
            assert [layer["index"] for layer in feature["layers"]] == [-1, -2, -3, -4]
            for layer in feature["layers"]:
                assert list(layer) == ["index", "values"]
                expected = [float(value) for value in expected_line[layer["index"], position]]
                np.testing.assert_allclose(layer["values"], expected, atol=2e-5)
                assert layer["values"] == [round(value, 6) for value in layer["values"]]
    assert (done.lines, done.tokens, done.lines_cut, done.complete) == (6, 44, 1, True)


@pytest.mark.parametrize(
    ("flags", "blocks"),
    [
        ({"pooling": "max", "normalize": True}, {-1: 4}),
        # The layers are numbered as in Google's script.
        ({"pooling": "cls", "layers": ["0", "3"]}, {0: 1, 3: 4}),
    ],
)
def test_pooled_vectors_equal_plain_loops(extract, text, states, tmp_path, flags, blocks):
    assert extract(text, **flags).layers == tuple(blocks)
    for line, expected_line in zip(read_lines(tmp_path), states, strict=True):
        assert list(line) == ["linex_index", "layers"]
        for layer, (name, block) in zip(line["layers"], blocks.items(), strict=True):
            vectors = expected_line[block]
            vector = vectors[0] if flags["pooling"] == "cls" else vectors.max(0)
            length = np.linalg.norm(vector) if "normalize" in flags else 1.0
            assert layer["index"] == name
            np.testing.assert_allclose(layer["values"], vector / length, atol=2e-5)


def test_vectors_do_not_depend_on_batches(extract, tmp_path, monkeypatch):
    text = write_many(tmp_path / "many.txt", count=12)
    extract(text, "single", format="numpy", batch_size=1, lines_per_file=5)
    monkeypatch.setattr(extraction, "_VALUES_CHUNK_SIZE", 1500)  # a few lines per block
    extract(text, "batched", format="numpy", batch_size=7, lines_per_file=8)
    single, batched = (
        [np.load(path) for path in sorted((tmp_path / name).glob("*.npz"))]
        for name in ("single", "batched")
    )
    assert (len(single), len(batched)) == (3, 2)
    for key in ("line_index", "lengths", "token_ids", "values"):
        one, other = (np.concatenate([file[key] for file in files]) for files in (single, batched))
        np.testing.assert_allclose(one, other, atol=1e-5 if key == "values" else 0)


def test_summary_counts_cut_and_invalid_lines(
    extract, text, tmp_path, capsys, model_dir, monkeypatch
):
    with open(text, "ab") as file:
        file.write(b"c\xffat")
    extract(text, pooling="mean", lines_per_file=5)
    *_, last = capsys.readouterr().out.splitlines()
    assert last == (
        f"{tmp_path}/output: 7 lines, 47 tokens, 2 files, 1 line cut to --max_seq_length, "
        "1 line with invalid UTF-8 (bytes skipped)."
    )
    # The invalid byte is ignored.
    (tmp_path / "clean.txt").write_text("cat")
    monkeypatch.undo()
    clean = {"pooling": "mean", "max_seq_length": None}  # the maximum of the model
    done = run(model_dir, tmp_path, str(tmp_path / "clean.txt"), "clean", **clean)
    assert done.flags["max_seq_length"] == 16
    (layer,), (clean_layer,) = (
        line["layers"] for line in (read_lines(tmp_path)[6], read_lines(tmp_path, "clean")[0])
    )
    np.testing.assert_allclose(layer["values"], clean_layer["values"], atol=4e-6)


def test_missing_vocabulary_is_rejected(text, model_dir, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(model_dir, bare)
    (bare / "vocab.txt").unlink()
    message = r"bare has no tokenizer: .*bare has no vocabulary\. Add its vocab\.txt"
    with pytest.raises(ValueError, match=message):
        run(str(bare), tmp_path, text)


def test_cls_pooling_of_causal_model_is_rejected(text, tmp_path):
    spec = ModelSpec(BertPretrainer, {"nsp": False, "pooler": False})
    causal = dataclasses.replace(CONFIG, is_decoder=True)
    (tmp_path / "causal").mkdir()
    checkpoint = make_checkpoint(spec, causal, tokenization=UNCASED)
    model_directory.write(checkpoint, str(tmp_path / "causal"))
    message = "--pooling=cls: .*causal is causal .*. Use --pooling=last or mean"
    with pytest.raises(ValueError, match=message):
        run(str(tmp_path / "causal"), tmp_path, text, pooling="cls")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "none"}, "No such checkpoint: none"),
        ({"input": ["*.none"]}, "No file matches '*.none'"),
        ({"input": ["empty.txt"]}, "All files of the input empty.txt are empty"),
        ({"max_seq_length": 99},
         "max_seq_length=99: expected at most 16 (max_position_embeddings of MODEL)."),
        ({"max_seq_length": 4}, "max_seq_length=4: expected at least 5, for [CLS], two [SEP] and "
         "one token of each text of a pair."),
        ({"layers": ["4"]}, "--layers=4: expected -4 to 3, because MODEL has 4 blocks."),
        ({"layers": ["-1", "-5"]}, "--layers=-5: expected -4 to 3, because MODEL has 4 blocks."),
        *(({"input": ["text.txt", f"corpus{suffix}"]},
           f"corpus{suffix}: expected plain text, got a {suffix.removesuffix('.gz').lower()} "
           "file. Write its texts, one per line, to a .txt file.")
          for suffix in (".jsonl", ".ndjson", ".json.gz", ".CSV", ".tsv")),
    ],
)  # fmt: skip
def test_invalid_input_is_rejected_before_writing(
    model_dir, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "text.txt").write_text("cat\n")
    if changes.get("input", [""])[-1].startswith("corpus"):
        (tmp_path / changes["input"][-1]).write_text('{"text": "cat"}\n')
    given = {"input": ["text.txt"], "model": model_dir, "output": "output", **changes}
    with pytest.raises(ValueError, match=re.escape(message.replace("MODEL", str(model_dir)))):
        extraction.run(resolve(**given))
    assert not (tmp_path / "output").exists()
