"""Runs a command: parses its flags, prints errors as one line, and sets the exit status.

The module of a command defines a dataclass with the flags and a function ``main(settings)``, and
ends with ``command.run(main, Settings)``. The module does not import slow packages at the top
level, so that ``--help`` is fast.
"""

import atexit
import dataclasses
import functools
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

from absl import app, flags, logging

from bert_tf.io import runtime
from bert_tf.io.messages import (
    EscapedStream,
    did_you_mean,
    one_line,
    print_warnings_as_lines,
    quote,
    reason,
)

from . import flag_fields
from .foreign_flags import foreign_flag_hints

_HELP_WIDTH = 80
_HELP = re.compile("-h|--?help(?P<more>full|=(?P<which>.*))?")
INTERRUPTED = 130  # the shell's exit status for a program that Ctrl-C ended
_is_interrupted = _is_exiting = False
# Error messages of Python and absl for an invalid flag value, and replacements.
_EXPECTED = {
    r": invalid literal for int\(\) .*": ": expected an integer",
    r": could not convert string to float.*": ": expected a number",
    r": \('Non-boolean argument .*": ": expected true or false",
}
_REWRITE_RECORDS = (
    "the shapes of this record differ from the first record of its file. Write all records with "
    "the same --max_seq_length and --max_predictions_per_seq"
)
# Remedies for errors of the operating system and of TensorFlow that state no remedy.
_REMEDIES = {
    "No space left on device": "free disk space, then run the command again",
    "File system scheme": "copy the file to this machine and pass its local path",
    "Permission denied": "grant this user access or use another path",
    "values != expected": _REWRITE_RECORDS,
    "Data types don't match": _REWRITE_RECORDS,
}


@dataclasses.dataclass
class _Settings:
    """The flag that every command has."""

    debug: bool = flag_fields.switch(
        False,
        "Print the Python traceback of an error instead of a one-line message.",
        heading="Errors",
        advanced=True,
    )


def help_text(
    program: str, values: flags.FlagValues = flags.FLAGS, *, with_advanced: bool = False
) -> str:
    """Returns the program's docstring and its flags with defaults and bounds.

    The flags are those of the program's main module and of ``run``.
    """
    listed_flags = [
        flag
        for module in (sys.argv[0], __name__)
        for flag in values.get_key_flags_for_module(module)
        if flag.help  # an alias has no help
    ]
    parts, heading = [(sys.modules["__main__"].__doc__ or "").strip()], "Flags"
    for flag in listed_flags:
        heading = getattr(flag, "heading", "") or heading
        if not with_advanced and getattr(flag, "advanced", False):
            continue
        if heading:
            parts.append(f"\n{heading}:\n")
            heading = ""
        parts.append(_paragraph(flag))
    if not with_advanced:
        parts.append(f"\n{program} --help=all lists all {len(listed_flags)} flags.")
    return "\n".join(parts)


