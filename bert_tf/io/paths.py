"""Local, remote and Hugging Face Hub paths, and error messages for missing files.

These functions import TensorFlow only for remote paths.
"""

import contextlib
import contextvars
import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from .checkpoint_formats import FORMATS, INDEX, UNSUPPORTED_FILES, Format
from .messages import listed, near_name, one_line

HUB_SCHEME = "hf://"
_FILE_SCHEME = "file://"
_SHIPPED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
_PART = "[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
#: OWNER/NAME[@REVISION], after the scheme.
HUB_NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9._/-]{{0,199}}))?")
_POINTER = b"version https://git-lfs.github.com/spec/v1"
# Names of data in memory, and standard input.
_NO_FILE = re.compile(r"<.*>|-", re.DOTALL)
_NOTHING: Mapping[str, str] = MappingProxyType({})
_named_files: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "named_files", default=_NOTHING
)


def local_path(path: str) -> str | None:
    """Returns the path on the local file system, or ``None`` for a path on another file system.

    >>> local_path("file:///a/b"), local_path("a/b"), local_path("gs://bucket/b")
    ('/a/b', 'a/b', None)
    """
    if path.startswith(("http://", "https://")):
        raise ValueError(
            f"{path}: expected a path, got a URL. Download the file, or use {HUB_SCHEME}OWNER/NAME "
            "for a model of the Hugging Face Hub."
        )
    path = _named_files.get().get(path, path).removeprefix(_FILE_SCHEME)
    return None if "://" in path else path


@contextlib.contextmanager
def named_file(name: str, path: str) -> Iterator[None]:
    """Makes a local file available under a name, which messages contain instead of its path.

    >>> with named_file("standard input", "/tmp/copy"):
    ...     local_path("standard input")
    '/tmp/copy'
    """
    token = _named_files.set({**_named_files.get(), name: path})
    try:
        yield
    finally:
        _named_files.reset(token)


def absolute_path(path: str) -> str:
    """Returns a path that is valid in any working directory.

    >>> absolute_path("gs://bucket/b"), os.path.isabs(absolute_path("a/b"))
    ('gs://bucket/b', True)
    """
    local = local_path(path)
    return path if local is None else os.path.abspath(local)


def resolve_model(path: str) -> str:
    """Returns the directory of a model shipped with bert_tf, such as ``tiny``, or the path.

    An existing file or directory takes precedence.

    >>> os.path.basename(resolve_model("tiny")), resolve_model("runs/mine")
    ('tiny', 'runs/mine')
    """
    shipped = os.path.join(_SHIPPED, path)
    is_name = path == os.path.basename(path) and bool(path) and not path.startswith(".")
    if is_name and not os.path.lexists(path) and os.path.isdir(shipped):
        return shipped
    return path


def check_readable(path: str) -> None:
    """Checks that a path is not a pipe, a device or a Git LFS pointer."""
    local = local_path(path)
    if local is None or not os.path.exists(local):
        return
    if not os.path.isfile(local) and not os.path.isdir(local):
        raise ValueError(f"{path}: expected a file, got a pipe or a device.")
    if starts_with(path, _POINTER):
        raise ValueError(f"{path}: expected the file, got a Git LFS pointer. Run git lfs pull.")


def is_file(path: str) -> bool:
    """Whether a path is a file, on any TensorFlow file system."""
    local, file_system = _file_system(path)
    return bool(file_system.exists(local)) and not file_system.isdir(local)


def is_folder(path: str) -> bool:
    """Whether a path is a directory, on any TensorFlow file system."""
    local, file_system = _file_system(path)
    return bool(file_system.isdir(local))


def starts_with(path: str, content: bytes) -> bool:
    """Whether a path is a file that starts with ``content``, on any TensorFlow file system."""
    local, file_system = _file_system(path)
    if not is_file(path) or (file_system is os.path and not os.path.isfile(local)):
        return False  # Reading from a pipe could block forever.
    with open(local, "rb") if file_system is os.path else file_system.GFile(local, "rb") as file:
        return bool(file.read(len(content)) == content)


def _file_system(path: str) -> tuple[str, Any]:
    """Returns the path and the file system's module: ``os.path`` or ``tf.io.gfile``."""
    local = local_path(path)
    if local is not None:
        return local, os.path
    import tensorflow as tf

    return path, tf.io.gfile


def missing_text_message(pattern: str) -> str:
    """Returns the error message for a pattern of text files that matches no file."""
    return (
        f"No file matches {pattern!r}{near_name(pattern)}. Pass comma-separated paths or glob "
        "patterns of text files."
    )


def check_file(path: str, expected: str) -> None:
    """Checks that a path is a file; ``expected`` describes the file in errors."""
    check_readable(path)
    if is_folder(path):
        if any(is_file(os.path.join(path, name)) for name in ("state.json", "dataset_dict.json")):
            raise ValueError(
                f"{path}: expected {expected}, got a directory from datasets' save_to_disk. Pass "
                'its .arrow file, or run load_from_disk(PATH)["train"].to_parquet(FILE).'
            )
        raise ValueError(f"{path}: expected {expected}, got a directory. Pass a file in it.")
    if not is_file(path):
        raise ValueError(f"No such file: {path}{near_name(path)}. Pass the path of {expected}.")


