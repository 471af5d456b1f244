r"""WordPiece vocabularies: load, check, save.

A vocabulary is a list of pieces; a piece's id is its index, and in a file its line number counted
from 0. A piece that continues a word starts with ``##``. Source: ``load_vocab`` in Google's
``tokenization.py``; BERT (2018) section 3 for the size of 30,000.

Lines end at ``\n`` alone: the released Chinese vocabulary holds U+2028, at which
``str.splitlines`` would end a line and shift every id after it. Google strips all white space of a
line and so reads that piece as an empty one; here only ASCII white space is stripped, which keeps
the pieces distinct. No text can produce either spelling, so no id differs.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.files import replace_whole
from bert_tf.paths import check_readable
from bert_tf.untrusted import quote

PAD_TOKEN = "[PAD]"
UNK_TOKEN = "[UNK]"
CLS_TOKEN = "[CLS]"
SEP_TOKEN = "[SEP]"
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)
CONTINUATION_PREFIX = "##"

_ASCII_WHITESPACE = " \t\r\n\v\f"


def load_vocabulary(path: str) -> list[str]:
    """Reads a vocabulary file, one piece a line, and checks it.

    Args:
        path: a UTF-8 file on any TensorFlow file system; blank lines at its end are dropped.

    Returns:
        The pieces in the order of their ids.

    Raises:
        ValueError: there is no such file, it is not UTF-8, or ``validate_vocabulary`` refuses it.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    >>> save_vocabulary(path, [*SPECIAL_TOKENS, "time", "##s"])
    >>> load_vocabulary(path)
    ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'time', '##s']
    """
    path = str(path)
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(
            f"There is no vocabulary file at {path!r}: expected a text file with one piece a line."
        )
    check_readable(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"Vocabulary {path}: line {line} is not UTF-8 (byte {error.start} of the file); "
            "save the file as UTF-8."
        ) from error
    vocab = [line.strip(_ASCII_WHITESPACE) for line in text.split("\n")]
    while vocab and not vocab[-1]:
        vocab.pop()
    validate_vocabulary(vocab, path)
    return vocab


def validate_vocabulary(vocab: Sequence[str], source: str) -> None:
    """Checks that a vocabulary has every special token, and no piece empty or twice.

    ``source`` is what errors call it, most often its path; they count lines from 1, as editors do.
    """
    if not vocab:
        raise ValueError(f"Vocabulary {source}: it is empty; expected one piece a line.")
    first_line: dict[str, int] = {}
    for line, piece in enumerate(vocab, start=1):
        if not piece:
            raise ValueError(
                f"Vocabulary {source}: line {line} is empty; expected one piece on every line, "
                "since an id is a line number."
            )
        earlier = first_line.setdefault(piece, line)
        if earlier != line:
            raise ValueError(
                f"Vocabulary {source}: {quote(piece)} stands on line {earlier} and again on line "
                f"{line}; a piece has one id, so remove one of them (ids are line numbers: the "
                "later pieces move up)."
            )
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    if missing:
        raise ValueError(
            f"Vocabulary {source}: no line holds {', '.join(missing)}; a BERT vocabulary has "
            f"{', '.join(SPECIAL_TOKENS)} among its {len(vocab):,} lines."
        )


def check_vocabulary_fits(vocab: Sequence[str], config_vocab_size: int, source: str) -> None:
    """Checks that every id of a vocabulary has a row in the model's embedding table.

    A vocabulary smaller than the table is fine: tables are padded to round sizes.
    """
    if len(vocab) > config_vocab_size:
        raise ValueError(
            f"Vocabulary {source} has {len(vocab):,} pieces, but the model's vocab_size is "
            f"{config_vocab_size:,}: take the vocabulary that belongs to the model, or for a model "
            f"that is trained anew set vocab_size to at least {len(vocab):,}."
        )


def save_vocabulary(path: str, vocab: Sequence[str]) -> None:
    """Writes a vocabulary file, whole or not at all; missing folders are made.

    Errors are those of ``validate_vocabulary``, and that a piece would not be read back as it is
    (it holds a line end, or starts or ends with ASCII white space).
    """
    path = str(path)
    content = encode_vocabulary(vocab, path)
    with replace_whole(path) as file:
        file.write(content)


def encode_vocabulary(vocab: Sequence[str], path: str) -> bytes:
    """A vocabulary file's content; arguments and errors as of ``save_vocabulary``."""
    validate_vocabulary(vocab, path)
    for line, piece in enumerate(vocab, start=1):
        if "\n" in piece or piece != piece.strip(_ASCII_WHITESPACE):
            raise ValueError(
                f"Vocabulary {path}: the piece {quote(piece)} for line {line} holds white space "
                "that a file with one piece a line cannot keep; remove it."
            )
    return "".join(piece + "\n" for piece in vocab).encode("utf-8")


def casing_note(vocab: Sequence[str], do_lower_case: bool) -> str | None:
    """A sentence where a vocabulary with capitals is to be used on lower-cased text, else None."""
    # Chinese vocabularies have a handful of other special tokens, with capitals.
    capitals = [piece for piece in vocab if piece.lower() != piece and piece[0] not in "[<"]
    if not do_lower_case or 100 * len(capitals) < len(vocab):
        return None
    return (
        f"The vocabulary seems to be cased ({len(capitals):,} pieces with capitals, such as "
        f"{quote(capitals[-1])}), and the text is lower-cased: pass --do_lower_case=false to keep "
        "its case."
    )