def _paragraph(flag: flags.Flag) -> str:
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    default = (flag.default_as_str or "").strip("'")
    more = "; ".join(filter(None, (default and f"default: {default}", flag.parser.syntactic_help)))
    text = f"{name}: {flag.help}" + (f" ({more})" if more else "")
    return textwrap.fill(
        text, _HELP_WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def _parse(argv: Sequence[str], arguments: Sequence[str], passes_on: bool) -> list[str]:
    program = argv[0]
    if program.endswith(".py"):
        program = "python -m bert_tf." + program.rsplit("/", 1)[-1].removesuffix(".py")
    try:
        for word in argv[1:]:
            if match := _HELP.fullmatch(word):
                if match["which"] not in (None, "all"):
                    sys.exit(f"Error: {quote(word)}: expected --help or --help=all.")
                print(help_text(program, with_advanced=bool(match["more"])))
                sys.exit(0)
        matches = (re.match("--?([A-Za-z_0-9-]+)", word) for word in argv[1:])
        if hints := foreign_flag_hints([found[1] for found in matches if found], flags.FLAGS):
            sys.exit(f"Error: unknown flag {'; unknown flag '.join(hints)}.")
        rest = flags.FLAGS(argv, known_only=passes_on)
    except flags.UnrecognizedFlagError as error:
        guess = did_you_mean(error.flagname, flags.FLAGS, prefix="--")
        sys.exit(
            f"Error: unknown flag --{one_line(error.flagname)}{guess}. "
            f"{program} --help=all lists the flags."
        )
    except flags.Error as error:
        message = reason(error).rstrip(".")
        for python_message, expected in _EXPECTED.items():
            message = re.sub(python_message, expected, message)
        sys.exit(f"Error: {message}. {program} --help=all lists the flags.")
    words = [argument for argument in rest[1:] if not (passes_on and argument.startswith("--"))]
    if words and not arguments:
        sys.exit(
            f"Error: {quote(words[0])}: expected arguments of the form --name=value. "
            "Pass several files as one argument, separated by commas."
        )
    if len(words) != len(arguments):
        names = " ".join(arguments)
        sys.exit(
            f"Error: expected {names}, got {one_line(' '.join(words)) or 'no argument'}. "
            f"Run {program} {names} [--name=value ...]."
        )
    return rest


def _is_user_error(error: Exception) -> bool:
    if isinstance(error, ValueError | OSError | ImportError | MemoryError | ArithmeticError):
        return True
    # Class names are compared, because importing TensorFlow takes seconds.
    return any(base.__name__ == "OpError" for base in type(error).__mro__)


def _interrupt_again(dropped: "sys.UnraisableHookArgs") -> None:
    """Repeats a Ctrl-C that arrived during a finalizer, where Python ignores exceptions.

    This is common, because TensorFlow and JAX run Python code during garbage collection.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    # The delay is needed, because an interrupt raised in this function would be ignored again.
    # Unlike _thread.interrupt_main, a real signal ends a blocking operation of the main thread.
    arguments = threading.main_thread().ident, signal.SIGTERM
    timer = threading.Timer(0.01, signal.pthread_kill, arguments)
    timer.daemon = True
    timer.start()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt: signal handler that ignores signals once the process exits."""
    global _is_interrupted
    _is_interrupted = True
    if not _is_exiting:
        raise KeyboardInterrupt


def load_tensorflow() -> None:
    """Imports TensorFlow without its log messages; ``main`` calls it after checking the flags."""
    if "tensorflow" not in sys.modules and not flags.FLAGS.debug:
        runtime.load_quietly()


def define_flags(*declarations: type) -> None:
    """Defines the flags of a command: the fields of dataclasses, and ``--debug``."""
    flag_fields.define_flags(flags.FLAGS, *declarations, _Settings)


def run(
    main: Callable[..., None],
    *declarations: type,
    read: Callable[[flags.FlagValues], Iterable[Any]] | None = None,
    arguments: Sequence[str] = (),
    passes_on: bool = False,
) -> None:
    """Parses the flags, runs ``main`` and exits the process.

    The exit status is 0 when ``main`` returns and after ``--help``; 1 after an error, which is
    printed as one line on standard error (``--debug`` prints the traceback); 130 after Ctrl-C or
    SIGTERM; 141 if standard output was closed.

    Args:
        main: Function of the settings and of the arguments that follow the flags. It raises
            ``ValueError`` or ``OSError`` for user errors.
        *declarations: Dataclasses with the flags as fields.
        read: Function that builds the settings from the parsed flags; by default
            ``flag_fields.settings_of``.
        arguments: Names of the required positional arguments, such as ``("DATA",)``. The docstring
            of the command's module, which is its ``--help``, describes them.
        passes_on: Whether ``main`` also receives flags that the command does not define.
    """

    def guarded(argv: list[str]) -> None:
        try:
            sys.stdout = EscapedStream(sys.stdout)
            print_warnings_as_lines()
            sys.unraisablehook = _interrupt_again
            if not flags.FLAGS.debug:
                logging.set_verbosity(logging.WARNING)
            runtime.check_versions()
            parsed = flags.FLAGS
            settings = read(parsed) if read else flag_fields.settings_of(parsed, *declarations)
            main(*settings, *argv[1:])
        except Exception as error:
            if _is_interrupted:
                # Extension modules replace a KeyboardInterrupt by an ImportError, for example.
                raise KeyboardInterrupt from error
            if flags.FLAGS.debug or not _is_user_error(error) or not runtime.is_stdout_open():
                raise
            message = reason(error)
            for sign, remedy in _REMEDIES.items():
                if sign in message and remedy.split()[0] not in message:
                    message = f"{message.rstrip('.')}: {remedy}."
            print(f"Error: {message}", file=sys.stderr, flush=True)
            # After a worker is lost, a regular exit could wait minutes for TensorFlow's connections
            # to it. The class is compared by name, without an import.
            if type(error).__name__ == "LostWorkerError":
                print(end="", flush=True)
                os._exit(1)
            sys.exit(1)

    define_flags(*declarations)
    runtime.set_environment()
    parse = functools.partial(_parse, arguments=arguments, passes_on=passes_on)
    global _is_exiting
    # Registered first, so that it is called last. Otherwise SIGINT would end Python if the
    # interrupt arrived within an ``exec``.
    atexit.register(lambda: os._exit(INTERRUPTED) if _is_exiting else None)
    try:
        signal.signal(signal.SIGTERM, interrupt)  # like Ctrl-C
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        with runtime.exit_quietly_on_broken_pipe():
            app.run(guarded, flags_parser=parse)
    except KeyboardInterrupt:
        # Before any call, after which Python would handle a further signal.
        _is_exiting = True
        print("\nInterrupted.", file=sys.stderr, flush=True)
        # A further Ctrl-C ends the process if it waits for a thread.
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        sys.exit(INTERRUPTED)
