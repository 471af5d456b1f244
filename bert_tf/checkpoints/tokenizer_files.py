"""Tokenizer files of other libraries, read and written.

A tokenizer of transformers is of one of two kinds. A BERT's (class ``BertTokenizer`` and the like)
is made anew of tokenizer_config.json: of tokenizer.json it has the vocabulary and the added tokens.
Class ``PreTrainedTokenizerFast``, today's ``TokenizersBackend``, runs tokenizer.json as it is.
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
from bert_tf.io.untrusted import is_number
from bert_tf.io.wording import listed, quote
from bert_tf.pipelines import vocabulary
from bert_tf.pipelines.text_rules import TOKENIZERS, AddedToken, TextRules

from . import config_keys
from .checkpoint import Tokenization
from .config_keys import IS_OBJECT, IS_POSITIVE, check_value

VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARIES = (VOCABULARY, TOKENIZER)  # either has the pieces
ADDED_TOKENS = "added_tokens.json"  # of older transformers: ids by tokens
SPECIAL_TOKENS_MAP = "special_tokens_map.json"  # of older transformers: tokens by roles
FILES = (*VOCABULARIES, TOKENIZER_CONFIG, ADDED_TOKENS, SPECIAL_TOKENS_MAP)
LENGTH = "model_max_length"
_SPECIAL_ROLES = {f"{token[1:-1].lower()}_token": token for token in vocabulary.SPECIAL_TOKENS}
_CLASS, _DECODER, _INPUTS = "tokenizer_class", "added_tokens_decoder", "model_input_names"
# In which order transformers adds the tokens of roles.
_ROLES = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
# By the names of tokenizer.json's normalizer: those of a class' settings, and the defaults.
_SWITCHES = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
_MORE = ("extra_special_tokens", "additional_special_tokens")
_LIKE_BERTS = re.compile("(Bert|DistilBert|Electra|MobileBert)Tokenizer(Fast)?")
_RUNS_FILE = "PreTrainedTokenizerFast"
BACKENDS = (_RUNS_FILE, "TokenizersBackend")  # classes whose tokenizer.json says all
_TYPES = "token_type_ids"
# tokenizers' flags of an added token, and what each is where nothing says it.
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# Of what is written of a tokenizer that reads text by Google's rules.
OTHER_TABLES = (
    "Hugging Face's tokenizers removes private-use characters, and has other tables for those that "
    "came after Unicode 8 and for a capital sigma at a word's end: texts with one may be read "
    "otherwise there."
)
NO_PREPROCESSOR = "No preprocessor is made: "
# By which transformers reads text where no file says otherwise.
BERT_RULES = TextRules(TOKENIZERS, max_word_length=100)
_WORDPIECE_KEYS = {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"}

# === Reading ===


def read_vocabulary(
    path: str, do_lower_case: bool | None = None, rules: Any = None
) -> tuple[Tokenization | None, tuple[str, ...]]:
    """The tokenizer of a directory with a ``vocab.txt`` that is not of transformers.

    Text is read by Google's rules, or by ``rules``, the JSON of ``TextRules``. ``do_lower_case`` is
    what the caller knows of the casing; else ``tokenizer_config.json`` says it, else the
    vocabulary's own letters do. Returned: the tokenizer, or ``None``; and sentences on what was
    assumed, or on why there is none. Without ``vocab.txt``: as ``read_tokenization``.
    """
    plain, source = (os.path.join(path, name) for name in (VOCABULARY, TOKENIZER_CONFIG))
    if not tf.io.gfile.exists(plain):
        return read_tokenization(path, do_lower_case)
    try:
        pieces = tuple(vocabulary.load_vocabulary(plain))
        if do_lower_case is None:
            do_lower_case = _switch(config_keys.read(source), "do_lower_case", None, source)
        made = TextRules.from_json({} if rules is None else rules, pieces, path)
    except ValueError as error:
        return None, (f"{NO_PREPROCESSOR}{error}",)
    notes: tuple[str, ...] = ()
    if do_lower_case is None:
        do_lower_case = is_uncased(pieces)
        what = "no capital letters" if do_lower_case else "capital letters"
        notes = (
            f"No file of {path} says whether text is lower-cased; its vocabulary has {what}, so "
            f"it is taken as {'uncased' if do_lower_case else 'cased'}.",
        )
    return Tokenization(pieces, do_lower_case, made), notes


def read_tokenization(
    path: str, do_lower_case: bool | None = None
) -> tuple[Tokenization | None, tuple[str, ...]]:
    """The tokenizer of a directory of transformers, which makes the ids that it makes there.

    ``do_lower_case`` is what the caller says of the casing. Returned: the tokenizer, or ``None``;
    and sentences on what is done otherwise, or on why there is none.
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
    """A tokenizer of the package ``tokenizers`` as this library's; a ``ValueError`` if it is none.

    ``name`` is what the error calls it.
    """
    config = {
        _INPUTS: [_TYPES],
        _DECODER: {},
        "split_special_tokens": tokenizer.encode_special_tokens,
    }
    file = {**json.loads(tokenizer.to_str()), "truncation": None, "padding": None}
    made, _ = _tokenization(name, BACKENDS[0], config, file, _model_pieces(file, name), None)
    return made


