import functools
import io
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.io.untrusted import LINE_VARIABLE
from bert_tf.pipelines.corpora import formats as corpus_formats
from bert_tf.pipelines.corpora import text_bytes

GOOGLE_TEXT = "\n\nOne.\nTwo. Not split.\n \n\t\n  Three.  \n\u00a0\u3000\nFour.\nFive."
GOOGLE = [["One.", "Two. Not split."], ["Three."], ["Four.", "Five."]]

WIKI_TEXT = """\
<doc id="1" url="http://x/?curid=1" title="Cats">
Cats

Cats sleep. They <b>purr</b>.<br>
History.
As of 2011[ [update]], Mr. Cat &amp; co. slept{{citation needed}}. He had 2 &lt; 3 [[mouse|mice]].
</dl>
 |{{Citation/make link
 #if: x
[[Category:Cats]]
<ref name="a">Book</ref>

</doc>
<doc id="2" url="http://x/?curid=2" title="Only a title">
Only a title



</doc>
<doc id="3" url="http://x/?curid=3" title="Dogs">
Dogs

Dogs bark at a <n and b>.
Section::::Notes.
BULLET::::- Loud ones.

</doc>
"""
WIKI = [
    [
        "Cats sleep.",
        "They  purr .",
        "History.",
        "As of 2011, Mr. Cat & co. slept.",
        "He had 2 < 3 mice.",
        "Book",
    ],
    ["Dogs bark at a <n and b>.", "Notes.", "Loud ones."],
]

PROSE_TEXT = """\
# Title: A Book

-------
### I. THE FIRST

It was _very_ late. Mr.
Smith, a **bold** man,
slept. He [dreamt](http://dreams.org/x).

Nobody came
* * *
> "Wake up!" he
> heard. snake_case_word and 2 * 3 * 4.
"""
PROSE = [
    [
        "It was very late.",
        "Mr. Smith, a bold man, slept.",
        "He dreamt.",
        "Nobody came",
        '"Wake up!" he heard. snake_case_word and 2 * 3 * 4.',
    ]
]

PARAGRAPHS_TEXT = "One. Two.\nThree.\n\nFour。Five。\nSix\n\n\n\u200b\n\n"
PARAGRAPHS = [["One.", "Two.", "Three."], ["Four。", "Five。", "Six"]]


def decode_documents(documents):
    return [[line.decode() for line in document] for document in documents.to_list()]


@pytest.mark.parametrize(
    ("text_format", "text", "expected"),
    [
        ("google", GOOGLE_TEXT, GOOGLE),
        ("wikiextractor", WIKI_TEXT, WIKI),
        ("prose", PROSE_TEXT, PROSE),
        ("paragraphs", PARAGRAPHS_TEXT, PARAGRAPHS),
    ],
)
def test_parse(text_format, text, expected):
    texts = [
        start + text.replace("\n", newline)
        for start in ("", "\ufeff")
        for newline in ("\n", "\r\n", "\r")
    ]
    parse = functools.partial(corpus_formats.parse, text_format=text_format)
    mapped = tf.autograph.experimental.do_not_convert(parse)
    for found in (*map(parse, texts), *tf.data.Dataset.from_tensor_slices(texts).map(mapped)):
        assert decode_documents(found) == expected
    for white in ("", "\n \n\r\n", "\ufeff", " \u3000\u200b\n"):
        documents = parse(tf.constant(white))
        assert documents.to_list() == [] and documents.row_splits.numpy().tolist() == [0]


def test_wiki_text_before_first_doc_line_is_a_document():
    text = 'rest of one.\n</doc>\n<doc id="2">\nDogs\n\nThey bark.\n</doc>\n'
    documents = corpus_formats.parse(tf.constant(text), "wikiextractor")
    assert decode_documents(documents) == [["rest of one."], ["They bark."]]


