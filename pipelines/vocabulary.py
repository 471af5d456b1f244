r"""Loads, validates, saves and learns WordPiece vocabularies.

A vocabulary is a list of pieces. The id of a piece is its index, and its line number from 0 in a
file. Pieces that continue a word start with ``##``. Source: ``load_vocab`` in Google's
``tokenization.py``; BERT (2018), section 3, for the size of 30,000.

Lines only end at ``\n``: the released Chinese vocabulary contains U+2028, where ``str.splitlines``
would split a line and shift all later ids. Only ASCII whitespace is stripped from lines, where
Google strips all whitespace and reads that piece as empty. No text contains either piece, so all
ids are equal.
"""

import collections
import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

import numpy as np
import tensorflow as tf
import tokenizers

from bert_tf.io.files import atomic_write
from bert_tf.io.messages import quote
from bert_tf.io.paths import check_readable
from bert_tf.pipelines.corpora.text_bytes import group_items

PAD_TOKEN = "[PAD]"
UNK_TOKEN = "[UNK]"
CLS_TOKEN = "[CLS]"
SEP_TOKEN = "[SEP]"
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)
CONTINUATION_PREFIX = "##"
MAX_WORD_LENGTH = 200  # in characters; longer words become [UNK]

_ASCII_WHITESPACE = " \t\r\n\v\f"
# Patterns of the pieces of other tokenizers.
_OTHER_TOKENIZERS = {"SentencePiece's": "▁.+", "byte-level BPE's": "Ġ.+", "BPE's": ".+</w>"}


def load_vocabulary(path: str) -> list[str]:
    """Reads and validates a vocabulary file.

    Args:
        path: UTF-8 file with one piece per line, on any TensorFlow file system. Blank lines at the
            end are dropped.

    Returns:
        The list of pieces.

    Raises:
        ValueError: If the file does not exist, is not UTF-8, or is not a valid vocabulary.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    >>> save_vocabulary(path, [*SPECIAL_TOKENS, "time", "##s"])
    >>> load_vocabulary(path)
    ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'time', '##s']
    """
    path = str(path)
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(
            f"No such vocabulary file: {path!r}. Pass a text file with one piece per line."
        )
    check_readable(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"Vocabulary {path}: line {line} is not UTF-8 (byte {error.start} of the file). Save "
            "the file as UTF-8."
        ) from error
    vocab = [line.strip(_ASCII_WHITESPACE) for line in text.split("\n")]
    while vocab and not vocab[-1]:
        vocab.pop()
    validate_vocabulary(vocab, path)
    return vocab


def validate_vocabulary(vocab: Sequence[str], source: str) -> None:
    """Checks that a vocabulary has all special tokens, and no empty or duplicate pieces.

    Errors call the vocabulary ``source`` and count lines from 1.
    """
    if not vocab:
        raise ValueError(f"Vocabulary {source} is empty: expected one piece per line.")
    first_line: dict[str, int] = {}
    for line, piece in enumerate(vocab, start=1):
        if not piece:
            raise ValueError(
                f"Vocabulary {source}: line {line} is empty. Write one piece on each line, because "
                "an id is a line number."
            )
        earlier = first_line.setdefault(piece, line)
        if earlier != line:
            raise ValueError(
                f"Vocabulary {source}: {quote(piece)} is on line {earlier} and line {line}. Remove "
                "one of them; this shifts the ids of later pieces."
            )
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    if missing:
        raise ValueError(
            f"Vocabulary {source} lacks {', '.join(missing)}: expected {', '.join(SPECIAL_TOKENS)} "
            f"among its {len(vocab):,} lines."
        )


def check_vocabulary_fits(vocab: Sequence[str], config_vocab_size: int, source: str) -> None:
    """Checks that a vocabulary is not larger than the model's embedding table.

    A smaller vocabulary is valid, because tables may be padded.
    """
    if len(vocab) > config_vocab_size:
        raise ValueError(
            f"Vocabulary {source} has {len(vocab):,} pieces, more than the model's "
            f"vocab_size={config_vocab_size:,}. Use the model's vocabulary, or for a new model "
            f"set vocab_size to at least {len(vocab):,}."
        )