def _tokenization(
    path: str,
    class_name: str,
    config: Mapping[str, Any],
    file: Mapping[str, Any],
    pieces: Sequence[str],
    do_lower_case: bool | None,
) -> tuple[Tokenization, tuple[str, ...]]:
    """The tokenizer that a class of transformers makes of its files, and what is to be told."""
    source, json_source = os.path.join(path, TOKENIZER_CONFIG), os.path.join(path, TOKENIZER)
    runs_file = class_name in BACKENDS
    if runs_file and not file:
        raise ValueError(f"{path} names the {_CLASS} {class_name} and has no {TOKENIZER}.")
    # Any other role is a special token's.
    settings = {key: value for key, value in config.items() if not key.endswith("_token")}
    form = TOKENIZER if runs_file else f"{TOKENIZER} of class BertTokenizer"
    notes = [
        *config_keys.messages(TOKENIZER_CONFIG, settings, source),
        *config_keys.messages(form, file, json_source),
    ]
    vocab, added = _with_added_tokens(pieces, config, file, path, runs_file)
    names = config.get(_INPUTS)
    has_types = isinstance(names, list) and _TYPES in names
    if names is None:
        has_types = not runs_file and not class_name.startswith("DistilBert")
    how = {
        here: _switch(config, key, default, source) for here, (key, default) in _SWITCHES.items()
    }
    limit: Any = BERT_RULES.max_word_length
    if runs_file:
        for name in ("normalizer", "pre_tokenizer"):
            if not isinstance(part := file.get(name), Mapping):
                raise ValueError(f"{json_source}: {name} is {quote(part)}, expected a BERT's.")
        how = {
            here: _switch(file["normalizer"], here, default, json_source)
            for here, (_, default) in _SWITCHES.items()
        }
        limit = file["model"].get("max_input_chars_per_word", limit)
        has_types &= _template_has_types(file, vocab, json_source)
    elif do_lower_case is None and "do_lower_case" not in config and not is_uncased(pieces):
        notes.append(
            f"{path} does not say do_lower_case: text is lower-cased, as in transformers, and the "
            "vocabulary has capital letters; write it into tokenizer_config.json."
        )
    if file and not runs_file:
        notes += _ignored_keys_note(file, {**how, "max_input_chars_per_word": limit}, vocab, source)
    if type(limit) is not int:
        raise ValueError(f"{json_source}: max_input_chars_per_word is {quote(limit)}.")
    rules = dataclasses.replace(
        BERT_RULES,
        max_word_length=limit,
        strip_accents=how["strip_accents"],
        split_ideographs=how["handle_chinese_chars"] is not False,
        pair_types=has_types,
        split_special_tokens=bool(_switch(config, "split_special_tokens", False, source)),
        added_tokens=added,
    )
    is_lower = bool(how["lowercase"]) if do_lower_case is None else do_lower_case
    made = Tokenization(vocab, is_lower, rules)
    if any(token.normalized for token in added):
        made.to_tokenizer()  # an error where nothing is left of one
    return made, tuple(notes)


def missing_tokenizer_reason(notes: Iterable[str]) -> str:
    """The reason for which a checkpoint has no tokenizer, of its notes."""
    reasons = (note for note in notes if note.startswith(NO_PREPROCESSOR))
    return next(reasons, "it has no vocabulary.").removeprefix(NO_PREPROCESSOR)


