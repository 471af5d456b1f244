"""Task types: a subpackage per type; ``registry`` lists them.

To add a task type, derive a class from ``Task`` and pass it to ``register``;
``examples/star_ratings.py`` is an example.
"""

from .registry import register as register
from .task import Task as Task

__all__ = ["Task", "register"]
