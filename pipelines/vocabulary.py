r"""WordPiece vocabularies: load, check, save, learn.

A vocabulary is a list of pieces; a piece's id is its index, and in a file its line number counted
from 0. A piece that continues a word starts with ``##``. Source: ``load_vocab`` in Google's
``tokenization.py``; BERT (2018) section 3 for the size of 30,000.

Lines end at ``\n`` alone: the released Chinese vocabulary holds U+2028, at which
``str.splitlines`` would end a line and shift every id after it. Google strips all white space of a
line and so reads that piece as an empty one; here only ASCII white space is stripped, which keeps
the pieces distinct. No text can produce either spelling, so no id differs.
"""

import collections
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tokenizers

from bert_tf.io.files import atomic_write
from bert_tf.io.paths import check_readable
from bert_tf.io.wording import quote
from bert_tf.pipelines.corpora.text_bytes import group_items

PAD_TOKEN = "[PAD]"
UNK_TOKEN = "[UNK]"
CLS_TOKEN = "[CLS]"
SEP_TOKEN = "[SEP]"
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)
CONTINUATION_PREFIX = "##"
MAX_WORD_LENGTH = 200  # characters of a word; a longer one is [UNK]

_ASCII_WHITESPACE = " \t\r\n\v\f"
# How pieces of other kinds of tokenizers look.
_OTHER_TOKENIZERS = {"SentencePiece's": "▁.+", "byte-level BPE's": "Ġ.+", "BPE's": ".+</w>"}


def load_vocabulary(path: str) -> list[str]:
    """Reads a vocabulary file, one piece a line, and checks it.

    ``path`` is a UTF-8 file on any TensorFlow file system; blank lines at its end are dropped. A
    ``ValueError``: there is no such file, it is not UTF-8, or ``validate_vocabulary`` refuses it.

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

    ``source`` is what errors call it; they count lines from 1, as editors do.
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


def check_is_wordpiece(vocab: Sequence[str], source: str) -> None:
    """Checks that pieces are none of another kind of tokenizer: words would become ``[UNK]``."""
    continued = sum(piece.startswith(CONTINUATION_PREFIX) for piece in vocab)
    for kind, pattern in _OTHER_TOKENIZERS.items():
        pieces = [piece for piece in vocab if re.fullmatch(pattern, piece)]
        if len(pieces) > max(continued, len(vocab) / 10):
            raise ValueError(
                f"Vocabulary {source}: {len(pieces):,} of its {len(vocab):,} pieces are {kind}, "
                f"such as {quote(pieces[0])}, and {continued:,} begin with {CONTINUATION_PREFIX}: "
                "expected WordPiece's; hand the model ids that its own tokenizer gives."
            )


def save_vocabulary(path: str, vocab: Sequence[str]) -> None:
    """Writes a vocabulary file, whole or not at all; refuses what would be read back otherwise."""
    path = str(path)
    content = encode_vocabulary(vocab, path)
    with atomic_write(path) as file:
        file.write(content)


def encode_vocabulary(vocab: Sequence[str], path: str) -> bytes:
    """A vocabulary file's content."""
    validate_vocabulary(vocab, path)
    for line, piece in enumerate(vocab, start=1):
        if "\n" in piece or piece != piece.strip(_ASCII_WHITESPACE):
            raise ValueError(
                f"Vocabulary {path}: the piece {quote(piece)} for line {line} holds white space "
                "that a file with one piece a line cannot keep; remove it."
            )
    return "".join(piece + "\n" for piece in vocab).encode("utf-8")


# === Learning ===

_CHARACTER_COVERAGE = 0.9999
# Lines handed to the learner at a time: enough to keep its threads busy, little memory. A text
# without line ends has lines of a megabyte, which are counted at 13 bytes a character.
_LINES_PER_BATCH, _CHARACTERS_PER_BATCH = 4096, 1 << 22
# A run of characters, without white space, ASCII's punctuation and ideographs, that may contain a
# longer word.
_LONG_RUN = re.compile(rf"[^\s!-/:-@\[-`{{-~\u3400-\u4dbf\u4e00-\u9fff]{{{MAX_WORD_LENGTH + 1}}}")


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
        lines: the text, which is read twice (an iterator is first copied to memory). Where a line
            ends means nothing but the end of a word.
        vocab_size: the most pieces wanted; a small text may give fewer.
        do_lower_case: whether the tokenizer will lower the case and strip accents.
        min_frequency: how often a pair must occur to be merged, a character to be kept.

    Raises:
        ValueError: an option is out of its range, or there is no text.

    >>> learn_vocabulary(["To be or not to be, be! Tobe"], vocab_size=20)
    ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'o', '##o', 'b', '##b', 'e', '##e', 't', \
'##t', 'be', 'to']
    """
    min_size = len(SPECIAL_TOKENS) + 2
    if vocab_size < min_size:
        raise ValueError(
            f"vocab_size is {vocab_size}: expected at least {min_size}, for the "
            f"{len(SPECIAL_TOKENS)} special tokens and one letter; the released models have 30522."
        )
    if min_frequency < 1:
        raise ValueError(f"min_frequency is {min_frequency}: expected 1 or more.")
    if isinstance(lines, Iterator):
        lines = list(lines)

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK_TOKEN))
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=do_lower_case)
    pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer

    def split(text: str) -> list[str]:
        # While the tokenizer learns, reading its attributes would wait forever.
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))]

    def read() -> Iterator[list[str]]:
        for batch in _batches(lines):
            yield [_without_long_words(line, split) for line in batch]

    characters = _count_characters(read(), split)
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
    tokenizer.train_from_iterator(read(), trainer)
    ids = tokenizer.get_vocab()
    vocab = sorted(ids, key=ids.__getitem__)[:vocab_size]
    validate_vocabulary(vocab, "just learned")
    return vocab


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    return group_items(lines, len, _LINES_PER_BATCH, _CHARACTERS_PER_BATCH)


def _without_long_words(line: str, split: Callable[[str], list[str]]) -> str:
    """A line without the words that the tokenizer reads as [UNK].

    The learner would take hours to merge the pairs of a megabyte without blanks.
    """
    # The lengths of what blanks separate take a twentieth of the expression's time.
    if max(map(len, line.split()), default=0) <= MAX_WORD_LENGTH or not _LONG_RUN.search(line):
        return line
    return " ".join(word for word in split(line) if len(word) <= MAX_WORD_LENGTH)


def _count_characters(
    batches: Iterable[list[str]], split: Callable[[str], list[str]]
) -> dict[str, int]:
    """Counts the characters of normalised words, normalising each distinct code point once."""
    totals = np.zeros(sys.maxunicode + 1, np.int64)
    for batch in batches:
        points = np.frombuffer("".join(batch).encode("utf-32-le", "surrogatepass"), np.uint32)
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
    """The characters to keep, the most frequent first, and the pieces they need."""
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
    """True if BERT's tokenizer makes this character a word of its own."""
    isolating = tokenizers.normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    if isolating.normalize_str(character) != character:
        return True
    is_ascii_symbol = character.isascii() and not character.isalnum()
    return is_ascii_symbol or unicodedata.category(character).startswith("P")
