"""The function by which models load checkpoints, which ``modeling`` may not import.

``bert_tf`` sets it when it is imported, before any model can be used.
"""

from collections.abc import Callable
from typing import Any

load: Callable[..., Any]
