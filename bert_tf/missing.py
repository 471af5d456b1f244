"""What is said where nothing is at a path, and checks for it that do not load TensorFlow.

Paths on other file systems, and names of the hub, are left to who reads them.
"""

import glob
import os
import re
from collections.abc import Iterable

from .untrusted import near_name

# Rows in memory, standard input, another file system, ARCHIVE.zip/MEMBER.
_NO_FILE = re.compile(r"<.*>|-|.*://.*|.*\.zip/.*", re.DOTALL)
# Another file system, and what may be meant as a name of the hub, which is guessed later.
_NO_CHECKPOINT = re.compile(r".*://.*|[\w.-]+/[\w.-]+|bert-[\w-]+", re.DOTALL)


def corpus(pattern: str) -> str:
    """The sentence where no file of text is."""
    return (
        f"No file matches {pattern!r}{near_name(pattern)}: give paths or globs of text files, "
        "separated by commas."
    )


def file(path: str, what: str) -> str:
    """The sentence where a file is not, which is ``what``."""
    return f"There is no file at {path}: expected {what}{near_name(path)}."


def checkpoint(path: str, guess: str = "") -> str:
    """The sentence where no weights are; ``guess``: what of the hub may be meant."""
    return (
        f"There is no checkpoint at {path}: expected a directory, the prefix of a TensorFlow "
        "checkpoint (DIR/bert_model.ckpt), a .keras file, or hf://OWNER/NAME of the Hugging Face "
        f"hub{guess}; docs/weights.md says where released weights are."
    )


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
        if "://" not in pattern and not (os.path.exists(pattern) or glob.glob(pattern)):
            raise ValueError(corpus(pattern))
    for path in filter(None, files):
        if not (_NO_FILE.fullmatch(path) or os.path.lexists(path)):
            raise ValueError(file(path, "a text file"))
    for path in filter(None, checkpoints):
        is_prefix = bool(glob.glob(f"{glob.escape(path)}.*"))
        if not (_NO_CHECKPOINT.fullmatch(path) or os.path.lexists(path) or is_prefix):
            raise ValueError(checkpoint(path))
