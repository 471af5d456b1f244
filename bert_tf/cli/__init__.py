"""Command-line parsing, flags and error reporting shared by all commands."""

import sys
from types import TracebackType


def _hide_interrupt(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Prints one line instead of the traceback of a Ctrl-C."""
    if issubclass(kind, KeyboardInterrupt):
        print("\nInterrupted.", file=sys.stderr, flush=True)
    else:
        _previous_hook(kind, error, traceback)


# `command.run` handles interrupts, but only after the imports.
_previous_hook = sys.excepthook
_spec = getattr(sys.modules["__main__"], "__spec__", None)
if _spec is not None and _spec.name.startswith("bert_tf."):
    sys.excepthook = _hide_interrupt
