"""What loads checkpoints for the models, whose room is below the one that reads checkpoints.

``bert_tf`` sets it when it is imported, so before any model can be asked for.
"""

from collections.abc import Callable
from typing import Any

load: Callable[..., Any]
