"""Tokenizer files of other libraries, read and written."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tokenizers

from bert_tf.checkpoint_formats import CONFIG
from bert_tf.files import read_json_object, replace_whole, write_json
from bert_tf.pipelines import vocabulary
from bert_tf.pipelines.wordpiece import MAX_CHARACTERS_PER_WORD
from bert_tf.untrusted import is_number, quote

from .checkpoint import Tokenization

VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARIES = (VOCABULARY, TOKENIZER)  # either has the pieces
ADDED_TOKENS = "added_tokens.json"  # of transformers' slow tokenizer: ids by tokens
FILES = (*VOCABULARIES, TOKENIZER_CONFIG, ADDED_TOKENS)
# By the names of tokenizer_config.json, those of tokenizer.json's normalizer.
_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_SPECIAL_ROLES = {f"{token[1:-1].lower()}_token": token for token in vocabulary.SPECIAL_TOKENS}
# What the library computes, besides _SETTINGS, by the files' own keys; null, or a key that is not
# there, means just that.
_COMPUTED: dict[str, dict[str, Any]] = {
    "model": {
        "type": "WordPiece",
        "unk_token": vocabulary.UNK_TOKEN,
        "continuing_subword_prefix": vocabulary.CONTINUATION_PREFIX,
    },
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
LENGTH = "model_max_length"
_CLASS, _DECODER = "tokenizer_class", "added_tokens_decoder"
_LIKE_BERTS = re.compile(
    # tokenizer.json says all of the last two
    "(Bert|DistilBert|Electra|MobileBert)Tokenizer(Fast)?|PreTrainedTokenizerFast|TokenizersBackend"
)


def read_tokenization(
    path: str, do_lower_case: bool | None = None, adds_tokens: bool = False
) -> tuple[Tokenization | None, tuple[str, ...]]:
    """The tokenizer in a directory with ``vocab.txt``, or else ``tokenizer.json``.

    ``do_lower_case`` is what the caller knows of the casing; else the files say it, else the
    vocabulary's own letters do. ``adds_tokens``: whether the caller adds the tokens that files name
    beside ``vocab.txt``; else they are refused. Returned: the tokenizer, or ``None``; and sentences
    on what was assumed, or on why there is none.
    """
    try:
        tokenizer = _read_tokenizer(path)
        pieces = _read_vocabulary(path, tokenizer)
        settings = _read_settings(path, tokenizer, pieces, adds_tokens)
    except ValueError as error:
        return None, (f"No preprocessor is made: {error}",)
    if pieces is None:
        return None, (f"No preprocessor is made: {path} has neither {VOCABULARY} nor {TOKENIZER}.",)
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


def read_length(path: str, positions: int) -> int | None:
    """The most tokens of a row, where the tokenizer of a directory says fewer than positions."""
    source = os.path.join(path, TOKENIZER_CONFIG)
    values = read_json_object(source) if tf.io.gfile.exists(source) else {}
    length = values.get(LENGTH)
    if not is_number(length) or length >= positions:  # where nobody set it, it is 10^30
        return None
    if length != int(length) or length < 1:
        raise ValueError(
            f"{source}: {LENGTH} is {quote(length)}, expected a positive whole number."
        )
    return int(length)


def is_lower_cased(pieces: Sequence[str]) -> bool:
    """True if no piece but the special ones has a capital letter, as in an uncased vocabulary.

    >>> is_lower_cased(["[PAD]", "[unused1]", "hello", "##s"]), is_lower_cased(["[PAD]", "Hello"])
    (True, False)
    """
    # Special pieces, and the "<S>" and "<T>" of the released Chinese vocabulary.
    words = (piece for piece in pieces if piece[:1] + piece[-1:] not in ("[]", "<>"))
    return not any(piece != piece.lower() for piece in words)


def write_tokenization(
    path: str, tokenization: Tokenization, max_seq_length: int, types: int = 2
) -> None:
    """Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json`` into a directory."""
    vocabulary.save_vocabulary(os.path.join(path, VOCABULARY), tokenization.vocabulary)
    lower = tokenization.do_lower_case
    write_json(
        os.path.join(path, TOKENIZER_CONFIG),
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": lower,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
            LENGTH: max_seq_length,
            **_SPECIAL_ROLES,
            # transformers gives both texts of a pair types of their own, unless it is told.
            **({"model_input_names": ["input_ids", "attention_mask"]} if types < 2 else {}),
        },
    )
    tokenizer = new_tokenizer(tokenization)
    with replace_whole(os.path.join(path, TOKENIZER)) as file:
        file.write(tokenizer.to_str(pretty=True).encode())


def new_tokenizer(tokenization: Tokenization) -> tokenizers.Tokenizer:
    """The tokenizer of the ``tokenizers`` package with the same ids as this library's."""
    lower = tokenization.do_lower_case
    ids = {piece: index for index, piece in enumerate(tokenization.vocabulary)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            ids, unk_token=vocabulary.UNK_TOKEN, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD
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
    return tokenizer


def _read_tokenizer(path: str) -> Mapping[str, Any] | None:
    """``tokenizer.json``, which computes what is computed here; ``None`` where there is none."""
    source = os.path.join(path, TOKENIZER)
    if not tf.io.gfile.exists(source):
        return None
    values = read_json_object(source)
    for part, computed in _COMPUTED.items():
        stated = values.get(part)
        if not isinstance(stated, Mapping) or stated.get("type") is None:
            raise ValueError(
                f"{source}: expected its {part} to be a {computed['type']}, got {quote(stated)}."
            )
        for key, good in computed.items():
            if stated.get(key) not in (None, good):
                raise ValueError(
                    f"{source}: {part}.{key} is {quote(stated[key])}, and only {good!r} can be "
                    "computed."
                )
    return values


def _read_vocabulary(path: str, tokenizer: Mapping[str, Any] | None) -> list[str] | None:
    """The pieces in the order of their ids; ``None`` where no file has them."""
    plain, source = os.path.join(path, VOCABULARY), os.path.join(path, TOKENIZER)
    pieces = vocabulary.load_vocabulary(plain) if tf.io.gfile.exists(plain) else None
    if tokenizer is None:
        return pieces
    others = _pieces(tokenizer, source)
    if pieces is None:
        vocabulary.validate_vocabulary(others, source)
        return others
    # The released Chinese vocabulary has a piece of white space, which some libraries strip.
    if [piece.strip() for piece in pieces] != [piece.strip() for piece in others]:
        raise ValueError(
            f"{plain} and {source} are of two tokenizers, with {len(pieces):,} and {len(others):,} "
            "pieces, some of which differ: keep the one that the model was trained with."
        )
    return pieces


def _pieces(tokenizer: Mapping[str, Any], source: str) -> list[str]:
    vocab, added = tokenizer["model"].get("vocab"), tokenizer.get("added_tokens") or []
    if not isinstance(vocab, Mapping) or not all(type(index) is int for index in vocab.values()):
        raise ValueError(
            f"{source}: expected model.vocab to be an object of pieces and their ids, got "
            f"{quote(vocab)}."
        )
    ids = dict(vocab)
    if not isinstance(added, list):
        raise ValueError(f"{source}: expected added_tokens to be a list, got {quote(added)}.")
    _add_tokens(ids, ((_field(token, "content"), _field(token, "id")) for token in added), source)
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError(
            f"{source}: expected the ids 0 to {len(pieces) - 1:,}, one for each of its "
            f"{len(pieces):,} pieces; some are missing or stand twice."
        )
    return pieces


def _field(token: Any, name: str) -> Any:
    return token.get(name) if isinstance(token, Mapping) else None


def _add_tokens(ids: dict[str, int], tokens: Iterable[tuple[Any, Any]], source: str) -> None:
    """Adds special tokens to the ids of pieces; other tokens would be parted from words first."""
    for content, index in tokens:
        known = content in vocabulary.SPECIAL_TOKENS and type(index) is int
        if not known or ids.setdefault(content, index) != index:
            raise ValueError(
                f"{source} adds the token {quote(content)} under the id {quote(index)}: expected "
                f"no others than {', '.join(vocabulary.SPECIAL_TOKENS)}, under their ids in the "
                "vocabulary."
            )


def _read_settings(
    path: str, tokenizer: Mapping[str, Any] | None, pieces: Sequence[str] | None, adds_tokens: bool
) -> dict[str, bool]:
    """The settings of ``_SETTINGS``, as far as the files say them."""
    settings: dict[str, Any] = {}
    if tokenizer is not None:
        settings = {name: tokenizer["normalizer"].get(key) for name, key in _SETTINGS.items()}
    source, config, added = (
        os.path.join(path, name) for name in (TOKENIZER_CONFIG, CONFIG, ADDED_TOKENS)
    )
    values = read_json_object(source) if tf.io.gfile.exists(source) else {}
    class_name = values.get(_CLASS)
    if class_name is None and tf.io.gfile.exists(config):  # where transformers looks next
        class_name = read_json_object(config).get(_CLASS)
    if class_name is not None and not _LIKE_BERTS.fullmatch(str(class_name)):
        raise ValueError(f"{path} names the {_CLASS} {quote(class_name)}: expected BERT's.")
    if values.get("do_basic_tokenize") is False:
        raise ValueError(f"{source}: do_basic_tokenize is false, which is not computed.")
    for key, computed in (
        ("word_tokenizer_type", "basic"),
        ("subword_tokenizer_type", "wordpiece"),
    ):
        if values.get(key, computed) != computed:  # Japanese, which MeCab parts into words
            raise ValueError(
                f"{source}: {key} is {quote(values[key])}, and only {computed} is computed."
            )
    if pieces and not adds_tokens:
        ids, tokens = {piece: at for at, piece in enumerate(pieces)}, values.get(_DECODER)
        decoded = tokens.items() if isinstance(tokens, Mapping) else ()
        of_ids = ((int(at) if at.isdecimal() else at, token) for at, token in decoded)
        _add_tokens(ids, ((_field(token, "content"), at) for at, token in of_ids), source)
        if tf.io.gfile.exists(added):
            _add_tokens(ids, read_json_object(added).items(), added)
    settings.update((name, values[name]) for name in _SETTINGS if values.get(name) is not None)
    settings = {name: value for name, value in settings.items() if value is not None}
    for name, value in settings.items():
        if not isinstance(value, bool):
            raise ValueError(
                f"{path}: the tokenizer's {name} is {quote(value)}, not true or false."
            )
    return settings
