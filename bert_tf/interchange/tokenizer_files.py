"""What other libraries' files say about the tokenizer, and the same files written."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tokenizers

from bert_tf.files import read_json_object, replace_whole, write_json
from bert_tf.pipelines import vocabulary
from bert_tf.pipelines.wordpiece import MAX_CHARACTERS_PER_WORD

from .checkpoint import Tokenization
from .tensor_files import quote

VOCABULARY = "vocab.txt"
_TOKENIZER = "tokenizer.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
# By the names of tokenizer_config.json, those of tokenizer.json's normalizer.
_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_PARTS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
_SPECIAL_ROLES = {
    "pad_token": vocabulary.PAD_TOKEN,
    "unk_token": vocabulary.UNK_TOKEN,
    "cls_token": vocabulary.CLS_TOKEN,
    "sep_token": vocabulary.SEP_TOKEN,
    "mask_token": vocabulary.MASK_TOKEN,
}


def read_tokenization(
    path: str, do_lower_case: bool | None = None
) -> tuple[Tokenization | None, tuple[str, ...]]:
    """The tokenizer that lies beside a checkpoint.

    Args:
        path: a directory with ``vocab.txt``, or else ``tokenizer.json``.
        do_lower_case: what the caller knows of the casing; else ``tokenizer_config.json`` or
            ``tokenizer.json`` says it, else the vocabulary's own letters do.

    Returns:
        The tokenizer, ``None`` where there is no vocabulary or another tokenizer than BERT's; and
        sentences on what was assumed, or on why there is none.
    """
    try:
        pieces = _read_vocabulary(path)
        settings = _read_settings(path)
    except ValueError as error:
        return None, (f"No preprocessor is made: {error}",)
    if pieces is None:
        return None, (
            f"No preprocessor is made: {path} has neither {VOCABULARY} nor {_TOKENIZER}.",
        )
    if do_lower_case is None:
        do_lower_case = settings.get("do_lower_case")
    notes: tuple[str, ...] = ()
    if do_lower_case is None:
        do_lower_case = is_lower_cased(pieces)
        what = "no capital letters" if do_lower_case else "capital letters"
        notes = (
            f"No file of {path} says whether text is lower-cased; its vocabulary has {what}, so "
            f"it is taken as {'uncased' if do_lower_case else 'cased'}.",
        )
    for name, expected in (("strip_accents", do_lower_case), ("tokenize_chinese_chars", True)):
        value = settings.get(name)
        if value is not None and value != expected:
            return None, (
                f"No preprocessor is made: the tokenizer of {path} has {name}={value}, and with "
                f"do_lower_case={do_lower_case} BERT's has {name}={expected}.",
            )
    return Tokenization(tuple(pieces), bool(do_lower_case)), notes


def is_lower_cased(pieces: Sequence[str]) -> bool:
    """Whether no piece but the special ones has a capital letter, as in an uncased vocabulary.

    >>> is_lower_cased(["[PAD]", "[unused1]", "hello", "##s"]), is_lower_cased(["[PAD]", "Hello"])
    (True, False)
    """
    # Special pieces, and the "<S>" and "<T>" of the released Chinese vocabulary.
    words = (piece for piece in pieces if piece[:1] + piece[-1:] not in ("[]", "<>"))
    return not any(piece != piece.lower() for piece in words)


def write_tokenization(path: str, tokenization: Tokenization, max_seq_length: int) -> None:
    """Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json`` into a directory.

    Args:
        path: the directory.
        tokenization: what they say.
        max_seq_length: the longest sequence, in tokens.
    """
    vocabulary.save_vocabulary(os.path.join(path, VOCABULARY), tokenization.vocabulary)
    lower = tokenization.do_lower_case
    write_json(
        os.path.join(path, _TOKENIZER_CONFIG),
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": lower,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
            "model_max_length": max_seq_length,
            **_SPECIAL_ROLES,
        },
    )
    ids = {piece: index for index, piece in enumerate(tokenization.vocabulary)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            ids,
            unk_token=vocabulary.UNK_TOKEN,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(
        (vocabulary.SEP_TOKEN, ids[vocabulary.SEP_TOKEN]),
        (vocabulary.CLS_TOKEN, ids[vocabulary.CLS_TOKEN]),
    )
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(list(vocabulary.SPECIAL_TOKENS))
    with replace_whole(os.path.join(path, _TOKENIZER)) as file:
        file.write(tokenizer.to_str(pretty=True).encode())


def _read_vocabulary(path: str) -> list[str] | None:
    """The pieces in the order of their ids; ``None`` where no file has them."""
    plain, tokenizer = os.path.join(path, VOCABULARY), os.path.join(path, _TOKENIZER)
    if tf.io.gfile.exists(plain):
        return vocabulary.load_vocabulary(plain)
    if not tf.io.gfile.exists(tokenizer):
        return None
    values = read_json_object(tokenizer)
    model = values.get("model")
    if not isinstance(model, Mapping) or model.get("type", "WordPiece") != "WordPiece":
        kind = model.get("type") if isinstance(model, Mapping) else model
        raise ValueError(f"{tokenizer}: expected a WordPiece model, got {quote(kind)}.")
    try:
        entries = [(int(index), str(piece)) for piece, index in model["vocab"].items()]
        entries += [
            (int(token["id"]), str(token["content"])) for token in values.get("added_tokens") or ()
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{tokenizer}: expected model.vocab to be an object of pieces and their ids, and "
            f"added_tokens a list of objects with id and content ({error!r})."
        ) from error
    # An added token most often stands in the vocabulary, too.
    ordered = sorted(set(entries))
    if [index for index, _ in ordered] != list(range(len(ordered))):
        raise ValueError(
            f"{tokenizer}: expected the ids 0 to {len(ordered) - 1:,}, one for each of its "
            f"{len(ordered):,} pieces; some are missing or stand twice."
        )
    pieces = [piece for _, piece in ordered]
    vocabulary.validate_vocabulary(pieces, tokenizer)
    return pieces


def _read_settings(path: str) -> dict[str, bool]:
    """The settings of ``_SETTINGS``, as far as the files say them."""
    settings: dict[str, Any] = {}
    tokenizer = os.path.join(path, _TOKENIZER)
    if tf.io.gfile.exists(tokenizer):
        values = read_json_object(tokenizer)
        for part, expected in _PARTS.items():
            found = values.get(part)
            kind = found.get("type") if isinstance(found, Mapping) else found
            if kind != expected:
                raise ValueError(
                    f"{tokenizer}: expected its {part} to be {expected}, got {quote(kind)}."
                )
        normalizer = values["normalizer"]
        settings = {name: normalizer.get(there) for name, there in _SETTINGS.items()}
    config = os.path.join(path, _TOKENIZER_CONFIG)
    if tf.io.gfile.exists(config):
        values = read_json_object(config)
        settings.update((name, values[name]) for name in _SETTINGS if values.get(name) is not None)
    settings = {name: value for name, value in settings.items() if value is not None}
    for name, value in settings.items():
        if not isinstance(value, bool):
            raise ValueError(
                f"{path}: the tokenizer's {name} is {quote(value)}, not true or false."
            )
    return settings
