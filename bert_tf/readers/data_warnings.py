"""Notes on data that are read as they are and may not be meant; none is an error."""

import collections
import contextlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from bert_tf.io.wording import listed, quote

from .examples import Location, TextExample, format_location, name

YES_AND_NO = frozenset({"0", "1", "false", "true"})
_MAX_LABELS = 5
# Texts that programs write for a missing value.
_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "#n/a", "<na>", "nil", "-100", "-"})
# Invisible characters, but for joiners, which words of some languages need.
_HIDDEN = re.compile("[\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_FLOAT = re.compile(r"-?\d+\.0")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# Fewer classes than these are no cause to ask whether the column is the right one.
_MANY_CLASSES = 20
_ALMOST_ALL = 0.97
_FEW_EXAMPLES = 20  # of fewer a share says little
# A trace of another program in fewer texts may be what their authors wrote.
_MIN_FOUND, _MIN_FRACTION = 3, 0.003
_LAST_FIELD = re.compile(r"[,;\t|]([^,;\t|\n]*)\n")


class LabelCounts:
    """Count of each label in a file, and the place of its first row."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[str, str] = {}
        self._not_text: Any = None  # the first label that is a number, true or false

    def add(self, labels: Iterable[str], location: Location, value: Any) -> None:
        """Counts the labels of a row, whose field has the ``value``."""
        if self._not_text is None:
            values = value if isinstance(value, list) else [value]
            self._not_text = next((v for v in values if not isinstance(v, str)), None)
        for label in labels:
            self.counts[label] += 1
            self.first.setdefault(label, format_location(location))

    def format(self, labels: Iterable[str]) -> str:
        """Names labels with their first places."""
        return listed((f"{quote(label)} ({self.first[label]})" for label in labels), _MAX_LABELS)

    def type_notes(self, path: str) -> list[str]:
        """Returns a note that predictions do not equal labels that are not text."""
        if self._not_text is None:
            return []
        value, text = quote(self._not_text), quote(name(self._not_text, ""))
        return [
            f"{path}: classes are text: the label {value} is predicted as {text}, which does not "
            "equal it. Pass the labels as strings if you compare them with predictions."
        ]


def class_notes(
    path: str, column: str, found: LabelCounts, items: Sequence[TextExample]
) -> list[str]:
    """Notes where nearly all examples have one class, or names do not look like classes."""
    counts, total = found.counts, len(items)
    notes = alike_notes(path, found) + found.type_notes(path)
    # The numbers of classes that examples have, where each may have several.
    several = {len(item.label) for item in items if isinstance(item.label, tuple)}
    is_large = len(counts) >= _MANY_CLASSES and not several
    frequent, count = counts.most_common(1)[0]
    if total >= _FEW_EXAMPLES and len(counts) > 1 and count >= _ALMOST_ALL * total and not several:
        notes.append(
            f"{count / total:.1%} of the examples have the class {quote(frequent)}, so the "
            "accuracy says little: judge by macro_f1 or matthews_correlation, and try "
            "--class_weights=balanced."
        )
    if is_large and 2 * len(counts) > total:
        notes.append(
            f"{column} has {len(counts):,} classes in {total:,} examples: is it the column to "
            "learn (--label_column)?"
        )
    if column in counts:
        notes.append(
            f"{path}, {found.first[column]}: the class {quote(column)} is the column's own "
            "name: if files were joined, remove the line with the names."
        )
    are_floats = len(counts) > 1 and all(map(_FLOAT.fullmatch, counts))
    are_numbers = is_large and all(map(NUMBER.fullmatch, counts)) and not are_floats
    are_yes_or_no = several in ({1}, {2}) and YES_AND_NO.issuperset(map(str.lower, counts))
    odd: list[tuple[Collection[str], str]] = [
        (
            [name for name in counts if name.lower() in _MISSING],
            "where they stand for no label, remove those rows.",
        ),
        (
            [name for name in counts if name[0] == "[" or name[-1] == "]"],
            "they look like lists or pieces of them: write the names alone (where each may have "
            "several, for multilabel, with --label_separator between them), or lists in a .jsonl.",
        ),
        (
            counts if are_yes_or_no else (),
            "if they say whether a class holds, and other columns or places whether others do, "
            "write the names of those that hold into one column, --label_separator between them.",
        ),
        (
            counts if are_floats else (),
            "numbers become so where a column had gaps: write 0 for 0.0 if predictions should, and "
            "--task=regression learns numbers.",
        ),
        (
            counts if are_numbers else (),
            f"if all {len(counts):,} are amounts and no codes, --task=regression learns which of "
            "them are near each other.",
        ),
    ]
    listings = ((found.format(names), remedy) for names, remedy in odd if names)
    notes += [f"{path}: {names} count as classes: {remedy}" for names, remedy in listings]
    split = {name: re.split("[;|] *" if several else "[,;|] *", name) for name in counts}
    joined = [n for n in sorted(split) if split[n][1:] and (several or {*split[n]} <= {*split})]
    if joined:
        remedy = "--label_separator says what separates" if several else "--task=multilabel learns"
        notes.append(f"{path}: {listed(joined, 5)} are one class each: {remedy} several.")
    rows = [
        i.id for i in items if "\n" in i.text_a and {*counts} & {*_LAST_FIELD.findall(i.text_a)}
    ]
    if rows:
        notes.append(
            f"{path}: lines inside of {len(rows):,} texts end with a class, as rows do (the first "
            f"text is row {rows[0]}): is there a quote too much, or one missing?"
        )
    return notes


def alike_notes(path: str, found: LabelCounts) -> list[str]:
    """Notes on names with invisible characters, and on names that look alike."""
    seen = {name: _HIDDEN.sub("", unicodedata.normalize("NFKC", name)) for name in found.counts}
    looks = {name: " ".join(text.casefold().split()) for name, text in seen.items()}
    alike = collections.Counter(looks.values())
    odd = [name for name in looks if alike[looks[name]] > 1 or _HIDDEN.search(name)]
    remedy = "look alike or hold characters that are not seen: spell each class in one way"
    return [f"{path}: {found.format(odd)} count as classes, and {remedy}."] if odd else []


# === Texts of any task ===


def _is_utf8(text: str) -> bool:
    for encoding in () if text.isascii() else ("latin-1", "cp1252"):
        with contextlib.suppress(UnicodeError):
            return bool(text.encode(encoding).decode())
    return False


_CONTROLS = re.compile("[\x80-\x9f]")


def _is_quoted(text: str) -> bool:
    return text[:1] == text[-1:] == '"' and '""' in text[1:-1]


# What other programs leave in texts: how it is found, and the remedy.
_TRACES: Mapping[str, tuple[Callable[[str], object], str]] = {
    "UTF-8 that was read as another encoding": (
        _is_utf8,
        "Remove --encoding, or correct the file",
    ),
    "control characters, which the tokenizer deletes": (
        lambda text: _CONTROLS.search(text) and not _is_utf8(text),
        "Pass --encoding=cp1252 instead of latin-1, or correct the file",
    ),
    "'[CLS]' or '[SEP]', which are read as plain text": (
        re.compile(r"\[(CLS|SEP)\]").search,
        "Remove them, and pass two texts as two columns (--text_columns=first,second)",
    ),
    "a list or an object as text": (
        re.compile(r"""(\[['"].*['"]\]|\{['"].*\})\s*""", re.DOTALL).fullmatch,
        "Write one text, or pass a .jsonl or .parquet file if the task reads lists",
    ),
    "Python's notation of bytes": (
        re.compile(r"""b(['"]).*\1\s*""", re.DOTALL).fullmatch,
        "Decode the bytes before writing them",
    ),
    "HTML entities": (
        re.compile(r"&([a-zA-Z]{2,8}|#\d{2,6}|#[xX][0-9a-fA-F]{2,5});|#39;").search,
        "Decode them, for example with Python's html.unescape",
    ),
    "escape sequences instead of characters": (
        re.compile(r"\\(u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|x[0-9a-fA-F]{2})").search,
        "Write the characters, for example with json.dumps(..., ensure_ascii=False)",
    ),
    "quotes around the text and doubled quotes inside, as in a .csv": (
        _is_quoted,
        "Rename the file to .csv, and pass --delimiter=tab if tabs separate the columns",
    ),
}


def text_notes(sets: Mapping[str, Iterable[Mapping[str, str]]]) -> list[str]:
    """Returns notes on texts that another program changed, and on columns of one text.

    Each note names the first set and column to which it applies.

    Args:
        sets: The examples of each set, as their texts by the names of the columns.
    """
    notes: dict[str, str] = {}
    for set_name, examples in sets.items():
        columns: dict[str, list[str]] = {}
        for example in examples:
            for column, text in example.items():
                columns.setdefault(column, []).append(text)
        for column, texts in columns.items():
            where = f"{set_name}, {column}" if column else set_name
            for trace, (has_trace, remedy) in _TRACES.items():
                found = [text for text in texts if has_trace(text)]
                if len(found) >= max(_MIN_FOUND, _MIN_FRACTION * len(texts)):
                    word = next(filter(has_trace, found[0].split()), found[0])
                    notes.setdefault(
                        trace,
                        f"{where}: {len(found):,} of {len(texts):,} texts contain {trace}, such as "
                        f"{quote(word, 60)}. {remedy}.",
                    )
            text, count = collections.Counter(texts).most_common(1)[0]
            # Choices, whose columns are numbers, may be yes and no in every row.
            is_choice = column.isdecimal()
            if len(texts) >= _FEW_EXAMPLES and count >= _ALMOST_ALL * len(texts) and not is_choice:
                notes.setdefault(
                    "",
                    f"{where}: {count:,} of {len(texts):,} texts are {quote(text, 60)}. Check "
                    "--text_columns.",
                )
    return list(notes.values())