WRAPPED = "The rain had stopped, and\nthe town awoke. It was\nlate in the year of our\nlord.\n\n"
ONE_LINE_PARAGRAPHS = "It rained. We stayed in.\n\nThe sun shone.\n\nWe went. He slept.\n"


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        ("a.txt", "One.\nTwo.\n\nThree.\nFour.\n", "google"),
        ("a", "One.\nTwo!\nThree?\n", "google"),
        ("a.txt", WRAPPED, "prose"),
        ("a.txt", ONE_LINE_PARAGRAPHS, "prose"),
        ("a.txt", "It rains. We go. He came.\nIt is late. She slept.\n", "prose"),
        ("a.md", "One.\nTwo.\n\nThree.\nFour.\n", "prose"),
        ("a.MD.gz", "One.\nTwo.\n\nThree.\nFour.\n", "prose"),
        ("a.txt", '\ufeff\n<doc id="1" url="u" title="t">\nt\n', "wikiextractor"),
        ("a.txt", '{"text": "x"}\n{"text": "y"}\n', "jsonl"),
        ("a.txt", '{"text": "a long first li', "jsonl"),
        ("a.jsonl.gz", "", "jsonl"),
        ("a.txt", "{not json}\nat all, it\nis not\n", "prose"),
        ("a.txt", "{", "prose"),
        ("a.txt", "", "prose"),
    ],
)
def test_detect_format(path, head, expected):
    assert corpus_formats.detect_format(path, head) == expected


# One case per line: its sentences, joined by spaces, are the input.
SENTENCE_CASES = [
    # Ordinary ends.
    ["It rained.", "We stayed."],
    ["Did it?", "Yes!", "It did."],
    ["What?!", "No..."],
    ["The sum is 12.", "Then 13 follows."],
    ["It was 1990.", "7 men came."],
    ["NATO.", "The pact holds."],
    ["He came from NYC.", "Boston is near."],
    # Quotes and brackets.
    ['"Go!" she said.', '"Why?"', "He went."],
    ["(It rained.)", "[So it did.]", "End."],
    ["“Go.”", "‘Why?’", "He left."],
    ["»Komm.«", "Er kam.", "„Gut.“", "Sie ging."],
    ['"What?" he asked.'],
    ["¡Vamos!", "¿Adónde?", "A casa."],
    # Titles, initials, acronyms.
    ["Mr. Smith and Mrs. Jones met Dr. No. 5 people saw St. Paul vs. Rome."],
    ["J. R. R. Tolkien wrote it.", "A. S. Byatt did not."],
    ["J.R.R. Tolkien met John F. Kennedy."],
    ["He left the U.S. Army.", "She stayed."],
    ["He left the U.S.", "The army stayed."],
    ["It ended World War I.", "In Paris, they met."],
    ["Vitamin C.", "The end."],
    ["А. С. Пушкин родился.", "Он писал."],
    ["It is 20 °C.", "Later it froze."],
    # Abbreviations.
    ["See e.g. Paris, i.e. France, cf. Rome."],
    ["Acme Inc. Chairman Lee spoke.", "He left."],
    ["He works at Acme Inc.", "The firm pays."],
    ["At 5 p.m. Monday it closed."],
    ["It closed at 5 p.m.", "He went."],
    ["Cats, dogs, etc.", "Mice too."],
    ["See No. 5, vol. 3, pp. 7, Fig. 2 and c. 1850."],
    ["He said no.", "She agreed."],
    ["On Jan. 5 it snowed."],
    ["It ended in Jan.", "February came."],
    # Numbers and ellipses.
    ["Pi is 3.14 and 2. is odd."],
    ["1. The first point.", "It is short."],
    ["IV. The fourth chapter."],
    ["He paused... then spoke."],
    ["He paused … then spoke.", "So it was…", "Then he left."],
    ["wait . . . Light came."],
    # Lower case does not start a sentence.
    ["The file a.out ran. it stopped."],
    # Caseless scripts.
    ["هل جاء؟", "نعم جاء."],
    ["यह है।", "वह था।"],
]


# No space follows an ideographic full stop.
CHINESE_CASES = [
    ("他來了。她走了！真的嗎？", ["他來了。", "她走了！", "真的嗎？"]),
    ("他說：「走。」她走了。", ["他說：「走。」", "她走了。"]),
    ("有3.5米。　好。", ["有3.5米。", "好。"]),
]


def split_sentences(texts):
    """Returns ragged (texts, sentences), split as ``parse`` splits paragraphs."""
    marked = corpus_formats.mark_sentences(tf.strings.regex_replace(texts, "\r\n?", "\n"))
    lines = tf.strings.split(marked, "\n")
    lines = lines.with_values(tf.strings.strip(lines.values))
    return tf.ragged.boolean_mask(lines, lines.with_values(lines.values != ""))


def test_line_breaks_always_end_sentences():
    text = "A heading\nMr.\r\nSmith came.\r\rHe left. \n\n"
    expected = [[b"A heading", b"Mr.", b"Smith came.", b"He left."], []]
    assert split_sentences(tf.constant([text, " \t"])).to_list() == expected


