"""Sample corpus: prose from docstrings, and documents from a source tree."""

import importlib
import os
import sys
import types

import pytest

from bert_tf.pipelines.corpora import sample as sample_corpus
from tests.processes import run_python

FULL = "This module says what it is for. It has two parts. The first is long. The second is short."


def write(folder, files: dict[str, str | bytes]) -> str:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder)


def text(name, between=" "):
    """Returns enough sentences for a document."""
    numbers = ("one", "two", "three", "four")
    return between.join(f"Here is sentence {number} of {name}." for number in numbers)


def source(name):
    return f'"""{text(name)}"""'


def test_docstrings_are_read_in_source_order(tmp_path):
    source = '''"""The module comes first."""
class Outer:
    """The outer class comes second."""
    def method(self):
        """Its method comes third."""
        def inner():
            """The inner function comes fourth."""
if True:
    def last():
        """A function under a condition comes fifth."""
else:
    async def other():
        """The other branch comes sixth."""
'''
    path = os.path.join(write(tmp_path, {"m.py": source}), "m.py")
    assert [text.split()[-1] for text in sample_corpus.read_docstrings(path)] == [
        "first.", "second.", "third.", "fourth.", "fifth.", "sixth.",
    ]  # fmt: skip


COPY = f"""A copy comes below.

{FULL}

One more sentence here. And one more here. And a third one. And here the fourth."""
SOURCE_FILES = {
    "b.py": f'"""{FULL}"""',
    # The first sentence has a backslash.
    "a.py": '"""An invalid escape \\d is here. It is no harm. It is not told. So be it."""',
    "sub/c.py": f'"""{COPY}"""',
    "copy.py": f'"""{FULL}"""',
    "short.py": '"""A single sentence is too little."""',
    "huge.py": '"""' + "This is a sentence of words. " * 80_000 + '"""',
    "tests/d.py": source("a folder of tests"),
    "test_e.py": source("a test"),
    "e_test.py": source("another test"),
    "_vendor/f.py": source("a copied library"),
    ".hidden/g.py": source("a hidden folder"),
    "latin.py": b"# coding: latin-1\n" + source("a caf\xe9").encode("latin-1"),
    "code.py": source("much code") + "\n" + "x = 1\n" * 500,
    "broken.py": source("a broken source") + "\ndef (",
    "null.py": source("a null character") + "\0",
    "bytes.py": source("bytes of no encoding").encode() + b"\xff",
    "deep.py": source("deep nesting") + "\nx = " + "(" * 500 + ")" * 500,
    "readme.txt": text("no source"),
}


def test_documents_of_source_tree(tmp_path, recwarn):
    folder = write(tmp_path / "package", SOURCE_FILES)
    os.symlink("nowhere.py", tmp_path / "package" / "dangling.py")
    texts = map(sample_corpus._paragraphs, sample_corpus._sources(folder))
    first, latin, second = sample_corpus._documents(texts)
    assert " ".join(first) == FULL and " ".join(latin) == text("a café")
    # Copies of a paragraph are dropped.
    assert " ".join(second) == COPY.replace(f"{FULL}\n\n", "").replace("\n\n", " ")
    assert (len(first), len(second)) == (4, 5)
    assert not recwarn.list


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """A Python installation with one topic, one standard module and three packages."""
    importlib.import_module("bert_tf.io.files")  # from the real installation

    topics = types.SimpleNamespace(topics={"b": text("topic b"), "a": text("topic a"), "c": ""})
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", topics)
    library = tmp_path / "lib"
    packages = library / "site-packages"
    write(library, {"library.py": source("the library")})
    for name in ("aaa", "zzz", "keras", "not-a-package", "numpy.libs"):
        write(packages / name, {"m.py": source(name)})
    config = sample_corpus.sysconfig
    monkeypatch.setattr(config, "get_path", {"stdlib": str(library)}.__getitem__)
    both = dict.fromkeys(("purelib", "platlib"), str(packages))
    monkeypatch.setattr(config, "get_paths", lambda: both)
    monkeypatch.setattr(sys, "path", [str(packages), str(tmp_path)])
    documents = ("topic a", "topic b", "the library", "keras", "aaa", "zzz")
    return [text(name, "\n") for name in documents]


def test_sample_corpus_has_documents_in_order(installation, tmp_path):
    path = tmp_path / "new" / "corpus.txt"
    sample_corpus.write_sample_corpus(str(path))
    assert path.read_text() == "".join(document + "\n\n" for document in installation)
    assert os.listdir(tmp_path / "new") == ["corpus.txt"]


