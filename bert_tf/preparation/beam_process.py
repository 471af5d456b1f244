"""The process that runs Apache Beam for ``beam.started``; the one module that imports it.

It reads from standard input, pickled, Beam's flags and then the steps, and answers each on standard
output by a line of JSON: the error, or null. When its standard input ends, whoever started it is
gone, and it ends with all processes of its session.
"""

import functools
import json
import logging
import os
import pickle
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from bert_tf.untrusted import listed, one_line, reason

from .beam import is_local

# How Beam marks what a unit raised; before it, of another process, are the traceback's lines.
_UNIT_ERROR = re.compile(r"(?:^|\n)(?:[\w.]*(?:Error|Exception|Interrupt): )?([^\n]*) \[while runn")


def pipeline_options(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options from its flags; a ``ValueError`` names one that Beam does not have."""
    unknown: list[str] = []

    def parse(parser: Any) -> None:
        def fail(message: str) -> None:
            raise ValueError(f"Apache Beam does not take its flags: {one_line(message)}.")

        parser.error = fail
        unknown.extend(parser.parse_known_args(list(flags))[1])

    PipelineOptions([]).get_all_options(add_extra_args_fn=parse)
    if unknown:
        raise ValueError(
            f"{listed(unknown)}: neither a flag of this command (see --help) nor of Apache Beam."
        )
    quiet = {}
    if is_local(flags):
        # Without this flag, which allows what no step here does, the Direct runner first tries to
        # download another runner. Its workers say much that is no error.
        quiet = {"allow_unsafe_triggers": True, "default_sdk_harness_log_level": "ERROR"}
    return PipelineOptions(list(flags), **quiet)


def run_steps(steps: Sequence[tuple[str, int, bytes]], options: PipelineOptions) -> None:
    """Runs the steps (name, number of units, pickled work) one after the other."""
    with beam.Pipeline(options=options) as pipeline:
        ended = pipeline | "begin" >> beam.Create([None])
        for name, num_units, work in steps:
            ended = (
                ended
                | f"{name}, units" >> beam.FlatMap(functools.partial(_numbers, num_units))
                | f"{name}, shared out" >> beam.Reshuffle()
                | name >> beam.Map(functools.partial(_work, work))
                # One element when all units have ended, also where there is none.
                | f"{name}, ended" >> beam.combiners.Count.Globally()
            )


def _work(pickled: bytes, number: int) -> None:
    pickle.loads(pickled)(number)


def _numbers(count: int, _: object) -> Iterable[int]:
    return range(count)


def _sentence(error: Exception) -> str:
    """What a unit said, without Beam's traceback, or what Beam said."""
    found = _UNIT_ERROR.findall(str(error))
    return found[-1] if found else f"Apache Beam: {reason(error)}"


def _answer(stream: IO[str], error: str | None) -> None:
    print(json.dumps({"error": error}), file=stream, flush=True)


def _end_with_starter() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _messages() -> Iterator[Any]:
    for _ in range(2):
        yield pickle.load(sys.stdin.buffer)


def main() -> None:
    """Answers the flags, and then the steps."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed is part of the log
    logging.getLogger().setLevel(logging.INFO)
    messages = _messages()
    try:
        options = pipeline_options(next(messages))
    except ValueError as error:
        _answer(answers, str(error))
        return
    _answer(answers, None)
    steps = next(messages)
    threading.Thread(target=_end_with_starter, daemon=True).start()

    def end(arguments: threading.ExceptHookArgs) -> None:
        # A worker has gone: Beam would wait for it for ever.
        _answer(answers, f"Apache Beam lost a worker: {reason(Exception(arguments.exc_value))}.")

    threading.excepthook = end
    try:
        run_steps(steps, options)
    except Exception as error:
        _answer(answers, _sentence(error))
        return
    _answer(answers, None)


if __name__ == "__main__":
    main()