def test_sentences_are_split_correctly_eagerly_and_in_graph():
    texts, cases = zip(
        *[(" ".join(case), case) for case in SENTENCE_CASES], *CHINESE_CASES, strict=True
    )
    mapped = tf.data.Dataset.from_tensor_slices([*texts]).map(
        lambda text: split_sentences(text[tf.newaxis])[0]
    )
    in_graph = mapped.as_numpy_iterator()
    for text, case, *found in zip(
        texts, cases, split_sentences(tf.constant(texts)), in_graph, strict=True
    ):
        for split in found:
            assert [line.decode() for line in np.array(split)] == case, text
    # Equal to marking the block of text as a whole.
    block = corpus_formats.mark_sentences(tf.constant("\n".join(texts))).numpy().decode()
    assert [line.strip() for line in block.splitlines() if line] == [
        line for case in cases for line in case
    ]


# Document and sentence boundaries, and similar text.
PIECES = (
    *("The", "a", "Mr", "Inc", "5", "IV", "J", ". ", "! ", "… ", '." ', ". “", "。", "é", "\u3000"),
    *("\n", "\n\n", "\n \n", "\r\n", "\f", "\x1e", "\n\x1e\n", "\n# ", "\n> ", "\n---\n", "\n|"),
    *("\n<doc x>\nT\n\n", "\n</doc>\n", "</doc>", "<doc ", "[[a|b]]", "{{c}}", "<b>", "&lt;"),
)