def read_length(path: str, positions: int) -> int | None:
    """The most tokens of a row, where the tokenizer of a directory says fewer than positions."""
    source = os.path.join(path, TOKENIZER_CONFIG)
    values = config_keys.read(source)
    length: Any = values.get(LENGTH, values.get("max_len"))  # its older name
    if not is_number(length) or length >= positions:  # where nobody set it, it is 10^30
        return None
    is_length = (lambda value: value == int(value) and value >= 1, IS_POSITIVE[1])
    return int(check_value(length, is_length, f"{source}: {LENGTH}"))


def is_uncased(pieces: Sequence[str]) -> bool:
    """True if no piece but the special ones has a capital letter, as in an uncased vocabulary.

    >>> is_uncased(["[PAD]", "[unused1]", "hello", "##s"]), is_uncased(["[PAD]", "Hello"])
    (True, False)
    """
    # Special pieces, and the "<S>" and "<T>" of the released Chinese vocabulary.
    words = (piece for piece in pieces if piece[:1] + piece[-1:] not in ("[]", "<>"))
    return not any(piece != piece.lower() for piece in words)


def _switch(values: Mapping[str, Any], name: str, default: bool | None, source: str) -> bool | None:
    """A setting that is true, false, or not said."""
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{source}: {name} is {quote(value)}, not true or false.")
    return default if value is None else value


def _read_class_name(path: str, config: Mapping[str, Any]) -> str:
    """The class of the tokenizer."""
    name = config.get(_CLASS)
    if name is None:  # where transformers looks next
        name = config_keys.read(os.path.join(path, CONFIG)).get(_CLASS)
    name = "BertTokenizer" if name is None else str(name)
    if name not in BACKENDS and not _LIKE_BERTS.fullmatch(name):
        raise ValueError(f"{path} names the {_CLASS} {quote(name)}: expected BERT's.")
    return name


def _read_pieces(path: str, file: Mapping[str, Any]) -> list[str]:
    """The model's own pieces in the order of their ids."""
    plain, source = os.path.join(path, VOCABULARY), os.path.join(path, TOKENIZER)
    if not tf.io.gfile.exists(plain):
        if not file:
            raise ValueError(f"{path} has no vocabulary: put its {VOCABULARY} into the directory.")
        return _model_pieces(file, source)
    pieces = vocabulary.load_vocabulary(plain)
    if not file:
        return pieces
    others = _model_pieces(file, source)
    # vocab.txt may have the added tokens, too. The released Chinese vocabulary has a piece of white
    # space, which some libraries strip.
    own = pieces[: len(others)]
    if [piece.strip() for piece in own] != [piece.strip() for piece in others]:
        raise ValueError(
            f"{plain} and {source} are of two tokenizers, with {len(pieces):,} and "
            f"{len(others):,} pieces, some of which differ: keep the one that the model was "
            "trained with."
        )
    return own


