"""Sample corpus of English prose from the Python installation, without downloads.

The documents are the topics of Python's language reference (``pydoc_data.topics``) and the
docstrings of the standard library and of installed packages, one document per module. Source files
are parsed with ``ast`` and never imported. Only the prose of a docstring is used: code, tables,
headings and markup are removed, but descriptions of parameters are kept. Repeated paragraphs are
dropped.

The file has the ``google`` format of ``bert_tf.pipelines.corpora.sources``: one sentence per line,
and a blank line after each document. The same installation always results in the same file.
"""

import ast
import concurrent.futures
import functools
import gc
import os
import re
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator

from bert_tf.io.runtime import usable_cores

_MIN_SENTENCE_WORDS = 4
_MAX_SENTENCE_CHARACTERS = 600  # longer sentences are usually lists

_FENCE = re.compile(r"^[ ]*(```|~~~).*?(^[ ]*\1[ ]*$|\Z)", re.DOTALL | re.MULTILINE)
_RULE = re.compile(r"^\s*([=\-~^*+#_|.`\"'])[=\-~^*+#_|.`\"' ]{2,}$")
_CODE = re.compile(r"^\s*(>>>|\.\.\. |\.\.\.$|\$ |\| |%|@)")
_DIRECTIVE = re.compile(r"^\s*\.\. (\w*:?)*?[\w-]+::\s*")
_ADMONITION = re.compile(
    r"^\s*\.\. (note|warning|tip|hint|important|caution|attention|seealso)::\s*"
)
_BULLET = re.compile(r"^\s*([*+•-]|\(?\d{1,2}[.)]|#\.)\s+")
_FIELD = re.compile(r"^\s*:[\w\s*]+:\s+")
_TYPED = re.compile(r"^\s*\*{0,2}\w+(, \*{0,2}\w+)* : .*$")  # NumPy style, above the description
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
_MIN_WORD_FRACTION = 0.8  # of words that consist of letters


def read_prose(text: str) -> Iterator[list[str]]:
    """Yields the sentences of each paragraph or list item of a docstring or Markdown page.

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
    code_indent = None  # indentation of a paragraph that ends with "::"
    for block in re.split(r"\n[ ]*\n", text):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        indent = _indent(lines[0])
        if code_indent is not None and indent > code_indent:
            continue
        code_indent = indent if lines[-1].endswith("::") else None
        if _DIRECTIVE.match(lines[0]) and not _ADMONITION.match(lines[0]):
            continue
        for item in _items(lines):
            sentences = [s for s in _split_sentences(_plain(item)) if _is_prose(s)]
            if sentences:
                yield sentences


def _split_sentences(text: str) -> list[str]:
    """Splits a paragraph of English into sentences, except after abbreviations and initials."""
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
    """Yields the paragraphs and list items of a block, each on one line, without markers."""
    item: list[str] = []
    indent = 0
    for line in lines:
        if _RULE.match(line):
            item = []  # the line above a rule is a heading
            continue
        if _CODE.match(line):
            break
        stripped = line
        for marker in (_ADMONITION, _BULLET, _FIELD, _TYPED, _ARGUMENT):
            stripped = marker.sub("", stripped, count=1)
        # The first line may have a hanging indent; only later changes start another item.
        if stripped != line or (len(item) != 1 and _indent(line) != indent):
            if item:
                yield " ".join(item)
            item = []
        item.append(stripped.strip())
        indent = _indent(line)
    if item:
        yield " ".join(item)


def _plain(text: str) -> str:
    # Most lines have no markup, and testing for its first character is fast.
    if "`" in text:
        text = _ROLE.sub(r"\1", text)
    if "`" in text or "[" in text:
        text = _LINK.sub(lambda match: match[1] or match[2], text)
        text = _FOOTNOTE.sub("", text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\2", text)
    text = text.replace("`", "")
    return " ".join(text.removesuffix("::").split())


def _is_prose(sentence: str) -> bool:
    """Returns whether a sentence ends in punctuation, has a normal length, and is mostly words."""
    words = sentence.split()
    if len(words) < _MIN_SENTENCE_WORDS or len(sentence) > _MAX_SENTENCE_CHARACTERS:
        return False
    if sentence.rstrip("\"')]")[-1:] not in tuple(".!?:") or _NOT_PROSE.search(sentence):
        return False
    return sum(_WORD.match(word) is not None for word in words) >= _MIN_WORD_FRACTION * len(words)


DESCRIPTION = (
    "the documentation of this Python installation: the language reference's topics, and the "
    "docstrings of the standard library and of installed packages"
)

# Required packages come first: they have long, edited prose, and are always installed. Other
# packages follow by name.
_PACKAGES_FIRST = ("keras", "numpy", "tensorflow", "tensorboard", "tensorflow_datasets", "absl")
# Tests contain little prose; vendored packages repeat docstrings of other packages.
_EXCLUDED_FOLDERS = (
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "testing", "testdata"),
    *("idlelib", "lib2to3", "_vendor", "vendor", "vendored", "third_party", "external", "_api"),
)
_MAX_SOURCE_BYTES = 2_000_000  # larger files are generated tables
# Minimum fraction of a source file in triple quotes. Files below it would take half of the parsing
# time and yield an eighth of the prose.
_MIN_DOCSTRING_FRACTION = 0.2
_MAX_BYTES = 6_000_000
_SENTENCES_PER_DOCUMENT = 4  # minimum for a pair of segments
_MAX_PROCESSES = 4
# Function with the interface of ``map``, which may use several processes.
_Mapped = Callable[[Callable[[str], list[list[str]]], Iterable[str]], Iterable[list[list[str]]]]

# Process started by `collect_in_background`.
_collector: subprocess.Popen[bytes] | None = None


def collect_in_background() -> None:
    """Starts another process that collects the corpus for ``write_sample_corpus``.

    Call this before importing TensorFlow, which takes about as long.
    """
    global _collector
    _collector = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import _send; _send()"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not end it; it ends when its pipe is closed
    )


def _send() -> None:
    """Writes the corpus to standard output, for `_collected_text`, using several processes."""
    # Unlike multiprocessing.Pool, this executor raises an error if a process was killed. Garbage
    # collection would take longer than parsing, and free nothing.
    count = min(usable_cores(), _MAX_PROCESSES)
    with concurrent.futures.ProcessPoolExecutor(count, initializer=gc.disable) as pool:
        text = _collect(functools.partial(pool.map, chunksize=8))
        pool.shutdown(cancel_futures=True)
    sys.stdout.buffer.write(text)


def _collected_text() -> bytes:
    """Returns the other process' text, or nothing if none was started or it failed."""
    global _collector
    if _collector is None:
        return b""
    process, _collector = _collector, None
    text, _ = process.communicate()
    return text if process.returncode == 0 else b""


