"""Hook for ``bert_tf.load``, which ``modeling`` cannot import; set on import of ``bert_tf``."""

from collections.abc import Callable
from typing import Any

load: Callable[..., Any]
