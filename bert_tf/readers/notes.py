"""Notes on data that are read as they are and may not be meant; none is an error."""

import collections
import contextlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

from bert_tf.wording import listed, quote

from .examples import Place, TextExample, place_name

YES_AND_NO = frozenset({"0", "1", "false", "true"})
_LABELS_SHOWN = 5
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
# Marks of other programs in texts, and what to do where most of the first thousand have them.
_MARKS = {
    r"(?s)\[CLS\]|.*\[SEP\]": "hold '[CLS]' or '[SEP]', which are read as letters in brackets: "
    "leave them out, and give two texts as two columns (--text_columns=first,second)",
    r"\[['\"]": "begin with a bracket and a quote, as Python shows lists: join their words, with "
    "blanks between them, when they are written",
    "b['\"]": "begin with b and a quote, as Python shows bytes: decode them when they are written",
}
_LAST_FIELD = re.compile(r"[,;\t|]([^,;\t|\n]*)\n")


class LabelPlaces:
    """Count of each label in a file, and the place of its first row."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[str, str] = {}

    def add(self, labels: Iterable[str], place: Place) -> None:
        """Counts the labels of a row."""
        for label in labels:
            self.counts[label] += 1
            self.first.setdefault(label, place_name(place))

    def shown(self, labels: Iterable[str]) -> str:
        """Names labels with their first places."""
        return listed((f"{quote(label)} ({self.first[label]})" for label in labels), _LABELS_SHOWN)


def class_notes(
    path: str, column: str, places: LabelPlaces, items: Sequence[TextExample]
) -> list[str]:
    """Notes where nearly all examples have one class, or names do not look like classes."""
    counts, total = places.counts, len(items)
    notes = alike_notes(path, places)
    # The numbers of classes that examples have, where each may have several.
    several = {len(item.label) for item in items if isinstance(item.label, tuple)}
    is_large = len(counts) >= _MANY_CLASSES and not several
    name, count = counts.most_common(1)[0]
    if total >= _FEW_EXAMPLES and len(counts) > 1 and count >= _ALMOST_ALL * total and not several:
        notes.append(
            f"{count / total:.1%} of the examples have the class {quote(name)}, so the accuracy "
            "says little: judge by macro_f1 or matthews_correlation, and try "
            "--class_weights=balanced."
        )
    if is_large and 2 * len(counts) > total:
        notes.append(
            f"{column} has {len(counts):,} classes in {total:,} examples: is it the column to "
            "learn (--label_column)?"
        )
    if column in counts:
        notes.append(
            f"{path}, {places.first[column]}: the class {quote(column)} is the column's own "
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
    shown_names = ((places.shown(names), remedy) for names, remedy in odd if names)
    return notes + [f"{path}: {names} count as classes: {remedy}" for names, remedy in shown_names]


def alike_notes(path: str, places: LabelPlaces) -> list[str]:
    """Notes on names with invisible characters, and on names that look alike."""
    seen = {name: _HIDDEN.sub("", unicodedata.normalize("NFKC", name)) for name in places.counts}
    looks = {name: " ".join(text.casefold().split()) for name, text in seen.items()}
    alike = collections.Counter(looks.values())
    odd = [name for name in looks if alike[looks[name]] > 1 or _HIDDEN.search(name)]
    remedy = "look alike or hold characters that are not seen: spell each class in one way"
    return [f"{path}: {places.shown(odd)} count as classes, and {remedy}."] if odd else []


def text_notes(path: str, items: Sequence[TextExample], labels: Sequence[str]) -> list[str]:
    """Notes on texts that hold other programs' marks, or the rows behind a stray quote."""
    first = [item.text_a for item in items[:1000]]
    has = {mark: sum(re.match(mark, text) is not None for text in first) for mark in _MARKS}
    notes = [
        f"{path}: most texts {_MARKS[m]}." for m, count in has.items() if 2 * count > len(first)
    ]
    quoted = sum(text[:1] == text[-1:] == '"' and '""' in text[1:-1] for text in first)
    if quoted:
        notes.append(
            f"{path}: {quoted:,} texts are in quotes, with quotes doubled inside, as in a .csv: "
            "let the name end so, and give --delimiter=tab where tabs separate the columns."
        )
    classes, several = {*labels}, isinstance(items[0].label, tuple)
    parts = {name: re.split("[;|] *" if several else "[,;|] *", name) for name in labels}
    joined = [name for name in parts if parts[name][1:] and (several or classes >= {*parts[name]})]
    if joined:
        remedy = "--label_separator says what separates" if several else "--task=multilabel learns"
        notes.append(f"{path}: {listed(joined, 5)} are one class each: {remedy} several.")
    rows = [i.id for i in items if "\n" in i.text_a and classes & {*_LAST_FIELD.findall(i.text_a)}]
    if rows:
        notes.append(
            f"{path}: lines inside of {len(rows):,} texts end with a class, as rows do (the first "
            f"text is row {rows[0]}): is there a quote too much, or one missing?"
        )
    return notes


def _is_utf8(text: str) -> bool:
    for encoding in () if text.isascii() else ("latin-1", "cp1252"):
        with contextlib.suppress(UnicodeError):
            return bool(text.encode(encoding).decode())
    return False


# How texts are known that were read in another encoding than their own, and what to do.
_ENCODINGS: dict[Callable[[str], object], str] = {
    _is_utf8: "seem to be UTF-8 that was read as another encoding, such as {}: leave --encoding "
    "out, or mend the file.",
    re.compile("[\x80-\x9f]").search: "hold control characters, such as {}, where cp1252 has "
    "quotes and dashes, and the tokenizer deletes them: give --encoding=cp1252 in place of "
    "latin-1, or mend a UTF-8 file.",
}


def encoding_notes(texts: Sequence[str]) -> list[str]:
    """A note on texts that seem to be read in another encoding than their own."""
    for is_odd, remedy in _ENCODINGS.items():
        odd = [text for text in texts if is_odd(text)]
        if len(odd) > 2:
            word = next(filter(is_odd, odd[0].split()), odd[0])
            return [f"{len(odd):,} of {len(texts):,} examples {remedy.format(quote(word, 60))}"]
    return []
