"""Runs a command: parses its flags, prints an error in one sentence, sets the exit status.

A command's module has a dataclass of its flags and a ``main(settings)``, imports nothing heavy at
its top (so that ``--help`` is quick), and ends with ``command.run(main, Settings)``.
"""

import _thread
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
from typing import Any

from absl import app, flags, logging

from bert_tf.io.runtime import (
    check_versions,
    exit_quietly_on_broken_pipe,
    is_stdout_open,
    load_quietly,
    set_environment,
)
from bert_tf.io.wording import (
    EscapedStream,
    did_you_mean,
    one_line,
    print_warnings_as_lines,
    quote,
    reason,
)

from . import flag_fields
from .other_scripts import instead

_WIDTH = 80  # of help
_HELP = re.compile("-h|--?help(?P<more>full|=(?P<which>.*))?")
INTERRUPTED = 130  # what a shell gives a program that Ctrl-C ended
# How Python and absl refuse a flag's value, and what the flag expects.
_EXPECTED = {
    r": invalid literal for int\(\) .*": ": expected a whole number",
    r": could not convert string to float.*": ": expected a number",
    r": \('Non-boolean argument .*": ": expected true or false",
}
_OTHER_RECORD = (
    "this record has other values than the first of its file; write all of them anew, with one "
    "--max_seq_length and --max_predictions_per_seq"
)
# Remedies for errors of the operating system and of TensorFlow that name none.
_REMEDIES = {
    "No space left on device": "make room there, and give the command again",
    "File system scheme": "copy it to this machine, and name that path",
    "Permission denied": "let this user read or write there, or name another place",
    "values != expected": _OTHER_RECORD,
    "Data types don't match": _OTHER_RECORD,
}


@dataclasses.dataclass
class _Settings:
    """The flag of every command."""

    debug: bool = flag_fields.switch(
        False,
        "Show the Python traceback of an error instead of its one sentence.",
        heading="Errors",
        advanced=True,
    )


def help_text(
    program: str, values: flags.FlagValues = flags.FLAGS, *, is_whole: bool = False
) -> str:
    """The program's docstring and its flags, or those that are not rare, with defaults and bounds.

    The flags are those of the module that is run, and of ``run``.
    """
    found = [
        flag
        for module in (sys.argv[0], __name__)
        for flag in values.get_key_flags_for_module(module)
        if flag.help  # else it is another's other name
    ]
    parts, heading = [(sys.modules["__main__"].__doc__ or "").strip()], "Flags"
    for flag in found:
        heading = getattr(flag, "heading", "") or heading
        if not is_whole and getattr(flag, "advanced", False):
            continue
        if heading:
            parts.append(f"\n{heading}:\n")
            heading = ""
        parts.append(_paragraph(flag))
    if not is_whole:
        parts.append(f"\n{program} --help=all lists all {len(found)} flags.")
    return "\n".join(parts)