def write_sample_corpus(path: str) -> None:
    """Writes the sample corpus atomically."""
    text = _collected_text() or _collect()
    if not text:
        raise ValueError(
            f"Cannot create a sample corpus: this Python ({sys.prefix}) has no documentation. Pass "
            "text files as --input."
        )
    # Imported late because it loads TensorFlow, after `collect_in_background`.
    from bert_tf.io.files import atomic_write

    with atomic_write(str(path)) as file:
        file.write(text)


def _collect(mapped: _Mapped = map) -> bytes:
    """Concatenates documents with a blank line after each, up to the maximum size."""
    documents: list[bytes] = []
    remaining = _MAX_BYTES
    for sentences in _documents(_texts(mapped)):
        document = ("\n".join(sentences) + "\n\n").encode("utf-8", "replace")
        remaining -= len(document)
        if remaining < 0:
            break
        documents.append(document)
    return b"".join(documents)


def _documents(texts: Iterable[Iterable[list[str]]]) -> Iterator[list[str]]:
    """Yields the sentences of each text that are new, if there are enough of them."""
    seen: set[str] = set()
    for paragraphs in texts:
        sentences: list[str] = []
        for paragraph in paragraphs:
            key = " ".join(paragraph)
            if key not in seen:
                seen.add(key)
                sentences += paragraph
        if len(sentences) >= _SENTENCES_PER_DOCUMENT:
            yield sentences


def _texts(mapped: _Mapped) -> Iterator[Iterable[list[str]]]:
    """Yields the paragraphs of each topic and of each source file."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # a separate package in some distributions
        pass
    else:
        yield from (read_prose(topics[name]) for name in sorted(topics))
    for folder in _folders():
        yield from mapped(_paragraphs, _sources(folder))


def _folders() -> Iterator[str]:
    """Yields the folders of the standard library and of the installed packages."""
    yield sysconfig.get_path("stdlib")
    paths = sysconfig.get_paths()
    folders = {
        os.path.realpath(path)
        for path in (paths["purelib"], paths["platlib"], *sys.path)
        if os.path.basename(path) in ("site-packages", "dist-packages") and os.path.isdir(path)
    }
    packages = {
        name: os.path.join(folder, name)
        for folder in sorted(folders)
        for name in os.listdir(folder)
        if name.isidentifier() and os.path.isdir(os.path.join(folder, name))
    }
    for name in sorted(packages, key=lambda name: (name not in _PACKAGES_FIRST, name)):
        if name not in _EXCLUDED_FOLDERS:
            yield packages[name]


def _sources(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _EXCLUDED_FOLDERS and not name.startswith(".")
        )
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith("test_") and "_test." not in name:
                yield os.path.join(parent, name)


def _paragraphs(path: str) -> list[list[str]]:
    """Returns the sentences of each paragraph in a source file's docstrings."""
    return [paragraph for docstring in read_docstrings(path) for paragraph in read_prose(docstring)]


def read_docstrings(path: str) -> list[str]:
    """Returns a source file's docstrings in order; none if the file is invalid or has few."""
    try:
        if os.path.getsize(path) > _MAX_SOURCE_BYTES:
            return []
        with open(path, "rb") as file:
            source = file.read()
        quoted = re.split(b"\"\"\"|'''", source)[1::2]
        if sum(map(len, quoted)) < _MIN_DOCSTRING_FRACTION * len(source):
            return []
        with warnings.catch_warnings():
            # Ignore invalid escapes in other packages' source files.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return list(_docstrings(tree))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Yields docstrings in source order, unlike ``ast.walk``."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring:
            yield docstring
    for child in getattr(node, "body", []) + getattr(node, "orelse", []):
        if isinstance(child, ast.stmt):
            yield from _docstrings(child)
