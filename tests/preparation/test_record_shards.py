"""TFRecords in shards: the same rows as in one file, the same bytes on Apache Beam."""

import pathlib

import pytest
import tensorflow as tf

from bert_tf.pipelines import tfrecords
from bert_tf.preparation import record_shards
from tests.anew import run_anew
from tests.conftest import needs_beam
from tests.preparation.small import create_pretraining_data
from tests.pretraining import commands

LETTERS = "abcdefghij"
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *LETTERS, *(f"##{c}" for c in LETTERS)]
FLAGS = {
    "do_lower_case": True, "max_seq_length": 16, "max_predictions_per_seq": 2, "num_epochs": 3,
    "masked_lm_prob": 0.15, "short_seq_prob": 0.1, "do_whole_word_mask": False, "seed": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    commands.write_corpus(folder / "corpus.txt")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCAB))
    return folder


def settings(world):
    return record_shards.RecordSettings(
        input=(f"{world}/corpus.txt",), input_format=None, cache_dir=f"{world}/cache",
        vocab_file=f"{world}/vocab.txt", **FLAGS,
    )  # fmt: skip


def records(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


@pytest.fixture(scope="module")
def shards(world):
    """Two shards, the second written first."""
    paths = record_shards.shard_paths([f"{world}/expected@2"])
    for shard in (1, 0):
        record_shards.write_shard(settings(world), paths, shard)
    return paths


@pytest.mark.slow
def test_the_shards_have_the_rows_of_one_file(world, shards, tmp_path):
    given = settings(world)
    tfrecords.write_tfrecords(given.examples(*given.open()), str(tmp_path / "all"))
    expected = records(tmp_path / "all")
    found = [records(path) for path in shards]
    assert sorted(found[0] + found[1]) == sorted(expected)
    # A pool is an epoch of so little text: the first shard has the first and the last of three.
    assert len(found[0]) > len(found[1]) > 0
    assert found[0][:10] == expected[:10] and found[0][-10:] == expected[-10:]


def test_names_of_shards():
    assert record_shards.shard_paths(["a.tfrecord", "b@c"]) is None
    assert record_shards.shard_paths(["x/a@b@12"])[11] == "x/a@b-00011-of-00012"
    for outputs in (["a@2", "b"], ["b", "a@2"]):
        with pytest.raises(ValueError, match="NAME@N stands for N files, and is given alone."):
            record_shards.shard_paths(outputs)


def test_no_shard_has_its_name_until_all_are_written(tmp_path):
    paths = record_shards.shard_paths([f"{tmp_path}/out@3"])
    with record_shards.named_together(paths) as written:
        for number, path in enumerate(written):
            pathlib.Path(path).write_text(str(number))
        assert not list(tmp_path.glob("out-*")) and len(list(tmp_path.iterdir())) == 1
    assert [pathlib.Path(path).read_text() for path in paths] == ["0", "1", "2"]
    assert sorted(map(str, tmp_path.iterdir())) == paths


def test_a_file_that_came_meanwhile_stays_and_no_shard_gets_its_name(tmp_path):
    paths = record_shards.shard_paths([f"{tmp_path}/out@3"])
    with pytest.raises(ValueError, match="out-00001-of-00003 exists, and is never over"):
        with record_shards.named_together(paths) as written:
            for path in written:
                pathlib.Path(path).touch()
            pathlib.Path(paths[1]).write_text("mine")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "out-00001-of-00003": "mine"
    }


def arguments(world, output, *more):
    given = [f"--{name}={value}" for name, value in FLAGS.items()]
    given += [f"--input={world}/corpus.txt", f"--vocab_file={world}/vocab.txt"]
    return [*given, f"--output_file={output}", *more]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        [],
        pytest.param(
            ["--runner=DirectRunner", "--direct_running_mode=multi_processing",
             "--direct_num_workers=2"],
            marks=needs_beam,
        ),
    ],
    ids=["alone", "on Beam"],
)  # fmt: skip
def test_the_command_writes_the_same_bytes(world, shards, tmp_path, flags):
    done = run_anew("create_pretraining_data", *arguments(world, tmp_path / "out@2", *flags))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m bert_tf.pretrain '--input={tmp_path}/out-*'" in done.stdout
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {
        f"out-0000{shard}-of-00002": pathlib.Path(path).read_bytes()
        for shard, path in enumerate(shards)
    }


@pytest.mark.parametrize(
    ("output", "flags", "sentence"),
    [
        ("out", ["--runner=DirectRunner"], "With --runner each worker writes files of its own: g"),
        ("out@2", ["--runner=DataflowRunner"], "--runner=DataflowRunner needs --cache_dir: a fol"),
        ("out", ["--max_seq_lenght=5"], "This command has no flag --max_seq_lenght=5 [(]--help l"),
    ],
)
def test_what_is_refused(world, tmp_path, output, flags, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        create_pretraining_data(*arguments(world, tmp_path / output, *flags))
