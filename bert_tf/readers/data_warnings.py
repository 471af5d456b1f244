"""Warnings about labels and texts that are valid but look like mistakes."""

import collections
import contextlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from bert_tf.io.messages import listed, quote

from .examples import Location, TextExample, format_location, name

YES_AND_NO = frozenset({"0", "1", "false", "true"})
_MAX_LABELS = 5
# Texts that programs write for missing values.
_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "#n/a", "<na>", "nil", "-100", "-"})
# Invisible characters, except joiners, which some languages require.
_HIDDEN = re.compile("[\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_FLOAT = re.compile(r"-?\d+\.0")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# Minimum number of classes for a warning that the column may be the wrong one.
_MANY_CLASSES = 20
_ALMOST_ALL = 0.97
_FEW_EXAMPLES = 20  # Fractions of fewer examples are not meaningful.
# Artifacts in fewer texts than this may be intended.
_MIN_FOUND, _MIN_FRACTION = 3, 0.003
_LAST_FIELD = re.compile(r"[,;\t|]([^,;\t|\n]*)\n")


class LabelCounts:
    """Counts of the labels in a file, and the location of each label's first row."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[str, str] = {}
        self._not_text: Any = None  # the first label that is not a string

    def add(self, labels: Iterable[str], location: Location, value: Any) -> None:
        """Counts the labels of a row; ``value`` is the original field."""
        if self._not_text is None:
            values = value if isinstance(value, list) else [value]
            self._not_text = next((v for v in values if not isinstance(v, str)), None)
        for label in labels:
            self.counts[label] += 1
            self.first.setdefault(label, format_location(location))

    def format(self, labels: Iterable[str]) -> str:
        """Formats labels with the locations of their first rows."""
        return listed((f"{quote(label)} ({self.first[label]})" for label in labels), _MAX_LABELS)

    def type_notes(self, path: str) -> list[str]:
        """Returns a note if labels are not strings, because predictions are strings."""
        if self._not_text is None:
            return []
        value, text = quote(self._not_text), quote(name(self._not_text, ""))
        return [
            f"{path}: class names are strings, so the label {value} is predicted as {text}. Pass "
            "the labels as strings if you want to compare them with the predictions."
        ]


def class_notes(
    path: str, column: str, found: LabelCounts, items: Sequence[TextExample]
) -> list[str]:
    """Returns notes if a class is very frequent, or if names do not look like classes."""
    counts, total = found.counts, len(items)
    notes = alike_notes(path, found) + found.type_notes(path)
    # Numbers of classes per example, for multilabel.
    several = {len(item.label) for item in items if isinstance(item.label, tuple)}
    is_large = len(counts) >= _MANY_CLASSES and not several
    frequent, count = counts.most_common(1)[0]
    if total >= _FEW_EXAMPLES and len(counts) > 1 and count >= _ALMOST_ALL * total and not several:
        notes.append(
            f"{count / total:.1%} of the examples have the class {quote(frequent)}, so accuracy is "
            "not meaningful. Use --metric=macro_f1 or matthews_correlation, and try "
            "--class_weights=balanced."
        )
    if is_large and 2 * len(counts) > total:
        notes.append(
            f"{column} has {len(counts):,} classes in {total:,} examples. Check --label_column."
        )
    if column in counts:
        notes.append(
            f"{path}, {found.first[column]}: the class {quote(column)} equals the column name. If "
            "files were concatenated, remove the extra header."
        )
    are_floats = len(counts) > 1 and all(map(_FLOAT.fullmatch, counts))
    are_numbers = is_large and all(map(NUMBER.fullmatch, counts)) and not are_floats
    are_yes_or_no = several in ({1}, {2}) and YES_AND_NO.issuperset(map(str.lower, counts))
    odd: list[tuple[Collection[str], str]] = [
        (
            [name for name in counts if name.lower() in _MISSING],
            "Remove these rows if their label is missing.",
        ),
        (
            [name for name in counts if name[0] == "[" or name[-1] == "]"],
            "They look like lists or pieces of lists. Write only the names (for multilabel, "
            "separated by --label_separator), or use lists in a .jsonl file.",
        ),
        (
            counts if are_yes_or_no else (),
            "If they are yes/no values of several classes, write the names of the classes that "
            "apply into one column, separated by --label_separator.",
        ),
        (
            counts if are_floats else (),
            "pandas converts integers to floats if values are missing. Write 0 instead of 0.0, or "
            "use --task=regression to predict numbers.",
        ),
        (counts if are_numbers else (), "Use --task=regression if they are quantities."),
    ]
    listings = ((found.format(names), remedy) for names, remedy in odd if names)
    notes += [f"{path}: the classes include {names}. {remedy}" for names, remedy in listings]
    split = {name: re.split("[;|] *" if several else "[,;|] *", name) for name in counts}
    joined = [n for n in sorted(split) if split[n][1:] and (several or {*split[n]} <= {*split})]
    if joined:
        remedy = "Set --label_separator" if several else "Use --task=multilabel"
        notes.append(
            f"{path}: labels such as {listed(joined, 5)} are read as one class each. {remedy} if "
            "they combine several classes."
        )
    rows = [
        i.id for i in items if "\n" in i.text_a and {*counts} & {*_LAST_FIELD.findall(i.text_a)}
    ]
    if rows:
        notes.append(
            f"{path}: {len(rows):,} texts contain lines that end with a class name, as rows do "
            f"(first: row {rows[0]}). Check the file for extra or missing quotes."
        )
    return notes


def alike_notes(path: str, found: LabelCounts) -> list[str]:
    """Returns a note if class names look alike or contain invisible characters."""
    seen = {name: _HIDDEN.sub("", unicodedata.normalize("NFKC", name)) for name in found.counts}
    looks = {name: " ".join(text.casefold().split()) for name, text in seen.items()}
    alike = collections.Counter(looks.values())
    odd = [name for name in looks if alike[looks[name]] > 1 or _HIDDEN.search(name)]
    if not odd:
        return []
    return [
        f"{path}: the classes {found.format(odd)} look alike or contain invisible characters. "
        "Write each class name in only one way."
    ]


# === Texts of any task ===


def _is_utf8(text: str) -> bool:
    for encoding in () if text.isascii() else ("latin-1", "cp1252"):
        with contextlib.suppress(UnicodeError):
            return bool(text.encode(encoding).decode())
    return False


_CONTROLS = re.compile("[\x80-\x9f]")


def _is_quoted(text: str) -> bool:
    return text[:1] == text[-1:] == '"' and '""' in text[1:-1]


# Artifacts of other programs, each with a function that finds it and a remedy.
_TRACES: Mapping[str, tuple[Callable[[str], object], str]] = {
    "UTF-8 that was read as another encoding": (_is_utf8, "Remove --encoding, or correct the file"),
    "control characters, which the tokenizer deletes": (
        lambda text: _CONTROLS.search(text) and not _is_utf8(text),
        "Pass --encoding=cp1252 instead of latin-1, or correct the file",
    ),
    "'[CLS]' or '[SEP]', which are read as plain text": (
        re.compile(r"\[(CLS|SEP)\]").search,
        "Remove them, and pass two texts as two columns (--text_columns=first,second)",
    ),
    "a list or an object that was written as text": (
        re.compile(r"""(\[['"].*['"]\]|\{['"].*\})\s*""", re.DOTALL).fullmatch,
        "Write one text, or pass a .jsonl or .parquet file if the task reads lists",
    ),
    "Python bytes literals": (
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
    "quotes around the text and doubled quotes inside, as in .csv files": (
        _is_quoted,
        "Rename the file to .csv, and pass --delimiter=tab if tabs separate the columns",
    ),
}


def text_notes(sets: Mapping[str, Iterable[Mapping[str, str]]]) -> list[str]:
    """Returns notes if texts contain artifacts, or if almost all texts of a column are equal.

    Each note names the first data set and column to which it applies.

    Args:
        sets: Examples of each data set by name; an example maps column names to texts.
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
            # Columns of choices have numbers as names. A choice may be the same in all rows.
            is_choice = column.isdecimal()
            if len(texts) >= _FEW_EXAMPLES and count >= _ALMOST_ALL * len(texts) and not is_choice:
                notes.setdefault(
                    "",
                    f"{where}: {count:,} of {len(texts):,} texts are {quote(text, 60)}. Check "
                    "--text_columns.",
                )
    return list(notes.values())
