"""Preparations from files to files, without Apache Beam: against loops over all pairs."""

import dataclasses
import gzip
import json
import os
import re
import shutil
import tracemalloc
import types
from unittest import mock

import numpy as np
import pytest

from bert_tf.pipelines import sources
from bert_tf.preparation import stages
from bert_tf.preparation.documents import identity
from bert_tf.preparation.exchange import read_part, write_parts
from bert_tf.training.run_directory import RunDirectory
from tests.preparation import small
from tests.preparation.small import prepare, read_documents, write_corpus


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A corpus, what is planted in it, and its preparation in several groups and shards."""
    folder = tmp_path_factory.mktemp("world")
    planted = write_corpus(folder / "input")
    report = prepare(folder / "input", folder / "output", scripts=["latin"])
    return folder, planted, report


def contents(output):
    return {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}


def cleaned_input(folder):
    """The texts of the input's documents, in its order, read by a loop."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        for block in re.split(r"\n\s*\n", text):
            lines = [line.replace("\u00a0", " ").strip() for line in block.split("\n")]
            found.append("\n".join(line for line in lines if re.search(r"[^\W_]", line)))
    return found


def shingles(text):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))}


def similarity(first, second):
    first, second = shingles(first), shingles(second)
    return len(first & second) / len(first | second)


def without_near_duplicates(texts, threshold):
    """All pairs compared: who is similar to one of a smaller identity goes."""
    ordered = sorted(set(texts), key=lambda text: identity(text.encode()))
    return {
        text
        for number, text in enumerate(ordered)
        if all(similarity(text, smaller) < threshold for smaller in ordered[:number])
    }


def test_what_is_kept_is_what_a_loop_over_all_pairs_keeps(world):
    folder, planted, report = world
    assert report["dropped"] == planted
    texts = [
        text
        for text in cleaned_input(folder / "input")
        if len(text) >= 100 and "\n" in text and "ж" not in text
    ]
    expected = without_near_duplicates(texts, 0.8)
    train = read_documents(folder / "output", "train")
    held_out = read_documents(folder / "output", "held_out")
    assert sorted(train + held_out) == sorted(expected)
    assert report["documents_read"] == 60 + sum(planted.values())
    for kind, found in (("train", train), ("held_out", held_out)):
        assert report[kind] == {
            "documents": len(found),
            "sentences": sum(len(text.split("\n")) for text in found),
            "bytes": sum(len(text.encode()) for text in found),
        }


def test_what_is_held_out_is_what_pretraining_would_hold_out(world):
    folder = world[0]
    corpus = sources.open_corpus(f"{folder}/output/train-*,{folder}/output/held_out-*")
    assert corpus.input_format == "google"
    train, held_out = corpus.split_held_out(0.1)
    assert held_out.num_documents == 6
    for part, kind in ((train, "train"), (held_out, "held_out")):
        texts = read_documents(folder / "output", kind)
        assert sorted(part.sentences()) == sorted("\n".join(texts).split("\n"))


def test_the_order_is_shuffled_by_the_seed_alone(world, tmp_path):
    folder, _, report = world
    texts = read_documents(folder / "output", "train")
    place = {text: number for number, text in enumerate(cleaned_input(folder / "input"))}
    ranks = np.argsort(np.argsort([place[text] for text in texts]))
    # Four standard deviations of the correlation of two unrelated orders.
    assert abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) < 4 / np.sqrt(len(ranks))
    prepare(folder / "input", tmp_path / "other", scripts=["latin"], seed=-5)
    shuffled = read_documents(tmp_path / "other", "train")
    assert shuffled != texts and sorted(shuffled) == sorted(texts)
    again = prepare(folder / "input", tmp_path / "again", scripts=["latin"], unit_order=1)
    assert again == report
    assert contents(tmp_path / "again") == contents(folder / "output")


@pytest.mark.parametrize(
    ("group_bytes", "num_shards", "num_partitions"), [(1, 3, 5), (1 << 20, 1, 1)]
)
def test_the_output_is_the_same_however_it_is_divided(
    world, tmp_path, group_bytes, num_shards, num_partitions
):
    folder, _, report = world
    make_plan = small.plan_module.make_plan

    def divided(settings, corpus):
        plan = make_plan(settings, corpus)
        assert plan.num_groups == (6 if group_bytes == 1 else 1)
        return dataclasses.replace(plan, num_shards=num_shards, num_partitions=num_partitions)

    with mock.patch("bert_tf.preparation.run.make_plan", divided):
        other = prepare(
            folder / "input", tmp_path / "output", group_bytes=group_bytes, scripts=["latin"]
        )
    assert {**other, "files": None} == {**report, "files": None}
    assert len(other["files"]) == num_shards + 1
    for kind in ("train", "held_out"):
        assert read_documents(tmp_path / "output", kind) == read_documents(folder / "output", kind)