def check_is_wordpiece(vocab: Sequence[str], source: str) -> None:
    """Rejects vocabularies of other tokenizers, with which most words would become ``[UNK]``."""
    continued = sum(piece.startswith(CONTINUATION_PREFIX) for piece in vocab)
    for kind, pattern in _OTHER_TOKENIZERS.items():
        pieces = [piece for piece in vocab if re.fullmatch(pattern, piece)]
        if len(pieces) > max(continued, len(vocab) / 10):
            raise ValueError(
                f"Vocabulary {source}: expected WordPiece, got {len(pieces):,} of "
                f"{len(vocab):,} pieces that are {kind}, such as {quote(pieces[0])}. Use the "
                "model's own tokenizer, and pass its ids to the model."
            )


def save_vocabulary(path: str, vocab: Sequence[str]) -> None:
    """Writes a vocabulary file atomically, after checking that it can be read back."""
    path = str(path)
    content = encode_vocabulary(vocab, path)
    with atomic_write(path) as file:
        file.write(content)


def encode_vocabulary(vocab: Sequence[str], path: str) -> bytes:
    """Returns the content of a vocabulary file."""
    validate_vocabulary(vocab, path)
    for line, piece in enumerate(vocab, start=1):
        if "\n" in piece or piece != piece.strip(_ASCII_WHITESPACE):
            raise ValueError(
                f"Vocabulary {path}: piece {quote(piece)} for line {line} has whitespace that the "
                "file cannot store. Remove it."
            )
    return "".join(piece + "\n" for piece in vocab).encode("utf-8")


# === Learning ===

_CHARACTER_COVERAGE = 0.9999
# Number of lines passed to the learner at a time. They keep its threads busy with little memory.
# Texts without line ends have lines of a megabyte; a character takes 13 bytes.
_LINES_PER_BATCH, _CHARACTERS_PER_BATCH = 4096, 1 << 22
# Run of characters, without whitespace, ASCII punctuation and ideographs, that may contain a word
# above the maximum length.
_LONG_RUN = re.compile(rf"[^\s!-/:-@\[-`{{-~\u3400-\u4dbf\u4e00-\u9fff]{{{MAX_WORD_LENGTH + 1}}}")


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
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=do_lower_case)
    pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer

    def split(text: str) -> list[str]:
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))]

    # The trainer reads a file without Python, and faster than lines from Python.
    with tempfile.TemporaryDirectory(prefix="bert_tf-") as folder:
        path = os.path.join(folder, "text.txt")
        with open(path, "wb") as file:
            characters = _count_characters(_write_lines(file, lines, split), split)
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


def _write_lines(
    file: IO[bytes], lines: Iterable[str], split: Callable[[str], list[str]]
) -> Iterator[str]:
    """Writes the lines without long words; yields what it writes in batches."""
    for batch in group_items(lines, len, _LINES_PER_BATCH, _CHARACTERS_PER_BATCH):
        text = "\n".join([*batch, ""])
        if _longest_run(text.encode()) > MAX_WORD_LENGTH:
            text = "".join(f"{_without_long_words(line, split)}\n" for line in batch)
        file.write(text.encode())
        yield text


def _longest_run(text: bytes) -> int:
    """Returns the length in bytes of the longest run without ASCII whitespace and controls."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) <= ord(" "))
    return int(np.diff(ends, prepend=-1, append=len(text)).max()) - 1


def _without_long_words(line: str, split: Callable[[str], list[str]]) -> str:
    """Removes words that the tokenizer reads as [UNK].

    Merging the pairs of a megabyte without whitespace would take hours.
    """
    # The first check takes a twentieth of the time of the regular expression.
    if max(map(len, line.split()), default=0) <= MAX_WORD_LENGTH or not _LONG_RUN.search(line):
        return line
    return " ".join(word for word in split(line) if len(word) <= MAX_WORD_LENGTH)


def _count_characters(texts: Iterable[str], split: Callable[[str], list[str]]) -> dict[str, int]:
    """Counts the characters of normalized words, normalizing each distinct code point once."""
    totals = np.zeros(sys.maxunicode + 1, np.int64)
    for text in texts:
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        counts = np.bincount(points)
        totals[: counts.size] += counts
    characters: collections.Counter[str] = collections.Counter()
    for point in np.flatnonzero(totals):
        for character in "".join(split(chr(point))):
            characters[character] += int(totals[point])
    return characters


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