def test_size_limit_drops_document_that_exceeds_it(installation, tmp_path, monkeypatch):
    path = tmp_path / "corpus.txt"
    exact = sum(len(document) + 2 for document in installation[:3])
    for limit, count in ((exact, 3), (exact - 1, 2), (exact + 1, 3)):
        monkeypatch.setattr(sample_corpus, "_MAX_BYTES", limit)
        sample_corpus.write_sample_corpus(str(path))
        assert path.read_text() == "".join(document + "\n\n" for document in installation[:count])


def test_no_documentation_raises_error_and_topics_are_optional(installation, tmp_path, monkeypatch):
    path = tmp_path / "corpus.txt"
    with monkeypatch.context() as patched:
        patched.setattr(sample_corpus, "_MAX_BYTES", 10)
        message = (
            r"^Cannot create a sample corpus: this Python \(.*\) has no documentation\. Pass text "
            r"files as --input\.$"
        )
        with pytest.raises(ValueError, match=message):
            sample_corpus.write_sample_corpus(str(path))
    assert not path.exists()
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    sample_corpus.write_sample_corpus(str(path))
    assert path.read_text() == "".join(document + "\n\n" for document in installation[2:])


@pytest.mark.parametrize("program", ["print('Half a.')\nraise SystemExit(1)", "pass"])
def test_failed_background_process_is_replaced(program, installation, tmp_path, monkeypatch):
    popen = sample_corpus.subprocess.Popen
    monkeypatch.setattr(
        sample_corpus.subprocess,
        "Popen",
        lambda command, **options: popen([*command[:2], program], **options),
    )
    sample_corpus.collect_in_background()
    sample_corpus.write_sample_corpus(str(tmp_path / "corpus.txt"))
    assert (tmp_path / "corpus.txt").read_text().count("\n\n") == 6


def test_killed_worker_ends_background_process():
    program = (
        "import os\nfrom bert_tf.pipelines.corpora import sample as sample_corpus\n"
        "def killed(path):\n    os.kill(os.getpid(), 9)\n"
        "sample_corpus._collect = lambda mapped: list(mapped(killed, ['a', 'b']))\n"
        "sample_corpus._send()"
    )
    done = run_python(program, timeout=60)
    assert done.returncode == 1 and "BrokenProcessPool" in done.stderr


MARKUP = """\
Uses :class:`~a.B`, :func:`run it <a.run>` and ``code``; *so* **it is**, *args is
not [1]_. See `the docs <http://x.y>`_ and [that page](http://z) for more."""
CODE_TABLES_AND_HEADINGS = """\
A heading that is underlined.
=============================
The text below the heading stays.

    >>> print("This is the code that goes.")
    This is the output that goes.

```python
# This is a comment in a fence.

x = the_second_paragraph_of_the_fence()
```

As in this block of code::

    This is a literal block that goes.

    This is its second paragraph.

The text goes on after the block.

.. code-block:: python

    some_code_of_a_directive = None

.. note:: This note is a sentence to keep.

===== =====
Table of words that are not.
===== =====
"""
LISTS_AND_PARAMETERS = """\
Args:
  x: The first of the two numbers. It
    is always positive.
  *names (list of str): The names that belong to it.
  y: int
:param z: The number that comes last.
- The first point to be made.
2. The second point to be made.

Returns:
  A number that is neither.

axis : int, optional
    The axis along which to sum.
"""
PROSE = {
    MARKUP: [
        [
            "Uses a.B, run it and code; so it is, *args is not.",
            "See the docs and that page for more.",
        ]
    ],
    CODE_TABLES_AND_HEADINGS: [
        ["The text below the heading stays."],
        ["The text goes on after the block."],
        ["This note is a sentence to keep."],
    ],
    LISTS_AND_PARAMETERS: [
        ["The first of the two numbers.", "It is always positive."],
        ["The names that belong to it."],
        ["The number that comes last."],
        ["The first point to be made."],
        ["The second point to be made."],
        ["A number that is neither."],
        ["The axis along which to sum."],
    ],
    "Too short now.": [],
    "A sentence that does not end": [],
    "The value x_1 y_2 z_3 is f(a) of it.": [],
    "TODO: remove this as soon as possible.": [],
    "The set {1, 2} has but two members.": [],
    "This sentence is " + "very " * 200 + "long.": [],
}
SENTENCES = [
    ["It is so indeed.", "Is it so indeed?", "It is so indeed!"],
    ["There is much to see, e.g. Paris and Rome.", "No. 5 is here too."],
    ['He said "stop it."', "Then he left it."],
    ["By J. R. Smith, i.e. Bob.", "It is not so."],
    ["This is point a.", "This is point b."],
    ["Version 3.11 of it. also this one."],
    ["One etc. and one more."],
]


@pytest.mark.parametrize(
    ("text", "expected"), [*PROSE.items(), *((" ".join(case), [case]) for case in SENTENCES)]
)
def test_read_prose(text, expected):
    assert list(sample_corpus.read_prose(text)) == expected