def test_a_run_that_was_killed_anywhere_resumes(world, tmp_path):
    folder, _, _ = world
    expected = contents(folder / "output")
    for most in (0, 1, 5, 7, 8, 9):  # of ten units
        with pytest.raises(KeyboardInterrupt):
            prepare(folder / "input", tmp_path / "output", most=most, scripts=["latin"])
        assert not (tmp_path / "output" / "report.json").exists()
    prepare(folder / "input", tmp_path / "output", scripts=["latin"])
    assert contents(tmp_path / "output") == expected
    assert not (tmp_path / "output" / "work").exists()


def test_units_that_are_done_are_not_done_again(world, tmp_path, capsys):
    folder = world[0]
    flags = {"scripts": ["latin"]}
    with pytest.raises(KeyboardInterrupt):
        prepare(folder / "input", tmp_path / "output", most=7, **flags)
    # Six groups and the buckets' only partition are done: only what follows may run.
    documents, pairs, *others = stages.STAGES
    done = [dataclasses.replace(stage, work=mock.Mock()) for stage in (documents, pairs)]
    with mock.patch.object(stages, "STAGES", [*done, *others]):
        prepare(folder / "input", tmp_path / "output", **flags)
    assert not any(stage.work.called for stage in done)
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "output").iterdir()}
    prepare(folder / "input", tmp_path / "output", **flags)
    assert f"{tmp_path}/output is finished: nothing was left to do." in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "output").iterdir()} == before


def test_exact_duplicates_alone_are_found_without_buckets(world, tmp_path):
    folder, planted, _ = world
    report = prepare(
        folder / "input", tmp_path / "output", near_duplicates=0.0, held_out_fraction=0.0,
        scripts=["latin"],
    )  # fmt: skip
    assert report["dropped"] == {**planted, "near_duplicate": 0}
    assert report["held_out"]["documents"] == 0
    assert read_documents(tmp_path / "output", "held_out") == []


