"""``hf://OWNER/NAME[@REVISION]``: a model of the Hugging Face hub, as a directory of its files.

What is in the machine's cache of the hub is taken as it is there; else the package
``huggingface_hub`` fetches it into that cache, which other programs share:

    HF_HUB_CACHE/models--OWNER--NAME/refs/REVISION     the commit that a branch or a tag is
    HF_HUB_CACHE/models--OWNER--NAME/snapshots/COMMIT  its files, as links

No file is fetched but those that the readers know by their names: JSON, the vocabulary and the
weights, of these the form that is safest to read. Where the cache is: huggingface_hub's
``constants.py``.
"""

import contextlib
import importlib
import os
import re
from collections.abc import Sequence
from typing import Any

from bert_tf.untrusted import MAX_JSON_BYTES, listed, quote, reason

from . import hugging_face, sentence_transformers, tokenizer_files

SCHEME = "hf://"
_PART = "[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9._/-]{{0,199}}))?")
_COMMIT = re.compile("[0-9a-f]{40}")
_MAIN = "main"
# The folders of sentence-transformers' modules.
_MODULE = re.compile(r"\d+_\w+", re.ASCII)
_TEXTS = {
    *(hugging_face.CONFIG, *tokenizer_files.FILES, *sentence_transformers.FILES),
    *(name for name in hugging_face.FILES if name.endswith(".json")),
}
_SHARD = re.compile(r"(model|pytorch_model)-\d{5}-of-\d{5}\.(safetensors|bin)")


def is_name(path: str) -> bool:
    """Whether a path is the name of a model on the hub."""
    return path.startswith(SCHEME)


def guess(path: str) -> str:
    """What a path that is not there may mean on the hub, for the sentence that says so.

    >>> guess("google-bert/bert-base-uncased"), guess("runs/mine.keras")
    (' (did you mean hf://google-bert/bert-base-uncased?)', '')
    """
    owner, _, name = path.partition("/")
    if not name and re.fullmatch(r"bert-(base|large)-[a-z-]+", owner):
        path = f"google-bert/{path}"
    elif not _NAME.fullmatch(path) or os.path.exists(owner) or "." in name:
        return ""
    return f" (did you mean {SCHEME}{path}?)"


def directory_of(path: str, allow_pickle: bool) -> str:
    """The directory of a model's files on this machine, fetched where they are not there yet."""
    match = _NAME.fullmatch(path.removeprefix(SCHEME).rstrip("/"))
    if match is None or ".." in path or "--" in match[1] or "//" in (match[2] or ""):
        raise ValueError(
            f"{quote(path)} names no model of the Hugging Face hub: expected hf://OWNER/NAME or "
            "hf://OWNER/NAME@REVISION, such as hf://google-bert/bert-base-uncased."
        )
    name, revision = match[1], match[2] or _MAIN
    found = _find(name, revision)
    if found is not None and _is_whole(found, allow_pickle):
        if _knows_modules(found):
            return found
        # Another program's, which had no use for what makes a sentence's embedding.
        with contextlib.suppress(ValueError):
            return _fetch(path, name, os.path.basename(found), allow_pickle, seconds=5)
        return found
    try:
        return _fetch(path, name, revision, allow_pickle)
    except ValueError:
        # Weights without a vocabulary, or a pickle: their reader says what is to be said.
        if found is not None and hugging_face.is_checkpoint(found):
            return found
        raise


# === The cache ===


def _cache() -> str:
    """Where huggingface_hub keeps its files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    home = os.environ.get("HF_HOME") or os.path.join(home, "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return os.path.expanduser(os.path.expandvars(cache or os.path.join(home, "hub")))


def _find(name: str, revision: str) -> str | None:
    """The snapshot in the cache, of any number of files; ``None`` where there is none."""
    folder = os.path.join(_cache(), f"models--{name.replace('/', '--')}")
    commit = revision
    if not _COMMIT.fullmatch(revision):
        try:
            with open(os.path.join(folder, "refs", revision), encoding="ascii") as file:
                commit = file.read(64).strip()
        except (OSError, ValueError):
            return None
    path = os.path.join(folder, "snapshots", commit)
    return path if _COMMIT.fullmatch(commit) and os.path.isdir(path) else None


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


def _knows_modules(snapshot: str) -> bool:
    """Whether the list of a sentence-transformers' modules is there, or known to be nowhere."""
    return sentence_transformers.is_checkpoint(snapshot) or os.path.exists(_absent(snapshot))


