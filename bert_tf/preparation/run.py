"""A preparation from its settings to the report: what is done once, around Apache Beam's stages."""

import contextlib
import dataclasses
import functools
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.files import (
    check_outside,
    is_temporary,
    read_json_object,
    remove_written,
    size_of,
    write_json,
)
from bert_tf.pipelines import sources
from bert_tf.pipelines.corpus_cache import digest
from bert_tf.pipelines.corpus_files import find_files, sample_files
from bert_tf.training.progress import Progress
from bert_tf.training.run_directory import RunDirectory
from bert_tf.untrusted import listed, one_line

from . import beam
from .documents import REASONS
from .plan import WORK, Plan, make_plan
from .settings import PreparationSettings
from .stages import STAGES, count_all, run_unit

MANIFEST, REPORT, CORPUS = "manifest.json", "report.json", "corpus"
# What this room and the corpus' index write below the folder of work, finished or not.
_WRITTEN = re.compile(r"(?:[a-z_]+-\d{5,}|corpus/[^/]+\.(?:npz|gz))(?:\.[0-9a-f]{32}\.tmp)?")
_POLL_SECONDS = 2.0


def run(settings: PreparationSettings, beam_flags: Sequence[str]) -> dict[str, Any]:
    """Writes the output, or what is missing of it, and gives the report."""
    output = RunDirectory(settings.output, flag="--output")
    report, work = (os.path.join(output.path, name) for name in (REPORT, WORK))
    identity = _identity(settings, input_may_be_gone=tf.io.gfile.exists(report))
    with contextlib.ExitStack() as stack:
        process = None
        if not _is_finished(output, identity):
            check_outside("--output", output.path, settings.input)
            process = stack.enter_context(beam.started(beam_flags))  # first: its flags may be wrong
            output.create()
        # A finished output may be on a disk that cannot be written to.
        if process is not None or tf.io.gfile.isdir(work):
            stack.enter_context(output.locked("a preparation"))
        # Again: another process may have begun or finished it meanwhile.
        if process is None or _is_finished(output, identity):
            counts = _finished(settings, report)
            print(f"{output.path} is finished: nothing was left to do.")
        else:
            write_json(os.path.join(output.path, MANIFEST), identity)
            plan = open_plan(settings)
            _run_stages(plan, process)
            counts = count_all(plan)
            write_json(report, counts)
        remove_written(work, _WRITTEN)
    _print(settings, counts)
    return counts


def _is_finished(output: RunDirectory, now: Mapping[str, Any]) -> bool:
    """Whether a directory, which has to be this preparation's or yet to be begun, is finished."""
    path, manifest = output.path, os.path.join(output.path, MANIFEST)
    if not tf.io.gfile.exists(manifest):
        is_directory = tf.io.gfile.isdir(path)
        names = tf.io.gfile.listdir(path) if is_directory else []
        # A killed process may have left the lock, and the manifest half written.
        is_own = all(is_temporary(name) or output.is_lock(name) for name in names)
        if tf.io.gfile.exists(path) and not (is_directory and is_own):
            raise ValueError(
                f"{path} is there and holds no {MANIFEST} of prepare: name another --output, an "
                "empty directory or a new one."
            )
        return False
    before = read_json_object(manifest)
    if before.keys() != now.keys():
        raise ValueError(f"{manifest} is not what prepare writes: name another --output.")
    is_gone = now["input"] is None
    differing = [
        name for name in now if before[name] != now[name] and not (name == "input" and is_gone)
    ]
    if differing:
        changes = {name: one_line(f"{before[name]}, now {now[name]}") for name in differing}
        if "input" in changes:
            changes["input"] = "other text"
        shown = listed(f"--{name} ({change})" for name, change in changes.items())
        raise ValueError(
            f"{path} was begun with {shown}: give the flags of its first start, or another "
            "--output."
        )
    return tf.io.gfile.exists(os.path.join(path, REPORT))


def _identity(settings: PreparationSettings, *, input_may_be_gone: bool) -> dict[str, Any]:
    """The flags, and the text by sizes and samples of its files, or ``None`` where it is gone."""
    flags = {**dataclasses.asdict(settings), "scripts": list(settings.scripts)}
    del flags["output"]
    try:
        files = find_files(settings.input)
    except ValueError:
        if input_may_be_gone:
            return {**flags, "input": None}
        raise
    samples = sample_files([file.path for file in files])
    # An object store's files have no sample, but a time that changes with them.
    text = [
        (file.size, sample or (file.path, file.mtime_nsec))
        for file, sample in zip(files, samples, strict=True)
    ]
    return {**flags, "input": digest(text)}


