"""Warnings about texts that do not match a vocabulary or its casing."""

import collections
import itertools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from bert_tf.io.messages import listed, quote
from bert_tf.pipelines.corpora.corpus import Corpus

from .wordpiece import BertTokenizer

#: Maximum number of bytes of a corpus to check.
SAMPLE_BYTES = 200_000
_MAX_CHARACTERS = 1000
_MIN_DOCUMENTS = 20  # for a meaningful fraction of copies
_HTML = re.compile(
    r"</?(?:p|br|div|span|a|b|i|li|ul|td|tr|h[1-6]|script|style)\b[^<>]*>|&[a-z]+;|&#\d+;"
)
_RARITY = 50  # only problems in more than one of 50 items are reported


def casing_note(vocab: Sequence[str], do_lower_case: bool) -> str | None:
    """Returns a warning if a cased vocabulary is used with lower-casing, else ``None``."""
    # Chinese vocabularies have a few additional special tokens with capitals.
    capitals = [piece for piece in vocab if piece.lower() != piece and piece[0] not in "[<"]
    if not do_lower_case or 100 * len(capitals) < len(vocab):
        return None
    return (
        f"The vocabulary seems to be cased: {len(capitals):,} pieces have capitals, such as "
        f"{quote(capitals[-1])}, but the text is lower-cased. To preserve the case, pass "
        "--do_lower_case=false."
    )


def marks_note(corpus: Corpus) -> str | None:
    """Returns a warning if lower-casing changes letters of caseless scripts, else ``None``."""
    characters = collections.Counter(itertools.chain.from_iterable(corpus.sentences(SAMPLE_BYTES)))
    kinds = {c: unicodedata.category(c)[0] for c in characters if c.lower() == c.upper()}
    letters = collections.Counter({c: characters[c] for c, kind in kinds.items() if kind in "LM"})
    changed = collections.Counter({c: n for c, n in letters.items() if _as_uncased(c) != c})
    if 2 * letters.total() <= characters.total() or _RARITY * changed.total() <= characters.total():
        return None
    return (
        f"Lower-casing strips marks from, or splits, {changed.total():,} of "
        f"{letters.total():,} letters of caseless scripts ({_top_examples(changed)}). To preserve "
        "these letters, pass --do_lower_case=false."
    )


def copies_note(corpus: Corpus) -> str | None:
    """Returns a warning if at least a tenth of the documents are copies, else ``None``."""
    fingerprints = corpus.table.fingerprints[corpus.is_member]
    copies, size = fingerprints.size - np.unique(fingerprints).size, fingerprints.size
    if size < _MIN_DOCUMENTS or 10 * copies < size:
        return None
    return (
        f"{copies:,} of {size:,} documents ({copies / size:.0%}) are copies, so training repeats "
        "them. Remove the copies unless this is intended."
    )


def markup_note(texts: Sequence[str]) -> str | None:
    """Returns a warning if more than one of 50 texts has HTML markup, else ``None``."""
    found = [match[0] for match in map(_HTML.search, texts) if match]
    if _RARITY * len(found) <= len(texts):
        return None
    return (
        f"{len(found) / len(texts):.1%} of the sentences in a sample have HTML markup, such as "
        f"{_top_examples(collections.Counter(found))}, which is read as text. Remove the markup."
    )


def word_counts(texts: Sequence[str], tokenizer: BertTokenizer) -> tuple[int, int, int]:
    """Returns the numbers of tokens, words and unknown words in texts."""
    ids = tokenizer.tokenize(texts).flat_values.numpy()
    return ids.size, int((~tokenizer.continuation[ids]).sum()), int((ids == tokenizer.unk_id).sum())


def unknown_note(texts: Sequence[str], tokenizer: BertTokenizer) -> str | None:
    """Returns a warning if more than one of 50 words is [UNK], else ``None``."""
    texts, lower = [text[:_MAX_CHARACTERS] for text in texts], tokenizer.do_lower_case
    _, size, unknown = word_counts(texts, tokenizer)
    if _RARITY * unknown <= size:
        return None
    words = collections.Counter(itertools.chain.from_iterable(map(str.split, texts)))
    for word, pieces in zip([*words], tokenizer.tokenize([*words]).to_list(), strict=True):
        if tokenizer.unk_id not in pieces:
            del words[word]
    known = {piece.removeprefix("##") for piece in tokenizer.vocab}
    missing: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        missing.update(dict.fromkeys({*(_as_uncased(word) if lower else word)} - known, count))
    capitals = sum(n for letter, n in missing.items() if letter != letter.lower())
    lacking = f"the vocabulary lacks {_top_examples(missing)}"
    if not missing:
        lacking = "these words are too long or have no matching pieces"

    elif 2 * capitals > missing.total():
        lacking = (
            f"the vocabulary lacks the capitals {_top_examples(missing)}, and do_lower_case is "
            "false"
        )
    return (
        f"{unknown / size:.1%} of the words in a sample become [UNK], such as "
        f"{_top_examples(words)}: {lacking}."
    )


def _as_uncased(text: str) -> str:
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")


def _top_examples(counts: collections.Counter[str]) -> str:
    return listed([text for text, _ in counts.most_common(5)])