def _absent(snapshot: str) -> str:
    """The empty file by which huggingface_hub says that a commit has no list of modules."""
    snapshots, commit = os.path.split(snapshot)
    folder = os.path.dirname(snapshots)
    return os.path.join(folder, ".no_exist", commit, sentence_transformers.MODULES)


# === The hub ===


def _fetch(path: str, name: str, revision: str, allow_pickle: bool, *, seconds: float = 30) -> str:
    """Brings the files that are read into the cache; gives their snapshot."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    by_hand = (
        f"or bring the files of {endpoint}/{name} ({hugging_face.CONFIG}, {hugging_face.WEIGHTS}, "
        f"{tokenizer_files.VOCABULARY}, tokenizer*.json) into a directory, and name the directory."
    )
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ValueError(
            f"{path} is not in {_cache()}, and is fetched by huggingface_hub, which is not "
            f"installed: pip install 'bert_tf[hub]', {by_hand}"
        ) from error
    try:
        info = hub.HfApi(endpoint, library_name="bert_tf").model_info(
            name, revision=revision, files_metadata=True, timeout=seconds
        )
        sizes = {file.rfilename: file.size for file in info.siblings or ()}
        chosen = _choose(path, sizes, allow_pickle)
        # By the revision's own name: so the cache knows which commit it is.
        files = [
            hub.hf_hub_download(
                name, file, revision=revision, cache_dir=_cache(), endpoint=endpoint
            )
            for file in chosen
        ]
    except _NothingToReadError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # of the network, in a version's own classes
        raise ValueError(
            f"{path} is not in {_cache()}, and cannot be fetched ({_why(error)}): try again, "
            f"{by_hand}"
        ) from error
    found = {file.removesuffix(f"/{name}") for file, name in zip(files, chosen, strict=True)}
    if len(found) != 1:
        raise ValueError(f"{path} was changed while it was fetched: run the same again.")
    (snapshot,) = found
    if sentence_transformers.MODULES not in sizes:
        os.makedirs(os.path.dirname(_absent(snapshot)), exist_ok=True)
        with open(_absent(snapshot), "wb"):
            pass
    return snapshot


class _NothingToReadError(Exception):
    """A model of the hub has no files that are read."""


def _choose(path: str, sizes: dict[str, int | None], allow_pickle: bool) -> list[str]:
    """The files to fetch, the weights last: who finds them after an interruption finds all."""
    chosen: list[str] = []
    last: list[str] = []
    has_weights = False
    for folder in ("", *sorted({name.split("/")[0] for name in sizes if "/" in name})):
        if folder and not _MODULE.fullmatch(folder):
            continue
        start = f"{folder}/" if folder else ""
        names = [name.removeprefix(start) for name in sizes if name.startswith(start)]
        texts = [
            name
            for name in names
            if name in _TEXTS and (sizes[start + name] or 0) <= MAX_JSON_BYTES
        ]
        weights = _choose_weights(names, allow_pickle)
        has_weights |= bool(weights) and hugging_face.CONFIG in texts
        chosen += [start + name for name in sorted({*texts} - {*weights})]
        last += [start + name for name in reversed(weights)]  # an index behind its parts
    if not has_weights:
        raise _NothingToReadError(
            f"{path} has {listed(sorted(sizes), 12)}: expected {hugging_face.CONFIG} with "
            f"{hugging_face.WEIGHTS} or {hugging_face.TF_WEIGHTS}; {hugging_face.PICKLED} is "
            "fetched with --allow_pickle alone (allow_pickle=True in Python), because a pickle can "
            "run code of whoever made it."
        )
    return chosen + last


def _choose_weights(names: Sequence[str], allow_pickle: bool) -> list[str]:
    """The weights of a folder in the form that is safest to read, an index with its parts."""
    for name in hugging_face.FILES:
        pickled = name.startswith(hugging_face.PICKLED)
        if name in names and (allow_pickle or not pickled):
            if not name.endswith(".json"):
                return [name]
            suffix = ".bin" if pickled else ".safetensors"
            return [name, *(n for n in names if _SHARD.fullmatch(n) and n.endswith(suffix))]
    return []


def _why(error: Exception) -> str:
    """What a person needs of an error of huggingface_hub, which may be a page long."""
    kind = type(error).__name__
    if kind in ("RepositoryNotFoundError", "GatedRepoError"):
        return "there is no such model, or it is not for everyone: huggingface-cli login"
    if kind == "RevisionNotFoundError":
        return "it has no such revision"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set"
    return f"{kind}: {reason(error, 300)}".rstrip(".")