def missing_checkpoint_message(path: str) -> str:
    """Returns the error message for a checkpoint path that does not exist."""
    folder = glob.escape(os.path.dirname(local_path(path) or os.sep))
    prefixes = [name.removesuffix(".index") for name in glob.glob("*.index", root_dir=folder)]
    found = f" Its directory has the prefixes {listed(sorted(prefixes))}." if prefixes else ""
    return (
        f"No such checkpoint: {path}{_guess(path)}.{found} Expected a directory, a prefix such as "
        "DIR/bert_model.ckpt, a .keras file, hf://OWNER/NAME, or tiny. See docs/guides/weights.md."
    )


def unknown_checkpoint_message(path: str, names: Collection[str] | None) -> str:
    """Returns the error message for a path in an unknown format; for ``names``, see ``hint``."""
    if names and "flags.json" in names:
        return f"{path} contains a run without a saved model. Rerun the command to resume it."
    if remedy := hint(path, names):
        return f"{path} is not a supported checkpoint{remedy}."
    found = "a file. Pass its directory"
    if names is not None:
        found = f"a directory with {listed(sorted(names), 8)}" if names else "an empty directory"
    expected = "; ".join(form.files for form in FORMATS)
    return f"{path} is not a supported checkpoint: expected {expected}; got {found}."


def hint(path: str, names: Collection[str] | None) -> str:
    """Returns a description of an unsupported file and the remedy, or an empty string.

    ``names`` are the names in the directory ``path``, or ``None`` for a file.

    >>> hint("m", ["config.json", "model.bin"])[:39]
    ': its model.bin is a CTranslate2 model.'
    """
    folder, file = os.path.split(path) if names is None else (path, "")
    candidates = [file] if names is None else [name.rstrip("/") for name in names]
    for pattern, description in UNSUPPORTED_FILES:
        if found := [name for name in candidates if re.fullmatch(pattern, name)]:
            name = max(found, key=lambda name: (len(name), name))  # the highest number
            subject = "it" if names is None else f"its {one_line(name)}"
            return f": {subject} is {description.format(path=folder or '.', name=one_line(name))}"
    return ""


def check_checkpoint(path: str) -> None:
    """Checks that a local path has the files of a checkpoint."""
    directory = resolve_model(path).rstrip("/") or path[:1]
    local = local_path(directory)
    if local is None:
        return
    names = os.listdir(local) if os.path.isdir(local) else None
    if any(matches(form, local, names) for form in FORMATS):
        return
    if not os.path.exists(local):
        raise ValueError(missing_checkpoint_message(path))
    raise ValueError(unknown_checkpoint_message(directory, names))


def matches(form: Format, path: str, names: Collection[str] | None) -> bool:
    """Whether a path has a format's files; for ``names``, see ``hint``."""
    if form.tensor and is_file(path + INDEX):
        return True
    if names is None:
        has_suffix = bool(form.suffix) and path.endswith(form.suffix) and is_file(path)
        return has_suffix or (bool(form.magic) and starts_with(path, form.magic))
    entries_found = [any(re.fullmatch(entry, name) for name in names) for entry in form.entries]
    return bool(entries_found) and all(entries_found)


def _guess(path: str) -> str:
    """Returns a suggestion of a model on the hub for a missing path, or an empty string.

    >>> _guess("google-bert/bert-base-uncased"), _guess("runs/mine.keras")
    (' (did you mean hf://google-bert/bert-base-uncased?)', '')
    """
    owner, _, name = path.partition("/")
    if owner in ("bert-base", "bert-large") and not name:
        path = f"google-bert/{owner}-uncased"
    elif not name and re.fullmatch(r"bert-(base|large)-[a-z-]+", owner):
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
    """Checks the input paths of a command before TensorFlow is imported.

    Args:
        texts: Paths and glob patterns of a corpus.
        files: Paths of text files.
        checkpoints: Paths of checkpoints.
        output: The output directory. If this directory exists, nothing is checked, because a
            resumed run may not need its inputs.

    Raises:
        ValueError: If a path does not exist or is not a checkpoint.
    """
    if output and os.path.isdir(output):
        return
    for pattern in texts:
        # Only TensorFlow's glob patterns support backslashes.
        if local_path(pattern) != pattern or "\\" in pattern or os.path.exists(pattern):
            continue
        if not any(glob.iglob(pattern, include_hidden=True)):
            raise ValueError(missing_text_message(pattern))
    for path in filter(None, files):
        if local_path(path) is not None and not _NO_FILE.fullmatch(path):
            check_file(path, "a text file")
    for path in filter(None, checkpoints):
        check_checkpoint(path)
