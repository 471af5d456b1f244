"""TensorFlow's tensor bundles (``.index`` and ``.data-...`` files), read and written by tensor."""

import os
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.training import saved_states
from bert_tf.untrusted import listed

from .checkpoint import StoredTensor
from .weights import to_tensor

RELEASED = "bert_model.ckpt"  # the name of Google's and Model Garden's
_MAX_STATE_BYTES = 1 << 20


def find(path: str) -> "Bundle | None":
    """The bundle at a path, a prefix or a directory; ``None`` where there is none.

    Of several in a directory it is the last saved, else the one named as the released ones are.
    """
    if tf.io.gfile.exists(path + saved_states.INDEX):
        return Bundle(path)
    if not tf.io.gfile.isdir(path):
        return None
    names = sorted(
        name.removesuffix(saved_states.INDEX)
        for name in tf.io.gfile.listdir(path)
        if name.endswith(saved_states.INDEX)
    )
    if len(names) > 1:
        last = _last_saved(path) or RELEASED
        if last not in names:
            raise ValueError(
                f"{path} holds {len(names)} checkpoints, {listed(names, 5)}, and nothing says "
                f"which to take: name one, {os.path.join(path, names[-1])} for example."
            )
        names = [last]
    return Bundle(os.path.join(path, names[0])) if names else None


def open_found(path: str) -> "Bundle":
    """The bundle at a path."""
    bundle = find(path)
    if bundle is None:
        raise ValueError(f"{path} holds no TensorFlow checkpoint (NAME.index, NAME.data-...).")
    return bundle


def _last_saved(path: str) -> str:
    """The name that a directory's file ``checkpoint`` says; "" where it says none."""
    try:
        if tf.io.gfile.stat(os.path.join(path, "checkpoint")).length > _MAX_STATE_BYTES:
            return ""
        state = tf.train.get_checkpoint_state(path)
    except (tf.errors.OpError, UnicodeDecodeError):
        return ""
    # Only the name counts: the file may have been written in another directory.
    return os.path.basename(state.model_checkpoint_path) if state else ""


class Bundle(saved_states.Bundle):
    """A bundle opened for reading, whose tensors go into a ``Checkpoint``."""

    def tensor(self, name: str) -> StoredTensor:
        """A tensor by its name there."""
        return StoredTensor((name,), self.shapes[name], self.dtypes[name], lambda: self.read(name))


def write(prefix: str, tensors: Iterable[tuple[str, StoredTensor]]) -> None:
    """Writes tensors, each with the name that it gets, to a bundle of one data file."""
    names, values = [], []
    with tf.device("CPU:0"):
        for name, tensor in tensors:
            names.append(name)
            values.append(to_tensor(tensor.read()))
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )
