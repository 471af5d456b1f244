"""Paths: which are this machine's, what can be read there, the sentences where nothing is.

Nothing here loads TensorFlow for a local path.
"""

import glob
import os
import re
from collections.abc import Collection, Iterable
from typing import Any

from .checkpoint_formats import FORMATS, INDEX, UNSUPPORTED_FILES, Format
from .wording import listed, near_name, one_line

HUB_SCHEME = "hf://"
_FILE_SCHEME = "file://"
_SHIPPED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
_PART = "[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
#: OWNER/NAME[@REVISION], behind the scheme.
HUB_NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9._/-]{{0,199}}))?")
_POINTER = b"version https://git-lfs.github.com/spec/v1"
# Rows in memory, standard input.
_NO_FILE = re.compile(r"<.*>|-", re.DOTALL)


def local_path(path: str) -> str | None:
    """The path as this machine's own file systems have it; ``None`` where it is on another.

    >>> local_path("file:///a/b"), local_path("a/b"), local_path("gs://bucket/b")
    ('/a/b', 'a/b', None)
    """
    if path.startswith(("http://", "https://")):
        raise ValueError(
            f"{path} is an address of the web: download it and name the file, or name weights of "
            f"the Hugging Face hub as {HUB_SCHEME}OWNER/NAME."
        )
    path = path.removeprefix(_FILE_SCHEME)
    return None if "://" in path else path


def absolute_path(path: str) -> str:
    """The same path for a process that may begin in another folder.

    >>> absolute_path("gs://bucket/b"), os.path.isabs(absolute_path("a/b"))
    ('gs://bucket/b', True)
    """
    local = local_path(path)
    return path if local is None else os.path.abspath(local)


def resolve_model(path: str) -> str:
    """Directory of the model that this library ships under a name, else the path itself.

    A file or directory at the path comes first.

    >>> os.path.basename(resolve_model("tiny")), resolve_model("runs/mine")
    ('tiny', 'runs/mine')
    """
    shipped = os.path.join(_SHIPPED, path)
    is_name = path == os.path.basename(path) and bool(path) and not path.startswith(".")
    if is_name and not os.path.lexists(path) and os.path.isdir(shipped):
        return shipped
    return path


def check_readable(path: str) -> None:
    """Refuses a pipe or a device, which may be read for ever, and what Git left of a file."""
    local = local_path(path)
    if local is None or not os.path.exists(local):
        return
    if not os.path.isfile(local) and not os.path.isdir(local):
        raise ValueError(f"{path} is a pipe or a device: expected a file.")
    if starts_with(path, _POINTER):
        raise ValueError(f"{path} is Git LFS's pointer to the file, not the file: git lfs pull it.")


def is_file(path: str) -> bool:
    """Returns whether a file is at the path, on any TensorFlow file system."""
    local, file_system = _file_system(path)
    return bool(file_system.exists(local)) and not file_system.isdir(local)


def is_folder(path: str) -> bool:
    """Returns whether a folder is at the path, on any TensorFlow file system."""
    local, file_system = _file_system(path)
    return bool(file_system.isdir(local))


def starts_with(path: str, content: bytes) -> bool:
    """Returns whether a file is at the path and begins with the content, as ``is_file``."""
    local, file_system = _file_system(path)
    if not is_file(path) or (file_system is os.path and not os.path.isfile(local)):
        return False  # of a pipe the first bytes may never come
    with open(local, "rb") if file_system is os.path else file_system.GFile(local, "rb") as file:
        return bool(file.read(len(content)) == content)


def _file_system(path: str) -> tuple[str, Any]:
    """A path with the functions for it: ``os.path``, or TensorFlow's, which load TensorFlow."""
    local = local_path(path)
    if local is not None:
        return local, os.path
    import tensorflow as tf

    return path, tf.io.gfile


def missing_text_message(pattern: str) -> str:
    """The sentence where no file of text is."""
    return (
        f"No file matches {pattern!r}{near_name(pattern)}: give paths or globs of text files, "
        "separated by commas."
    )


def check_file(path: str, what: str) -> None:
    """Refuses a path at which no file is; ``what`` is expected there."""
    check_readable(path)
    if is_folder(path):
        if any(is_file(os.path.join(path, name)) for name in ("state.json", "dataset_dict.json")):
            raise ValueError(
                f"{path} is a data set of Hugging Face, as save_to_disk writes it: name its .arrow "
                "file where it has but one, or write a file, as by "
                'datasets.load_from_disk(PATH)["train"].to_parquet("train.parquet").'
            )
        raise ValueError(f"{path} is a folder: expected {what}; name one that is in it.")
    if not is_file(path):
        raise ValueError(f"There is no file at {path}: expected {what}{near_name(path)}.")


