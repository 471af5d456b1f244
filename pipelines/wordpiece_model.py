"""A vocabulary as a model for tensorflow-text's ``FastWordpieceTokenizeWithOffsets`` op."""

import string
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text

from .normalizer_model import DOUBTFUL, replacements
from .vocabulary import CONTINUATION_PREFIX

MAX_BYTES_PER_PIECE = 256  # the op's


def matchable_pieces(vocab: Sequence[str], do_lower_case: bool) -> list[str]:
    """The vocabulary with a stand-in for each piece that no text can produce.

    They are the special tokens and others with ASCII punctuation among other characters, "##"
    alone, and pieces with a character that normalisation removes or replaces: control characters,
    spaces, for an uncased tokenizer capitals and accents. The stand-ins, being punctuation among
    other characters, never enter the op's trie; and what they stand for could confuse its
    builder, which is made for sensible vocabularies.

    Args:
        vocab: the pieces in the order of their ids.
        do_lower_case: whether the tokenizer lowers the case and strips accents.

    Returns:
        As many pieces, all different.

    Raises:
        ValueError: a piece that text can produce has more than 256 bytes.

    >>> matchable_pieces(["[UNK]", "hello", "Hello", "##s", "##", "?", "e.g."], do_lower_case=True)
    ['[0]', 'hello', '[2]', '##s', '[4]', '?', '[6]']
    """
    replaced = {" "}
    for code, new in replacements(do_lower_case).items():
        if new.strip() not in (chr(code), DOUBTFUL):
            replaced.add(chr(code))
    punctuation = frozenset(string.punctuation)
    pieces = []
    for index, piece in enumerate(vocab):
        body = piece.removeprefix(CONTINUATION_PREFIX)
        is_one_word = len(body) == 1 or punctuation.isdisjoint(body)
        matchable = body and is_one_word and replaced.isdisjoint(body)
        if matchable and len(body.encode()) > MAX_BYTES_PER_PIECE:
            raise ValueError(
                f"Piece {index} of the vocabulary, {piece[:20]!r}..., has {len(body.encode())} "
                f"bytes: expected at most {MAX_BYTES_PER_PIECE}; remove it or shorten it."
            )
        pieces.append(piece if matchable else f"[{index}]")
    return pieces


def build_wordpiece_operation(
    pieces: Sequence[str], unk_id: int, max_bytes_per_word: int
) -> tensorflow_text.FastWordpieceTokenizer:
    """The operation that splits words into pieces, int32 ids; longer words are [UNK].

    >>> operation = build_wordpiece_operation(["[0]", "do", "##g"], 0, max_bytes_per_word=3)
    >>> operation.tokenize(["dog do dodo"])
    <tf.RaggedTensor [[1, 2, 1, 0]]>
    """
    return tensorflow_text.FastWordpieceTokenizer(
        list(pieces),
        suffix_indicator=CONTINUATION_PREFIX,
        max_bytes_per_word=max_bytes_per_word,
        token_out_type=tf.int32,
        unknown_token=pieces[unk_id],
    )
