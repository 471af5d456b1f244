"""``hf://OWNER/NAME[@REVISION]``: a model of the Hugging Face hub, as a directory of its files.

The package ``huggingface_hub`` finds the directory in the machine's cache of the hub, which other
programs share. What the cache has is taken as it is there, without asking the hub.

No file is fetched but JSON, the vocabulary and the weights, of these the form that is safest to
read and what the config names; never code, and a pickle only where it is asked for.
"""

import contextlib
import fnmatch
import glob
import importlib
import os
import re
from collections.abc import Collection, Iterable
from typing import Any

from bert_tf.io.checkpoint_formats import CONFIG, FORMATS, SETFIT
from bert_tf.io.paths import HUB_NAME, HUB_SCHEME, hint, matches
from bert_tf.io.wording import quote, reason

from . import hugging_face, sentence_transformers, tokenizer_files
from .tensor_files import pickle_remedy

# What says how texts are read and what becomes of the states: the known first, then the rest.
_TEXT_FILES = (CONFIG, *tokenizer_files.FILES, *sentence_transformers.FILES, "*.json")
_MAX_FILES, _MAX_BYTES = 50, 64 << 20
# The forms of the weights, the safest to read first: a file, its index, its shards.
_FORMS = (hugging_face.WEIGHTS, hugging_face.TF_WEIGHTS, hugging_face.PICKLED)
# Files that change what a model computes, of which the cache has to know whether the hub has them.
_OPTIONAL_FILES = {sentence_transformers.MODULES, hugging_face.ADAPTER, *SETFIT}
_TIMEOUT_S = 10
_FOLDER = "[0-9]_[^/]*"  # of a module of sentence-transformers


def is_hub_path(path: str) -> bool:
    """True if a path is the name of a model on the hub."""
    return path.startswith(HUB_SCHEME)


def find_directory(path: str, allow_pickle: bool = False) -> tuple[str, Collection[str]]:
    """The directory of a model's files on this machine, fetched where they are not there yet.

    Also the names of the files that the hub has, where it was asked.
    """
    match = HUB_NAME.fullmatch(path.removeprefix(HUB_SCHEME).rstrip("/"))
    if match is None or ".." in path or "--" in match[1] or "//" in (match[2] or ""):
        raise ValueError(
            f"{quote(path)} names no model of the Hugging Face hub: expected hf://OWNER/NAME or "
            "hf://OWNER/NAME@REVISION, such as hf://google-bert/bert-base-uncased."
        )
    name, revision = match[1], match[2] or "main"
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    manual_remedy = (
        f"or bring the files of {endpoint}/{name} ({CONFIG}, {hugging_face.WEIGHTS}, "
        f"{tokenizer_files.VOCABULARY}, tokenizer*.json) into a directory, and name the directory."
    )
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ValueError(
            f"{path} is found and fetched by huggingface_hub, which is not installed: "
            f"pip install 'bert_tf[hub]', {manual_remedy}"
        ) from error
    snapshot = None
    with contextlib.suppress(OSError, ValueError):
        snapshot = hub.snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=CONFIG
        )
    if snapshot is not None and _is_complete(snapshot, allow_pickle):
        # Another program's may be without the files that make a sentence's embedding.
        commit = os.path.basename(snapshot)
        known = (
            hub.try_to_load_from_cache(name, pattern, revision=commit)
            for pattern in _OPTIONAL_FILES
        )
        if all(cached is not None for cached in known):
            return snapshot, ()  # they are there, or known to be nowhere
        revision = commit  # of the weights that are there
    try:
        fetched, names = _fetch(hub, name, revision, allow_pickle)
    except Exception as error:  # of the network, in a version's own classes
        # Weights without a vocabulary, or a pickle: their reader says what is to be said.
        if snapshot is not None and hugging_face.is_directory(snapshot):
            return snapshot, ()
        raise ValueError(
            f"{path} is not in {hub.constants.HF_HUB_CACHE}, and cannot be fetched "
            f"({_describe_error(error)}): try again, {manual_remedy}"
        ) from error
    if fetched is None:
        form = next((form for form in FORMATS if matches(form, "", names)), None)
        if form is not None and form.name != "huggingface":
            raise ValueError(
                f"{path} has {form.files}, which is not fetched: hf download {name} --local-dir "
                "DIR, and name DIR."
            )
        raise ValueError(
            f"{path} has no {CONFIG} with {hugging_face.WEIGHTS} or {hugging_face.TF_WEIGHTS} "
            f"beside it{hint(path, names)}; of {hugging_face.PICKLED}, {pickle_remedy(path)}."
        )
    return fetched, names


