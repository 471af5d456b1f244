"""What is said where nothing is at a path, and checks for it that do not load TensorFlow.

Paths on other file systems, and names of the hub, are left to who reads them.
"""

import glob
import os
import re
from collections.abc import Iterable

from .untrusted import near_name

HUB_SCHEME = "hf://"
_PART = "[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
#: OWNER/NAME[@REVISION], behind the scheme.
HUB_NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9._/-]{{0,199}}))?")
# Rows in memory, standard input, another file system, ARCHIVE.zip/MEMBER.
_NO_FILE = re.compile(r"<.*>|-|.*://.*|.*\.zip/.*", re.DOTALL)


def corpus(pattern: str) -> str:
    """The sentence where no file of text is."""
    return (
        f"No file matches {pattern!r}{near_name(pattern)}: give paths or globs of text files, "
        "separated by commas."
    )


def file(path: str, what: str) -> str:
    """The sentence where a file is not, which is ``what``."""
    return f"There is no file at {path}: expected {what}{near_name(path)}."


def checkpoint(path: str) -> str:
    """The sentence where no weights are."""
    return (
        f"There is no checkpoint at {path}: expected a directory, the prefix of a TensorFlow "
        "checkpoint (DIR/bert_model.ckpt), a .keras file, or hf://OWNER/NAME of the Hugging Face "
        f"hub{_guess(path)}; docs/weights.md says where released weights are."
    )


def _guess(path: str) -> str:
    """What a path may mean on the hub.

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
    """Refuses paths at which nothing is, before anything that takes seconds.

    Args:
        texts: paths or globs of a corpus.
        files: paths of single files; those that are ``None`` or empty are not given.
        checkpoints: directories, files, or prefixes of TensorFlow checkpoints.
        output: a directory; where it is there, a run may be resumed whose input is gone by now.

    Raises:
        ValueError: one of them is not there.
    """
    if output and os.path.isdir(output):
        return
    for pattern in texts:
        if not (_is_elsewhere(pattern) or os.path.exists(pattern) or _matches(pattern)):
            raise ValueError(corpus(pattern))
    for path in filter(None, files):
        if not (_NO_FILE.fullmatch(path) or os.path.lexists(path)):
            raise ValueError(file(path, "a text file"))
    for path in filter(None, checkpoints):
        if not (_is_elsewhere(path) or os.path.lexists(path) or _matches(f"{glob.escape(path)}.*")):
            raise ValueError(checkpoint(path))


def _is_elsewhere(path: str) -> bool:
    # TensorFlow's globs know a backslash, Python's do not.
    return "://" in path or "\\" in path


def _matches(pattern: str) -> bool:
    return next(glob.iglob(pattern, include_hidden=True), None) is not None
