"""Learns a WordPiece vocabulary from text."""

import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np
import tokenizers

from .vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, UNK_TOKEN, validate_vocabulary

_CODE_POINTS = 0x110000
_CHARACTER_COVERAGE = 0.9999
# Lines handed to the learner at a time: enough to keep its threads busy, little memory. A text
# without line ends has lines of a megabyte, which are counted at 13 bytes a character.
_LINES_PER_BATCH, _CHARACTERS_PER_BATCH = 4096, 1 << 22


def learn_vocabulary(
    lines: Iterable[str],
    vocab_size: int = 30522,
    do_lower_case: bool = True,
    min_frequency: int = 2,
) -> list[str]:
    """Learns a WordPiece vocabulary from text, with Hugging Face's ``tokenizers``.

    The text is normalised and split into words as BERT's tokenizer does it. The vocabulary holds
    the special tokens, then the most frequent characters, which together make up 99.99% of the
    text, each alone and as ``##c``, as long as there is room (words with others become ``[UNK]``),
    then the pieces that merging the most frequent neighbour pairs gives, the most frequent first.
    The same text gives the same vocabulary, in every process.

    Args:
        lines: the text; read twice, and an iterator (which cannot be read twice) is first
            copied to memory. Where a line ends means nothing but the end of a word.
        vocab_size: the most pieces wanted; a small text may give fewer.
        do_lower_case: whether the tokenizer will lower the case and strip accents.
        min_frequency: how often a pair must occur to be merged, a character to be kept.

    Returns:
        At most ``vocab_size`` pieces, the special tokens in the order of ``SPECIAL_TOKENS`` first.

    Raises:
        ValueError: an option is out of its range, or there is no text.

    >>> learn_vocabulary(["To be or not to be, be! Tobe"], vocab_size=20)
    ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'o', '##o', 'b', '##b', 'e', '##e', 't', \
'##t', 'be', 'to']
    """
    smallest = len(SPECIAL_TOKENS) + 2
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}: expected at least {smallest}, for the "
            f"{len(SPECIAL_TOKENS)} special tokens and one letter; the released models have 30522."
        )
    if min_frequency < 1:
        raise ValueError(f"min_frequency is {min_frequency}: expected 1 or more.")
    if isinstance(lines, Iterator):
        lines = list(lines)

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK_TOKEN))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=do_lower_case)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    characters = _count_characters(lines, tokenizer)
    if not characters:
        raise ValueError("There is no text to learn a vocabulary from: every line is empty.")
    alphabet, single_pieces = _choose_alphabet(
        characters, vocab_size - len(SPECIAL_TOKENS), min_frequency
    )
    # The trainer gives ids to the ## characters in the order of a randomly seeded hash map, and
    # breaks ties between pairs by id. Naming every single-character piece as special fixes both.
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *single_pieces],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION_PREFIX,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_batches(lines), trainer)
    ids = tokenizer.get_vocab()
    vocab = sorted(ids, key=ids.__getitem__)[:vocab_size]
    validate_vocabulary(vocab, "just learned")
    return vocab


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    """Groups lines into lists of ``_LINES_PER_BATCH``, fewer where they are long."""
    batch: list[str] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) == _LINES_PER_BATCH or size >= _CHARACTERS_PER_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _count_characters(lines: Iterable[str], tokenizer: tokenizers.Tokenizer) -> dict[str, int]:
    """Counts the characters of normalised words, normalising each distinct code point once."""
    totals = np.zeros(_CODE_POINTS, np.int64)
    for batch in _batches(lines):
        points = np.frombuffer("".join(batch).encode("utf-32-le", "surrogatepass"), np.uint32)
        counts = np.bincount(points)
        totals[: counts.size] += counts
    characters: dict[str, int] = {}
    for point in np.flatnonzero(totals):
        normalised = tokenizer.normalizer.normalize_str(chr(point))
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalised):
            for character in word:
                characters[character] = characters.get(character, 0) + int(totals[point])
    return characters


def _choose_alphabet(
    characters: dict[str, int], room: int, min_frequency: int
) -> tuple[list[str], list[str]]:
    """The characters to keep, the most frequent first, and the pieces they need."""
    alphabet: list[str] = []
    pieces: list[str] = []
    wanted = _CHARACTER_COVERAGE * sum(characters.values())
    covered = 0
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        forms = [character]
        if not _stands_alone(character):
            forms.append(CONTINUATION_PREFIX + character)
        if len(pieces) + len(forms) > room or count < min_frequency or covered >= wanted:
            break
        alphabet.append(character)
        pieces += forms
        covered += count
    return alphabet, pieces


def _stands_alone(character: str) -> bool:
    """True if BERT's tokenizer makes this character a word of its own."""
    isolating = tokenizers.normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    if isolating.normalize_str(character) != character:
        return True
    is_ascii_symbol = character.isascii() and not character.isalnum()
    return is_ascii_symbol or unicodedata.category(character).startswith("P")
