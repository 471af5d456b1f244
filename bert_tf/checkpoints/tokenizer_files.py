"""Tokenizer files of other libraries.

Transformers has two types of tokenizers. ``BertTokenizer`` and similar classes use the settings in
tokenizer_config.json, and only the vocabulary and the added tokens of tokenizer.json.
``PreTrainedTokenizerFast`` and ``TokenizersBackend`` use all of tokenizer.json.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tokenizers

from bert_tf.io.checkpoint_formats import CONFIG
from bert_tf.io.files import atomic_write, write_json
from bert_tf.io.messages import listed, quote
from bert_tf.io.untrusted import is_number
from bert_tf.pipelines import vocabulary
from bert_tf.pipelines.text_rules import TOKENIZERS, AddedToken, TextRules

from . import config_keys
from .checkpoint import Tokenization
from .config_keys import IS_LIST, IS_OBJECT, IS_POSITIVE, check_value

VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARIES = (VOCABULARY, TOKENIZER)  # Each of these files contains the vocabulary.
ADDED_TOKENS = "added_tokens.json"  # from older versions of transformers: maps tokens to ids
SPECIAL_TOKENS_MAP = "special_tokens_map.json"  # from older versions: maps roles to tokens
FILES = (*VOCABULARIES, TOKENIZER_CONFIG, ADDED_TOKENS, SPECIAL_TOKENS_MAP)
LENGTH = "model_max_length"
_SPECIAL_ROLES = {f"{token[1:-1].lower()}_token": token for token in vocabulary.SPECIAL_TOKENS}
_CLASS, _DECODER, _INPUTS = "tokenizer_class", "added_tokens_decoder", "model_input_names"
# Roles in the order in which transformers adds their tokens.
_ROLES = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
# Names and defaults of the tokenizer classes' settings, by key of tokenizer.json's normalizer.
_SWITCHES = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
_MORE = ("extra_special_tokens", "additional_special_tokens")
_LIKE_BERTS = re.compile("(Bert|DistilBert|Electra|MobileBert)Tokenizer(Fast)?")
_BACKEND_CLASS = "PreTrainedTokenizerFast"
BACKENDS = (_BACKEND_CLASS, "TokenizersBackend")  # classes that use all of tokenizer.json
_TYPES = "token_type_ids"
# Attributes of ``tokenizers.AddedToken``.
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# Warning for tokenizers with Google's rules.
OTHER_TABLES = (
    "Hugging Face's tokenizers may split texts differently if they contain private-use characters, "
    "characters newer than Unicode 8, or a capital sigma at the end of a word."
)
NO_PREPROCESSOR = "No preprocessor was created: "
# The default rules of transformers.
BERT_RULES = TextRules(TOKENIZERS, max_word_length=100)
_WORDPIECE_KEYS = {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"}

# === Reading ===


def read_vocabulary(
    path: str, do_lower_case: bool | None = None, rules: Any = None
) -> tuple[Tokenization | None, tuple[str, ...]]:
    """Reads the tokenizer of a directory that transformers did not write.

    Without ``vocab.txt``, calls ``read_tokenization``.

    Args:
        path: The directory.
        do_lower_case: Whether text is lowercased; by default as in ``tokenizer_config.json``, else
            derived from the vocabulary.
        rules: JSON of ``TextRules``; by default Google's rules.

    Returns:
        The tokenizer (``None`` if there is no valid one), and warnings.
    """
    plain, source = (os.path.join(path, name) for name in (VOCABULARY, TOKENIZER_CONFIG))
    if not tf.io.gfile.exists(plain):
        return read_tokenization(path, do_lower_case)
    try:
        pieces = tuple(vocabulary.load_vocabulary(plain))
        if do_lower_case is None:
            do_lower_case = _switch(config_keys.read(source), "do_lower_case", None, source)
        text_rules = TextRules.from_json({} if rules is None else rules, pieces, path)
    except ValueError as error:
        return None, (f"{NO_PREPROCESSOR}{error}",)
    notes: tuple[str, ...] = ()
    if do_lower_case is None:
        do_lower_case = is_uncased(pieces)
        casing = "uncased" if do_lower_case else "cased"
        notes = (f"{path} does not specify do_lower_case. Assumed from the vocabulary: {casing}.",)
    return Tokenization(pieces, do_lower_case, text_rules), notes


def read_tokenization(
    path: str, do_lower_case: bool | None = None
) -> tuple[Tokenization | None, tuple[str, ...]]:
    """Reads the tokenizer of a transformers directory, with the same ids as in transformers.

    Args:
        path: The directory.
        do_lower_case: Whether text is lowercased; by default as in the files.

    Returns:
        The tokenizer (``None`` if it is not supported), and warnings.
    """
    names = (TOKENIZER_CONFIG, TOKENIZER)
    try:
        config, file = (config_keys.read(os.path.join(path, name)) for name in names)
        class_name = _read_class_name(path, config)
        pieces = _read_pieces(path, file)
        return _tokenization(path, class_name, config, file, pieces, do_lower_case)
    except ValueError as error:
        return None, (f"{NO_PREPROCESSOR}{error}",)


def convert_tokenizer(tokenizer: tokenizers.Tokenizer, name: str) -> Tokenization:
    """Converts a tokenizer of the package ``tokenizers``; ``name`` is its name in errors.

    Raises:
        ValueError: If the tokenizer is not a BERT tokenizer.
    """
    config = {
        _INPUTS: [_TYPES],
        _DECODER: {},
        "split_special_tokens": tokenizer.encode_special_tokens,
    }
    file = {**json.loads(tokenizer.to_str()), "truncation": None, "padding": None}
    pieces = _model_pieces(file, name)
    return _tokenization(name, BACKENDS[0], config, file, pieces, None)[0]


def _tokenization(
    path: str,
    class_name: str,
    config: Mapping[str, Any],
    file: Mapping[str, Any],
    pieces: Sequence[str],
    do_lower_case: bool | None,
) -> tuple[Tokenization, tuple[str, ...]]:
    """Creates the tokenizer of a transformers class from its files, and returns warnings."""
    source, json_source = os.path.join(path, TOKENIZER_CONFIG), os.path.join(path, TOKENIZER)
    runs_file = class_name in BACKENDS
    if runs_file and not file:
        raise ValueError(f"{path} has no {TOKENIZER}, which {_CLASS}={class_name} requires.")
    # Keys that end in _token are special tokens.
    settings = {key: value for key, value in config.items() if not key.endswith("_token")}
    file_type = TOKENIZER if runs_file else f"{TOKENIZER} of class BertTokenizer"
    notes = [
        *config_keys.messages(TOKENIZER_CONFIG, settings, source),
        *config_keys.messages(file_type, file, json_source),
    ]
    vocab, added = _with_added_tokens(pieces, config, file, path, runs_file)
    names = config.get(_INPUTS)
    has_types = isinstance(names, list) and _TYPES in names
    if names is None:
        has_types = not runs_file and not class_name.startswith("DistilBert")
    switches = {
        name: _switch(config, key, default, source) for name, (key, default) in _SWITCHES.items()
    }
    limit: Any = BERT_RULES.max_word_length
    if runs_file:
        for key in ("normalizer", "pre_tokenizer"):
            if not isinstance(part := file.get(key), Mapping):
                raise ValueError(f"{json_source}: {key}={quote(part)}: expected an object.")
        switches = {
            name: _switch(file["normalizer"], name, default, json_source)
            for name, (_, default) in _SWITCHES.items()
        }
        limit = file["model"].get("max_input_chars_per_word", limit)
        has_types &= _template_has_types(file, vocab, json_source)
    elif do_lower_case is None and "do_lower_case" not in config and not is_uncased(pieces):
        notes.append(
            f"{path} does not specify do_lower_case: text is lowercased, as in transformers, but "
            f"the vocabulary is cased. Set do_lower_case in {TOKENIZER_CONFIG}."
        )
    if file and not runs_file:
        notes += _ignored_keys_note(
            file, {**switches, "max_input_chars_per_word": limit}, vocab, source
        )
    if type(limit) is not int:
        raise ValueError(
            f"{json_source}: max_input_chars_per_word={quote(limit)}: expected an integer."
        )
    rules = dataclasses.replace(
        BERT_RULES,
        max_word_length=limit,
        strip_accents=switches["strip_accents"],
        split_ideographs=switches["handle_chinese_chars"] is not False,
        pair_types=has_types,
        split_special_tokens=bool(_switch(config, "split_special_tokens", False, source)),
        added_tokens=added,
    )
    is_lower = bool(switches["lowercase"]) if do_lower_case is None else do_lower_case
    tokenization = Tokenization(vocab, is_lower, rules)
    if any(token.normalized for token in added):
        tokenization.to_tokenizer()  # Raises an error if a token is empty after normalization.
    return tokenization, tuple(notes)


def missing_tokenizer_reason(notes: Iterable[str]) -> str:
    """Returns the reason why a checkpoint has no tokenizer, taken from the warnings."""
    reasons = (note for note in notes if note.startswith(NO_PREPROCESSOR))
    return next(reasons, "the checkpoint has no vocabulary.").removeprefix(NO_PREPROCESSOR)


def read_length(path: str, positions: int) -> int | None:
    """Returns the maximum length of a directory's tokenizer if it is below ``positions``."""
    source = os.path.join(path, TOKENIZER_CONFIG)
    values = config_keys.read(source)
    length: Any = values.get(LENGTH, values.get("max_len"))  # The old name of the key.
    if not is_number(length) or length >= positions:  # The default is 10^30.
        return None
    is_length = (lambda value: value == int(value) and value >= 1, IS_POSITIVE[1])
    return int(check_value(length, is_length, f"{source}: {LENGTH}"))


