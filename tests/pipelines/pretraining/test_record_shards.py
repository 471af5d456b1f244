"""TFRecord shards, written by processes and by Apache Beam."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from bert_tf import create_pretraining_data as command
from bert_tf.pipelines.pretraining import record_shards, tfrecords
from bert_tf.pipelines.pretraining.dataset import RowOptions
from tests.conftest import needs_beam
from tests.killed_processes import Started
from tests.pretraining import commands
from tests.processes import run_bert_tf, run_main
from tests.training.test_two_workers import free_addresses

LETTERS = "abcdefghij"
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *LETTERS, *(f"##{c}" for c in LETTERS)]
ROWS = RowOptions(max_seq_length=16, max_predictions_per_seq=2, seed=5)


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data_folder")
    commands.write_corpus(folder / "corpus.txt")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCAB))
    return folder


def source(data_folder):
    return record_shards.Source(
        (f"{data_folder}/corpus.txt",),
        None,
        f"{data_folder}/cache",
        f"{data_folder}/vocab.txt",
        True,
        num_epochs=3,
    )


def records(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


@pytest.fixture(scope="module")
def shards(data_folder):
    """Paths of two shards; the second is written first."""
    paths = command._shard_paths([f"{data_folder}/expected@2"])
    for shard in (1, 0):
        record_shards.write_shard(source(data_folder), ROWS, paths, shard)
    return paths


@pytest.mark.slow
def test_shards_contain_the_rows_of_one_file(data_folder, shards, tmp_path):
    examples = record_shards.examples(source(data_folder), ROWS)
    tfrecords.write_tfrecords(examples, str(tmp_path / "all"))
    expected = records(tmp_path / "all")
    found = [records(path) for path in shards]
    assert sorted(found[0] + found[1]) == sorted(expected)
    assert record_shards._traced_pools.cache_info().misses == 1  # once for both shards
    # Each epoch of this small corpus is one pool: the first shard has epochs 1 and 3.
    assert len(found[0]) > len(found[1]) > 0
    assert found[0][:10] == expected[:10] and found[0][-10:] == expected[-10:]


def test_shard_paths():
    assert command._shard_paths(["a.tfrecord", "b@c"]) is None
    assert command._shard_paths(["x/a@b@12"])[11] == "x/a@b-00011-of-00012"
    for outputs in (["a@2", "b"], ["b", "a@2"]):
        with pytest.raises(ValueError, match="NAME@N cannot be combined with other files."):
            command._shard_paths(outputs)


def test_shards_are_renamed_after_all_are_written(tmp_path):
    paths = command._shard_paths([f"{tmp_path}/out@3"])
    with record_shards.atomic_shards(paths) as written:
        for number, path in enumerate(written):
            pathlib.Path(path).write_text(str(number))
        assert not list(tmp_path.glob("out-*")) and len(list(tmp_path.iterdir())) == 1
    assert [pathlib.Path(path).read_text() for path in paths] == ["0", "1", "2"]
    expected = "-00001-of-00003 already exists and is not overwritten"
    pathlib.Path(paths[0]).unlink()
    with pytest.raises(ValueError, match=expected), record_shards.atomic_shards(paths):
        pytest.fail("shards were written")
    pathlib.Path(paths[1]).rename(tmp_path / "other")
    pathlib.Path(paths[2]).unlink()
    with pytest.raises(ValueError, match=expected):
        with record_shards.atomic_shards(paths) as written:
            pathlib.Path(written[0]).touch()
            (tmp_path / "other").rename(paths[1])
    assert [*map(str, tmp_path.iterdir())] == [paths[1]]


@pytest.mark.parametrize("earlier", [("x-00000-of-00004", "x-00003-of-00004"), ("x",)], ids=str)
def test_earlier_shards_matched_by_pattern_raise_error(tmp_path, earlier):
    for name in earlier:
        (tmp_path / name).touch()
    (tmp_path / "x-notes.txt").touch()  # these are not shards of x
    (tmp_path / "x-00000-of-00009").mkdir()
    (tmp_path / "x-held_out-00000-of-00002").touch()
    paths = command._shard_paths([f"{tmp_path}/x@2"])
    expected = rf"/x@2: .*/x\* would also match the existing {', '.join(earlier)}\. Remove these"
    with pytest.raises(ValueError, match=expected), record_shards.atomic_shards(paths):
        pytest.fail("shards were written")
    for name in earlier:
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=expected):  # created while the shards are written
        with record_shards.atomic_shards(paths) as written:
            for path in (*written, *(tmp_path / name for name in earlier)):
                pathlib.Path(path).touch()
    assert not any(map(os.path.exists, paths))
    for name in earlier:
        (tmp_path / name).unlink()
    with record_shards.atomic_shards(paths) as written:
        for path in written:
            pathlib.Path(path).touch()
    assert all(map(os.path.exists, paths))


def arguments(data_folder, output, *more):
    row_flags = {"max_seq_length": 16, "max_predictions_per_seq": 2, "num_epochs": 3, "seed": 5}
    given = [f"--{name}={value}" for name, value in row_flags.items()]
    given += [f"--input={data_folder}/corpus.txt", f"--vocab_file={data_folder}/vocab.txt"]
    return [*given, f"--output_file={output}", *more]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [[], pytest.param(["--runner=DirectRunner"], marks=needs_beam)],
    ids=["processes", "Beam"],
)
def test_command_writes_equal_bytes(data_folder, shards, tmp_path, flags):
    done = run_bert_tf(
        "create_pretraining_data", *arguments(data_folder, tmp_path / "out@2", *flags)
    )
    assert done.returncode == 0, done.stderr
    assert f"python -m bert_tf.pretrain '--input={tmp_path}/out-?????-of-00002'" in done.stdout
    assert flags or not done.stderr
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {
        f"out-0000{shard}-of-00002": pathlib.Path(path).read_bytes()
        for shard, path in enumerate(shards)
    }


DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"


@pytest.fixture
def dask(tmp_path):
    """Address of a scheduler on loopback, and its two workers."""
    (address,) = free_addresses(1)
    host, port = address.split(":")
    lines = [["scheduler", f"--host={host}", f"--port={port}", "--no-dashboard"]]
    lines += 2 * [["worker", address, "--nthreads=1", "--no-nanny", "--no-dashboard"]]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w"))
        started = []
        for number, line in enumerate(lines):
            (tmp_path / f"worker{number}").mkdir()
            command_line = [sys.executable, "-m", "dask", *line]
            process = subprocess.Popen(
                command_line, stdout=log, stderr=log, cwd=tmp_path / f"worker{number}"
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        yield f"tcp://{address}", started[1:]


@pytest.mark.slow
@needs_beam
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="Dask is not installed")
def test_beam_on_dask_writes_equal_bytes_after_worker_is_killed(
    data_folder, shards, dask, tmp_path, monkeypatch
):
    address, (killed_worker, _) = dask
    monkeypatch.chdir(data_folder)  # the workers have another working directory
    flags = [f"--runner={DASK}", f"--dask_client_address={address}", "--dask_npartitions=2"]
    given = arguments(pathlib.Path(), tmp_path / "out@2", *flags)
    line = [sys.executable, "-m", "bert_tf.create_pretraining_data", *given]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while not list(tmp_path.glob("out.*.tmp/out-*.tmp")):  # a shard in progress
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.01)
        killed_worker.kill()
        _, errors = run.communicate()
    assert run.returncode == 0, errors
    for expected in map(pathlib.Path, shards):
        found = tmp_path / expected.name.replace("expected", "out")
        assert found.read_bytes() == expected.read_bytes()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_error_in_one_process_is_raised(data_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(record_shards, "usable_cores", lambda: 2)
    paths = [str(tmp_path / "missing" / "a" / str(shard)) for shard in range(2)]
    (tmp_path / "missing").touch()
    with pytest.raises((OSError, tf.errors.OpError), match="missing"):
        record_shards.write_shards(source(data_folder), ROWS, paths)


def _child_or_thread_ids(number, kind):
    """Returns the ids of the children or threads of a process."""
    folder = pathlib.Path(f"/proc/{number}/task")
    if kind == "threads":
        return os.listdir(folder) if folder.exists() else []
    children = folder / str(number) / "children"
    return children.read_text().split() if children.exists() else []


def _wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _writers_have_started(command):
    """Returns whether both writer processes run, including their watchdog threads."""
    threads = [
        _child_or_thread_ids(each, "threads")
        for each in _child_or_thread_ids(command.number, "processes")
    ]
    return sum(len(each) > 1 for each in threads) == 2


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").is_dir(), reason="needs Linux' /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signal_leaves_no_processes_or_files(data_folder, tmp_path, monkeypatch, number):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = Started(
        "bert_tf.create_pretraining_data",
        arguments(data_folder, tmp_path / "out@2", "--num_epochs=100000"),
    )
    try:
        _wait_for(lambda: _writers_have_started(command), 120)
        processes = _child_or_thread_ids(command.number, "processes")
    finally:
        os.kill(command.number, number)
    ended = command.ended()
    assert ended.returncode == (130 if number == signal.SIGTERM else -number), ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.endswith("\nInterrupted.\n") or number == signal.SIGKILL
    _wait_for(lambda: not any(os.path.exists(f"/proc/{each}") for each in processes), 30)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("output", "flags", "message"),
    [
        ("out", ["--runner=DirectRunner"],
         "--runner needs one output file per worker. Pass --output_file=NAME@N."),
        ("out", ["--max_seq_lenght=5"],
         "Unknown flags --max_seq_lenght=5: use flags of this command [(]--help=all[)], or "
         "also pass --runner to use flags of Apache Beam."),
        *(
            pytest.param("out@2", flags.split(), message, marks=needs_beam)
            for flags, message in (
                ("--runner=direct --directt=1",
                 "Unknown flags --directt=1: neither this command [(]--help=all[)] nor the Apache "
                 "Beam runner defines them."),
                (f"--runner={DASK[:-1]}",
                 f"--runner={DASK[:-1]}: Apache Beam has no such runner [(]"),
                ("--runner=a.B", "--runner=a.B: Apache Beam has no such runner [(]No module named"),
                ("--runner=Spar", "Unexpected pipeline runner: Spar"),
            )
        ),
    ],
)  # fmt: skip
def test_invalid_flags_raise_error(data_folder, tmp_path, output, flags, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        run_main(command, *arguments(data_folder, tmp_path / output, *flags))
