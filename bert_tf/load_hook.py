"""Hook by which models call the checkpoint readers, which modeling/ may not import.

``bert_tf`` sets it when it is imported, so before any model can be asked for.
"""

from collections.abc import Callable
from typing import Any

load: Callable[..., Any]
