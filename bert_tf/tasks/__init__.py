"""Kinds of task: a folder each, or a file of ``texts``; ``registry`` lists them.

``Task`` is what a kind of one's own derives from, and ``register`` adds it to all commands of the
process: ``examples/star_ratings.py`` is one.
"""

from .registry import register as register
from .task import Task as Task

__all__ = ["Task", "register"]
