"""``BertTokenizer`` and ``BertTokenizerFast``: texts to ids and back, as transformers had them.

Both are one class, over the ``tokenizers`` package, whose ids are those of this library's own
tokenizer in the graph.
"""

import contextlib
import copy
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import tokenizers
from tokenizers import AddedToken as AddedToken

from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tokenizer_files import (
    ADDED_TOKENS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    new_tokenizer,
    read_tokenization,
)
from bert_tf.files import read_json_object, write_json
from bert_tf.pipelines.vocabulary import load_vocabulary, save_vocabulary
from bert_tf.untrusted import quote

from .configuration import PLACE, AutoConfig, directory_of
from .encoding import BatchEncoding
from .names import lacking

_ENDLESS = int(1e30)  # what theirs says where no file has a length
# Roles, and the pieces that they are by default.
_ROLES: Mapping[str, str] = MappingProxyType(
    {role: f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")}
)
# By the names of arguments, those of the normalizer.
_NORMALIZATION: Mapping[str, str] = MappingProxyType(
    {"strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars"}
)
_HOW_ADDED = ("single_word", "lstrip", "rstrip", "normalized", "special")
_TRUNCATIONS = ("longest_first", "only_first", "only_second")
_CLEANED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't")),
    *((" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


class BertTokenizerFast:
    """A WordPiece tokenizer with padding, truncation, places of tokens and tensors.

    Args:
        vocab_file: a ``vocab.txt``.
        do_lower_case: whether to lower the case and strip accents.
        tokenizer_object: a ``tokenizers.Tokenizer`` in place of a vocabulary.
        model_max_length: the most tokens of a row, where a call does not say it.
        **options: ``padding_side``, ``truncation_side``; the special tokens by role
            (``mask_token``).

    >>> import os, tempfile
    >>> file = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    >>> with open(file, "w") as out:
    ...     print(*"[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s".split(), sep=chr(10), file=out)
    >>> tokenizer = BertTokenizerFast(file)
    >>> rows = tokenizer(["The cats", "sat"], padding=True)
    >>> rows["input_ids"], rows.word_ids(0)
    ([[2, 5, 6, 8, 3], [2, 7, 3, 0, 0]], [None, 0, 1, 1, None])
    >>> tokenizer.decode([2, 5, 6, 8, 3], skip_special_tokens=True)
    'the cats'
    """

    model_input_names: ClassVar[tuple[str, ...]] = ("input_ids", "token_type_ids", "attention_mask")
    is_fast = True

    def __init__(
        self,
        vocab_file: str | os.PathLike[str] | None = None,
        tokenizer_file: str | os.PathLike[str] | None = None,
        do_lower_case: bool = True,
        tokenizer_object: tokenizers.Tokenizer | None = None,
        model_max_length: int | None = None,
        **options: Any,
    ) -> None:
        if tokenizer_object is None and tokenizer_file is not None:
            tokenizer_object = tokenizers.Tokenizer.from_file(os.fspath(tokenizer_file))
        if tokenizer_object is None:
            if vocab_file is None:
                raise ValueError(
                    f"{type(self).__name__} has no vocabulary: give vocab_file, or use "
                    "from_pretrained."
                )
            pieces = load_vocabulary(os.fspath(vocab_file))
            tokenizer_object = new_tokenizer(Tokenization(tuple(pieces), do_lower_case))
        if not isinstance(tokenizer_object.model, tokenizers.models.WordPiece):
            raise ValueError(
                f"{tokenizer_file or 'tokenizer_object'} is a tokenizer of "
                f"{type(tokenizer_object.model).__name__}: expected a BERT's, of WordPiece."
            )
        normalizer = tokenizer_object.normalizer
        for name, setting in _NORMALIZATION.items():
            if options.get(name) is not None:
                if not hasattr(normalizer, setting):
                    raise ValueError(f"The tokenizer's normalizer has no {setting} for {name}.")
                setattr(normalizer, setting, options[name])
        if options.get("never_split") or options.get("do_basic_tokenize") is False:
            raise ValueError(
                f"{type(self).__name__} has no never_split and splits words always: add_tokens "
                "keeps a word whole."
            )
        self._tokenizer = tokenizer_object
        self.do_lower_case = do_lower_case
        self.model_max_length = model_max_length or options.get("max_len") or _ENDLESS
        self.padding_side = options.pop("padding_side", "right")
        self.truncation_side = options.pop("truncation_side", "right")
        self.name_or_path = os.fspath(options.pop("name_or_path", vocab_file or ""))
        self._roles = {
            role: str(options.pop(f"{role}_token", None) or piece) for role, piece in _ROLES.items()
        }
        self.additional_special_tokens: list[str] = []
        more = options.pop("additional_special_tokens", None) or []
        self.add_special_tokens({"additional_special_tokens": more})

    # === In and out ===

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The tokenizer of a directory, a ``vocab.txt``, or a model of the hub; options win."""
        path, options = directory_of(pretrained_model_name_or_path, options)
        options.pop("config", None)
        if os.path.isfile(path):
            return cls(path, **options)
        settings: dict[str, Any] = {}
        found: Mapping[str, Any] = {}
        config = os.path.join(path, TOKENIZER_CONFIG)
        if os.path.isfile(config):
            found = read_json_object(config)
            kept = (
                *("model_max_length", "padding_side", "truncation_side", "do_lower_case"),
                *(f"{role}_token" for role in _ROLES),
                "additional_special_tokens",
            )
            settings = {key: _content(found[key]) for key in kept if found.get(key) is not None}
            if isinstance(more := found.get("extra_special_tokens"), list):  # transformers 5's
                settings["additional_special_tokens"] = _content(more)
        file = os.path.join(path, TOKENIZER)
        lower = options.get("do_lower_case")
        if os.path.isfile(file) and lower in (None, settings.get("do_lower_case")):
            settings["tokenizer_file"] = file
        else:
            tokenization, notes = read_tokenization(path, lower, adds_tokens=True)
            if tokenization is None:
                raise ValueError(" ".join(notes))
            settings["tokenizer_object"] = new_tokenizer(tokenization)
            settings["do_lower_case"] = tokenization.do_lower_case
            _add_tokens(settings["tokenizer_object"], path, found.get("added_tokens_decoder"))
        return cls(**{**settings, "name_or_path": path, **options})

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], **options: Any
    ) -> tuple[str, ...]:
        """Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json``; their paths."""
        folder = os.fspath(save_directory)
        os.makedirs(folder, exist_ok=True)
        config, file = (os.path.join(folder, name) for name in (TOKENIZER_CONFIG, TOKENIZER))
        values = {
            "tokenizer_class": type(self).__name__.removesuffix("Fast"),
            "do_lower_case": self.do_lower_case,
            **{
                name: getattr(self._tokenizer.normalizer, setting, None)
                for name, setting in _NORMALIZATION.items()
            },
            "model_max_length": self.model_max_length,
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            **self.special_tokens_map,
        }
        write_json(config, values)
        self._unbounded()
        self._tokenizer.save(file)
        return (config, *self.save_vocabulary(folder), file)

    def save_vocabulary(
        self, save_directory: str | os.PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str]:
        """Writes ``vocab.txt``, without what was added; its path."""
        name = f"{filename_prefix}-{VOCABULARY}" if filename_prefix else VOCABULARY
        path = os.path.join(save_directory, name)
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=False)
        save_vocabulary(path, sorted(vocabulary, key=vocabulary.__getitem__))
        return (path,)

    # === Texts to rows ===

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        pad_to_max_length: bool = False,
        verbose: bool = True,
        truncation_strategy: str | None = None,
        return_attention_masks: bool | None = None,
    ) -> BatchEncoding:
        """Rows of ids of a text, a list of texts, or of pairs of them.

        Args:
            text: a text; a list of texts; with ``is_split_into_words`` a list of words, or a list
                of such lists.
            text_pair: the second texts, of the same form.
            add_special_tokens: whether rows have [CLS] and [SEP].
            padding: True or ``"longest"``: to the batch's longest row; ``"max_length"``.
            truncation: True or ``"longest_first"``, ``"only_first"``, ``"only_second"``.
            max_length: the most tokens of a row; by default ``model_max_length``.
            stride: how many tokens a row shares with the one before it of the same text.
            is_split_into_words: see ``text``.
            pad_to_multiple_of: a number that the rows' length is a multiple of.
            return_tensors: ``"tf"``, ``"np"``, or ``None`` for lists.
            return_token_type_ids: whether rows have types; by default where the model has them.
            return_attention_mask: whether rows have a mask, 1 = real and 0 = padding.
            return_overflowing_tokens: whether what is cut off makes rows of its own.
            return_special_tokens_mask: whether rows say which tokens are special.
            return_offsets_mapping: whether rows have the characters of their tokens.
            return_length: whether rows have their lengths.
            pad_to_max_length: an older name of ``padding="max_length"``.
            verbose: means nothing.
            truncation_strategy: an older name of ``truncation``.
            return_attention_masks: means nothing, as there: many scripts misspell it so.
        """
        one, batch = _as_batch(text, text_pair, is_split_into_words)
        if max_length is not None and padding is False and truncation is None:
            truncation = True
        truncation = truncation_strategy if truncation is None else truncation
        if pad_to_max_length and padding is False:
            padding = "longest" if max_length is None else "max_length"
        self._bound(padding, truncation, max_length, stride, pad_to_multiple_of)
        rows = self._tokenizer.encode_batch(
            batch, add_special_tokens=add_special_tokens, is_pretokenized=is_split_into_words
        )
        if return_overflowing_tokens:
            samples = [at for at, row in enumerate(rows) for _ in (row, *row.overflowing)]
            rows = [part for row in rows for part in (row, *row.overflowing)]
        wants_types = return_token_type_ids
        if wants_types is None:
            wants_types = "token_type_ids" in self.model_input_names
        columns = {
            "input_ids": ("ids", True),
            "token_type_ids": ("type_ids", wants_types),
            "attention_mask": ("attention_mask", return_attention_mask is not False),
            "special_tokens_mask": ("special_tokens_mask", return_special_tokens_mask),
            "offset_mapping": ("offsets", return_offsets_mapping),
        }
        data: dict[str, Any] = {
            name: [getattr(row, attribute) for row in rows]
            for name, (attribute, wanted) in columns.items()
            if wanted
        }
        if return_length:
            data["length"] = [len(row.ids) for row in rows]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = samples
        if one and return_tensors is None and not return_overflowing_tokens:
            data = {name: values[0] for name, values in data.items()}
        return BatchEncoding(data, rows, return_tensors)

    def encode_plus(
        self, text: Any, text_pair: Any = None, *arguments: Any, **options: Any
    ) -> BatchEncoding:
        """The row of a text or a pair; without ``is_split_into_words`` a list is tokens or ids."""
        texts = [each for each in (text, text_pair) if each is not None]
        are_lists = all(isinstance(each, list | tuple) for each in texts)
        if not texts or not are_lists or options.get("is_split_into_words"):
            return self(text, text_pair, *arguments, **options)
        tokens = [[self._token(each) for each in some] for some in texts]
        model = tokenizers.models.WordLevel(self.get_vocab(), self._roles["unk"])
        taken = copy.copy(self)  # whose words are tokens
        taken._tokenizer = tokenizers.Tokenizer(model)
        taken._tokenizer.post_processor = self._tokenizer.post_processor
        pair = tokens[1] if len(tokens) > 1 else None
        return taken(tokens[0], pair, *arguments, **{**options, "is_split_into_words": True})

    prepare_for_model = encode_plus

    def _token(self, token: Any) -> str:
        return token if isinstance(token, str) else str(self._tokenizer.id_to_token(int(token)))

    def batch_encode_plus(self, batch_text_or_text_pairs: Any, **options: Any) -> BatchEncoding:
        """Rows of a list of texts, or of a list of pairs."""
        return self(batch_text_or_text_pairs, **options)

    def encode(self, text: Any, text_pair: Any = None, **options: Any) -> Any:
        """The ids of a text or a pair."""
        return self.encode_plus(text, text_pair, **options)["input_ids"]

    def tokenize(
        self, text: str, pair: str | None = None, add_special_tokens: bool = False, **options: Any
    ) -> list[str]:
        """The tokens of a text or a pair."""
        return self(text, pair, add_special_tokens=add_special_tokens, **options).tokens()

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        **options: Any,
    ) -> BatchEncoding:
        """Rows of several lengths, as a dict of lists or a list of dicts, made equally long."""
        rows = encoded_inputs
        if not isinstance(rows, Mapping):
            rows = {key: [row[key] for row in rows] for key in rows[0]}
        data = {key: [_as_list(value) for value in values] for key, values in rows.items()}
        one = len(data["input_ids"]) > 0 and not isinstance(data["input_ids"][0], list)
        if one:
            data = {key: [values] for key, values in data.items()}
        lengths = [len(ids) for ids in data["input_ids"]]
        if "attention_mask" not in data and return_attention_mask is not False:
            data["attention_mask"] = [[1] * length for length in lengths]
        width = 0
        if padding in (True, "longest"):
            width = max(lengths)
        elif padding == "max_length":
            width = self.model_max_length if max_length is None else max_length
        if pad_to_multiple_of and width:
            width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
        fillings = {
            "input_ids": self.pad_token_id,
            **{"token_type_ids": 0, "attention_mask": 0, "special_tokens_mask": 1},
        }
        for key, filling in fillings.items():
            if key not in data:
                continue
            for at, values in enumerate(data[key]):
                missing = [filling] * (width - len(values))
                right = self.padding_side == "right"
                data[key][at] = [*values, *missing] if right else [*missing, *values]
        if one:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _bound(
        self,
        padding: bool | str,
        truncation: bool | str | None,
        max_length: int | None,
        stride: int,
        multiple: int | None,
    ) -> None:
        """Tells the tokenizer how long rows are to be."""
        self._unbounded()
        most = self.model_max_length if max_length is None else max_length
        strategy = "longest_first" if truncation is True else truncation
        if strategy not in (None, False, "do_not_truncate") and most < _ENDLESS:
            if strategy not in _TRUNCATIONS:
                raise ValueError(
                    f"truncation is {truncation!r}: expected True, False, "
                    f"{', '.join(map(repr, _TRUNCATIONS))}."
                )
            self._tokenizer.enable_truncation(
                most, stride=stride, strategy=str(strategy), direction=self.truncation_side
            )
        if padding in (False, None, "do_not_pad"):
            return
        if padding not in (True, "longest", "max_length"):
            raise ValueError(
                f"padding is {padding!r}: expected True, False, 'longest' or 'max_length'."
            )
        self._tokenizer.enable_padding(
            direction=self.padding_side,
            pad_id=self.pad_token_id,
            pad_token=self._roles["pad"],
            length=most if padding == "max_length" and most < _ENDLESS else None,
            pad_to_multiple_of=multiple,
        )

    def _unbounded(self) -> None:
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    # === Rows to texts ===

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **options: Any,
    ) -> str:
        """The text of ids."""
        ids = _as_list(token_ids)
        text: str = self._tokenizer.decode(
            ids if isinstance(ids, list) else [ids], skip_special_tokens=skip_special_tokens
        )
        return text if clean_up_tokenization_spaces is False else self.clean_up_tokenization(text)

    @staticmethod
    def clean_up_tokenization(out_string: str) -> str:
        """A text without the blanks before its marks and endings."""
        for found, made in _CLEANED:
            out_string = out_string.replace(found, made)
        return out_string

    def batch_decode(self, sequences: Any, **options: Any) -> list[str]:
        """The text of each row of ids."""
        return [self.decode(ids, **options) for ids in sequences]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of a token, or the ids of several; [UNK]'s of one that is unknown."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self._tokenizer.token_to_id(tokens)
        return self.unk_token_id if found is None else found

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """The token of an id, or the tokens of several."""
        found = _as_list(ids)
        if not isinstance(found, list):
            return self._tokenizer.id_to_token(found)
        special = set(self.all_special_ids) if skip_special_tokens else set()
        return [self._tokenizer.id_to_token(at) for at in found if at not in special]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        return str(self._tokenizer.decoder.decode(list(tokens)))

    # === Special tokens ===

    def __getattr__(self, name: str) -> Any:
        role, _, rest = name.partition("_token")
        roles = self.__dict__.get("_roles", {})
        if role in roles and rest in ("", "_id"):
            token = roles[role]
            return token if not rest else self._tokenizer.token_to_id(token)
        if roles and name in _COMPUTED:
            return _COMPUTED[name](self)
        raise lacking(self, name)

    def build_inputs_with_special_tokens(
        self, token_ids_0: Sequence[int], token_ids_1: Sequence[int] | None = None
    ) -> list[int]:
        """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
        first = [self.cls_token_id, *token_ids_0, self.sep_token_id]
        return first if token_ids_1 is None else [*first, *token_ids_1, self.sep_token_id]

    def create_token_type_ids_from_sequences(
        self, token_ids_0: Sequence[int], token_ids_1: Sequence[int] | None = None
    ) -> list[int]:
        """0 for [CLS] A [SEP], 1 for B [SEP]."""
        first = [0] * (len(token_ids_0) + 2)
        return first if token_ids_1 is None else [*first, *[1] * (len(token_ids_1) + 1)]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Number of special tokens in a row."""
        return 3 if pair else 2

    def get_special_tokens_mask(
        self,
        token_ids_0: Sequence[int],
        token_ids_1: Sequence[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """1 for special tokens, 0 for others."""
        ids = token_ids_0
        if not already_has_special_tokens:
            ids = self.build_inputs_with_special_tokens(token_ids_0, token_ids_1)
        special = set(self.all_special_ids)
        return [int(at in special) for at in ids]

    # === The vocabulary ===

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Adds tokens behind the vocabulary; gives how many were new.

        The model is to have as many rows: ``resize_token_embeddings(len(tokenizer))``.
        """
        one = isinstance(new_tokens, str | AddedToken)
        tokens = [new_tokens] if one else list(new_tokens)
        if special_tokens:
            return int(self._tokenizer.add_special_tokens(tokens))
        return int(self._tokenizer.add_tokens(tokens))

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any]) -> int:
        """Adds special tokens by role, or as ``additional_special_tokens``."""
        added = 0
        for name, tokens in special_tokens_dict.items():
            role = name.removesuffix("_token")
            if role in self._roles:
                self._roles[role] = str(tokens)
            elif name == "additional_special_tokens":
                self.additional_special_tokens = list(map(str, tokens))
            added += self.add_tokens(tokens, special_tokens=True)
        return added

    def get_vocab(self) -> dict[str, int]:
        """The ids by their tokens, what was added included."""
        return dict(self._tokenizer.get_vocab())

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(name_or_path={self.name_or_path!r}, "
            f"vocab_size={self.vocab_size}, model_max_length={self.model_max_length})"
        )


def _as_batch(text: Any, pair: Any, is_split: bool) -> tuple[bool, list[Any]]:
    """True if it is one text, and the list of texts or pairs."""
    if text is None:
        raise ValueError("The tokenizer was given no text.")
    # Of NumPy or pandas: an array becomes a list, and what is one text a str.
    text, pair = (given.tolist() if hasattr(given, "tolist") else given for given in (text, pair))
    # A column of datasets is a sequence, and no list.
    sorts = (str, bytes, list, tuple)
    text, pair = (
        list(given) if isinstance(given, Sequence) and not isinstance(given, sorts) else given
        for given in (text, pair)
    )
    one = not isinstance(text, list | tuple)
    if not one and is_split:
        one = len(text) > 0 and isinstance(text[0], str)
    texts = [text] if one else list(text)
    # One second text is no list of its letters.
    pairs = [pair] if one or isinstance(pair, str) else list(pair or ())
    for found in texts if pair is None else (*texts, *pairs):
        if not isinstance(found, str | list | tuple):
            raise ValueError(
                f"The tokenizer was given {type(found).__name__} in place of a text: expected a "
                "str, a list of them, or with is_split_into_words=True lists of words."
            )
    if pair is None:
        is_pair = [not isinstance(found, str) and not is_split for found in texts]
        return one, [tuple(t) if pair else t for t, pair in zip(texts, is_pair, strict=True)]
    if len(texts) != len(pairs):
        raise ValueError(
            f"The tokenizer was given {len(texts)} first texts and {len(pairs)} second ones: "
            "expected as many."
        )
    return one, list(zip(texts, pairs, strict=True))


def _add_tokens(tokenizer: tokenizers.Tokenizer, folder: str, described: Any) -> None:
    """Adds the tokens of ``added_tokens.json``, which have the ids behind the vocabulary's.

    And those that ``added_tokens_decoder`` describes, whose ids may be the vocabulary's, too.
    """
    path = os.path.join(folder, ADDED_TOKENS)
    found = read_json_object(path) if os.path.isfile(path) else {}
    path = path if found else os.path.join(folder, TOKENIZER_CONFIG)
    tokens = {}
    for at, token in described.items() if isinstance(described, Mapping) else ():
        text = token.get("content") if isinstance(token, Mapping) else None
        if not isinstance(text, str) or not at.isdecimal():
            raise ValueError(f"{folder} adds {quote(token)} as {quote(at)}: expected a token.")
        how = {key: token[key] for key in _HOW_ADDED if isinstance(token.get(key), bool)}
        found[text], tokens[text] = int(at), AddedToken(text, **how)
    ids = {token: at for token, at in found.items() if tokenizer.token_to_id(token) != at}
    first = tokenizer.get_vocab_size()
    are_numbers = all(type(at) is int for at in ids.values())
    if not are_numbers or sorted(ids.values()) != [*range(first, first + len(ids))]:
        raise ValueError(
            f"{path}: expected ids that follow the vocabulary's, from {first} on, got {quote(ids)}."
        )
    tokens = {token: AddedToken(token) for token in ids} | tokens
    tokenizer.add_tokens([tokens[token] for token in sorted(tokens, key=found.__getitem__)])


def _content(value: Any) -> Any:
    """A setting of ``tokenizer_config.json``, where a token may be spelled out."""
    if isinstance(value, list):
        return [_content(each) for each in value]
    return value["content"] if isinstance(value, Mapping) else value


def _as_list(values: Any) -> Any:
    """Tensors and tuples as lists; a number and a list as they are."""
    values = values.numpy() if hasattr(values, "numpy") else values
    if hasattr(values, "tolist"):
        return values.tolist()
    return list(values) if isinstance(values, tuple) else values


#: Members that follow from others.
_COMPUTED: dict[str, Callable[[BertTokenizerFast], Any]] = {
    "vocab": lambda own: own.get_vocab(),
    "ids_to_tokens": lambda own: {at: token for token, at in own.get_vocab().items()},
    "added_tokens_decoder": lambda own: own.backend_tokenizer.get_added_tokens_decoder(),
    "all_special_tokens": lambda own: [*own._roles.values(), *own.additional_special_tokens],
    "all_special_ids": lambda own: [
        at for token in own.all_special_tokens if (at := own.get_vocab().get(token)) is not None
    ],
    "vocab_size": lambda own: own.backend_tokenizer.get_vocab_size(with_added_tokens=False),
    "special_tokens_map": lambda own: {
        **{f"{role}_token": token for role, token in own._roles.items()},
        **({"additional_special_tokens": more} if (more := own.additional_special_tokens) else {}),
    },
    "backend_tokenizer": lambda own: own._tokenizer,  # a tokenizers.Tokenizer
    "max_len": lambda own: own.model_max_length,
    "max_len_single_sentence": lambda own: own.model_max_length - 2,
    "max_len_sentences_pair": lambda own: own.model_max_length - 3,
    "pad_token_type_id": lambda own: 0,
}
PreTrainedTokenizerFast = PreTrainedTokenizerBase = BertTokenizerFast


class BertTokenizer(BertTokenizerFast):
    """``BertTokenizerFast`` by its other name: both give the same ids."""


class DistilBertTokenizerFast(BertTokenizerFast):
    """A BERT's tokenizer whose rows have no types."""

    model_input_names = ("input_ids", "attention_mask")


class DistilBertTokenizer(DistilBertTokenizerFast):
    """``DistilBertTokenizerFast`` by its other name."""


class AutoTokenizer:
    """``from_pretrained`` gives the tokenizer of the model that a directory is of."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The tokenizer of a directory or of the hub."""
        path, kind = pretrained_model_name_or_path, "bert"
        place = {key: options[key] for key in PLACE if key in options}
        with contextlib.suppress(ValueError):  # a directory of a tokenizer alone has no config
            kind = AutoConfig.from_pretrained(path, **place).model_type
        classes = {"bert": BertTokenizerFast, "distilbert": DistilBertTokenizerFast}
        return classes[kind].from_pretrained(path, *inputs, **options)
