"""``hf://OWNER/NAME[@REVISION]``: a model of the Hugging Face hub, as a directory of its files.

The package ``huggingface_hub`` finds the directory in the machine's cache of the hub, which other
programs share. What the cache has is taken as it is there, without asking the hub.

No file is fetched but those that the readers know by their names: JSON, the vocabulary and the
weights, of these the form that is safest to read.
"""

import contextlib
import fnmatch
import importlib
import os
import re
from collections.abc import Iterable
from typing import Any

from bert_tf.paths import HUB_NAME, HUB_SCHEME
from bert_tf.untrusted import MAX_JSON_BYTES, listed, quote, reason

from . import hugging_face, sentence_transformers, tokenizer_files, torch_files

_COMMIT = re.compile("[0-9a-f]{40}")
_TEXTS = (
    *(hugging_face.CONFIG, *tokenizer_files.FILES, *sentence_transformers.FILES),
    *(name for name in hugging_face.FILES if name.endswith(".json")),
)
# The forms of the weights, the safest to read first.
_FORMS = (
    (hugging_face.WEIGHTS, "model-?????-of-?????.safetensors"),
    (hugging_face.TF_WEIGHTS,),
    (hugging_face.PICKLED, "pytorch_model-?????-of-?????.bin"),
)


def is_name(path: str) -> bool:
    """Whether a path is the name of a model on the hub."""
    return path.startswith(HUB_SCHEME)


def directory_of(path: str, allow_pickle: bool = False) -> str:
    """The directory of a model's files on this machine, fetched where they are not there yet."""
    match = HUB_NAME.fullmatch(path.removeprefix(HUB_SCHEME).rstrip("/"))
    if match is None or ".." in path or "--" in match[1] or "//" in (match[2] or ""):
        raise ValueError(
            f"{quote(path)} names no model of the Hugging Face hub: expected hf://OWNER/NAME or "
            "hf://OWNER/NAME@REVISION, such as hf://google-bert/bert-base-uncased."
        )
    name, revision = match[1], match[2] or "main"
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    by_hand = (
        f"or bring the files of {endpoint}/{name} ({hugging_face.CONFIG}, {hugging_face.WEIGHTS}, "
        f"{tokenizer_files.VOCABULARY}, tokenizer*.json) into a directory, and name the directory."
    )
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ValueError(
            f"{path} is found and fetched by huggingface_hub, which is not installed: "
            f"pip install 'bert_tf[hub]', {by_hand}"
        ) from error
    found = _find(hub, name, revision)
    if found is not None and _is_whole(found, allow_pickle):
        # Another program's may be without the files that make a sentence's embedding.
        revision = os.path.basename(found)
        modules = sentence_transformers.MODULES
        if hub.try_to_load_from_cache(name, modules, revision=revision) is not None:
            return found  # they are there, or known to be nowhere
    try:
        return _fetch(hub, path, name, revision, allow_pickle, seconds=30 if found is None else 5)
    except Exception as error:  # of the network, in a version's own classes
        # Weights without a vocabulary, or a pickle: their reader says what is to be said.
        if found is not None and hugging_face.is_checkpoint(found):
            return found
        if isinstance(error, _NothingToReadError):
            raise ValueError(str(error)) from error
        raise ValueError(
            f"{path} is not in {hub.constants.HF_HUB_CACHE}, and cannot be fetched "
            f"({_why(error)}): try again, {by_hand}"
        ) from error


def _find(hub: Any, name: str, revision: str) -> str | None:
    """The snapshot in the cache, of any number of files; ``None`` where there is none."""
    with contextlib.suppress(OSError, ValueError):
        # Which other files are needed says _is_whole.
        found = hub.snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=hugging_face.CONFIG
        )
        if _COMMIT.fullmatch(os.path.basename(found)):
            return found
    return None


def _is_whole(path: str, allow_pickle: bool) -> bool:
    """Whether a snapshot has config, weights that may be read, and a vocabulary.

    Other programs put into it what they read themselves, such as the tokenizer alone.
    """
    folders = [path]
    if sentence_transformers.is_checkpoint(path):
        folders += [os.path.join(path, name) for name in os.listdir(path)]
    for folder in folders:
        weights = os.path.basename(hugging_face.weights_file(folder) or hugging_face.PICKLED)
        needed = (hugging_face.CONFIG, weights)
        if weights.startswith(hugging_face.PICKLED) and not allow_pickle:
            continue
        has_pieces = any(
            os.path.exists(os.path.join(folder, name)) for name in tokenizer_files.VOCABULARIES
        )
        if has_pieces and all(os.path.exists(os.path.join(folder, name)) for name in needed):
            return True
    return False


class _NothingToReadError(Exception):
    """A model of the hub has no files that are read."""


def _fetch(
    hub: Any, path: str, name: str, revision: str, allow_pickle: bool, seconds: float
) -> str:
    """Brings the files that are read into the cache; gives their snapshot."""
    info = hub.HfApi(library_name="bert_tf").model_info(
        name, revision=revision, files_metadata=True, timeout=seconds
    )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    too_long = [
        file
        for file, size in sizes.items()
        if size > MAX_JSON_BYTES and os.path.basename(file) in _TEXTS
    ]
    read = _patterns((*_TEXTS, *_form(path, sizes, allow_pickle)))
    # By the revision's own name, so that the cache knows which commit it is. The file by which
    # weights are found comes last: who finds it after an interruption finds all.
    found = hub.snapshot_download(
        name,
        revision=revision,
        allow_patterns=read,
        ignore_patterns=[*too_long, *_patterns(hugging_face.FILES)],
    )
    commit = os.path.basename(found)
    hub.snapshot_download(name, revision=commit, allow_patterns=read, ignore_patterns=too_long)
    if not sentence_transformers.is_checkpoint(found):
        # The cache learns that the hub has no such file.
        with contextlib.suppress(hub.errors.EntryNotFoundError):
            hub.hf_hub_download(name, sentence_transformers.MODULES, revision=commit)
    return found


def _form(path: str, names: Iterable[str], allow_pickle: bool) -> tuple[str, ...]:
    """The form that is safest to read of those that a model's files are in."""
    names = [*names]
    for form in _FORMS if allow_pickle else _FORMS[:-1]:
        folders = {
            os.path.dirname(name)
            for pattern in _patterns(form)
            for name in fnmatch.filter(names, pattern)
        }
        if any(os.path.join(folder, hugging_face.CONFIG) in names for folder in folders):
            return form
    raise _NothingToReadError(
        f"{path} has {listed(sorted(names), 12)}: expected {hugging_face.CONFIG} with "
        f"{hugging_face.WEIGHTS} or {hugging_face.TF_WEIGHTS}; of "
        f"{hugging_face.PICKLED}, {torch_files.what_to_do(path)}."
    )


def _patterns(names: Iterable[str]) -> list[str]:
    """The names at the top of a model, and in the folders of sentence-transformers' modules."""
    return [folder + name for folder in ("", "[0-9]_*/") for name in names]


def _why(error: Exception) -> str:
    """What a person needs of an error of huggingface_hub, which may be a page long."""
    kind = type(error).__name__
    if kind in ("RepositoryNotFoundError", "GatedRepoError"):
        return "there is no such model, or access to it is restricted: hf auth login"
    if kind == "RevisionNotFoundError":
        return "it has no such revision"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set"
    return f"{kind}: {reason(error, 300)}".rstrip(".")
