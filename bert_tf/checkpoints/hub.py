"""Download of ``hf://OWNER/NAME[@REVISION]`` models from the Hugging Face Hub.

Models are stored in the cache of ``huggingface_hub``, which other programs also use. A cached model
is used without a request to the hub.

Only JSON files, the vocabulary and weights are downloaded. The weights are those in the safest
format and those that the config names. Code is never downloaded; pickles are downloaded only with
``allow_pickle``.
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
from bert_tf.io.messages import quote, reason
from bert_tf.io.paths import HUB_NAME, HUB_SCHEME, hint, matches

from . import hugging_face, sentence_transformers, tokenizer_files
from .tensor_files import pickle_remedy

# Settings and vocabulary files; known names come first.
_TEXT_FILES = (CONFIG, *tokenizer_files.FILES, *sentence_transformers.FILES, "*.json")
_MAX_FILES, _MAX_BYTES = 50, 64 << 20
# Weights files, safest format first.
_FORMS = (hugging_face.WEIGHTS, hugging_face.TF_WEIGHTS, hugging_face.PICKLED)
# Optional files that change the outputs. The cache must record whether the hub has them.
_OPTIONAL = {sentence_transformers.MODULES, hugging_face.ADAPTER, *SETFIT}
_TIMEOUT_S = 10
_FOLDER = "[0-9]_[^/]*"  # the directory of a sentence-transformers module


def find_directory(path: str, allow_pickle: bool = False) -> tuple[str, Collection[str]]:
    """Returns the local directory of a model, downloading missing files.

    Returns:
        The directory, and the names of all the model's files (none if the hub was not queried).
    """
    match = HUB_NAME.fullmatch(path.removeprefix(HUB_SCHEME).rstrip("/"))
    if match is None or ".." in path or "--" in match[1] or "//" in (match[2] or ""):
        raise ValueError(
            f"{quote(path)}: expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION, such as "
            "hf://google-bert/bert-base-uncased."
        )
    name, revision = match[1], match[2] or "main"
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    manual_remedy = (
        f"or download {CONFIG}, {hugging_face.WEIGHTS}, {tokenizer_files.VOCABULARY} and "
        f"tokenizer*.json from {endpoint}/{name} into a directory and pass the directory."
    )
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        message = f"{path}: huggingface_hub is not installed. Run pip install 'bert_tf[hub]', "
        raise ValueError(message + manual_remedy) from error
    snapshot = None
    with contextlib.suppress(OSError, ValueError):
        snapshot = hub.snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=CONFIG
        )
    if snapshot is not None and _is_complete(snapshot, allow_pickle):
        # Other programs may not have downloaded the optional files.
        commit = os.path.basename(snapshot)
        known = (hub.try_to_load_from_cache(name, file, revision=commit) for file in _OPTIONAL)
        if all(cached is not None for cached in known):
            return snapshot, ()
        revision = commit  # Matches the cached weights.
    try:
        fetched, names = _fetch(hub, name, revision, allow_pickle)
    except Exception as error:  # The exception classes depend on the version of huggingface_hub.
        # If the vocabulary is missing or the weights are a pickle, the reader reports it.
        if snapshot is not None and hugging_face.is_directory(snapshot):
            return snapshot, ()
        raise ValueError(
            f"{path} is not in {hub.constants.HF_HUB_CACHE} and cannot be downloaded: "
            f"{_describe_error(error)}. Try again, {manual_remedy}"
        ) from error
    if fetched is None:
        form = next((form for form in FORMATS if matches(form, "", names)), None)
        if form is not None and form.name != "huggingface":
            raise ValueError(
                f"{path} has {form.files}, which bert_tf does not download. Run hf download {name} "
                "--local-dir DIR and pass DIR."
            )
        has_pickle = any(name.startswith(hugging_face.PICKLED) for name in names)
        remedy = f". {pickle_remedy(path)}" if has_pickle else hint(path, names)
        expected = f"{CONFIG} with {hugging_face.WEIGHTS} or {hugging_face.TF_WEIGHTS}"
        raise ValueError(f"{path} has no {expected}{remedy}.")
    return fetched, names


def _fetch(
    hub: Any, name: str, revision: str, allow_pickle: bool
) -> tuple[str | None, Collection[str]]:
    """Downloads the files of a model into the cache.

    Returns:
        The directory (``None`` if the model has no supported weights), and the names of all files.
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
    # Pass the revision's name, so that the cache records the revision's commit.
    snapshot = fetch(text_files, revision)
    commit = os.path.basename(snapshot)
    for config in configs:
        named = hugging_face.read_weights_name(os.path.join(snapshot, os.path.dirname(config)))
        weights = (*weights, *_matching(sizes, _weight_patterns(named))) if named else weights
    if not weights:
        return None, sizes.keys()
    fetch(weights, commit)
    # A failed download records in the cache that the hub does not have the file.
    for file in _OPTIONAL - sizes.keys():
        with contextlib.suppress(hub.errors.EntryNotFoundError):
            hub.hf_hub_download(name, file, revision=commit)
    return snapshot, sizes.keys()


def _weight_patterns(file: str) -> tuple[str, ...]:
    """Returns patterns for a weights file, its index and its shards."""
    stem, ending = os.path.splitext(file.removesuffix(hugging_face.INDEX))
    stem = glob.escape(stem)
    return f"{stem}{ending}*", f"{stem}-?????-of-?????{ending}"


def _matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Returns matching files at the top level or in a module's directory, ordered by pattern."""
    candidates = [name for name in names if re.fullmatch(rf"({_FOLDER}/)?[^/]+", name)]
    found = (n for p in patterns for n in candidates if fnmatch.fnmatch(os.path.basename(n), p))
    return [*dict.fromkeys(found)]


def _is_complete(path: str, allow_pickle: bool) -> bool:
    """Whether a cached directory has a config, readable weights and a vocabulary.

    Other programs may have downloaded only some files, such as the tokenizer.
    """
    folders = [path, *(entry for entry in os.listdir(path) if re.fullmatch(_FOLDER, entry))]
    paths = (os.path.join(path, folder) for folder in folders)
    models = filter(hugging_face.is_directory, paths)
    weights = next(map(hugging_face.find_weights_file, models), None)
    if weights is None:
        return False
    folder, name = os.path.split(weights)
    is_read = allow_pickle or not name.startswith(hugging_face.PICKLED)
    vocabularies = (os.path.join(folder, name) for name in tokenizer_files.VOCABULARIES)
    return is_read and any(map(os.path.exists, vocabularies))


def _describe_error(error: Exception) -> str:
    """Summarizes an error of huggingface_hub, whose message may be a page long."""
    kind = type(error).__name__
    if kind in ("RepositoryNotFoundError", "GatedRepoError"):
        return "the model does not exist, or is restricted (run hf auth login)"
    if kind == "RevisionNotFoundError":
        return "the revision does not exist"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set"
    return f"{kind}: {reason(error, 300)}".rstrip(".")