def missing_checkpoint_message(path: str) -> str:
    """The sentence where no weights are."""
    folder = glob.escape(os.path.dirname(local_path(path) or os.sep))
    prefixes = [name.removesuffix(".index") for name in glob.glob("*.index", root_dir=folder)]
    there = f", and its folder has the prefixes {listed(sorted(prefixes))}" if prefixes else ""
    return (
        f"There is no checkpoint at {path}{there}: expected a directory, the prefix of a "
        "TensorFlow checkpoint (DIR/bert_model.ckpt), a .keras file, hf://OWNER/NAME of the "
        f"Hugging Face hub{_guess(path)}, or tiny, which bert_tf ships; docs/guides/weights.md "
        "says where released weights are."
    )


def unknown_checkpoint_message(path: str, names: Collection[str] | None) -> str:
    """The sentence where something is, and no checkpoint; ``names`` are a directory's files."""
    if names and "flags.json" in names:
        return (
            f"{path} is of a run that has kept no model yet: give the run's command again, "
            "which continues it, and use the directory when it has ended."
        )
    if remedy := hint(path, names):
        return f"{path} is no checkpoint that is read{remedy}."
    there = "a file: name the directory that it lies in"
    if names is not None:
        there = f"a directory with {listed(sorted(names), 8) if names else 'nothing'} in it"
    expected = "; ".join(form.files for form in FORMATS)
    return f"{path} is not a checkpoint of a known format: expected {expected}; it is {there}."


def hint(path: str, names: Collection[str] | None) -> str:
    """What a file is, or one of a directory's ``names``, and the way out; "" where it is unknown.

    >>> hint("m", ["config.json", "model.bin"])[:30]
    ': its model.bin is CTranslate2'
    """
    folder, file = os.path.split(path) if names is None else (path, "")
    there = [file] if names is None else [name.rstrip("/") for name in names]
    for pattern, description in UNSUPPORTED_FILES:
        if found := [name for name in there if re.fullmatch(pattern, name)]:
            name = max(found, key=lambda name: (len(name), name))  # of numbers the last
            which = "it" if names is None else f"its {one_line(name)}"
            return f": {which} is {description.format(path=folder or '.', name=one_line(name))}"
    return ""


def check_checkpoint(path: str) -> None:
    """Refuses a path of this machine that looks like no checkpoint."""
    directory = resolve_model(path).rstrip("/") or path[:1]
    local = local_path(directory)
    if local is None:
        return
    names = os.listdir(local) if os.path.isdir(local) else None
    if any(matches(form, local, names) for form in FORMATS):
        return
    if not os.path.exists(local):
        raise ValueError(missing_checkpoint_message(path))  # tiny/ is not tiny
    raise ValueError(unknown_checkpoint_message(directory, names))


def matches(form: Format, path: str, names: Collection[str] | None) -> bool:
    """True if a path has a format's files; ``names`` are those in it, of a directory."""
    if form.tensor and is_file(path + INDEX):
        return True
    if names is None:
        is_ended = bool(form.ending) and path.endswith(form.ending) and is_file(path)
        return is_ended or (bool(form.begins) and starts_with(path, form.begins))
    entries_found = [any(re.fullmatch(entry, name) for name in names) for entry in form.entries]
    return bool(entries_found) and all(entries_found)


def _guess(path: str) -> str:
    """Names on the hub that a path may mean.

    >>> _guess("google-bert/bert-base-uncased"), _guess("runs/mine.keras")
    (' (did you mean hf://google-bert/bert-base-uncased?)', '')
    """
    owner, _, name = path.partition("/")
    if not name and re.fullmatch(r"bert-(base|large)-[a-z-]+", owner):
        path = f"google-bert/{path}"
    elif not HUB_NAME.fullmatch(path) or os.path.exists(owner) or "." in name:
        return ""
    return f" (did you mean {HUB_SCHEME}{path}?)"


def check_inputs(
    *,
    texts: Iterable[str] = (),
    files: Iterable[str | None] = (),
    checkpoints: Iterable[str | None] = (),
    output: str | None = None,
) -> None:
    """Refuses paths at which nothing is, or no checkpoint, before anything that takes seconds.

    ``texts`` are paths or globs of a corpus. Where the directory ``output`` is there, nothing is
    refused: a run may be resumed whose input is gone by now.
    """
    if output and os.path.isdir(output):
        return
    for pattern in texts:
        exists = _is_elsewhere(pattern) or os.path.exists(pattern)
        if not (exists or any(glob.iglob(pattern, include_hidden=True))):
            raise ValueError(missing_text_message(pattern))
    for path in filter(None, files):
        if local_path(path) is not None and not _NO_FILE.fullmatch(path):
            check_file(path, "a text file")
    for path in filter(None, checkpoints):
        check_checkpoint(path)


def _is_elsewhere(path: str) -> bool:
    # TensorFlow's globs know a backslash, Python's do not.
    return local_path(path) != path or "\\" in path
