"""Checks, before they load, that tensorflow and tensorflow-text fit each other.

tensorflow-text is compiled against one minor version of TensorFlow; beside another one its
libraries fail to load with a message about undefined symbols, which this check comes before.
"""

from importlib import metadata

# Distributions that install the ``tensorflow`` package: each owns the same files.
_TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-tpu", "tensorflow-cpu")
SUPPORTED_MINORS = ("2.20", "2.21")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_versions() -> None:
    """Checks that one TensorFlow is installed, and the tensorflow-text of the same minor version.

    Raises:
        ImportError: in one sentence with the command that mends it: no TensorFlow, two
            distributions of it, one outside ``SUPPORTED_MINORS``, or a tensorflow-text of
            another minor version.
    """
    found = {name: _installed(name) for name in _TENSORFLOW_DISTRIBUTIONS}
    installed = {name: version for name, version in found.items() if version is not None}
    if not installed:
        raise ImportError(
            "bert_tf needs TensorFlow, and none is installed: run "
            "pip install 'tensorflow==2.21.*' 'tensorflow-text==2.21.*'."
        )
    if len(installed) > 1:
        both = " and ".join(f"{name} {version}" for name, version in installed.items())
        raise ImportError(
            f"{both} are installed together and overwrite each other's files: run "
            f"pip uninstall -y {' '.join(installed)} and install one of them again, "
            "as the README's section on installation shows."
        )
    ((name, version),) = installed.items()
    minor = ".".join(version.split(".")[:2])
    # TensorFlow for TPUs ends at 2.20; tensorflow-text would bring the other one along.
    wanted = SUPPORTED_MINORS[0] if name == "tensorflow-tpu" else SUPPORTED_MINORS[-1]
    if minor not in SUPPORTED_MINORS:
        raise ImportError(
            f"{name} {version} is installed, and bert_tf runs with {' and '.join(SUPPORTED_MINORS)}"
            f": run pip install --no-deps '{name}=={wanted}.*' 'tensorflow-text=={wanted}.*'."
        )
    text = _installed("tensorflow-text")
    if text is None or ".".join(text.split(".")[:2]) != minor:
        raise ImportError(
            f"{name} {version} needs tensorflow-text {minor}, and "
            f"{'none' if text is None else text} is installed: run "
            f"pip install --no-deps 'tensorflow-text=={minor}.*'."
        )
