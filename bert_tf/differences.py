"""What is done otherwise than a file of another library says: told, never passed over in silence.

In Python it is a warning of a category of its own. A command prints it as one line on standard
error. Each sentence names the key and the consequence.
"""

import sys
import warnings
from collections.abc import Iterable
from typing import Any

_PACKAGE = __name__.partition(".")[0]


class DifferenceWarning(UserWarning):
    """A file says something that this library does otherwise, or does not say what it assumed.

    ``warnings.simplefilter("error", bert_tf.DifferenceWarning)`` makes it an error.

    >>> import warnings
    >>> issubclass(DifferenceWarning, UserWarning)
    True
    """


def tell(sentences: Iterable[str]) -> None:
    """Warns by each sentence, at the line that called the library."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    for sentence in sentences:
        warnings.warn(sentence, DifferenceWarning, stacklevel=level)


def print_as_lines() -> None:
    """Makes a process print what is told as one line each, other warnings as before."""
    show = warnings.showwarning

    def show_line(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, DifferenceWarning):
            print(message, file=sys.stderr, flush=True)
        else:
            show(message, category, *place, **options)

    warnings.showwarning = show_line
    warnings.simplefilter("always", DifferenceWarning)
