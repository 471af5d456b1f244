r"""Loads, validates and saves WordPiece vocabularies.

A vocabulary is a list of pieces. The id of a piece is its index, and its line number from 0 in a
file. Pieces that continue a word start with ``##``. Source: ``load_vocab`` in Google's
``tokenization.py``.

Lines only end at ``\n``: the released Chinese vocabulary contains U+2028, where ``str.splitlines``
would split a line and shift all later ids. Only ASCII whitespace is stripped from lines, where
Google strips all whitespace and reads that piece as empty. No text contains either piece, so all
ids are equal.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.io.files import atomic_write
from bert_tf.io.messages import quote
from bert_tf.io.paths import check_readable

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
