"""Names of models as scripts have them, and the arguments that say where their files are."""

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.hub import directory_of as hub_directory
from bert_tf.paths import HUB_SCHEME, of_model

# The owners of models that the hub once had without one.
_OWNERS = {"bert": "google-bert", "distilbert": "distilbert"}
# Arguments of from_pretrained that say how files are fetched, or of which library they are: the
# cache's own settings say the first (HF_HOME, HF_TOKEN, HF_HUB_OFFLINE), the files the second.
_WITHOUT_MEANING = frozenset(
    {
        *("cache_dir", "force_download", "from_flax", "from_pt", "from_tf", "local_files_only"),
        *("low_cpu_mem_usage", "mirror", "proxies", "resume_download", "token"),
        *("torch_dtype", "trust_remote_code", "use_auth_token", "use_safetensors", "variant"),
        *("framework", "use_fast", "legacy"),
    }
)


def path_of(name: str | os.PathLike[str], values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path that ``bert_tf.load`` takes for a name, and the arguments that say something else.

    What is on this machine is a path, and so is a model that this library ships. Anything else is a
    model of the hub; one that is named without its owner, as ``bert-base-uncased``, is its first
    owner's.

    >>> path_of("bert-base-uncased", {"revision": "v1", "from_pt": True, "num_labels": 3})
    ('hf://google-bert/bert-base-uncased@v1', {'num_labels': 3})
    """
    path, values = of_model(os.fspath(name)), dict(values)
    revision, folder = values.pop("revision", None), values.pop("subfolder", None)
    values = {key: value for key, value in values.items() if key not in _WITHOUT_MEANING}
    if os.path.exists(path) or "://" in path or os.path.isabs(path) or path.startswith("."):
        return os.path.join(path, folder) if folder else path, values
    if folder:
        raise ValueError(
            f"subfolder is {folder!r}, and of {path} the hub's files at the top alone are read: "
            "download the folder, and name it."
        )
    if "/" not in path:
        path = f"{_OWNERS.get(path.split('-')[0], 'google-bert')}/{path}"
    return f"{HUB_SCHEME}{path}{f'@{revision}' if revision else ''}", values


def directory_of(
    name: str | os.PathLike[str], values: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """As ``path_of``, with the directory of the hub's files on this machine."""
    path, values = path_of(name, values)
    if path.startswith(HUB_SCHEME):
        path = hub_directory(path)
    return path, values
