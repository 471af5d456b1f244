"""Task types, which are grouped in subpackages and listed in ``registry``.

To add a task type, pass a subclass of ``Task`` to ``register``, as in
``examples/star_ratings.py``.
"""

from .registry import register as register
from .task import Task as Task

__all__ = ["Task", "register"]
