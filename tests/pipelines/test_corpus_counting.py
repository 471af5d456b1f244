"""What is counted for an index is what ``corpus_formats.parse`` reads, to the byte."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines import corpus, corpus_counting, corpus_formats

FORMATS = ("google", "wikiextractor", "prose", "paragraphs")


@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def read(text):
    """By the definition: each format's numbers of sentences, and fingerprints."""
    parsed = [corpus_formats.parse(text, text_format) for text_format in FORMATS]
    return [(each.row_lengths(), corpus.fingerprint_documents(each)) for each in parsed]


def assert_same(text):
    for text_format, expected in zip(FORMATS, read(tf.constant(text)), strict=True):
        counted = corpus_counting.count_text(text, text_format)
        assert [array.dtype for array in counted] == [np.int32, np.int64]
        for array, wanted in zip(counted, expected, strict=True):
            assert array.tolist() == wanted.numpy().tolist(), (text_format, text)


def test_counts_by_rules_alone(monkeypatch):
    """Ordinary English needs no expression: ends, abbreviations, initials, quotations."""
    text = (
        'He came. Mr. Hall left at 5 p.m. with J. R. Smith! "Why?" asked Dr. No. (It rained.) She\n'
        "paid No. 5 for it. The U.S. Army won 3.5 km. “Yes.” ‘So.’ Then it ended.\n\nIt was so. Ah"
    ).encode()
    replaced = []
    replace = corpus_counting._replace
    monkeypatch.setattr(
        corpus_counting,
        "_replace",
        lambda lines, chosen, *rest: replaced.append(chosen.sum()) or replace(lines, chosen, *rest),
    )
    assert corpus_counting._mark_sentences(b'One came. Mr. Hall said: "Two." It\'s 5!  Yes') == (
        b'One came.\nMr. Hall said: "Two."\nIt\'s 5!\n Yes'
    )
    corpus_counting._mark_sentences(text)
    assert replaced == [0, 0]
    assert_same(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "Inc. \n1",  # an abbreviation with two blanks behind it
        " I.   The,",  # an initial, three blanks
        "A. The end. B. The end.",  # an initial that nothing is before
        "Ah. B. The end.",  # an end that takes what the next one needs
        "One. 1. Two. IV. Three. a. Four.",  # numbers that open a sentence
        "1. One.\n\n2. Two. 12. Three",
        "So... The end... he?! Yes. . . No",
        "No. 5. No. Five. Co. The end. Co. Limited.",
        "É. The end. St. É. Ést. Mr.’ The",
        "一。二！三 ।One. ۔Two؟ Three… Four",
        "a <doc> b\n<doc 1>\nT\n\nOne. Two.\n</doc>\n<doc 2>\nOne.\n</doc>",
        "<doc 1>\nT",
        'A [[b|C]]. {{D}} E.<b>F.</b> G &amp;lt; h. I\nBULLET::::J. K.\n # l\n\ttitle="ctx. M\nN',
        "# A\n> B. C\n> d.\n---\n_E_ f. *G*. [H](i) J.\n \n  K.\n\tL.\n\n\n1. M. N.",
        "\x1e\nA. B.\n\x1e\n\u200b\nC.\n\x0c\nD.\x0bE. F.",
        "\ufeffA.\r\nB.\rC. D.\r\n\r\nE.\r\r\nF\r",
        "x" * 20 + ". The",
        "      A     .     B.      C.",
    ],
)
def test_counts_where_the_rules_end(text):
    assert_same(text.encode())


PIECES = (
    *("The", "a", "He", "Mr", "St", "No", "Inc", "5", "12", "1234", "I", "IV", "J", "e.g", "B"),
    *(
        ". ",
        ".  ",
        "! ",
        "? ",
        "... ",
        "… ",
        '." ',
        ".) ",
        ".” ",
        '. "',
        ". “",
        ".\n",
        "\n",
        "\n\n",
    ),
    *(
        "\n \n",
        " ",
        "  ",
        ",",
        "“",
        "é",
        "É",
        "。",
        "\t",
        "\u3000",
        "\xa0",
        "*",
        "_",
        "[[a|b]]",
        "{{c}}",
    ),
    *("<b>", "&lt;", "&nbsp;", "\n# ", "\n> ", "\n---\n", "\nBULLET::::", "\n<doc x>\nT\n\n"),
    *("\n</doc>\n", "[x](y)", "\n\x1e\n", "\f", "\v", "\r\n", "-", "(", ")", '"', "\n|", "\n1. "),
)


@pytest.mark.parametrize("share_of_ends", [0.1, 0.5])
def test_counts_any_text(share_of_ends):
    rng = np.random.default_rng(0)
    for _ in range(60):
        pieces = [PIECES[i] for i in rng.integers(len(PIECES), size=rng.integers(1, 150))]
        ends = np.where(rng.random(len(pieces)) < share_of_ends, ". ", "")
        assert_same("".join(map("".join, zip(pieces, ends, strict=True))).encode())


@pytest.mark.slow
def test_counts_real_text(data_dir):
    import gzip

    for path in ("enwiki/wiki_00.gz", "books/faust.md.gz", "other/zhwiki_00.gz"):
        with gzip.open(data_dir / "corpora" / path) as file:
            assert_same(file.read(1 << 20).decode(errors="ignore").encode())
