"""``BertTokenizer`` and ``BertTokenizerFast``: texts to ids and back, as transformers had them.

Both are one class, over the ``tokenizers`` package, whose ids are those of this library's own
tokenizer in the graph.
"""

import contextlib
import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import tokenizers
from tokenizers import AddedToken as AddedToken

from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tokenizer_files import (
    BACKENDS,
    BERT_RULES,
    SPECIAL_TOKENS_MAP,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    build_tokenizer,
    read_tokenization,
)
from bert_tf.io.files import read_json_object, write_json
from bert_tf.io.wording import warn
from bert_tf.pipelines.vocabulary import load_vocabulary, save_vocabulary

from . import missing_attribute_error
from .configuration import LOCATION_OPTIONS, AutoConfig, resolve_directory
from .encoders import Encoders, Options, copy_unbounded
from .encoding import BatchEncoding, as_batch, as_list, is_one_text

_NO_LIMIT = int(1e30)  # what transformers says where no file has a length
# Roles, and the pieces that they are by default.
_ROLES: Mapping[str, str] = {
    role: f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")
}
# By the names of arguments, those of the normalizer.
_NORMALIZATION: Mapping[str, str] = {
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# By the names of lengths, the special tokens that they leave room for.
_NUM_SPECIAL_TOKENS = {"max_len": 0, "max_len_single_sentence": 2, "max_len_sentences_pair": 3}
# Strategies; False is the first, which does nothing, and True the second.
_TRUNCATIONS = ("do_not_truncate", "longest_first", "only_first", "only_second")
_PADDINGS = ("do_not_pad", "longest", "max_length")
# Settings of tokenizer_config.json that are arguments, besides tokens, which end with "_token".
_SETTINGS = (
    *("model_max_length", "padding_side", "truncation_side", "do_lower_case"),
    *("model_input_names", "split_special_tokens", "strip_accents", "tokenize_chinese_chars"),
)
# Where special tokens without a role are, in its and in 5's files: lists, or dicts by names.
_EXTRA_TOKEN_KEYS = (
    *("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"),
)
_SIDES = ("right", "left")
# What save_pretrained may be told; other options would write something else.
_SAVE_OPTIONS = (
    "legacy_format",
    "is_main_process",
    "safe_serialization",
    "max_shard_size",
    "token",
)
_CLEANUP_REPLACEMENTS = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't")),
    *((" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


class PreTrainedTokenizerFast:
    """A WordPiece tokenizer with padding, truncation, places of tokens and tensors.

    It is made of a ``vocab.txt``, a ``tokenizer.json`` or a ``tokenizers.Tokenizer``.
    ``model_max_length`` is the most tokens of a row, where a call does not say it; further options
    are ``padding_side``, ``truncation_side``, ``model_input_names``, ``split_special_tokens``,
    whether a special token's name in a text is text, and the special tokens by role
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

    model_input_names: tuple[str, ...] = ("input_ids", "attention_mask")
    is_fast = True
    pad_token_type_id = 0
    # Whether a tokenizer.json gives pieces alone, and all else is as BERT's, as in transformers 5.
    _uses_bert_rules: ClassVar[bool] = False

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
            read = Tokenization(tuple(pieces), do_lower_case, BERT_RULES)
            tokenizer_object = build_tokenizer(read.with_special_tokens(True))
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
        self.backend_tokenizer = tokenizer_object
        self.do_lower_case = do_lower_case
        self.model_max_length = model_max_length or options.get("max_len") or _NO_LIMIT
        truncation, padding = tokenizer_object.truncation or {}, tokenizer_object.padding or {}
        for name, file in (("padding_side", padding), ("truncation_side", truncation)):
            side = options.get(name) or file.get("direction", _SIDES[0])
            if side not in _SIDES:
                raise ValueError(f"{name} is {side!r}: expected 'right' or 'left'.")
            setattr(self, name, side)
        self.name_or_path = os.fspath(options.get("name_or_path", vocab_file or ""))
        self.model_input_names = tuple(options.get("model_input_names") or self.model_input_names)
        self.split_special_tokens = bool(options.get("split_special_tokens", False))
        self._roles = dict(_ROLES)
        self._encoders = Encoders()
        self.additional_special_tokens: list[str] = []
        self.add_special_tokens(
            _special_tokens(options, self._roles if self._uses_bert_rules else {})
        )
        if self._uses_bert_rules:
            unknown = self._roles["unk"]
            if tokenizer_object.model.token_to_id(unknown) is None:
                raise ValueError(f"unk_token is {unknown!r}: expected a piece of the vocabulary.")
            tokenizer_object.model.unk_token = unknown
            tokenizer_object.post_processor = tokenizers.processors.BertProcessing(
                (self.sep_token, self.sep_token_id), (self.cls_token, self.cls_token_id)
            )

    # === In and out ===

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The tokenizer of a directory, a ``vocab.txt``, or a model of the hub; options win."""
        path, options = resolve_directory(pretrained_model_name_or_path, options)
        options.pop("config", None)
        if options.get("do_lower_case") is None:
            options.pop("do_lower_case", None)
        if os.path.isfile(path):
            return cls(path, **options)
        config_file, map_file, file = (
            os.path.join(path, name) for name in (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, TOKENIZER)
        )
        config = read_json_object(config_file) if os.path.isfile(config_file) else {}
        if os.path.isfile(map_file) and "added_tokens_decoder" not in config:
            config = {**config, **read_json_object(map_file)}
        settings = {
            key: _token_content(value)
            for key, value in config.items()
            if value is not None
            and (key in (*_SETTINGS, *_EXTRA_TOKEN_KEYS) or key.endswith("_token"))
        }
        if os.path.isfile(file):
            settings["tokenizer_object"] = tokenizers.Tokenizer.from_file(file)
            if cls._uses_bert_rules:
                _apply_bert_rules(settings["tokenizer_object"], {**settings, **options})
        else:
            lower = options.get("do_lower_case")
            tokenization, notes = read_tokenization(path, lower)
            if tokenization is None:
                what_to_do = "Name a tokenizer's directory (for a pipeline, tokenizer=)."
                raise ValueError(" ".join([*notes, what_to_do]))
            warn(notes)
            settings["tokenizer_object"] = build_tokenizer(tokenization)
            settings["do_lower_case"] = tokenization.do_lower_case
        return cls(**{**settings, "name_or_path": path, **options})

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], **options: Any
    ) -> tuple[str, ...]:
        """Writes ``vocab.txt``, ``tokenizer.json``, ``tokenizer_config.json``; their paths."""
        folder = os.fspath(save_directory)
        check_save_options(type(self).__name__, options)
        os.makedirs(folder, exist_ok=True)
        config, file = (os.path.join(folder, name) for name in (TOKENIZER_CONFIG, TOKENIZER))
        values = {
            "tokenizer_class": type(self).__name__.removesuffix(
                "Fast" if self._uses_bert_rules else ""
            ),
            "do_lower_case": self.do_lower_case,
            **{
                name: getattr(self.backend_tokenizer.normalizer, setting, None)
                for name, setting in _NORMALIZATION.items()
            },
            "model_max_length": self.model_max_length,
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            "model_input_names": list(self.model_input_names),
            "split_special_tokens": self.split_special_tokens,
            **self.special_tokens_map,
        }
        write_json(config, values)
        copy_unbounded(self.backend_tokenizer).save(file)
        return (config, *self.save_vocabulary(folder), file)

    def save_vocabulary(
        self, save_directory: str | os.PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str]:
        """Writes ``vocab.txt``, without what was added; returns its path."""
        name = f"{filename_prefix}-{VOCABULARY}" if filename_prefix else VOCABULARY
        path = os.path.join(save_directory, name)
        vocabulary = self.backend_tokenizer.get_vocab(with_added_tokens=False)
        save_vocabulary(path, sorted(vocabulary, key=vocabulary.__getitem__))
        return (path,)

    # === Texts to rows ===

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        *,  # two more texts follow in transformers, which are here no argument
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        pad_to_max_length: bool = False,
        verbose: bool = True,
        split_special_tokens: bool | None = None,
        truncation_strategy: str | None = None,
        return_attention_masks: bool | None = None,
    ) -> BatchEncoding:
        """Rows of ids of a text, a list of texts, or of pairs of them.

        With ``is_split_into_words`` a text is a list of words. ``padding`` is True or
        ``"longest"``, to the batch's longest row, or ``"max_length"``; ``truncation`` is True or
        ``"longest_first"``, ``"only_first"`` or ``"only_second"``; ``max_length`` is by default
        ``model_max_length``. ``return_overflowing_tokens`` makes rows of what is cut off, each of
        which has ``stride`` tokens of the one before it. ``return_tensors`` is ``"tf"``, ``"np"``,
        or ``None`` for lists. ``pad_to_max_length`` and ``truncation_strategy`` are older names;
        ``verbose`` and ``return_attention_masks``, which many scripts misspell, mean nothing.
        """
        batch = as_batch(text, text_pair, is_split_into_words)
        if max_length is not None and padding is False and truncation is None:
            truncation = True
        truncation = truncation_strategy if truncation is None else truncation
        if pad_to_max_length and padding is False:
            padding = "longest" if max_length is None else "max_length"
        if return_attention_masks is not None:
            warn(
                ["return_attention_masks is no argument of a tokenizer: return_attention_mask is."]
            )
        bounds = self._truncation_and_padding(
            padding, truncation, max_length, stride, pad_to_multiple_of, padding_side
        )
        splits = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        rows = self._encoders.get(self.backend_tokenizer, *bounds, splits).encode_batch(
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
            for name, (attribute, is_returned) in columns.items()
            if is_returned
        }
        if return_length:
            data["length"] = [len(row.ids) for row in rows]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = samples
        is_one_row = is_one_text(text, is_split_into_words)
        if is_one_row and return_tensors is None and not return_overflowing_tokens:
            lists = {name: its[0] for name, its in data.items() if isinstance(its[0], list)}
            data |= lists  # a length stays in its list, as in transformers
        return BatchEncoding(data, rows, return_tensors)

    def encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """The row of a text or a pair; without ``is_split_into_words`` a list is tokens or ids."""
        texts = [each for each in (text, text_pair) if each is not None]
        are_lists = all(isinstance(each, list | tuple) for each in texts)
        if not texts or not are_lists or options.get("is_split_into_words"):
            return self(text, text_pair, **options)
        tokens = [
            [each if isinstance(each, str) else self.convert_ids_to_tokens(each) for each in some]
            for some in texts
        ]
        model = tokenizers.models.WordLevel(self.get_vocab(), self._roles["unk"])
        token_tokenizer = copy.copy(self)  # a tokenizer whose words are tokens
        token_tokenizer._encoders = Encoders()
        token_tokenizer.backend_tokenizer = tokenizers.Tokenizer(model)
        token_tokenizer.backend_tokenizer.post_processor = self.backend_tokenizer.post_processor
        pair = tokens[1] if len(tokens) > 1 else None
        return token_tokenizer(tokens[0], pair, **{**options, "is_split_into_words": True})

    prepare_for_model = encode_plus

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
        padding_side: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Rows of several lengths, as a dict of lists or a list of dicts, made equally long."""
        rows = encoded_inputs
        if not isinstance(rows, Mapping):
            rows = {key: [row[key] for row in rows] for key in rows[0]}
        data = {key: [as_list(value) for value in values] for key, values in rows.items()}
        is_one_row = len(data["input_ids"]) > 0 and not isinstance(data["input_ids"][0], list)
        if is_one_row:
            data = {key: [values] for key, values in data.items()}
        lengths = [len(ids) for ids in data["input_ids"]]
        if "attention_mask" not in data and return_attention_mask is not False:
            data["attention_mask"] = [[1] * length for length in lengths]
        limit = self.model_max_length if max_length is None else max_length
        widths = {"do_not_pad": 0, "longest": max(lengths), "max_length": limit}
        width = widths[_check_strategy("padding", padding, _PADDINGS)]
        if pad_to_multiple_of:
            width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
        paddings = {
            "input_ids": self.pad_token_id,
            "token_type_ids": 0,
            "attention_mask": 0,
            "special_tokens_mask": 1,
        }
        on_the_right = (padding_side or self.padding_side) == "right"
        for key in paddings.keys() & data.keys():
            for at, values in enumerate(data[key]):
                missing = [paddings[key]] * (width - len(values))
                data[key][at] = [*values, *missing] if on_the_right else [*missing, *values]
        if is_one_row:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _truncation_and_padding(
        self,
        padding: Any,
        truncation: Any,
        limit: int | None,
        stride: int,
        multiple: int | None,
        side: str | None,
    ) -> tuple[Options, Options]:
        """Returns the options of truncation and of padding."""
        limit = self.model_max_length if limit is None else limit
        cut = padded = None
        strategy = _check_strategy("truncation", truncation, _TRUNCATIONS)
        if strategy != "do_not_truncate" and limit < _NO_LIMIT:
            if multiple and padding and limit % multiple:
                raise ValueError(
                    f"Rows are cut to {limit} tokens and padded to a multiple of {multiple}: "
                    "expected a max_length that is one."
                )
            cut = {"max_length": limit, "stride": stride, "strategy": strategy}
            cut["direction"] = self.truncation_side
        strategy = _check_strategy("padding", padding, _PADDINGS)
        if strategy != "do_not_pad":
            padded = {
                "direction": side or self.padding_side,
                "pad_id": self.pad_token_id,
                "pad_token": self._roles["pad"],
                "length": limit if strategy == "max_length" and limit < _NO_LIMIT else None,
                "pad_to_multiple_of": multiple,
            }
        return cut, padded

    # === Rows to texts ===

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **options: Any,
    ) -> str:
        """The text of ids."""
        ids = as_list(token_ids)
        ids = ids if isinstance(ids, list) else [ids]
        text: str = self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text if clean_up_tokenization_spaces is False else self.clean_up_tokenization(text)

    @staticmethod
    def clean_up_tokenization(out_string: str) -> str:
        """A text without the blanks before its marks and endings."""
        for spaced, joined in _CLEANUP_REPLACEMENTS:
            out_string = out_string.replace(spaced, joined)
        return out_string

    def batch_decode(self, sequences: Any, **options: Any) -> list[str]:
        """The text of each row of ids."""
        return [self.decode(ids, **options) for ids in sequences]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of a token, or the ids of several; [UNK]'s of one that is unknown."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        number = self.backend_tokenizer.token_to_id(tokens)
        return self.unk_token_id if number is None else number

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """The token of an id, or the tokens of several."""
        ids = as_list(ids)
        if not isinstance(ids, list):
            return self.backend_tokenizer.id_to_token(ids)
        special = set(self.all_special_ids) if skip_special_tokens else set()
        return [self.backend_tokenizer.id_to_token(at) for at in ids if at not in special]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        return str(self.backend_tokenizer.decoder.decode(list(tokens)))

    # === Special tokens ===

    def __getattr__(self, name: str) -> Any:
        role, _, rest = name.partition("_token")
        roles = self.__dict__.get("_roles", {})
        if role in roles and rest in ("", "_id"):
            token = roles[role]
            return token if not rest else self.backend_tokenizer.token_to_id(token)
        if name in _NUM_SPECIAL_TOKENS:
            return self.model_max_length - _NUM_SPECIAL_TOKENS[name]
        raise missing_attribute_error(self, name)

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens of the roles, then the others."""
        return [*self._roles.values(), *self.additional_special_tokens]

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of those that the vocabulary has."""
        vocabulary = self.get_vocab()
        return [vocabulary[token] for token in self.all_special_tokens if token in vocabulary]

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """The special tokens by role."""
        tokens: dict[str, Any] = {f"{role}_token": token for role, token in self._roles.items()}
        if self.additional_special_tokens:
            tokens["additional_special_tokens"] = self.additional_special_tokens
        return tokens

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
        """Adds tokens behind the vocabulary; returns how many were new.

        The model is to have as many rows: ``resize_token_embeddings(len(tokenizer))``.
        """
        one = isinstance(new_tokens, str | AddedToken)
        tokens = [new_tokens] if one else list(new_tokens)
        self._encoders.clear()
        if special_tokens:
            return int(self.backend_tokenizer.add_special_tokens(tokens))
        return int(self.backend_tokenizer.add_tokens(tokens))

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
        return dict(self.backend_tokenizer.get_vocab())

    vocab = property(get_vocab)

    @property
    def ids_to_tokens(self) -> dict[int, str]:
        """The tokens by their ids."""
        return {at: token for token, at in self.get_vocab().items()}

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens by their ids."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    @property
    def vocab_size(self) -> int:
        """Number of pieces without what was added."""
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=False))

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(name_or_path={self.name_or_path!r}, "
            f"vocab_size={self.vocab_size}, model_max_length={self.model_max_length})"
        )


def _special_tokens(options: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """The special tokens of a constructor's options: of ``roles`` all, then those without one."""
    tokens: dict[str, Any] = {f"{role}_token": token for role, token in roles.items()}
    more: list[Any] = []
    for name, token in options.items():
        if name in _EXTRA_TOKEN_KEYS:
            more += token.values() if isinstance(token, Mapping) else token or ()
        elif name.removesuffix("_token") in _ROLES and name.endswith("_token"):
            tokens[name] = token
        elif name.endswith("_token") and isinstance(token, str | AddedToken):
            more.append(token)
    for name, token in tokens.items():
        if not isinstance(token, str | AddedToken):
            raise ValueError(f"{name} is {token!r}: expected a token.")
    return {**tokens, "additional_special_tokens": more}