def _model_pieces(file: Mapping[str, Any], source: str) -> list[str]:
    """The pieces of tokenizer.json's model, in the order of their ids."""
    model: Any = file.get("model")
    kind = model.get("type") if isinstance(model, Mapping) else "none"
    if kind != "WordPiece" and not (kind is None and model.keys() <= _WORDPIECE_KEYS):
        raise ValueError(f"{source}: expected its model to be a WordPiece, got {quote(model)}.")
    vocab = model.get("vocab")
    if not isinstance(vocab, Mapping) or not all(type(index) is int for index in vocab.values()):
        raise ValueError(
            f"{source}: expected model.vocab to be an object of pieces and their ids, got "
            f"{quote(vocab)}."
        )
    pieces = sorted(vocab, key=vocab.__getitem__)
    if [vocab[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError(
            f"{source}: expected the ids 0 to {len(pieces) - 1:,}, one for each of its "
            f"{len(pieces):,} pieces; some are missing or stand twice."
        )
    return pieces


def _with_added_tokens(
    pieces: Sequence[str],
    config: Mapping[str, Any],
    file: Mapping[str, Any],
    path: str,
    runs_file: bool,
) -> tuple[tuple[str, ...], tuple[AddedToken, ...]]:
    """The pieces with what is added to them, and the added tokens, as transformers adds them."""
    ids = {piece: at for at, piece in enumerate(pieces)}
    added: dict[str, AddedToken] = {}
    for source, stated, token in _iterate_added_tokens(config, file, path, runs_file):
        content, said = _content(token), {} if isinstance(token, str) else token
        flags = {name: said[name] for name in _FLAGS if said.get(name) is not None}
        if not isinstance(content, str) or not all(isinstance(v, bool) for v in flags.values()):
            raise ValueError(f"{source} adds {quote(token)}: expected a token.")
        if content != content.strip() or "\n" in content:
            raise ValueError(
                f"{source} adds the token {quote(content)}: white space at its ends, or a line "
                "break, is kept by no file of a piece a line."
            )
        if stated is None:  # of a role
            if content in added:
                added[content] = dataclasses.replace(added[content], special=True)
                continue
            flags["special"] = True
        at = ids.setdefault(content, len(ids))
        if stated not in (None, at):
            raise ValueError(
                f"{source} adds the token {quote(content)} under the id {quote(stated)}: expected "
                f"{at}, its id in the vocabulary or the next one."
            )
        flags.setdefault("normalized", not flags.get("special", False))
        added[content] = AddedToken(content, at, **flags, is_piece=at < len(pieces))
    vocab = list(ids)
    vocabulary.validate_vocabulary(vocab, path)
    return tuple(vocab), tuple(sorted(added.values(), key=lambda token: token.id))


def _iterate_added_tokens(
    config: Mapping[str, Any], file: Mapping[str, Any], path: str, runs_file: bool
) -> Iterator[tuple[str, Any, Any]]:
    """The added tokens, their ids as far as they are said, and the file of each."""
    config_source, file_source, ids_source, roles_source = (
        os.path.join(path, name)
        for name in (TOKENIZER_CONFIG, TOKENIZER, ADDED_TOKENS, SPECIAL_TOKENS_MAP)
    )
    decoded, others = config.get(_DECODER), dict(config)
    if decoded is None:
        others |= config_keys.read(roles_source)
    extra: Any = next((others[name] for name in _MORE if others.get(name)), [])
    extra = [*extra.values()] if isinstance(extra, Mapping) else extra
    is_list = (lambda value: isinstance(value, list), "a list or an object of tokens")
    check_value(extra, is_list, f"{path}: {_MORE[0]}")
    roles = {key: token for key, token in others.items() if key.endswith("_token")}
    roles = {**dict.fromkeys(_ROLES), **_SPECIAL_ROLES, **roles}
    for role, good in _SPECIAL_ROLES.items():
        if (token := _content(roles[role])) != good:
            raise ValueError(f"{path}: {role} is {quote(token)}, and only {good} can be computed.")
    specific = others.get("model_specific_special_tokens")
    named = [*roles.values(), *(specific.values() if isinstance(specific, Mapping) else ())]
    special = [token for token in (*named, *extra) if isinstance(token, str | Mapping)]
    stated: list[tuple[str, Any, Any]] = []
    if decoded is not None:
        check_value(decoded, IS_OBJECT, f"{config_source}: {_DECODER}")
        stated = [
            (config_source, int(at) if at.isdecimal() else at, t) for at, t in decoded.items()
        ]
    elif ids := config_keys.read(ids_source):
        known = {text for text in map(_content, special) if isinstance(text, str)}
        stated = [
            (ids_source, at, {"content": text, "special": text in known})
            for text, at in ids.items()
        ]
    if runs_file or decoded is None:
        tokens = file.get("added_tokens", [])
        if not isinstance(tokens, list):
            raise ValueError(
                f"{file_source}: expected added_tokens to be a list, got {quote(tokens)}."
            )
        inside = [(file_source, _field(token, "id"), token) for token in tokens]
        stated = [*inside, *stated] if runs_file else [*stated, *inside]
    for source, at, token in stated:
        if type(at) is not int or not isinstance(token, Mapping):
            raise ValueError(f"{source} adds {quote(token)} as {quote(at)}: expected a token.")
    yield from sorted(stated, key=lambda token: token[1]) if not runs_file else stated
    yield from ((config_source, None, token) for token in special)


def _field(token: Any, name: str) -> Any:
    return token.get(name) if isinstance(token, Mapping) else None


def _content(token: Any) -> Any:
    """A token that may be spelled out."""
    return token.get("content") if isinstance(token, Mapping) else token


def _ignored_keys_note(
    file: Mapping[str, Any], made: Mapping[str, Any], vocab: Sequence[str], source: str
) -> Iterator[str]:
    """A sentence on what a tokenizer.json says otherwise than the class that does not read it."""
    said = {**(file.get("normalizer") or {}), **(file.get("model") or {})}
    other = [name for name, default in made.items() if said.get(name) not in (None, default)]
    try:
        if "post_processor" in file:
            _template_has_types(file, vocab, source)
    except ValueError:
        other.append("post_processor")
    if other:
        yield (
            f"{source}: as in transformers, its {_CLASS} does not read {listed(other)} of "
            f"{TOKENIZER}, which says otherwise than this class does it."
        )


def _row(parts: Sequence[str], type_id: int) -> list[Any]:
    """Parts of a template of tokenizer.json, all of a type."""
    return [
        {"Sequence" if part in "AB" else "SpecialToken": {"id": part, "type_id": type_id}}
        for part in parts
    ]


def _template_has_types(file: Mapping[str, Any], vocab: Sequence[str], source: str) -> bool:
    """Whether tokenizer.json gives a pair's second text a type, if it makes rows as BERT's are."""
    stated = file.get("post_processor")
    cls, sep = vocabulary.CLS_TOKEN, vocabulary.SEP_TOKEN
    ids = {token: vocab.index(token) for token in (cls, sep)}
    if _field(stated, "type") == "BertProcessing":
        if all(_field(stated, token[1:-1].lower()) == [token, at] for token, at in ids.items()):
            return True
    else:
        known, single = _field(stated, "special_tokens"), _row((cls, "A", sep), 0)
        are_known = all(_field(_field(known, token), "ids") == [at] for token, at in ids.items())
        pair, pairs = _field(stated, "pair"), [single + _row(("B", sep), kind) for kind in (0, 1)]
        if are_known and _field(stated, "single") == single and pair in pairs:
            return pairs.index(pair) == 1
    raise ValueError(
        f"{source}: post_processor is {quote(stated)}, and only rows {cls} A {sep} and "
        f"{cls} A {sep} B {sep} can be computed."
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

    ``finds_mask``: texts are prompts with [MASK], so that special tokens are found in texts
    whatever the rules. Returned: sentences on what is read otherwise there.
    """
    rules, lower = tokenization.rules, tokenization.do_lower_case
    outside = {token.id for token in rules.added_tokens if not token.is_piece}
    pieces = [piece for at, piece in enumerate(tokenization.vocabulary) if at not in outside]
    vocabulary.save_vocabulary(os.path.join(path, VOCABULARY), pieces)
    is_berts = rules.max_word_length == BERT_RULES.max_word_length
    has_types = types >= 2 and rules.pair_types
    inputs = ["input_ids", *([_TYPES] if has_types else []), "attention_mask"]
    config = {
        # A BERT's would be made anew, whose longest word has 100 characters.
        _CLASS: "BertTokenizer" if is_berts else _RUNS_FILE,
        "do_lower_case": lower,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_ideographs,
        LENGTH: max_seq_length,
        **_SPECIAL_ROLES,
        **({} if has_types and is_berts else {_INPUTS: inputs}),
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
            "Special tokens in texts are parted here and found there, for the sake of [MASK]."
        )
    return tuple(notes)


def _splits_special_tokens(rules: TextRules) -> bool:
    return rules.split_special_tokens or not any(token.special for token in rules.added_tokens)


def build_tokenizer(tokenization: Tokenization) -> tokenizers.Tokenizer:
    """The tokenizer of the ``tokenizers`` package with the same ids as this library's."""
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
        how = {flag: getattr(token, flag) for flag in _FLAGS}
        tokenizer.add_tokens([tokenizers.AddedToken(token.content, **how)])
    tokenizer.add_special_tokens(
        [
            token
            for token in vocabulary.SPECIAL_TOKENS
            if token not in {t.content for t in rules.added_tokens}
        ]
    )
    tokenizer.encode_special_tokens = _splits_special_tokens(rules)
    return tokenizer
