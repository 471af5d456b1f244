"""TensorBoard's files: written at once on a disk, seldom on an object store."""

import pytest
import tensorflow as tf

from bert_tf.training import summaries


@pytest.mark.parametrize("is_local", [True, False])
def test_when_curves_are_written(tmp_path, monkeypatch, is_local):
    if not is_local:
        monkeypatch.setattr(summaries, "local_path", lambda path: None)
    curves = summaries.Summaries(str(tmp_path))

    def steps():
        if not (tmp_path / "train").exists():
            return []
        (path,) = (tmp_path / "train").iterdir()
        return [event.step for event in tf.compat.v1.train.summary_iterator(str(path))][1:]

    for step in range(1, 31):
        curves.write("train", step, {"loss": 1.0})
    assert steps() == (list(range(1, 31)) if is_local else [])
    curves.flush()
    assert steps() == list(range(1, 31))