def test_a_large_bucket_has_no_more_pairs_than_documents(tmp_path):
    words = " ".join(small.document(np.random.default_rng(1))).split()
    # The same words, one of them in capitals: other texts, which meet in every bucket.
    every = [
        [" ".join(word.upper() if place == number else word for place, word in enumerate(words))]
        for number in range(40)
    ]
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("\n\n".join("\n".join(lines) for lines in every))
    counted = []
    *before, choices, held_out, shards = stages.STAGES

    def count_and_choose(plan, shard):
        pairs = [read_part(plan.path("pairs", n), shard) for n in range(plan.num_partitions)]
        counted.append(sum(map(len, pairs)) // stages._PAIR.itemsize)
        choices.work(plan, shard)

    counting = [*before, dataclasses.replace(choices, work=count_and_choose), held_out, shards]
    # Each but the smallest with the smallest, or with up to eight that are smaller.
    for large, expected in ((39, 39), (40, sum(min(rank, 8) for rank in range(40)))):
        with (
            mock.patch.object(stages, "_LARGE_BUCKET", large),
            mock.patch.object(stages, "STAGES", counting),
        ):
            report = prepare(tmp_path / "input", tmp_path / f"output-{large}", min_sentences=1)
        assert report["dropped"]["near_duplicate"] == 39
        assert counted.pop() == expected


def test_pairs_of_many_buckets_are_those_of_a_loop_in_bounded_memory(tmp_path):
    rng = np.random.default_rng(3)
    identities = [identity(b"%d" % number) for number in range(1000)]
    entries = np.zeros((300, 40), stages._BUCKET)
    entries["bucket"] = np.arange(300)[:, None]
    members = np.array([rng.choice(1000, 40, replace=False) for _ in entries])
    entries["identity"], entries["place"] = np.array(identities)[members], members
    write_parts(str(tmp_path / "buckets-0"), [[entries.tobytes()]])
    plan = types.SimpleNamespace(
        settings=types.SimpleNamespace(seed=0), num_groups=1, num_shards=3,
        path=lambda kind, number: str(tmp_path / f"{kind}-{number}"),
    )  # fmt: skip
    tracemalloc.start()
    stages._find_pairs(plan, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    parts = [
        np.frombuffer(read_part(str(tmp_path / "pairs-0"), shard), stages._PAIR)
        for shard in range(3)
    ]
    expected = set()
    for bucket in members.tolist():
        ordered = sorted(bucket, key=identities.__getitem__)
        for rank, member in enumerate(ordered):
            expected |= {(member, smaller) for smaller in ordered[: min(rank, 8)]}
    pairs = np.concatenate(parts)
    assert len(pairs) == len(expected) and min(map(len, parts)) > 0.3 * len(expected)
    assert set(pairs[["place", "smaller_place"]].tolist()) == expected
    for field, place in (("identity", "place"), ("smaller", "smaller_place")):
        assert pairs[field].tolist() == np.array(identities)[pairs[place]].tolist()
    for part in parts:
        assert part["identity"].tolist() == sorted(part["identity"].tolist())
    assert peak < 25 * entries.nbytes, peak / entries.nbytes


# === What is refused ===


def test_a_second_process_is_refused_before_it_writes(world, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    with RunDirectory(str(output)).locked():
        with pytest.raises(ValueError) as error:
            prepare(world[0] / "input", output, near_duplicates=0.0)
    assert str(error.value) == (
        f"{output} is in use by a preparation of process {os.getpid()}: wait for it, or name "
        "another --output."
    )
    assert os.listdir(output) == [".lock"]
    prepare(world[0] / "input", output, near_duplicates=0.0)  # the lock is no one else's file


def test_a_finished_output_needs_neither_beam_nor_its_input(world, tmp_path, capsys):
    write_corpus(tmp_path / "input")
    report = prepare(tmp_path / "input", tmp_path / "output", near_duplicates=0.0)
    shutil.rmtree(tmp_path / "input")
    capsys.readouterr()
    with mock.patch.object(small, "Serial", side_effect=AssertionError("Beam is not needed")):
        assert prepare(tmp_path / "input", tmp_path / "output", near_duplicates=0.0) == report
        with pytest.raises(
            ValueError, match=r"begun with --near_duplicates \(0.0, now 0.5\): give"
        ):
            prepare(tmp_path / "input", tmp_path / "output", near_duplicates=0.5)
    assert "is finished: nothing was left to do." in capsys.readouterr().out
    (tmp_path / "output" / "report.json").unlink()
    with pytest.raises(ValueError, match="No file matches"):
        prepare(tmp_path / "input", tmp_path / "output", near_duplicates=0.0)


def test_other_settings_and_other_text_are_refused_by_name(world, tmp_path):
    folder = world[0]
    with pytest.raises(ValueError) as error:
        prepare(folder / "input", folder / "output", scripts=["latin"], min_characters=50)
    assert str(error.value) == (
        f"{folder}/output was begun with --min_characters (100, now 50): give the flags of its "
        "first start, or another --output."
    )
    write_corpus(tmp_path / "other", seed=1)
    with pytest.raises(ValueError, match=r"was begun with --input \(other text\): give the flags"):
        prepare(tmp_path / "other", folder / "output", scripts=["latin"])
    # The same text elsewhere is the same input.
    prepare(folder, folder / "output", scripts=["latin"], input=[f"{folder}/./input/*"])


def test_a_folder_of_others_is_refused(world, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is there and holds no manifest.json of prepare: name an"):
        prepare(world[0] / "input", tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "jsonl"}')
    with pytest.raises(ValueError, match="manifest.json is not what prepare writes: name another"):
        prepare(world[0] / "input", tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_file_that_is_not_its_own_is_neither_taken_nor_replaced(world, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        prepare(world[0] / "input", tmp_path / "output", most=0)
    mine = tmp_path / "output" / "train-00000-of-00001.txt"
    mine.write_text("mine")
    with pytest.raises(ValueError, match="00001.txt exists, and is never overwritten"):
        prepare(world[0] / "input", tmp_path / "output")
    assert mine.read_text() == "mine"


def test_a_finished_output_that_lost_a_file_is_refused(world, tmp_path):
    flags = {"near_duplicates": 0.0}
    prepare(world[0] / "input", tmp_path / "output", **flags)
    train = tmp_path / "output" / "train-00000-of-00001.txt"
    train.write_text(train.read_text()[:-1])
    with pytest.raises(
        ValueError, match="lacks train-00000-of-00001.txt, or has it in another size"
    ):
        prepare(world[0] / "input", tmp_path / "output", **flags)
    (tmp_path / "output" / "report.json").write_text(json.dumps({"files": [1]}))
    with pytest.raises(ValueError, match="report.json is not what prepare writes: delete"):
        prepare(world[0] / "input", tmp_path / "output", **flags)


def test_nothing_left_is_an_error(world, tmp_path):
    with pytest.raises(ValueError, match="No document is left: all are shorter than --min_charac"):
        prepare(world[0] / "input", tmp_path / "output", scripts=["thai"])


def test_an_input_that_changes_is_refused(tmp_path):
    write_corpus(tmp_path / "input", num_files=1)
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "input", tmp_path / "output", most=0)
    part = tmp_path / "output" / "work" / "blocks-00000"
    with (tmp_path / "input" / "0.txt").open("a") as file:
        file.write("More.\n")
    with pytest.raises(ValueError, match=f"is gone or was changed since {part} was written: start"):
        sources.load_part(str(part))
