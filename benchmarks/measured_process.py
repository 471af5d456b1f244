"""Worker process of a contender, which measures on request."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence


class MeasuredProcess:
    """A Python process that reads one request per line of its input, and answers with a number.

    Answers are lines ``ANSWER NUMBER``; other lines are ignored.

    Args:
        name: Name of the contender.
        command: Arguments of ``python -m``.
        environment: Environment variables to set in addition to the current ones.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, request: object) -> float:
        """Sends a request and waits for the answer.

        Raises:
            ValueError: If the process has ended.
        """
        with contextlib.suppress(BrokenPipeError):  # the process has ended, so `answer` raises
            print(request, file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> float:
        """Returns the next number that the process prints.

        Raises:
            ValueError: If the process has ended.
        """
        for line in self._process.stdout or ():
            if line.startswith("ANSWER "):
                return float(line.split()[1])
        raise ValueError(f"The process of {self.name} ended. See its messages above.")

    def close(self) -> None:
        """Ends the process by closing its input."""
        self._process.communicate()
