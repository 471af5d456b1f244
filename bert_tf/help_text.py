"""The text of ``--help``: what the command is for, and its flags under headings, in their order."""

import sys
import textwrap

from absl import flags

# The heading above a flag, of each flag that is the first under one.
HEADINGS = {"debug": "Errors"}
_WIDTH = 80


def help_text(values: flags.FlagValues = flags.FLAGS) -> str:
    """The docstring of the program, and each of its flags with its default and bounds."""
    parts = [(sys.modules["__main__"].__doc__ or "").strip()]
    for flag in values.get_key_flags_for_module(sys.argv[0]):
        if heading := HEADINGS.get(flag.name):
            parts.append(f"\n{heading}:\n")
        parts.append(_paragraph(flag))
    return "\n".join(parts)


def _paragraph(flag: flags.Flag) -> str:
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    default = f"default: {flag.default_as_str}" if flag.default_as_str else ""
    more = "; ".join(filter(None, (default, flag.parser.syntactic_help)))
    text = f"{name}: {flag.help}" + f" ({more})" * bool(more)
    return textwrap.fill(
        text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )
