"""Kinds of task, a file each: options, reader, loss, scores and predictions.

``Task`` is what a kind of one's own derives from, and ``register`` adds it to all commands of the
process: ``examples/star_ratings.py`` is one.
"""

from .registry import register as register
from .task import Task as Task

__all__ = ["Task", "register"]