def open_plan(settings: PreparationSettings) -> Plan:
    """Opens the input, whose index is made if it is not there, and divides it into units."""
    progress: Progress | None = None

    def show(done: int, total: int) -> None:
        nonlocal progress
        if progress is None and total >> 20:
            progress = Progress("Reading the input", total >> 20, "MB")
        if progress is not None:
            progress.update(done >> 20)

    corpus = sources.open_corpus(
        settings.input,
        input_format=settings.input_format,
        cache_dir=os.path.join(settings.output, WORK, CORPUS),
        progress=show,
    )
    if progress is not None:
        progress.close()
    print(f"Corpus: {corpus.describe()}.", flush=True)
    return make_plan(settings, corpus)


def _run_stages(plan: Plan, process: beam.BeamProcess) -> None:
    steps = [
        beam.Step(stage.name, stage.count(plan), functools.partial(run_unit, plan, stage.name))
        for stage in STAGES
    ]
    display = _Display(plan)
    process.run(steps, display.update)
    display.close()


class _Display:
    """How many of all units are done, by the files that they wrote."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._folder = os.path.dirname(plan.path("", 0))
        self._wanted = {
            os.path.basename(plan.path(stage.written, number))
            for stage in STAGES
            for number in range(stage.count(plan))
        }
        self._progress = Progress("Preparing", len(self._wanted), "units", start=self._done())
        self._asked = time.monotonic()

    def _done(self) -> int:
        return len(self._wanted.intersection(tf.io.gfile.listdir(self._folder)))

    def update(self) -> None:
        """Looks again, now and then."""
        if time.monotonic() - self._asked >= _POLL_SECONDS:
            self._progress.update(self._done())
            self._asked = time.monotonic()

    def close(self) -> None:
        """Ends the display."""
        self._progress.update(self._done())
        self._progress.close()


# === The report ===


def _finished(settings: PreparationSettings, path: str) -> dict[str, Any]:
    """The report of a finished preparation, whose files are there."""
    report = read_json_object(path)
    try:
        sizes = {file["file"]: file["bytes"] for file in report["files"]}
        _lines(report)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not what prepare writes: delete {settings.output}, or name another "
            "--output."
        ) from error
    missing = [
        name
        for name, size in sizes.items()
        if not tf.io.gfile.exists(file := os.path.join(settings.output, name))
        or size_of(file) != size
    ]
    if missing:
        raise ValueError(
            f"{settings.output} lacks {listed(missing, 3)}, or has it in another size than its "
            f"{REPORT} says: delete the directory and start again."
        )
    return report


def _lines(report: Mapping[str, Any]) -> list[str]:
    """What became of the documents, for people."""
    rows = [("read", report["documents_read"])]
    rows += [(f"left out, {REASONS[key]}", count) for key, count in report["dropped"].items()]
    rows += [(f"kept, {kind}", report[key]["documents"]) for key, kind in _KINDS.items()]
    width = len(f"{report['documents_read']:,}")
    lines = [f"  {count:{width},}  {what}" for what, count in rows if count]
    sizes = ", ".join(
        f"{report[key]['bytes'] / 1e6:,.1f} MB in {report[key]['sentences']:,} sentences {kind}"
        for key, kind in _KINDS.items()
        if report[key]["documents"]
    )
    return ["Documents:", *lines, f"Text: {sizes}."]


_KINDS = {"train": "to train on", "held_out": "held out"}


def _print(settings: PreparationSettings, report: Mapping[str, Any]) -> None:
    print("\n".join(_lines(report)))
    flags = {"input": os.path.join(settings.output, "train-*"), "input_format": "google"}
    if report["held_out"]["documents"]:
        flags["eval_input"] = os.path.join(settings.output, "held_out-*")
    else:
        flags["held_out_fraction"] = "0"
    given = " ".join(shlex.quote(f"--{name}={value}") for name, value in flags.items())
    print(f"Next:\n  python -m bert_tf.pretrain {given}")
