"""``hf://OWNER/NAME[@REVISION]``: a model of the Hugging Face hub, as a directory of its files.

The package ``huggingface_hub`` finds the directory in the machine's cache of the hub, which other
programs share. What the cache has is taken as it is there, without asking the hub.

No file is fetched but those that the readers know by their names: JSON, the vocabulary and the
weights, of these the form that is safest to read.
"""

import contextlib
import fnmatch
import glob
import importlib
import os
from collections.abc import Iterable
from typing import Any

from bert_tf.checkpoint_formats import CONFIG
from bert_tf.paths import HUB_NAME, HUB_SCHEME
from bert_tf.untrusted import quote, reason

from . import hugging_face, sentence_transformers, tokenizer_files
from .tensor_files import instead_of_a_pickle

_TEXTS = (CONFIG, *tokenizer_files.FILES, *sentence_transformers.FILES)
# The forms of the weights, the safest to read first.
_FORMS = (
    ("model.safetensors*", "model-?????-of-?????.safetensors"),
    (hugging_face.TF_WEIGHTS,),
    (f"{hugging_face.PICKLED}*", "pytorch_model-?????-of-?????.bin"),
)
_SECONDS = 10
_FOLDERS = ("", "[0-9]_*/")  # the top of a model, and sentence-transformers' modules


def is_name(path: str) -> bool:
    """True if a path is the name of a model on the hub."""
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
        f"or bring the files of {endpoint}/{name} ({CONFIG}, {hugging_face.WEIGHTS}, "
        f"{tokenizer_files.VOCABULARY}, tokenizer*.json) into a directory, and name the directory."
    )
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ValueError(
            f"{path} is found and fetched by huggingface_hub, which is not installed: "
            f"pip install 'bert_tf[hub]', {by_hand}"
        ) from error
    snapshot = None
    with contextlib.suppress(OSError, ValueError):
        snapshot = hub.snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=CONFIG
        )
    if snapshot is not None and _is_whole(snapshot, allow_pickle):
        # Another program's may be without the files that make a sentence's embedding.
        commit, modules = os.path.basename(snapshot), sentence_transformers.MODULES
        if hub.try_to_load_from_cache(name, modules, revision=commit) is not None:
            return snapshot  # they are there, or known to be nowhere
    try:
        fetched = _fetch(hub, name, revision, allow_pickle)
    except Exception as error:  # of the network, in a version's own classes
        # Weights without a vocabulary, or a pickle: their reader says what is to be said.
        if snapshot is not None and hugging_face.is_directory(snapshot):
            return snapshot
        raise ValueError(
            f"{path} is not in {hub.constants.HF_HUB_CACHE}, and cannot be fetched "
            f"({_why(error)}): try again, {by_hand}"
        ) from error
    if fetched is None:
        raise ValueError(
            f"{path} has no {CONFIG} with {hugging_face.WEIGHTS} or "
            f"{hugging_face.TF_WEIGHTS} beside it; of {hugging_face.PICKLED}, "
            f"{instead_of_a_pickle(path)}."
        )
    return fetched


def _fetch(hub: Any, name: str, revision: str, allow_pickle: bool) -> str | None:
    """Brings the files that are read into the cache; gives their snapshot, ``None`` without any."""
    info = hub.HfApi().model_info(name, revision=revision, timeout=_SECONDS)
    names = [file.rfilename for file in info.siblings or ()]
    for form in _FORMS if allow_pickle else _FORMS[:-1]:
        if not any(fnmatch.filter(names, pattern) for pattern in _patterns(form)):
            continue
        # By the revision's own name, so that the cache knows which commit it is.
        snapshot: str = hub.snapshot_download(
            name, revision=revision, allow_patterns=_patterns((*_TEXTS, *form))
        )
        if not os.path.exists(os.path.join(snapshot, sentence_transformers.MODULES)):
            # The cache learns that the hub has no such file.
            with contextlib.suppress(hub.errors.EntryNotFoundError):
                commit = os.path.basename(snapshot)
                hub.hf_hub_download(name, sentence_transformers.MODULES, revision=commit)
        return snapshot
    return None


def _patterns(names: Iterable[str]) -> list[str]:
    return [folder + name for folder in _FOLDERS for name in names]


def _is_whole(path: str, allow_pickle: bool) -> bool:
    """True if a snapshot has config, weights that may be read, and a vocabulary beside them.

    Other programs put into it what they read themselves, such as the tokenizer alone.
    """
    folders = [place for folder in _FOLDERS for place in glob.glob(os.path.join(path, folder))]
    weights = next(map(hugging_face.weights_file, filter(hugging_face.is_directory, folders)), None)
    if weights is None:
        return False
    folder, name = os.path.split(weights)
    is_read = allow_pickle or not name.startswith(hugging_face.PICKLED)
    pieces = (os.path.join(folder, name) for name in tokenizer_files.VOCABULARIES)
    return is_read and any(map(os.path.exists, pieces))


def _why(error: Exception) -> str:
    """Reason for an error of huggingface_hub in a few words; its own may be a page long."""
    kind = type(error).__name__
    if kind in ("RepositoryNotFoundError", "GatedRepoError"):
        return "there is no such model, or access to it is restricted: hf auth login"
    if kind == "RevisionNotFoundError":
        return "it has no such revision"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set"
    return f"{kind}: {reason(error, 300)}".rstrip(".")