def is_uncased(pieces: Sequence[str]) -> bool:
    """Whether no token except special tokens contains a capital letter.

    >>> is_uncased(["[PAD]", "[unused1]", "hello", "##s"]), is_uncased(["[PAD]", "Hello"])
    (True, False)
    """
    # The released Chinese vocabulary also contains "<S>" and "<T>".
    words = (piece for piece in pieces if piece[:1] + piece[-1:] not in ("[]", "<>"))
    return not any(piece != piece.lower() for piece in words)


def _switch(values: Mapping[str, Any], name: str, default: bool | None, source: str) -> bool | None:
    """Returns a boolean setting, or its default."""
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{source}: {name}={quote(value)}: expected true or false.")
    return default if value is None else value


def _read_class_name(path: str, config: Mapping[str, Any]) -> str:
    """Returns the name of the tokenizer class."""
    name = config.get(_CLASS)
    if name is None:  # transformers also reads the model's config.
        name = config_keys.read(os.path.join(path, CONFIG)).get(_CLASS)
    name = "BertTokenizer" if name is None else str(name)
    if name not in BACKENDS and not _LIKE_BERTS.fullmatch(name):
        raise ValueError(f"{path}: {_CLASS}={quote(name)}: expected BertTokenizer.")
    return name


def _read_pieces(path: str, file: Mapping[str, Any]) -> list[str]:
    """Reads the vocabulary without added tokens, in the order of ids."""
    plain, source = os.path.join(path, VOCABULARY), os.path.join(path, TOKENIZER)
    if not tf.io.gfile.exists(plain):
        if not file:
            raise ValueError(f"{path} has no vocabulary. Add its {VOCABULARY}.")
        return _model_pieces(file, source)
    pieces = vocabulary.load_vocabulary(plain)
    if not file:
        return pieces
    others = _model_pieces(file, source)
    # vocab.txt may also contain the added tokens. The released Chinese vocabulary has a white space
    # token, which some libraries strip.
    shared = pieces[: len(others)]
    if [piece.strip() for piece in shared] != [piece.strip() for piece in others]:
        raise ValueError(
            f"{plain} and {source} have different vocabularies ({len(pieces):,} and "
            f"{len(others):,} tokens). Remove the one that the model was not trained with."
        )
    return shared


