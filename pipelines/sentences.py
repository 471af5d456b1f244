"""Sentence splitting of prose, in-graph, by regular expressions.

BERT's pre-training data is made of documents of sentences (Devlin et al. 2019, section 3.1 and
appendix A.2: a "sentence" is any contiguous span of text, so a splitter need not be perfect).
Google's script leaves the splitting to the user; here it is part of the graph, so that plain
prose can be trained on directly.

RE2, the engine behind ``tf.strings.regex_replace``, has no look-around. A first pass therefore
marks every place that looks like the end of a sentence, and a second pass takes back the marks
that stand behind abbreviations. Both run over a whole block of text at once: a call per
paragraph would cost more than the matching.
"""

import tensorflow as tf

# Ends a line in the marked text. Strings that come in have no carriage return left, so that an
# inserted end (this) and a paragraph's own end ("\n") stay distinguishable for the second pass.
_MARK = "\r\n"

# What may stand between the full stop and the blank, and between the blank and the first letter.
# Every quotation mark is in both: German closes with the mark that English opens with.
_CLOSING = r"""["'\p{Pe}\p{Pf}\p{Pi}*_]*"""
_OPENING = r"""["'\p{Ps}\p{Pi}\p{Pf}¿¡*_]*(?:[—–-]+ ?)?["'\p{Ps}\p{Pi}]*"""
_BLANKS = r"[ \t\x{A0}\x{3000}]+"
_FIRST_LETTER = r"[\p{Lu}\p{Lt}\p{Lo}\p{N}]"

# Words that rarely are names: behind an initial or a company's "Inc." they start a sentence.
_STARTERS = (
    "A|After|All|Also|Although|An|And|As|At|Both|But|By|During|Each|For|From|He|Her|His|How|"
    "However|I|If|In|It|Its|Many|Most|No|Not|Of|On|One|Other|She|Since|So|Some|Such|That|The|"
    "Their|Then|There|These|They|This|Those|Thus|To|Under|Until|We|What|When|Where|While|Who|"
    "Why|With|You"
)

# Never the end of a sentence: a name or an explanation follows.
_TITLES = (
    "Mr|Mrs|Ms|Messrs|Mme|Mlle|Dr|Drs|Prof|Rev|Revd|Hon|St|Ste|Mt|Ft|Gen|Brig|Col|Maj|Capt|Cmdr|"
    "Cdr|Lt|Sgt|Cpl|Pvt|Adm|Gov|Sen|Rep|Pres|Supt|Insp|Msgr|Sra|Srta|Hr|Frl|Geo|Wm|Chas|Thos|"
    r"vs|v|viz|cf|e\.g|i\.e|eg|ie|bzw|z\.B|d\.h|u\.a"
)
# The end of a sentence only where a starter follows.
_TRAILERS = r"Jr|Sr|Inc|Ltd|Co|Corp|Bros|al|Ave|Blvd|Dept|Univ|Assn|a\.m|p\.m|A\.m|P\.m|approx"
# Not the end of a sentence where a number follows.
_NUMBERED = (
    "No|Nos|no|nos|Nr|Vol|Vols|vol|vols|pp|Pp|Fig|Figs|fig|figs|Eq|eq|Sec|sec|Ch|ch|Chap|chap|"
    "Art|art|Pt|pt|Bk|bk|ca|cca|fl|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|[a-z]"
)

# Group 1, blanks, group 2: a full stop, question or exclamation mark, blanks, and what can start
#   a sentence. A full stop behind a single capital is an initial or an acronym ("J. R.", "U.S.")
#   and behind a blank part of a spaced ellipsis (". . ."): neither matches here.
# Group 3, blanks, group 4: behind such an initial, only before one of the starters.
# Group 5: an ideographic full stop needs no blank.
_END = (
    rf"((?:[!?…‽؟۔।॥]|(?:[^\p{{Lu}}\s.]|[\p{{L}}\p{{N}}°]\p{{Lu}})\.)[.!?…]*{_CLOSING})"
    rf"{_BLANKS}({_OPENING}{_FIRST_LETTER})"
    rf"|([\s.(]\p{{Lu}}\.{_CLOSING}){_BLANKS}((?:{_STARTERS})[ ,])"
    rf"|([。！？｡]+[…!?]*{_CLOSING})[ \t\x{{A0}}\x{{3000}}]*"
)
_END_MARKED = rf"\1\3\5{_MARK}\2\4"

# Group 1 keeps its mark (it is inside the group); behind the others a blank replaces the mark.
# A number, a Roman numeral or a letter that opens a paragraph counts it ("1. Introduction").
_NO_END = (
    rf"(\b(?:{_TRAILERS})\.{_MARK}(?:{_STARTERS})) "
    rf"|(\b(?:{_TITLES}|{_TRAILERS})\.|(?m:^)(?:[0-9]{{1,3}}|[IVXLC]{{1,7}}|[a-z])\.){_MARK}"
    rf"|(\b(?:{_NUMBERED})\.){_MARK}([0-9])"
)
_NO_END_UNMARKED = r"\1\2\3 \4"

#: Everything that decides where sentences end; an index of counted sentences is keyed by it.
PATTERNS: tuple[str, ...] = (_END, _END_MARKED, _NO_END, _NO_END_UNMARKED)


def unify_newlines(text: tf.Tensor) -> tf.Tensor:
    r"""Returns the strings with ``\n`` in place of every ``\r\n`` and ``\r``, any shape."""
    return tf.strings.regex_replace(text, "\r\n?", "\n")


def mark_sentences(text: tf.Tensor) -> tf.Tensor:
    r"""Puts a line break behind every sentence of texts whose lines are paragraphs.

    Args:
        text: string tensor of any shape, valid UTF-8, without ``\r`` (see ``unify_newlines``); a
            ``\n`` ends a paragraph, and with it a sentence.

    Returns:
        Strings of the same shape in which ``\n``, with or without a ``\r`` before it, stands
        behind each sentence; nothing but blanks between sentences is lost.

    >>> mark_sentences(tf.constant("Dr. No came. He left.")).numpy()
    b'Dr. No came.\r\nHe left.'
    """
    marked = tf.strings.regex_replace(text, _END, _END_MARKED)
    return tf.strings.regex_replace(marked, _NO_END, _NO_END_UNMARKED)


def split_sentences(paragraphs: tf.Tensor) -> tf.RaggedTensor:
    r"""Splits each text into its sentences.

    A sentence ends at ``. ! ? …`` and their Arabic and Indic counterparts, with any closing quotes
    and brackets, where blanks and then a capital, a digit, a letter of a script without case, or
    an opening quote before one of these follow; at ``。！？`` wherever they stand; and at a line
    break. It does not end behind titles and common abbreviations (mostly English), initials,
    acronyms, decimals, paragraph numbers, or an ellipsis before a lower-case letter.

    Args:
        paragraphs: (N,) strings, valid UTF-8. Batched: each string is split alone.

    Returns:
        Ragged (N, sentences) strings: stripped of ASCII white space, in order, none empty; a text
        of white space has no sentences.

    >>> split_sentences(tf.constant(['"Why?" asked J. R. Smith. It was 3.5 m.', " "])).to_list()
    [[b'"Why?" asked J. R. Smith.', b'It was 3.5 m.'], []]
    """
    lines = tf.strings.split(mark_sentences(unify_newlines(paragraphs)), "\n")
    lines = lines.with_values(tf.strings.strip(lines.values))
    return tf.ragged.boolean_mask(lines, lines.with_values(tf.not_equal(lines.values, "")))
