"""``python -m bert_tf.prepare`` on Apache Beam, on real text with planted duplicates."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.pipelines import sources
from bert_tf.preparation import documents
from tests.conftest import WORKERS, needs_beam


def command(folder, name, *more):
    return [
        sys.executable, "-m", "bert_tf.prepare", f"--input={folder}/{name}/*",
        f"--output={folder}/{name}-prepared", *more,
    ]  # fmt: skip


def write_inputs(data_dir, folder):
    """Writes ``plain``, real text, and ``planted``, the same with copies; gives their numbers."""
    (folder / "plain").mkdir()
    for name in ("enwiki/wiki_00", "enwiki/wiki_01", "books/the-duel.md", "books/omega.md"):
        shutil.copy(data_dir / "corpora" / f"{name}.gz", folder / "plain")
    shutil.copytree(folder / "plain", folder / "planted")
    text = gzip.decompress((folder / "plain" / "wiki_00.gz").read_bytes()).decode()
    elements = re.findall(r"<doc .*?</doc>\n", text, re.DOTALL)
    long = [element for element in elements if 5_000 < len(element) < 50_000]
    copies = [*long[:3], *(_edited(original, folder) for original in long[3:7])]
    (folder / "planted" / "copies").write_text("".join(copies))
    return 3, len(copies) - 3


def _edited(element, folder):
    """A near copy that has a larger identity than its original, so that the original is kept."""

    def identity(text):
        path = folder / "one.txt"
        path.write_text(text)
        corpus = sources.open_corpus(str(path), input_format="wikiextractor")
        return documents.identity(documents.clean("\n".join(corpus.sentences())).encode())

    for number in range(100):
        edited = element.replace(" the ", f" Edit{number} ", 1)
        if identity(edited) > identity(element):
            return edited
    raise AssertionError("no edit has a larger identity")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.txt")}


def start_and_stop(arguments, output, number):
    """Starts a command, and stops it by a signal when it has begun to write documents."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if list((output / "work").glob("documents-*")):
            break
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    return process.returncode, error


@needs_beam
@pytest.mark.slow
def test_real_text_with_planted_duplicates_stopped_twice_is_the_text_without(data_dir, tmp_path):
    exact, near = write_inputs(data_dir, tmp_path)
    plain, planted = tmp_path / "plain-prepared", tmp_path / "planted-prepared"
    done = subprocess.run(command(tmp_path, "plain"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((plain / "report.json").read_text())
    assert f"{report['train']['documents']:,}  kept, to train on\n" in done.stdout

    arguments = command(tmp_path, "planted", *WORKERS)
    status, error = start_and_stop(arguments, planted, signal.SIGINT)
    assert (status, error) == (130, "\nInterrupted.\n")
    status, error = start_and_stop(command(tmp_path, "planted"), planted, signal.SIGKILL)
    assert (status, error) == (-signal.SIGKILL, "")
    assert not (planted / "report.json").exists()
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

    found = json.loads((planted / "report.json").read_text())
    assert found["documents_read"] == report["documents_read"] + exact + near
    assert found["dropped"]["exact_duplicate"] == report["dropped"]["exact_duplicate"] + exact
    assert found["dropped"]["near_duplicate"] == report["dropped"]["near_duplicate"] + near
    assert contents(planted) == contents(plain) != {}
    assert found["files"] == report["files"]
    assert sorted(os.listdir(planted)) == [
        ".lock", "held_out-00000-of-00001.txt", "manifest.json", "report.json",
        "train-00000-of-00001.txt",
    ]  # fmt: skip
