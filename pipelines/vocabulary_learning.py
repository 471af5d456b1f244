"""Learns a WordPiece vocabulary from text.

Source: BERT (2018), section 3, for the size of 30,000.
"""

import os
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import IO

import numpy as np
import tensorflow as tf
import tensorflow_text
import tokenizers

from bert_tf.pipelines.corpora.text_bytes import group_items

from .normalization import AMBIGUOUS, Normalization, build_normalizer_model
from .text_rules import TOKENIZERS
from .vocabulary import (
    CONTINUATION_PREFIX,
    MAX_WORD_LENGTH,
    SPECIAL_TOKENS,
    UNK_TOKEN,
    validate_vocabulary,
)

_CHARACTER_COVERAGE = 0.9999
# Number of lines that are normalized at a time. Texts without line ends have lines of a megabyte.
_LINES_PER_BATCH, _CHARACTERS_PER_BATCH = 4096, 1 << 22
# Maximum number of lines of a batch after joining. The learner counts words by line, so that a few
# long lines take less time than many short ones, but each character of a line takes 13 bytes.
_JOINED_LINES_PER_BATCH = 32


def learn_vocabulary(
    lines: Iterable[str],
    vocab_size: int = 30522,
    do_lower_case: bool = True,
    min_frequency: int = 2,
) -> list[str]:
    """Learns a WordPiece vocabulary from text, with Hugging Face's ``tokenizers``.

    Normalizes and splits the text as BERT's tokenizer does. The vocabulary contains the special
    tokens; the most frequent characters that cover 99.99% of the text, each as ``c`` and ``##c``;
    and the results of merging the most frequent adjacent pairs, most frequent first. The same text
    always results in the same vocabulary.

    Args:
        lines: Text, which is copied to a temporary file. Words do not extend over line ends.
        vocab_size: Maximum number of pieces.
        do_lower_case: Whether the tokenizer will lower-case texts and strip accents.
        min_frequency: Minimum number of occurrences of a pair to merge, or a character to keep.

    Returns:
        The list of pieces.

    Raises:
        ValueError: If an option is out of range, or there is no text.

    >>> learn_vocabulary(["To be or not to be, be! Tobe"], vocab_size=20)
    ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'o', '##o', 'b', '##b', 'e', '##e', 't', \
'##t', 'be', 'to']
    """
    min_size = len(SPECIAL_TOKENS) + 2
    if vocab_size < min_size:
        raise ValueError(
            f"vocab_size={vocab_size}: expected at least {min_size}, for the "
            f"{len(SPECIAL_TOKENS)} special tokens and one letter."
        )
    if min_frequency < 1:
        raise ValueError(f"min_frequency={min_frequency}: expected at least 1.")

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK_TOKEN))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    # The trainer reads a file without Python, and faster than lines from Python.
    with tempfile.TemporaryDirectory(prefix="bert_tf-") as folder:
        path = os.path.join(folder, "words.txt")
        with open(path, "wb") as file:
            characters = _write_words(file, lines, do_lower_case)
        if not characters:
            raise ValueError("Cannot learn a vocabulary: every line of the text is empty.")
        alphabet, single_pieces = _choose_alphabet(
            characters, vocab_size - len(SPECIAL_TOKENS), min_frequency
        )
        # The trainer assigns ids to ## characters in the order of a randomly seeded hash map, and
        # resolves ties between pairs by id. Declaring all single characters as special fixes both.
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[*SPECIAL_TOKENS, *single_pieces],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            continuing_subword_prefix=CONTINUATION_PREFIX,
            show_progress=False,
        )
        tokenizer.train([path], trainer)
    ids = tokenizer.get_vocab()
    vocab = sorted(ids, key=ids.__getitem__)[:vocab_size]
    validate_vocabulary(vocab, "just learned")
    return vocab


def _write_words(file: IO[bytes], lines: Iterable[str], do_lower_case: bool) -> dict[str, int]:
    """Writes the words of the lines, and returns the number of occurrences of each character.

    Words that the tokenizer reads as [UNK] are removed: merging the pairs of a megabyte without
    whitespace would take hours.
    """
    separate = word_separator(do_lower_case)
    totals = np.zeros(sys.maxunicode + 1, np.int64)
    for batch in group_items(lines, len, _LINES_PER_BATCH, _CHARACTERS_PER_BATCH):
        words, step = separate(batch), 1 + len(batch) // _JOINED_LINES_PER_BATCH
        joined = [b" ".join(words[first : first + step]) for first in range(0, len(words), step)]
        text = b"\n".join([*joined, b""])
        if _longest_run(text) > MAX_WORD_LENGTH:
            text = b"".join(_without_long_words(line) + b"\n" for line in joined)
        file.write(text)
        counts = np.bincount(np.frombuffer(text.decode().encode("utf-32-le"), np.uint32))
        totals[: counts.size] += counts
    totals[[ord(" "), ord("\n")]] = 0
    return {chr(point): int(totals[point]) for point in np.flatnonzero(totals)}


def _longest_run(text: bytes) -> int:
    """Returns the length in bytes of the longest run without spaces and line ends."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) <= ord(" "))
    return int(np.diff(ends, prepend=-1).max()) - 1


def _without_long_words(line: bytes) -> bytes:
    words = line.decode().split(" ")
    return " ".join(word for word in words if len(word) <= MAX_WORD_LENGTH).encode()


def word_separator(do_lower_case: bool) -> Callable[[Sequence[str]], list[bytes]]:
    """Returns a function that normalizes lines and separates their words by spaces.

    The words equal those of the BERT tokenizer of ``tokenizers``, whose own normalizer takes ten
    times as long. That normalizer processes only lines that tensorflow-text cannot normalize.
    """
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=do_lower_case)
    pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    rules = Normalization(do_lower_case, do_lower_case, TOKENIZERS, separated=True)
    model = tf.constant(build_normalizer_model(rules))
    fast_normalizer = tensorflow_text.FastBertNormalizer(model_buffer=model)

    def split(line: str) -> list[str]:
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(line))]

    def separate(lines: Sequence[str]) -> list[bytes]:
        separated = fast_normalizer.normalize(tf.constant(lines)).numpy()
        mark = AMBIGUOUS.encode()
        if mark not in b"".join(separated):
            return list(separated)
        return [
            " ".join(split(line)).encode() if mark in words else words
            for line, words in zip(lines, separated, strict=True)
        ]

    return separate


def _choose_alphabet(
    characters: dict[str, int], room: int, min_frequency: int
) -> tuple[list[str], list[str]]:
    """Returns the characters to keep, most frequent first, and their pieces."""
    alphabet: list[str] = []
    pieces: list[str] = []
    enough = _CHARACTER_COVERAGE * sum(characters.values())
    covered = 0
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        forms = [character]
        if not _is_separate_word(character):
            forms.append(CONTINUATION_PREFIX + character)
        if len(pieces) + len(forms) > room or count < min_frequency or covered >= enough:
            break
        alphabet.append(character)
        pieces += forms
        covered += count
    return alphabet, pieces


def _is_separate_word(character: str) -> bool:
    """Returns whether BERT's tokenizer splits this character into a separate word."""
    isolating = tokenizers.normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    if isolating.normalize_str(character) != character:
        return True
    is_ascii_symbol = character.isascii() and not character.isalnum()
    return is_ascii_symbol or unicodedata.category(character).startswith("P")
