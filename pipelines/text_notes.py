"""Notes on a text and the tokenizer that reads it."""

import collections
import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

from bert_tf.untrusted import listed

from .corpus import Corpus
from .pretraining import measure_share
from .vocabulary import casing_note
from .wordpiece import BertTokenizer

_SAMPLE_BYTES, _LONGEST = 200_000, 1000
_TOLD = 50  # what is rarer than one in so many is not told
_LOW_SHARE = 0.7  # English text has 0.85 to 0.98
_MOST_RANDOM = 0.9  # of documents with several sentences about half


def corpus_lines(corpus: Corpus, tokenizer: BertTokenizer, masking: str, **rows: Any) -> list[str]:
    """Lines on the share of a corpus that reaches rows, and on misfits with the tokenizer."""
    share, size, random = measure_share(corpus, tokenizer, **rows)
    sample = list(corpus.sentences(_SAMPLE_BYTES))
    letters = [letter for sentence in sample for letter in sentence if letter.isalpha()]
    is_chinese = 2 * sum("\u3400" <= letter <= "\u9fff" for letter in letters) > len(letters)
    told = {
        f"Tokens that reach rows: {share:.1%} of a sample of {size:,}.": True,
        "  That is little: most sentences nearly fill a row, and pairs of them are cut to length. "
        "Longer rows (--max_seq_length) use more of the text, and --pairs=false of pretrain leaves "
        "no token out.": share < _LOW_SHARE,
        f"In {random:.0%} of the pairs the second text is of another document, as most documents "
        "are one short sentence: nothing is learned from that; --pairs=false of pretrain leaves "
        "pairs out.": random > _MOST_RANDOM,
        "Whole words of Chinese are single characters to BERT: they are masked as tokens "
        "are.": is_chinese and masking == "whole_word",
    }
    notes = casing_note(tokenizer.vocab, tokenizer.do_lower_case), unknown_note(sample, tokenizer)
    return [*(line for line, holds in told.items() if holds), *filter(None, notes)]


def marks_note(corpus: Corpus) -> str | None:
    """A sentence where lower-casing changes letters of scripts without capitals, else None."""
    found = collections.Counter(itertools.chain.from_iterable(corpus.sentences(_SAMPLE_BYTES)))
    kinds = {c: unicodedata.category(c)[0] for c in found if c.lower() == c.upper()}
    letters = collections.Counter({c: found[c] for c, kind in kinds.items() if kind in "LM"})
    changed = collections.Counter({c: n for c, n in letters.items() if _as_uncased(c) != c})
    if 2 * letters.total() <= found.total() or _TOLD * changed.total() <= found.total():
        return None
    return (
        f"Lower-casing strips marks and splits syllables, here in {changed.total():,} of "
        f"{letters.total():,} letters ({_commonest(changed)}), whose script has no capitals: "
        "--do_lower_case=false keeps them."
    )


def word_counts(texts: Sequence[str], tokenizer: BertTokenizer) -> tuple[int, int, int]:
    """Numbers of tokens, of words and of unknown words in texts."""
    ids = tokenizer.tokenize(texts).flat_values.numpy()
    return ids.size, int((~tokenizer.continuation[ids]).sum()), int((ids == tokenizer.unk_id).sum())


def unknown_note(texts: Sequence[str], tokenizer: BertTokenizer) -> str | None:
    """A sentence where more than one word in fifty is [UNK], with the likely cause, else None."""
    texts, lower = [text[:_LONGEST] for text in texts], tokenizer.do_lower_case
    _, size, unknown = word_counts(texts, tokenizer)
    if _TOLD * unknown <= size:
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
    lacking = f"it lacks {_commonest(missing)}, as it was made of other text"
    if not missing:
        lacking = "these are too long, or have no fitting pieces"
    elif 2 * capitals > missing.total():
        lacking = f"it lacks the capitals {_commonest(missing)}, and do_lower_case is false"
    return (
        f"{unknown / size:.1%} of the words in a sample are unknown to the vocabulary, such as "
        f"{_commonest(words)}: {lacking}."
    )


def _as_uncased(text: str) -> str:
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")


def _commonest(counts: collections.Counter[str]) -> str:
    return listed([text for text, _ in counts.most_common(5)])
