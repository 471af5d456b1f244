"""A checkpoint that is written while the training goes on is that of its step."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training import saved_states
from bert_tf.training.saved_states import BackgroundSaving


@pytest.fixture
def held(monkeypatch):
    """Writes no byte before it is set."""
    event, write = threading.Event(), saved_states.write

    def wait_and_write(*arguments):
        assert event.wait(60)
        write(*arguments)

    monkeypatch.setattr(saved_states, "write", wait_and_write)
    yield event
    event.set()


def test_steps_made_while_it_is_written_are_not_in_it(tmp_path, held):
    state = {name: keras.Variable(np.arange(5.0), name=name) for name in ("weight", "moment")}
    step = tf.function(lambda: [variable.assign_add(np.ones(5)) for variable in state.values()])
    with BackgroundSaving() as saving:
        saving.save(str(tmp_path), 1, state, {"row": 3}, keep=1)
        step()
        assert saved_states.find_latest(str(tmp_path)) is None  # it was written meanwhile
        held.set()
    restored = saved_states.restore_latest(str(tmp_path), state)
    assert (restored.step, restored.extra) == (1, {"row": 3})
    for name, variable in state.items():
        np.testing.assert_array_equal(variable.numpy(), np.arange(5.0), err_msg=name)


def test_one_save_waits_for_the_one_before(tmp_path, held):
    weight = {"weight": keras.Variable([1.0])}
    saving = BackgroundSaving()
    saving.save(str(tmp_path), 1, weight, {}, keep=2)
    threading.Timer(0.2, held.set).start()
    saving.save(str(tmp_path), 2, weight, {}, keep=2)
    assert saved_states.has_finished(str(tmp_path))
    saving.wait()
    assert saved_states.find_latest(str(tmp_path)).step == 2


@pytest.mark.parametrize("surfaces", ["at the next save", "at the end", "on request"])
def test_a_save_that_fails_is_told_once_and_loses_nothing(tmp_path, surfaces, monkeypatch):
    weight = {"weight": keras.Variable([1.0])}
    saved_states.save(str(tmp_path), 1, weight, {})
    (tmp_path / "step-00000002").symlink_to(tmp_path)
    message = "The checkpoint of step 2 could not be saved in .*: make room there or mend it, and"
    saving = BackgroundSaving()
    saving.save(str(tmp_path), 2, weight, {}, keep=3)
    with pytest.raises(OSError, match=message):
        if surfaces == "at the next save":
            saving.save(str(tmp_path), 3, weight, {}, keep=3)
        elif surfaces == "on request":
            saving.wait()
        else:
            with saving:
                pass
    saving.wait()
    (tmp_path / "step-00000002").unlink()
    assert saved_states.find_latest(str(tmp_path)).step == 1


def test_ctrl_c_does_not_wait(tmp_path, held):
    with pytest.raises(KeyboardInterrupt), BackgroundSaving() as saving:
        saving.save(str(tmp_path), 1, {"weight": keras.Variable([1.0])}, {}, keep=1)
        raise KeyboardInterrupt
    assert not saved_states.has_finished(str(tmp_path))
    held.set()
    saving.wait()
