"""What --help prints: a program's docstring, and its flags in sections."""

import sys
import textwrap

from absl import flags

_WIDTH = 80


def help_text(
    program: str, values: flags.FlagValues = flags.FLAGS, *, is_whole: bool = False
) -> str:
    """The program's docstring and its flags, or those that are not rare, with defaults and bounds.

    The flags are those of the module that is run, and of ``command``.
    """
    found = [
        flag
        for module in (sys.argv[0], "bert_tf.cli.command")
        for flag in values.get_key_flags_for_module(module)
        if flag.help  # else it is another's other name
    ]
    parts, heading = [(sys.modules["__main__"].__doc__ or "").strip()], "Flags"
    for flag in found:
        heading = getattr(flag, "heading", "") or heading
        if not is_whole and getattr(flag, "is_rare", False):
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