def _fetch(
    hub: Any, name: str, revision: str, allow_pickle: bool
) -> tuple[str | None, Collection[str]]:
    """Brings the files that are read into the cache; gives their snapshot, ``None`` without any.

    Also the names of all the files.
    """
    info = hub.HfApi().model_info(name, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}

    def fetch(names: Iterable[str], revision: str) -> str:
        patterns = [*map(glob.escape, names)]
        return str(hub.snapshot_download(name, revision=revision, allow_patterns=patterns))

    forms = _FORMS if allow_pickle else _FORMS[:-1]
    weights = next(filter(None, (_matching(sizes, _weight_patterns(form)) for form in forms)), ())
    text_files, remaining_bytes = [], _MAX_BYTES
    for text_file in _matching(sizes, _TEXT_FILES)[:_MAX_FILES]:
        remaining_bytes -= sizes[text_file]
        text_files += [text_file] if remaining_bytes >= 0 else []
    configs = [text_file for text_file in text_files if os.path.basename(text_file) == CONFIG]
    # By the revision's own name, so that the cache knows which commit it is.
    snapshot = fetch(text_files, revision)
    commit = os.path.basename(snapshot)
    for config in configs:
        named = hugging_face.read_weights_name(os.path.join(snapshot, os.path.dirname(config)))
        weights = (*weights, *_matching(sizes, _weight_patterns(named))) if named else weights
    if not weights:
        return None, sizes.keys()
    fetch(weights, commit)
    # The cache learns what the hub has not.
    for file in _OPTIONAL_FILES - sizes.keys():
        with contextlib.suppress(hub.errors.EntryNotFoundError):
            hub.hf_hub_download(name, file, revision=commit)
    return snapshot, sizes.keys()


def _weight_patterns(file: str) -> tuple[str, ...]:
    """Patterns of a file of weights, its index and its shards."""
    stem, ending = os.path.splitext(file.removesuffix(hugging_face.INDEX))
    stem = glob.escape(stem)
    return f"{stem}{ending}*", f"{stem}-?????-of-?????{ending}"


def _matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names of files at the top, or in a module's folder, in the order of the patterns."""
    candidates = [name for name in names if re.fullmatch(rf"({_FOLDER}/)?[^/]+", name)]
    found = (
        n
        for pattern in patterns
        for n in candidates
        if fnmatch.fnmatch(os.path.basename(n), pattern)
    )
    return [*dict.fromkeys(found)]


def _is_complete(path: str, allow_pickle: bool) -> bool:
    """True if a snapshot has config, weights that may be read, and a vocabulary beside them.

    Other programs put into it what they read themselves, such as the tokenizer alone.
    """
    folders = [path, *(entry for entry in os.listdir(path) if re.fullmatch(_FOLDER, entry))]
    folders = [os.path.join(path, folder) for folder in folders]
    weights = next(
        map(hugging_face.find_weights_file, filter(hugging_face.is_directory, folders)), None
    )
    if weights is None:
        return False
    folder, name = os.path.split(weights)
    is_read = allow_pickle or not name.startswith(hugging_face.PICKLED)
    vocabularies = (os.path.join(folder, name) for name in tokenizer_files.VOCABULARIES)
    return is_read and any(map(os.path.exists, vocabularies))


def _describe_error(error: Exception) -> str:
    """Reason for an error of huggingface_hub in a few words; its own may be a page long."""
    kind = type(error).__name__
    if kind in ("RepositoryNotFoundError", "GatedRepoError"):
        return "there is no such model, or access to it is restricted: hf auth login"
    if kind == "RevisionNotFoundError":
        return "it has no such revision"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set"
    return f"{kind}: {reason(error, 300)}".rstrip(".")
