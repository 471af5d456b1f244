"""Agreement between workers, and lost workers."""

import contextlib
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.cli import command
from bert_tf.training import workers
from bert_tf.training.cluster import Cluster
from bert_tf.training.saved_states import BackgroundSaving
from bert_tf.training.trainer import Trainer


def test_different_values_raise_error():
    mine = workers.Workers(None, Cluster(("a:1", "b:1"), 0))
    mine.gather = lambda values: np.array([values, [4, 5][: len(values)]], float)
    mine.check_same(4, "newest checkpoint")
    with pytest.raises(ValueError, match=r"workers differ in the newest checkpoint .\[3.0, 4.0\]"):
        mine.check_same(3, "newest checkpoint")
    assert mine.differences({"a": 4, "b": 5}) == {}
    assert mine.differences({"a": 4, "b": 3}) == {"b": [3, 5]}


def test_lost_worker_error_is_shown_by_command():
    two_workers = workers.Workers(cluster=Cluster(("a:1", "b:1"), 0))
    with pytest.raises(
        workers.LostWorkerError, match="^One of the other workers .2 in total. has exited or"
    ) as error:
        with two_workers.connected():
            raise tf.errors.UnavailableError(None, None, "gone")
    # That module recognizes the error without importing TensorFlow.
    assert command._is_user_error(error.value) and error.type.__name__ == "LostWorkerError"


def test_worker_stops_after_signal_to_other_worker():
    partners = types.SimpleNamespace(reporting=contextlib.nullcontext, is_any_stopped=lambda: True)
    two_workers = workers.Workers(cluster=Cluster(("a:1", "b:1"), 0), partners=partners)
    with pytest.raises(KeyboardInterrupt), two_workers.connected():
        raise tf.errors.UnavailableError(None, None, "gone")


class Pair:
    """Two workers with sums like TensorFlow; worker 1 reads its sum last, from worker 0."""

    def __init__(self):
        self._given = [[], []]
        self._news = threading.Condition()
        self._has_ended = [threading.Event(), threading.Event()]

    def worker(self, index):
        """Returns a worker that sums with the other one."""
        worker = workers.Workers(cluster=Cluster(("a:1", "b:1"), index))
        worker.gather = lambda values: self._gather(index, values)
        return worker

    def _gather(self, index, values):
        other, turn = 1 - index, len(self._given[index])
        with self._news:
            self._given[index].append(values)
            self._news.notify_all()
            assert self._news.wait_for(
                lambda: len(self._given[other]) > turn or self._has_ended[other].is_set(), 10
            )
        if index == 1 and self._has_ended[0].wait(0.3):
            raise workers.LostWorkerError("worker 0 has ended")
        return np.array([of[turn] for of in self._given])

    def end(self, index, work):
        """Runs the last work of a worker; returns the error that ends it."""
        try:
            work(self.worker(index), index)
        except BaseException as error:
            return error
        finally:
            with self._news:
                self._has_ended[index].set()
                self._news.notify_all()


def _stop(worker, _):
    directory = types.SimpleNamespace(is_temporary=True)
    training = types.SimpleNamespace(
        background=BackgroundSaving(), workers=worker, directory=directory
    )
    Trainer._stop(training)


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda worker, _: worker.leave(), type(None)),
        (lambda worker, index: worker.check_same(index, "flags"), ValueError),
        (_stop, KeyboardInterrupt),
    ],
    ids=["leave", "check_same", "stop"],
)
def test_worker_waits_until_others_have_read(work, error):
    """Previously, a worker that was slow to read the last sum reported the other one as lost."""
    pair, errors = Pair(), {}
    threads = [
        threading.Thread(target=lambda index=index: errors.update({index: pair.end(index, work)}))
        for index in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(errors[index]) for index in range(2)] == [error, error]
