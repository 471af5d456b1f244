"""Corpus formats: splits text into documents of sentences, and detects the format of a file.

| format        | a document is                  | a paragraph is     | a sentence is   |
|---------------|--------------------------------|--------------------|-----------------|
| google        | up to a blank line             |                    | a line          |
| wikiextractor | ``<doc ...>`` to ``</doc>``    | a line             | split from it   |
| prose         | the file                       | up to a blank line | split from it   |
| paragraphs    | up to a blank line             | a line             | split from it   |

JSON lines and TensorFlow Datasets are converted to ``paragraphs``. Parsing runs in the graph on a
block of text, with a fixed number of regular expressions. The documents of a block do not depend on
sentence boundaries, so indexes do not count sentences.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import IO

import tensorflow as tf

from bert_tf.choices import INPUT_FORMATS
from bert_tf.io.messages import listed, quote
from bert_tf.io.untrusted import parse_json

from .text_bytes import check_utf8, group_items, split_lines

# Line end inserted after a sentence. Input strings have no carriage returns, so the second pass can
# distinguish inserted ends from the ends of paragraphs ("\n").
_MARK = "\r\n"

# Characters between the full stop and the blank, and between the blank and the first letter. Both
# include all quotation marks, because the closing mark in German is the opening mark in English.
_CLOSING = r"""["'\p{Pe}\p{Pf}\p{Pi}*_]*"""
_OPENING = r"""["'\p{Ps}\p{Pi}\p{Pf}¿¡*_]*(?:[—–-]+ ?)?["'\p{Ps}\p{Pi}]*"""
_BLANKS = r"[ \t\x{A0}\x{3000}]+"
_FIRST_LETTER = r"[\p{Lu}\p{Lt}\p{Lo}\p{N}]"

# Words that are rarely names: after an initial or "Inc.", they start a sentence.
STARTERS = (
    "A|After|All|Also|Although|An|And|As|At|Both|But|By|During|Each|For|From|He|Her|His|How|"
    "However|I|If|In|It|Its|Many|Most|No|Not|Of|On|One|Other|She|Since|So|Some|Such|That|The|"
    "Their|Then|There|These|They|This|Those|Thus|To|Under|Until|We|What|When|Where|While|Who|"
    "Why|With|You"
)

# Abbreviations that never end a sentence, because a name or an explanation follows.
TITLES = (
    "Mr|Mrs|Ms|Messrs|Mme|Mlle|Dr|Drs|Prof|Rev|Revd|Hon|St|Ste|Mt|Ft|Gen|Brig|Col|Maj|Capt|Cmdr|"
    "Cdr|Lt|Sgt|Cpl|Pvt|Adm|Gov|Sen|Rep|Pres|Supt|Insp|Msgr|Sra|Srta|Hr|Frl|Geo|Wm|Chas|Thos|"
    r"vs|v|viz|cf|e\.g|i\.e|eg|ie|bzw|z\.B|d\.h|u\.a"
)
# Abbreviations that end a sentence only before a starter.
TRAILERS = r"Jr|Sr|Inc|Ltd|Co|Corp|Bros|al|Ave|Blvd|Dept|Univ|Assn|a\.m|p\.m|A\.m|P\.m|approx"
# Abbreviations that do not end a sentence before a number.
NUMBERED = (
    "No|Nos|no|nos|Nr|Vol|Vols|vol|vols|pp|Pp|Fig|Figs|fig|figs|Eq|eq|Sec|sec|Ch|ch|Chap|chap|"
    "Art|art|Pt|pt|Bk|bk|ca|cca|fl|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|[a-z]"
)

# Group 1, blanks, group 2: a full stop, question or exclamation mark, blanks, and a possible start
#   of a sentence. Full stops after a single capital (an initial or acronym: "J. R.", "U.S.") and
#   after a blank (a spaced ellipsis: ". . .") do not match.
# Group 3, blanks, group 4: such an initial before one of the starters.
# Group 5: an ideographic full stop, which needs no blank.
_END = (
    rf"((?:[!?…‽؟۔।॥]|(?:[^\p{{Lu}}\s.]|[\p{{L}}\p{{N}}°]\p{{Lu}})\.)[.!?…]*{_CLOSING})"
    rf"{_BLANKS}({_OPENING}{_FIRST_LETTER})"
    rf"|([\s.(]\p{{Lu}}\.{_CLOSING}){_BLANKS}((?:{STARTERS})[ ,])"
    rf"|([。！？｡]+[…!?]*{_CLOSING})[ \t\x{{A0}}\x{{3000}}]*"
)
_END_MARKED = rf"\1\3\5{_MARK}\2\4"

# Group 1 keeps its mark, which is inside the group. After the other groups, a blank replaces the
# mark. Numbers, Roman numerals and letters at the start of a paragraph are paragraph numbers ("1.
# Introduction").
_NO_END = (
    rf"(\b(?:{TRAILERS})\.{_MARK}(?:{STARTERS})) "
    rf"|(\b(?:{TITLES}|{TRAILERS})\.|(?m:^)(?:[0-9]{{1,3}}|[IVXLC]{{1,7}}|[a-z])\.){_MARK}"
    rf"|(\b(?:{NUMBERED})\.){_MARK}([0-9])"
)
_NO_END_UNMARKED = r"\1\2\3 \4"


def mark_sentences(text: tf.Tensor) -> tf.Tensor:
    r"""Inserts a line break after every sentence of texts with one paragraph per line.

    A sentence ends at ``. ! ? …`` and their Arabic and Indic counterparts, with closing quotes and
    brackets, before blanks and a capital, a digit, a letter of a caseless script, or an opening
    quote with one of these; at any ``。！？``; and at line breaks. It does not end after titles and
    common abbreviations (mostly English), initials, acronyms, decimals, paragraph numbers, or an
    ellipsis before a lower-case letter.

    Args:
        text: Valid UTF-8 without ``\r``.
            Any shape, string.

    Returns:
        Texts with a ``\n`` or ``\r\n`` after each sentence; only blanks between sentences are
        removed.
    """
    marked = tf.strings.regex_replace(text, _END, _END_MARKED)
    return tf.strings.regex_replace(marked, _NO_END, _NO_END_UNMARKED)


GOOGLE, WIKIEXTRACTOR, PROSE, JSONL = INPUT_FORMATS
PARAGRAPHS = "paragraphs"

# Line between documents, which does not occur in texts or sentences.
_BREAK = "\x1e"

# First and last line of a document, with the line that repeats the title attribute (the authors of
# BERT "extract only the text passages and ignore lists, tables, and headers": section 3.1).
_WIKI_DOCUMENTS = r"(?m:^)(?:</doc>|<doc [^\n]*\n(?:[^\n]*\n\n)?)"
# Remaining lines of templates, files, categories and citations, and prefixes of newer versions.
_WIKI_LINES = r'(?m:^)(?:[ \t]*(?:[|{}#]|\[\[|title="ctx)[^\n]*|(?:BULLET|Section)::::-?)'
_WIKI_LINKS = r"\{\{[^{}\n]*\}\}|\[ \[[^\]\n]*\]\]|\[\[(?:[^\[\]|\n]*\|)*([^\[\]|\n]*)\]\]"
_WIKI_TAGS = (
    r"(?i)</?(?:abbr|b|blockquote|br|center|cite|code|dd|dfn|div|dl|dt|em|font|gallery|h[1-6]|hr|i|"
    r"includeonly|li|math|noinclude|nowiki|ol|onlyinclude|p|poem|pre|ref|s|score|section|small|span|"
    r"strong|sub|sup|table|td|th|tr|tt|u|ul)(?:[ /][^<>\n]*)?>"
)
# The ampersand is last, so that "&amp;lt;" becomes "&lt;" and not "<".
_WIKI_ENTITIES = (
    (r"&(?:nbsp|#[0-9]+|#[xX][0-9a-fA-F]+);", " "),
    ("&quot;", '"'),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
)

# Headings, rules and underlines of Markdown, and the prefix of quoted lines.
_MARKDOWN_LINES = r"(?m:^)(?:#{1,6}[ \t][^\n]*|[ \t]*(?:[-*_=][ \t]*){3,}(?m:$)|>[> \t]*)"
_MARKDOWN_WORDS = r"\b_([^_\n]+)_\b|\*{1,3}([^*\s][^*\n]*)\*{1,3}|\[([^\[\]\n]+)\]\([^()\s]+\)"
# A line break becomes a blank; before a blank line, its line break (the group) remains.
_WRAP = r"\n(?:[ \t]*(\n)\s*)?"

_BLANK_LINES = r"\n[ \t]*\n\s*"

# Lines that cannot contain tokens.
_BLANK = r"[\s\pZ\pC]*"

#: Patterns that determine the documents of a block; they are part of the keys of indexes.
PATTERNS: tuple[object, ...] = (
    (_END, _END_MARKED, _NO_END, _NO_END_UNMARKED),
    (_WIKI_DOCUMENTS, _WIKI_LINES, _WIKI_LINKS, _WIKI_TAGS, _WIKI_ENTITIES),
    (_MARKDOWN_LINES, _MARKDOWN_WORDS, _WRAP, _BLANK_LINES, _BLANK),
)


# Replacements in a document of WikiExtractor, and in the text of each format, in order.
_WIKI = ((_WIKI_LINES, "\n"), (_WIKI_LINKS, r"\1"), (_WIKI_TAGS, " "), *_WIKI_ENTITIES)
_CLEANING = {
    GOOGLE: (),
    WIKIEXTRACTOR: ((_BREAK, ""), (_WIKI_DOCUMENTS, f"{_BREAK}\n"), *_WIKI),
    PROSE: ((_MARKDOWN_LINES, ""), (_WRAP, r"\1 "), (_MARKDOWN_WORDS, r"\1\2\3")),
    PARAGRAPHS: ((_BREAK, ""), (_BLANK_LINES, f"\n{_BREAK}\n")),
}


def parse(text: tf.Tensor, text_format: str, into_sentences: bool = True) -> tf.RaggedTensor:
    r"""Parses a block of text into documents of sentences.

    Byte order marks are dropped, and ``\r\n`` and ``\r`` are line breaks.

    Args:
        text: Text, a scalar string.
        text_format: Format of the text.
        into_sentences: Whether to split paragraphs into sentences. Otherwise, documents consist of
            lines, which are paragraphs except for ``google``.

    Returns:
        Non-blank sentences or lines: ragged `[documents, (sentences)]` strings.

    >>> parse(tf.constant("It is\nlate. Go.\n\nNow."), "prose").to_list()
    [[b'It is late.', b'Go.', b'Now.']]
    """
    if text_format not in _CLEANING:
        raise ValueError(
            f"Unknown corpus format {text_format!r}: expected one of {', '.join(INPUT_FORMATS)}."
        )
    text = tf.strings.regex_replace(text, r"\A\x{FEFF}", "", replace_global=False)
    text = tf.strings.regex_replace(text, "\r\n?", "\n")
    for pattern, replacement in _CLEANING[text_format]:
        text = tf.strings.regex_replace(text, pattern, replacement)
    marked = mark_sentences(text) if into_sentences and text_format != GOOGLE else text
    # Lines, (L,), without surrounding whitespace.
    lines = tf.strings.strip(tf.strings.split(marked[tf.newaxis], "\n").values)
    blank = tf.strings.regex_full_match(lines, _BLANK)
    if text_format == PROSE:
        breaks = tf.zeros_like(blank)
    else:
        breaks = blank if text_format == GOOGLE else tf.equal(lines, _BREAK)
    # Indices ascend, so equal indices are adjacent; documents without lines have no index.
    document = tf.boolean_mask(tf.cumsum(tf.cast(breaks, tf.int64)), ~blank)
    lengths = tf.unique_with_counts(document, out_idx=tf.int64).count
    filled = tf.boolean_mask(lines, ~blank)
    return tf.RaggedTensor.from_row_lengths(filled, lengths, validate=False)


_JSON = (".jsonl", ".ndjson", ".json")
_TABLES = (".csv", ".tsv")


def reject_table_file(path: str, remedy: str, *, allows_json: bool) -> None:
    """Rejects files with the suffix of a table, whose fields would be read as text.

    >>> reject_table_file("a.csv.gz", "Write text", allows_json=True)
    Traceback (most recent call last):
    ValueError: a.csv.gz: expected plain text, got a .csv file. Write text.
    """
    name = path.lower().removesuffix(".gz")
    for suffix in _TABLES if allows_json else _TABLES + _JSON:
        if name.endswith(suffix):
            raise ValueError(f"{path}: expected plain text, got a {suffix} file. {remedy}.")


def detect_format(path: str, head: str) -> str:
    r"""Detects the format of a file from its name and first lines.

    The first rule that applies determines the format. The suffixes ``.jsonl``, ``.ndjson`` and
    ``.json``, or a JSON object in the first line, indicate JSON lines. A first line ``<doc ...>``
    indicates WikiExtractor. The suffixes ``.md`` and ``.markdown`` indicate prose. Text is google
    if most lines are one sentence, and if paragraphs have several lines or blank lines are missing.
    All other text is prose.

    Args:
        path: Path of the file.
        head: First few kilobytes of text, of which the last line may be incomplete.

    Returns:
        One of ``INPUT_FORMATS``.

    >>> detect_format("a.txt", "It rains.\nWe stay in.\n\nThe sun shines.\nWe go out.\n")
    'google'
    """
    name = path.lower().removesuffix(".gz")
    text = head.lstrip("\ufeff \t\r\n")
    if name.endswith(_JSON) or _is_json_object(text):
        return JSONL
    if text.startswith("<doc "):
        return WIKIEXTRACTOR
    if name.endswith((".md", ".markdown")):
        return PROSE
    lines = [line.strip() for line in text.splitlines()]
    if len(lines) > 2:  # the last line may be incomplete
        lines.pop()
    filled = [line for line in lines if line]
    if not filled:
        return PROSE
    ended = sum(bool(re.search(r"[.!?…。！？:;][\"'”’»)\]]*$", line)) for line in filled)
    multiple = sum(bool(re.search(r"\w\w[.!?][\"'”’)]* +[\"'“‘(]*[A-Z]", line)) for line in filled)
    paragraphs = sum(
        bool(line) and not before for before, line in zip(["", *lines], lines, strict=False)
    )
    has_short_paragraphs = len(filled) < 1.5 * paragraphs and len(filled) < len(lines)
    one_sentence_a_line = 2 * ended >= len(filled) and 4 * multiple <= len(filled)
    return GOOGLE if one_sentence_a_line and not has_short_paragraphs else PROSE


def _is_json_object(text: str) -> bool:
    """Returns whether the first line is a JSON object, or starts like one if it is incomplete."""
    if not text.startswith("{"):
        return False
    line, newline, _ = text.partition("\n")
    if not newline:  # the first line is longer than the head
        return bool(re.match(r'\{\s*"', line))
    try:
        return isinstance(parse_json(line, "the line"), dict)
    except ValueError:
        return False


# === Blocks ===

#: Maximum number of bytes of a document; longer ones are split, if possible between paragraphs.
MAX_DOCUMENT_BYTES = 1 << 20

_LINE_ENDS = (b"\n\n", b"\n\r\n")


def cut_blocks(chunks: Iterable[bytes], text_format: str, block_bytes: int) -> Iterator[bytes]:
    """Splits a text, read in chunks of any length, into blocks."""
    limit = max(block_bytes, MAX_DOCUMENT_BYTES)
    rest = iter(chunks)
    buffer = b""
    at_end = False
    while not at_end or buffer:
        while len(buffer) < limit and not at_end:
            chunk = next(rest, b"")
            at_end = not chunk
            buffer += chunk
        start = 0
        while len(buffer) - start >= limit or (at_end and start < len(buffer)):
            window = buffer[start : start + limit]
            is_rest = at_end and start + len(window) == len(buffer)
            length = find_cut(window, text_format, block_bytes, is_rest)
            yield window[:length]
            start += length
        buffer = buffer[start:]


def find_cut(window: bytes, text_format: str, block_bytes: int, is_rest: bool) -> int:
    """Returns the length of the next block in a window; ``is_rest`` marks the end of the file.

    A block ends after the last document within ``block_bytes``, else after the first document in
    the window. Long documents are split after the last blank line, line, blank or character, in
    this order.
    """
    if is_rest and len(window) <= block_bytes:
        return len(window)
    cut = 0
    if text_format == WIKIEXTRACTOR:
        cut = window.rfind(b"\n<doc ", 0, block_bytes) + 1 or window.find(b"\n<doc ") + 1
    elif text_format != PROSE:
        cut = _last_blank_line(window, block_bytes) or _first_blank_line(window)
    if cut:
        return cut
    if is_rest:
        return len(window)
    cut = _last_blank_line(window, len(window)) or window.rfind(b"\n") + 1 or window.rfind(b" ") + 1
    if not cut:
        cut = len(window) - 1
        while cut and window[cut] & 0xC0 == 0x80:  # a continuation byte
            cut -= 1
    return max(cut, 1)


def _last_blank_line(window: bytes, end: int) -> int:
    """Returns the end of the last blank line before ``end``, or 0."""
    return max(_mark_end(window.rfind(mark, 0, end), mark) for mark in _LINE_ENDS)


def _first_blank_line(window: bytes) -> int:
    """Returns the end of the first blank line, or 0."""
    ends = (_mark_end(window.find(mark), mark) for mark in _LINE_ENDS)
    return min(filter(None, ends), default=0)


def _mark_end(index: int, mark: bytes) -> int:
    return index + len(mark) if index >= 0 else 0


def starts_document(text: bytes) -> bool:
    """Returns whether a text contains the start of a WikiExtractor document."""
    return text.removeprefix(codecs.BOM_UTF8).startswith(b"<doc ") or b"\n<doc " in text


# === Conversion of other files to paragraphs ===

_CHUNK = 1 << 22


def json_texts(stream: IO[bytes], path: str, text_key: str) -> Iterator[str]:
    """Yields the text of each JSON line; cleans Wikipedia articles like WikiExtractor's output.

    Errors name the file ``path``.
    """
    pairs = _json_texts(stream, path, text_key)
    for group in group_items(pairs, lambda pair: len(pair[0]), _CHUNK, _CHUNK):
        texts = [text for text, _ in group]
        # Unlike Python's regular expressions, RE2 runs in linear time; it is fastest on many texts.
        articles = [index for index, (_, is_article) in enumerate(group) if is_article]
        cleaned = tf.constant(
            [texts[index].encode("utf-8", "replace") for index in articles], tf.string
        )
        for pattern, replacement in _WIKI:
            cleaned = tf.strings.regex_replace(cleaned, pattern, replacement)
        for index, text in zip(articles, cleaned.numpy(), strict=True):
            texts[index] = text.decode()
        yield from texts


def _json_texts(stream: IO[bytes], path: str, text_key: str) -> Iterator[tuple[str, bool]]:
    """Yields the text of each line, and whether it is an article."""
    for number, (offset, _, line) in enumerate(split_lines(stream, path), 1):
        check_utf8(line, path, offset)
        if not line.strip():
            continue
        try:
            value = parse_json(line, f"{path}:{number}")
        except ValueError as error:
            raise ValueError(
                f'{error} Every line must be one object such as {{"{text_key}": "..."}}.'
            ) from error
        text = value.get(text_key) if isinstance(value, dict) else None
        if not isinstance(text, str):
            contents = f"the keys {listed(value)}" if isinstance(value, dict) else "no JSON object"
            remedy = "Rename the key of the text, or in Python pass text_key to open_corpus"
            if isinstance(value, dict) and text_key in value:
                contents, remedy = quote(text), "Remove the line, or write its text as a string"
            raise ValueError(
                f"{path}:{number}: expected a string under {text_key!r}, got {contents}. {remedy}."
            )
        yield text, "curid=" in str(value.get("url"))


def paragraphs(texts: Iterable[str]) -> Iterator[bytes]:
    """Converts texts to chunks of megabytes in the format ``paragraphs``; drops blank texts."""
    stripped = ([line.strip() for line in text.splitlines()] for text in texts)
    documents = ("\n".join(filter(None, lines)) for lines in stripped)
    # JSON may contain unpaired surrogates, which UTF-8 cannot encode.
    encoded = (text.encode("utf-8", "replace") + b"\n\n" for text in documents if text)
    return map(b"".join, group_items(encoded, len, _CHUNK, _CHUNK))
