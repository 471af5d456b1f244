"""Check for processes that were forked after TensorFlow had run: calls there would never return.

A fork copies TensorFlow's state without its threads: the child would wait for them forever.
"""

import sys

_has_lost_threads = False


def check() -> None:
    """Checks that TensorFlow can run in this process.

    Raises:
        RuntimeError: If the process was forked after TensorFlow had run.
    """
    if _has_lost_threads:
        raise RuntimeError(
            "TensorFlow ran in the parent process before the fork, so it cannot run here. Load the "
            "model in the child process only, or start processes with spawn."
        )


def note() -> None:
    """Notes in a process that was just forked whether TensorFlow had run."""
    global _has_lost_threads
    _has_lost_threads = _has_lost_threads or _has_run()


def _has_run() -> bool:
    """Returns whether TensorFlow has started its threads, after which their number is fixed."""
    try:
        threads = sys.modules["tensorflow"].config.threading
        number = threads.get_intra_op_parallelism_threads()
        threads.set_intra_op_parallelism_threads(number + 1)
        threads.set_intra_op_parallelism_threads(number)
    except RuntimeError:
        return True
    except (KeyError, AttributeError):  # not imported, or not completely
        pass
    return False