def test_documents_do_not_depend_on_sentence_splitting():
    """The texts are also equal, except for whitespace."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def parsed(text):
        return [
            corpus_formats.parse(text, name, into_sentences)
            for name in ("google", "wikiextractor", "prose", "paragraphs")
            for into_sentences in (True, False)
        ]

    rng = np.random.default_rng(0)
    texts = ["", "\n \n", "a。</doc>\nb", "a。\x1e\nb\n\nc", "<doc 1>\nT", "\ufeff<doc 1>\nT\n\na"]
    for _ in range(40):
        texts.append("".join(PIECES[i] for i in rng.integers(len(PIECES), size=60)))
    for text in texts:
        found = [
            ["".join(b" ".join(lines).decode().split()) for lines in documents.to_list()]
            for documents in parsed(text)
        ]
        assert found[::2] == found[1::2], text


WIKI_BLOCKS = [b"<doc 1>\na\n</doc>\n", b"<doc 2>\nb\n</doc>\n"]


def cut(text, text_format, block_bytes):
    return list(corpus_formats.cut_blocks([text], text_format, block_bytes))


@pytest.mark.parametrize(
    ("text", "text_format", "block_bytes", "expected"),
    [
        (b"One.\n\nTwo.\n\nThree.\n", "google", 12, [b"One.\n\nTwo.\n\n", b"Three.\n"]),
        (b"One.\n\nTwo.\n\nThree.\n", "google", 11, [b"One.\n\n", b"Two.\n\n", b"Three.\n"]),
        (b"One.\r\n\r\nTwo.\r\n", "google", 9, [b"One.\r\n\r\n", b"Two.\r\n"]),
        # A document that does not fit creates a larger block.
        (b"One.\nTwo.\n\nThree.\n\n4", "google", 3, [b"One.\nTwo.\n\n", b"Three.\n\n", b"4"]),
        (WIKI_BLOCKS[0] + WIKI_BLOCKS[1], "wikiextractor", 20, WIKI_BLOCKS),
        (b"One.\n\nTwo.\n\n", "prose", 3, [b"One.\n\nTwo.\n\n"]),
    ],
)
def test_blocks_end_at_last_document_that_fits(text, text_format, block_bytes, expected):
    assert cut(text, text_format, block_bytes) == expected


def test_long_documents_are_cut_at_best_boundary(monkeypatch):
    monkeypatch.setattr(corpus_formats, "MAX_DOCUMENT_BYTES", 12)
    assert cut(b"One.\n\nTwo.\nThree.\n", "prose", 4) == [b"One.\n\n", b"Two.\nThree.\n"]
    assert cut(b"One two.\nThree.\n", "prose", 4) == [b"One two.\n", b"Three.\n"]
    assert cut(b"One two three four", "prose", 4) == [b"One two ", b"three four"]
    assert cut("äöüäöüäöü".encode(), "google", 4) == ["äöüäö".encode(), "üäöü".encode()]
    # Invalid text is split as well; its bytes are checked later.
    assert cut(b"\x80" * 13, "google", 4)[0] == b"\x80"


def test_json_lines_become_paragraphs():
    lines = (
        b'\xef\xbb\xbf{"id": 1, "text": "One. Two.\\n\\n  Three \\r\\nFour\\u2028Five"}\r\n'
        b'\n{"text": " \\n "}\n{"text": "Gr\xc3\xb6\\u00dfe \\ud800."}'
    )
    texts = corpus_formats.json_texts(io.BytesIO(lines), "a.jsonl", "text")
    written = b"".join(corpus_formats.paragraphs(texts)).decode()
    assert written == "One. Two.\nThree\nFour\nFive\n\nGröße ?.\n\n"


ARTICLE = "AT&amp;T sold &quot;5 &lt; 6&quot; [[mouse|mice]]{{note}}.<br>\n|line\nSo it&nbsp;did."


def test_wikiextractor_json_and_xml_give_equal_texts():
    url = "http://example.org/wiki?curid=1"
    line = json.dumps({"id": "1", "url": url, "title": "Firm", "text": ARTICLE}).encode()
    document = f'<doc id="1" url="{url}" title="Firm">\nFirm\n\n{ARTICLE}\n\n</doc>\n'
    texts = corpus_formats.json_texts(io.BytesIO(line), "a", "text")
    written = b"".join(corpus_formats.paragraphs(texts))
    expected = [['AT&T sold "5 < 6" mice.', "So it did."]]
    assert decode_documents(corpus_formats.parse(tf.constant(written), "paragraphs")) == expected
    assert (
        decode_documents(corpus_formats.parse(tf.constant(document), "wikiextractor")) == expected
    )
    hostile = {"url": url, "text": "[ [" * 200_000}  # takes minutes with backtracking
    texts = corpus_formats.json_texts(io.BytesIO(json.dumps(hostile).encode()), "a", "text")
    assert list(texts) == [hostile["text"]]
    other = line.replace(b"wiki?curid=1", b"wiki/Firm")  # not an article, so unchanged
    assert list(corpus_formats.json_texts(io.BytesIO(other), "a", "text")) == [ARTICLE]


def test_paragraphs_are_written_in_chunks(monkeypatch):
    monkeypatch.setattr(corpus_formats, "_CHUNK", 12)
    chunks = list(corpus_formats.paragraphs(["One.", "Two.", " ", "Three.\n\nFour.", "Five."]))
    assert chunks == [b"One.\n\nTwo.\n\n", b"Three.\nFour.\n\n", b"Five.\n\n"]


STRING = "expected a string under 'text', got"
NO_STRING = "Remove the line, or write its text as a string."
BAD_LINES = [
    (b'{"text": "x"}\n{"text": x}\n', r"a\.jsonl:2 is not JSON: Expecting value.* Every line must "
     r'be one object such as {"text": "\.\.\."}\.$'),
    (b'{"text": "x"}\n\n["x"]\n', rf"a\.jsonl:3: {STRING} no JSON object"),
    (b'{"body": "x", "id": 1}\n', f"a.jsonl:1: {STRING} the keys body, id"),
    (b'{"text": 1}\n', f"a.jsonl:1: {STRING} 1. {NO_STRING}"),
    (b'{"text": null}\n', f"a.jsonl:1: {STRING} None. {NO_STRING}"),
    (b'{"text": "x"}\n{"text": "\xff"}\n', "a.jsonl is not UTF-8: invalid byte 0xff at byte .* 24"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BAD_LINES)
def test_invalid_json_line_is_named_in_error(data, message):
    with pytest.raises(ValueError, match=message):
        list(corpus_formats.json_texts(io.BytesIO(data), "a.jsonl", "text"))


def test_too_long_line_raises_error(monkeypatch):
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", 1 << 14)
    monkeypatch.setenv(LINE_VARIABLE, "1")
    stream = io.BytesIO(b'{"text": "a"}\n' + b"[" * (2 << 20))
    message = (
        "x.jsonl, line 2: expected at most 1 MiB per line, got more. For longer lines, "
        "set the environment variable BERT_TF_MAX_LINE_MB=2."
    )
    with pytest.raises(ValueError, match=message):
        list(corpus_formats.json_texts(stream, "x.jsonl", "text"))
    assert stream.tell() < (1 << 20) + (1 << 15)