def _model_pieces(file: Mapping[str, Any], source: str) -> list[str]:
    """Returns the vocabulary of tokenizer.json's model in id order."""
    model: Any = file.get("model")
    kind = model.get("type") if isinstance(model, Mapping) else "none"
    if kind != "WordPiece" and not (kind is None and model.keys() <= _WORDPIECE_KEYS):
        raise ValueError(f"{source}: model: expected a WordPiece model, got {quote(model)}.")
    vocab = model.get("vocab")
    if not isinstance(vocab, Mapping) or not all(type(index) is int for index in vocab.values()):
        raise ValueError(
            f"{source}: model.vocab: expected an object of tokens and ids, got {quote(vocab)}."
        )
    pieces = sorted(vocab, key=vocab.__getitem__)
    if [vocab[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError(
            f"{source}: model.vocab: expected each id from 0 to {len(pieces) - 1:,} once, for "
            f"{len(pieces):,} tokens."
        )
    return pieces


def _with_added_tokens(
    pieces: Sequence[str],
    config: Mapping[str, Any],
    file: Mapping[str, Any],
    path: str,
    runs_file: bool,
) -> tuple[tuple[str, ...], tuple[AddedToken, ...]]:
    """Returns the vocabulary with the added tokens, as in transformers, and the added tokens."""
    ids = {piece: at for at, piece in enumerate(pieces)}
    added: dict[str, AddedToken] = {}
    for source, expected_id, token in _iterate_added_tokens(config, file, path, runs_file):
        content, fields = _content(token), {} if isinstance(token, str) else token
        flags = {name: fields[name] for name in _FLAGS if fields.get(name) is not None}
        if not isinstance(content, str) or not all(isinstance(v, bool) for v in flags.values()):
            raise ValueError(f"{source}: expected an added token, got {quote(token)}.")
        if content != content.strip() or "\n" in content:
            raise ValueError(
                f"{source}: added token {quote(content)}: expected no white space at the ends and "
                f"no line breaks, which {VOCABULARY} cannot store."
            )
        if expected_id is None:  # A role's token.
            if content in added:
                added[content] = dataclasses.replace(added[content], special=True)
                continue
            flags["special"] = True
        at = ids.setdefault(content, len(ids))
        if expected_id not in (None, at):
            raise ValueError(
                f"{source}: id of the added token {quote(content)}: expected {at} (its id in the "
                f"vocabulary, or the next id), got {quote(expected_id)}."
            )
        flags.setdefault("normalized", not flags.get("special", False))
        added[content] = AddedToken(content, at, **flags, is_piece=at < len(pieces))
    vocab = list(ids)
    vocabulary.validate_vocabulary(vocab, path)
    return tuple(vocab), tuple(sorted(added.values(), key=lambda token: token.id))


def _iterate_added_tokens(
    config: Mapping[str, Any], file: Mapping[str, Any], path: str, runs_file: bool
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the file, the id (``None`` for role tokens) and the token of each added token."""
    config_source, file_source, ids_source, roles_source = (
        os.path.join(path, name)
        for name in (TOKENIZER_CONFIG, TOKENIZER, ADDED_TOKENS, SPECIAL_TOKENS_MAP)
    )
    decoded, settings = config.get(_DECODER), dict(config)
    if decoded is None:
        settings |= config_keys.read(roles_source)
    extra: Any = next((settings[name] for name in _MORE if settings.get(name)), [])
    extra = [*extra.values()] if isinstance(extra, Mapping) else extra
    check_value(extra, (IS_LIST[0], "a list or an object of tokens"), f"{path}: {_MORE[0]}")
    roles = {key: token for key, token in settings.items() if key.endswith("_token")}
    roles = {**dict.fromkeys(_ROLES), **_SPECIAL_ROLES, **roles}
    for role, default in _SPECIAL_ROLES.items():
        if (token := _content(roles[role])) != default:
            raise ValueError(f"{path}: {role}={quote(token)}: expected {default}.")
    specific = settings.get("model_specific_special_tokens")
    role_tokens = [*roles.values(), *(specific.values() if isinstance(specific, Mapping) else ())]
    special = [token for token in (*role_tokens, *extra) if isinstance(token, str | Mapping)]
    tokens_by_id: list[tuple[str, Any, Any]] = []
    if decoded is not None:
        check_value(decoded, IS_OBJECT, f"{config_source}: {_DECODER}")
        tokens_by_id = [
            (config_source, int(at) if at.isdecimal() else at, t) for at, t in decoded.items()
        ]
    elif ids := config_keys.read(ids_source):
        known = {text for text in map(_content, special) if isinstance(text, str)}
        tokens_by_id = [
            (ids_source, at, {"content": text, "special": text in known})
            for text, at in ids.items()
        ]
    if runs_file or decoded is None:
        tokens = check_value(file.get("added_tokens", []), IS_LIST, f"{file_source}: added_tokens")
        file_tokens = [(file_source, _field(token, "id"), token) for token in tokens]
        tokens_by_id = [*file_tokens, *tokens_by_id] if runs_file else [*tokens_by_id, *file_tokens]
    for source, at, token in tokens_by_id:
        if type(at) is not int or not isinstance(token, Mapping):
            raise ValueError(
                f"{source}: expected an added token and its id, got {quote(token)}, {quote(at)}."
            )
    yield from sorted(tokens_by_id, key=lambda token: token[1]) if not runs_file else tokens_by_id
    yield from ((config_source, None, token) for token in special)


def _field(token: Any, name: str) -> Any:
    return token.get(name) if isinstance(token, Mapping) else None


def _content(token: Any) -> Any:
    """Returns the text of a token, which may be a string or an object."""
    return token.get("content") if isinstance(token, Mapping) else token


def _ignored_keys_note(
    file: Mapping[str, Any], settings: Mapping[str, Any], vocab: Sequence[str], source: str
) -> Iterator[str]:
    """Yields a warning about settings in tokenizer.json that the tokenizer class ignores."""
    found = {**(file.get("normalizer") or {}), **(file.get("model") or {})}
    other = [name for name, value in settings.items() if found.get(name) not in (None, value)]
    try:
        if "post_processor" in file:
            _template_has_types(file, vocab, source)
    except ValueError:
        other.append("post_processor")
    if other:
        yield (
            f"{source}: as in transformers, {_CLASS} overrides settings in {TOKENIZER}: "
            f"{listed(other)}."
        )


def _row(parts: Sequence[str], type_id: int) -> list[Any]:
    """Returns the parts of a template in tokenizer.json that have one token type."""
    return [
        {"Sequence" if part in "AB" else "SpecialToken": {"id": part, "type_id": type_id}}
        for part in parts
    ]


def _template_has_types(file: Mapping[str, Any], vocab: Sequence[str], source: str) -> bool:
    """Whether the second text of a pair has its own token type in tokenizer.json.

    Raises:
        ValueError: If the template is not BERT's.
    """
    template = file.get("post_processor")
    cls, sep = vocabulary.CLS_TOKEN, vocabulary.SEP_TOKEN
    ids = {token: vocab.index(token) for token in (cls, sep)}
    if _field(template, "type") == "BertProcessing":
        if all(_field(template, token[1:-1].lower()) == [token, at] for token, at in ids.items()):
            return True
    else:
        known, single = _field(template, "special_tokens"), _row((cls, "A", sep), 0)
        are_known = all(_field(_field(known, token), "ids") == [at] for token, at in ids.items())
        pair, pairs = _field(template, "pair"), [single + _row(("B", sep), kind) for kind in (0, 1)]
        if are_known and _field(template, "single") == single and pair in pairs:
            return pairs.index(pair) == 1
    raise ValueError(
        f"{source}: post_processor={quote(template)}: expected {cls} A {sep} and "
        f"{cls} A {sep} B {sep}."
    )


# === Writing ===


def write_tokenization(
    path: str,
    tokenization: Tokenization,
    max_seq_length: int,
    types: int = 2,
    finds_mask: bool = False,
) -> tuple[str, ...]:
    """Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json`` into a directory.

    Args:
        path: The directory.
        tokenization: The tokenizer.
        max_seq_length: Maximum number of tokens per text.
        types: Number of token types of the model.
        finds_mask: Whether texts can contain [MASK], in which case special tokens must not be
            split.

    Returns:
        Warnings about texts that other libraries tokenize differently.
    """
    rules, lower = tokenization.rules, tokenization.do_lower_case
    outside = {token.id for token in rules.added_tokens if not token.is_piece}
    pieces = [piece for at, piece in enumerate(tokenization.vocabulary) if at not in outside]
    vocabulary.save_vocabulary(os.path.join(path, VOCABULARY), pieces)
    has_bert_rules = rules.max_word_length == BERT_RULES.max_word_length
    has_types = types >= 2 and rules.pair_types
    inputs = ["input_ids", *([_TYPES] if has_types else []), "attention_mask"]
    config = {
        # BertTokenizer always has a maximum word length of 100.
        _CLASS: "BertTokenizer" if has_bert_rules else _BACKEND_CLASS,
        "do_lower_case": lower,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_ideographs,
        LENGTH: max_seq_length,
        **_SPECIAL_ROLES,
        **({} if has_types and has_bert_rules else {_INPUTS: inputs}),
    }
    if parts := _splits_special_tokens(rules) and not finds_mask:
        config["split_special_tokens"] = True
    write_json(os.path.join(path, TOKENIZER_CONFIG), config)
    tokenizer = build_tokenizer(tokenization)
    with atomic_write(os.path.join(path, TOKENIZER)) as file:
        file.write(tokenizer.to_str(pretty=True).encode())
    notes = []
    if rules.characters != TOKENIZERS:
        notes.append(OTHER_TABLES)
    if _splits_special_tokens(rules) and not parts:
        notes.append(
            "bert_tf splits special tokens in texts, but the written tokenizer does not, so that "
            "it recognizes [MASK]."
        )
    return tuple(notes)


def _splits_special_tokens(rules: TextRules) -> bool:
    return rules.split_special_tokens or not any(token.special for token in rules.added_tokens)


def build_tokenizer(tokenization: Tokenization) -> tokenizers.Tokenizer:
    """Creates a ``tokenizers.Tokenizer`` that computes the same ids."""
    rules = tokenization.rules
    ids = {piece: index for index, piece in enumerate(tokenization.vocabulary)}
    outside = {token.content for token in rules.added_tokens if not token.is_piece}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {piece: index for piece, index in ids.items() if piece not in outside},
            unk_token=vocabulary.UNK_TOKEN,
            max_input_chars_per_word=rules.max_word_length,
        )
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=tokenization.do_lower_case,
        strip_accents=rules.strip_accents,
        handle_chinese_chars=rules.split_ideographs,
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(
        (vocabulary.SEP_TOKEN, ids[vocabulary.SEP_TOKEN]),
        (vocabulary.CLS_TOKEN, ids[vocabulary.CLS_TOKEN]),
    )
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    for token in sorted(rules.added_tokens, key=lambda token: token.id):
        flags = {flag: getattr(token, flag) for flag in _FLAGS}
        tokenizer.add_tokens([tokenizers.AddedToken(token.content, **flags)])
    tokenizer.add_special_tokens(
        [
            token
            for token in vocabulary.SPECIAL_TOKENS
            if token not in {t.content for t in rules.added_tokens}
        ]
    )
    tokenizer.encode_special_tokens = _splits_special_tokens(rules)
    return tokenizer