def _apply_bert_rules(tokenizer: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Makes a file's tokenizer one that ``BertTokenizer`` has: of the file its pieces are left."""
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    if isinstance(tokenizer.model, tokenizers.models.WordPiece):
        tokenizer.model.max_input_chars_per_word = BERT_RULES.max_word_length


def check_save_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuses options of ``save_pretrained`` that would write something else, or elsewhere."""
    for option, value in options.items():
        if option not in _SAVE_OPTIONS and value:
            raise ValueError(
                f"{name}.save_pretrained has no {option}: upload the directory with "
                "huggingface_hub, or rename what it has."
            )


def _check_strategy(name: str, value: Any, strategies: Sequence[str]) -> str:
    """The strategy that an argument chooses."""
    strategy = strategies[1] if value is True else value or strategies[0]
    if strategy not in strategies:
        expected = ", ".join(map(repr, strategies[1:]))
        raise ValueError(f"{name} is {value!r}: expected True, False, {expected}.")
    return str(strategy)


def _token_content(value: Any) -> Any:
    """A setting of ``tokenizer_config.json``, where a token may be spelled out."""
    if isinstance(value, list):
        return [_token_content(each) for each in value]
    if isinstance(value, Mapping) and "content" not in value:  # tokens by names
        return {name: _token_content(token) for name, token in value.items()}
    return value["content"] if isinstance(value, Mapping) else value


PreTrainedTokenizerBase = PreTrainedTokenizerFast


class BertTokenizerFast(PreTrainedTokenizerFast):
    """A BERT's: all but its pieces is BERT's own, whatever else a ``tokenizer.json`` says."""

    model_input_names: tuple[str, ...] = ("input_ids", "token_type_ids", "attention_mask")
    _uses_bert_rules = True


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
        place = {key: options[key] for key in LOCATION_OPTIONS if key in options}
        with contextlib.suppress(ValueError):  # a directory of a tokenizer alone has no config
            kind = AutoConfig.from_pretrained(path, **place).model_type
        classes: dict[str, type[PreTrainedTokenizerFast]] = {
            **{"bert": BertTokenizerFast, "distilbert": DistilBertTokenizerFast},
            **{each.__name__: each for each in (DistilBertTokenizer, DistilBertTokenizerFast)},
            **dict.fromkeys(BACKENDS, PreTrainedTokenizerFast),
        }
        folder, _ = resolve_directory(path, place)
        file = os.path.join(folder, TOKENIZER_CONFIG)
        named = read_json_object(file).get("tokenizer_class") if os.path.isfile(file) else None
        tokenizer_class = classes.get(str(named), classes[kind])
        return tokenizer_class.from_pretrained(path, *inputs, **options)
