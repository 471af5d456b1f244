"""A mutated file is read as it was, or refused in one sentence, whatever is in it."""

import os
import random
import resource
import shutil
import signal

import pytest
import tensorflow as tf

from bert_tf.untrusted import reason

from .originals import FORMATS, mutate

MUTATIONS = int(os.environ.get("BERT_TF_MUTATIONS", "10"))
_LONGEST_S, _MOST_BYTES = 60, 2 << 30


@pytest.fixture(autouse=True)
def bounds():
    """What waits for ever is stopped; the system refuses memory far beyond what is held."""

    def stop(*_):
        raise AssertionError(f"it took more than {_LONGEST_S} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + _MOST_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)
    signal.signal(signal.SIGALRM, before)


SLOW = {
    "fine_tuned": pytest.mark.slow,
    "corpora": pytest.mark.slow,
    "pytorch": [pytest.mark.slow, pytest.mark.parity],
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in FORMATS])
def test_a_sentence_or_what_it_was(tmp_path, name):
    form = FORMATS[name]
    if name == "pytorch":
        pytest.importorskip("torch")
    form.make(tmp_path)
    variants = sorted(path for path in tmp_path.iterdir())
    files = {path: files_below(path) for path in variants}
    originals = {path: form.read(path) for path in variants}
    refused = 0
    for number in range(MUTATIONS * form.times):
        rng = random.Random(f"{name}:{number}")
        path = rng.choice(variants)
        changes = mutate(form, rng, files[path])
        try:
            signal.alarm(_LONGEST_S)
            for file, change in changes.items():
                put(path / file, change)
            refused += check(form, path, originals[path])
        except BaseException as error:
            error.add_note(f"mutation {number} of {name}: {path.name}, {', '.join(changes)}")
            raise
        finally:
            signal.alarm(0)
            for file in changes:
                put(path / file, files[path].get(file, "missing"))
    assert refused or name in ("corpora", "tokenizer"), "the mutations reach nothing"


def check(form, path, original):
    """Whether what was mutated is refused; each sentence about it is fit to be shown."""
    try:
        value, said = form.read(path)
    except (ValueError, OSError, tf.errors.OpError) as error:
        assert 0 < len(str(error)) < 4000, f"{len(str(error))} characters"
        check_sentence(reason(error))
        return True
    for sentence in said:
        check_sentence(sentence)
    if form.sealed:
        assert repr(value) == repr(original[0]), "a change was not told"
    return False


def check_sentence(sentence):
    """It is one line, not long, without what a terminal obeys."""
    assert sentence.strip() and len(sentence) < 4000, sentence[:100]
    odd = {c for c in sentence if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000}
    assert not odd | {*sentence} & {"\u202e"}, f"control characters in {sentence[:300]!r}"


def files_below(folder):
    """The contents of all files, by their paths below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def put(path, change):
    """Writes a file, or puts something else in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if isinstance(change, bytes):
        path.write_bytes(change)
    elif change == "folder":
        path.mkdir()
    elif change == "fifo":
        os.mkfifo(path)
    elif change != "missing":
        path.symlink_to(change)


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (ValueError("a.json is not JSON."), True),
        (ValueError("a" * 10_000), False),
        (ValueError(""), False),
        (ValueError("\x1b[2J"), True),  # escaped where it is shown
        (KeyError("a"), False),
        (MemoryError(), False),
    ],
)
def test_what_is_a_refusal(tmp_path, error, is_refusal):
    form = FORMATS["conll"]

    def read(path):
        raise error

    changed = type(form)(form.make, read, form.mutators)
    if is_refusal:
        assert check(changed, tmp_path, None)
        return
    with pytest.raises((AssertionError, type(error))):
        check(changed, tmp_path, None)