def _paragraph(flag: flags.Flag) -> str:
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    default = (flag.default_as_str or "").strip("'")
    more = "; ".join(filter(None, (default and f"default: {default}", flag.parser.syntactic_help)))
    text = f"{name}: {flag.help}" + (f" ({more})" if more else "")
    return textwrap.fill(
        text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def _parse(argv: Sequence[str], arguments: Sequence[str], passes_on: bool) -> list[str]:
    program = argv[0]
    if program.endswith(".py"):
        program = "python -m bert_tf." + program.rsplit("/", 1)[-1].removesuffix(".py")
    try:
        for word in argv[1:]:
            if asked := _HELP.fullmatch(word):
                if asked["which"] not in (None, "all"):
                    sys.exit(f"Error: {quote(word)}: expected --help, or --help=all.")
                print(help_text(program, is_whole=bool(asked["more"])))
                sys.exit(0)
        matches = (re.match("--?([A-Za-z_0-9-]+)", word) for word in argv[1:])
        if left := instead([match[1] for match in matches if match], flags.FLAGS):
            sys.exit(f"Error: this command has no {'; and no '.join(left)}.")
        rest = flags.FLAGS(argv, known_only=passes_on)
    except flags.UnrecognizedFlagError as error:
        guess = did_you_mean(error.flagname, flags.FLAGS, prefix="--")
        sys.exit(
            f"Error: --{one_line(error.flagname)} is no flag of this command{guess}; {program} "
            "--help=all lists the flags."
        )
    except flags.Error as error:
        message = reason(error).rstrip(".")
        for refused, expected in _EXPECTED.items():
            message = re.sub(refused, expected, message)
        sys.exit(f"Error: {message}; {program} --help=all lists the flags.")
    words = [argument for argument in rest[1:] if not (passes_on and argument.startswith("--"))]
    if words and not arguments:
        sys.exit(
            f"Error: {quote(words[0])} is no flag: every argument has the form --name=value, "
            "and a list of files is one argument with commas."
        )
    if len(words) != len(arguments):
        names = " ".join(arguments)
        sys.exit(
            f"Error: expected {names}, got {one_line(' '.join(words)) or 'none'}: "
            f"{program} {names} [--name=value ...] is the whole command."
        )
    return rest


def _is_user_error(error: Exception) -> bool:
    if isinstance(error, ValueError | OSError | ImportError | MemoryError | ArithmeticError):
        return True
    # TensorFlow's file and resource errors, without importing TensorFlow to know them.
    return any(base.__name__ == "OpError" for base in type(error).__mro__)


def _interrupt_again(dropped: "sys.UnraisableHookArgs") -> None:
    """Repeats a Ctrl-C that came while a finalizer ran, where Python drops every exception.

    JAX, which Keras imports where it is installed, and TensorFlow run Python code with the garbage
    collection, so that this is not rare.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    # Not at once: it would be raised in this function, and dropped again.
    timer = threading.Timer(0.01, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


def load_tensorflow() -> None:
    """Imports TensorFlow with a quiet screen, which ``main`` does when the flags are found good."""
    if "tensorflow" not in sys.modules and not flags.FLAGS.debug:
        load_quietly()


def define_flags(*declarations: type) -> None:
    """Defines the flags of a command: the fields of some dataclasses, and its own."""
    flag_fields.define_flags(flags.FLAGS, *declarations, _Settings)


def run(
    main: Callable[..., None],
    *declarations: type,
    read: Callable[[flags.FlagValues], Iterable[Any]] | None = None,
    arguments: Sequence[str] = (),
    passes_on: bool = False,
) -> None:
    """Parses the flags, runs ``main`` and exits the process.

    Exit status: 0 when ``main`` returns, and after ``--help``; 1 after an error, which is one
    sentence on standard error (``--debug`` shows the traceback); 130 after Ctrl-C or
    SIGTERM; 141 where nobody reads standard output any more.

    Args:
        main: takes the settings, and then the arguments left after the flags. It says what a
            user did wrong by ``ValueError`` or ``OSError``.
        *declarations: the dataclasses whose fields are the flags.
        read: makes the settings of the parsed flags, by default ``flag_fields.settings_of``.
        arguments: the names of what the command takes besides flags, such as ``("DATA",)``; all
            of them must be given. Its module's docstring, which is its ``--help``, shows them.
        passes_on: ``main`` takes the flags that the command does not have, too: another program's.
    """

    def guarded(argv: list[str]) -> None:
        try:
            sys.stdout = EscapedStream(sys.stdout)
            print_warnings_as_lines()
            sys.unraisablehook = _interrupt_again
            if not flags.FLAGS.debug:
                logging.set_verbosity(logging.WARNING)
            check_versions()
            parsed = flags.FLAGS
            settings = read(parsed) if read else flag_fields.settings_of(parsed, *declarations)
            main(*settings, *argv[1:])
        except Exception as error:
            if flags.FLAGS.debug or not _is_user_error(error) or not is_stdout_open():
                raise
            message = reason(error)
            for sign, remedy in _REMEDIES.items():
                if sign in message and remedy.split()[0] not in message:
                    message = f"{message.rstrip('.')}: {remedy}."
            print(f"Error: {message}", file=sys.stderr, flush=True)
            # Known by its name, too. What TensorFlow still holds of a lost worker would take Python
            # up to minutes to clean up, in which a scheduler waits.
            if type(error).__name__ == "LostWorkerError":
                print(end="", flush=True)
                os._exit(1)
            sys.exit(1)

    define_flags(*declarations)
    set_environment()
    parse = functools.partial(_parse, arguments=arguments, passes_on=passes_on)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same clean-up
    is_stopped = False
    # The first of such functions is called last. Python would end by SIGINT, where the interrupt
    # had come within an exec.
    atexit.register(lambda: os._exit(INTERRUPTED) if is_stopped else None)
    try:
        with exit_quietly_on_broken_pipe():
            app.run(guarded, flags_parser=parse)
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        is_stopped = True
        print("\nInterrupted.", file=sys.stderr, flush=True)
        sys.exit(INTERRUPTED)
