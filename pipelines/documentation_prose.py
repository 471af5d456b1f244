"""The prose of technical documentation: docstrings, reStructuredText, Markdown.

Code, tables, headings and markup go; descriptions of parameters and list items stay where they are
sentences. It is a filter for text to learn from, not a parser: what is not surely prose is dropped.
"""

import re
from collections.abc import Iterator

_SHORTEST_SENTENCE = 4  # words
_LONGEST_SENTENCE = 600  # characters; anything longer is a list in disguise

_FENCE = re.compile(r"^[ ]*(```|~~~).*?(^[ ]*\1[ ]*$|\Z)", re.DOTALL | re.MULTILINE)
_RULE = re.compile(r"^\s*([=\-~^*+#_|.`\"'])[=\-~^*+#_|.`\"' ]{2,}$")
_CODE = re.compile(r"^\s*(>>>|\.\.\. |\.\.\.$|\$ |\| |%|@)")
_DIRECTIVE = re.compile(r"^\s*\.\. (\w*:?)*?[\w-]+::\s*")
_TOLD_BY_DIRECTIVE = re.compile(
    r"^\s*\.\. (note|warning|tip|hint|important|caution|attention|seealso)::\s*"
)
_BULLET = re.compile(r"^\s*([*+•-]|\(?\d{1,2}[.)]|#\.)\s+")
_FIELD = re.compile(r"^\s*:[\w\s*]+:\s+")
_TYPED = re.compile(r"^\s*\*{0,2}\w+(, \*{0,2}\w+)* : .*$")  # NumPy's, the text stands below
_ARGUMENT = re.compile(
    r"^\s*(?!TODO|XXX|FIXME)(\*{0,2}`{0,2}[\w./\[\]]+`{0,2}(,\s*`?[\w.]+`?)*)(\s\([^)]*\))?:(\s+|$)"
)
_ROLE = re.compile(r":[\w:]+:`[~!]?([^`<]*?)(\s*<[^>`]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^>`]*>`_{1,2}|\[([^\]]+)\]\([^)]*\)")
_FOOTNOTE = re.compile(r"\s*\[[\w#*]+\]_")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(\S|\S[^*\n]*?\S)\1(?![\w*])")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z])")
_ABBREVIATION = re.compile(r"(^|[\s(])([A-Z]|e\.g|i\.e|etc|vs|cf|resp|al|Dr|Mr|Mrs|St|No|Fig)\.$")
_WORD = re.compile(r"[\"'(\[]*[A-Za-z][A-Za-z'’-]*[\"')\].,;:!?]*$")
_NOT_PROSE = re.compile(r"[\\{}|@<>]|==|--|://|\.\.\.|__\w|\b(XXX|TODO|FIXME)\b")
_PROSE_WORDS = 0.8  # the part of a sentence's words that consist of letters


def read_prose(text: str) -> Iterator[list[str]]:
    """Reduces a docstring, or a page of reStructuredText or Markdown, to its prose.

    Args:
        text: the docstring, its common indentation removed (``inspect.cleandoc``).

    Yields:
        The sentences of each paragraph or list item that has any.

    >>> list(read_prose('''Adds `x` and :class:`~numpy.ndarray` y. It is *fast*, e.g. A test.
    ...
    ... Args:
    ...   x: The first number of the two.
    ...
    ... >>> print(x)
    ... '''))
    [['Adds x and numpy.ndarray y.', 'It is fast, e.g. A test.'], ['The first number of the two.']]
    """
    text = _FENCE.sub("", text.expandtabs(4))
    code_indent = None  # the indentation of the paragraph that announced code by "::"
    for block in re.split(r"\n[ ]*\n", text):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        indent = _indent(lines[0])
        if code_indent is not None and indent > code_indent:
            continue
        code_indent = indent if lines[-1].endswith("::") else None
        if _DIRECTIVE.match(lines[0]) and not _TOLD_BY_DIRECTIVE.match(lines[0]):
            continue
        for item in _items(lines):
            sentences = [s for s in split_sentences(_plain(item)) if _is_prose(s)]
            if sentences:
                yield sentences


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph of English into sentences, but not at abbreviations and initials.

    >>> split_sentences("See e.g. Smith. J. Doe agrees! (Who else?) All.")
    ['See e.g. Smith.', 'J. Doe agrees!', '(Who else?)', 'All.']
    """
    sentences = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        sentence = text[start : end.end()].strip()
        if not _ABBREVIATION.search(sentence):
            sentences.append(sentence)
            start = end.end()
    rest = text[start:].strip()
    return [*sentences, rest] if rest else sentences


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _items(lines: list[str]) -> Iterator[str]:
    """Yields the paragraphs and list items of a block, each on one line, without their markers."""
    item: list[str] = []
    indent = 0
    for line in lines:
        if _RULE.match(line):
            item = []  # the line above a rule is a heading
            continue
        if _CODE.match(line):
            break
        stripped = line
        for marker in (_TOLD_BY_DIRECTIVE, _BULLET, _FIELD, _TYPED, _ARGUMENT):
            stripped = marker.sub("", stripped, count=1)
        # The first line of an item may hang: only a further change of indentation starts anew.
        if stripped != line or (len(item) != 1 and _indent(line) != indent):
            if item:
                yield " ".join(item)
            item = []
        item.append(stripped.strip())
        indent = _indent(line)
    if item:
        yield " ".join(item)


def _plain(text: str) -> str:
    text = _ROLE.sub(r"\1", text)
    text = _LINK.sub(lambda match: match[1] or match[2], text)
    text = _FOOTNOTE.sub("", text)
    text = _EMPHASIS.sub(r"\2", text).replace("`", "")
    return " ".join(text.removesuffix("::").split())


def _is_prose(sentence: str) -> bool:
    """Whether a sentence ends like one, is neither stub nor list, and is mostly made of words."""
    words = sentence.split()
    if len(words) < _SHORTEST_SENTENCE or len(sentence) > _LONGEST_SENTENCE:
        return False
    if sentence.rstrip("\"')]")[-1:] not in tuple(".!?:") or _NOT_PROSE.search(sentence):
        return False
    return sum(_WORD.match(word) is not None for word in words) >= _PROSE_WORDS * len(words)
