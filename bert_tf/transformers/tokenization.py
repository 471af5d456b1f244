"""``BertTokenizer``, ``BertTokenizerFast`` and related classes of transformers.

They are based on the ``tokenizers`` package. The token ids equal those of this library's TensorFlow
tokenizer.
"""

import contextlib
import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import tokenizers
from tokenizers import AddedToken as AddedToken

from bert_tf.checkpoints import config_keys
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
from bert_tf.io.files import write_json
from bert_tf.io.messages import warn
from bert_tf.pipelines.vocabulary import load_vocabulary, save_vocabulary

from . import missing_attribute_error
from .configuration import AutoConfig, location_options, resolve_directory
from .encoding import (
    PADDINGS,
    TRUNCATIONS,
    BatchEncoding,
    Encoders,
    Options,
    apply_bert_rules,
    as_batch,
    as_list,
    check_strategy,
    copy_unbounded,
    is_one_text,
)

_NO_LIMIT = int(1e30)  # transformers' default if no file specifies a maximum length
# Roles of special tokens, and their default pieces.
_ROLES: Mapping[str, str] = {
    role: f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")
}
# Arguments and the corresponding attributes of the normalizer.
_NORMALIZATION: Mapping[str, str] = {
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# Maximum length attributes, and the number of special tokens that each leaves room for.
_NUM_SPECIAL_TOKENS = {"max_len": 0, "max_len_single_sentence": 2, "max_len_sentences_pair": 3}
# Keys of tokenizer_config.json that are arguments, in addition to tokens ("..._token").
_SETTINGS = (
    *("model_max_length", "padding_side", "truncation_side", "do_lower_case"),
    *("model_input_names", "split_special_tokens", "strip_accents", "tokenize_chinese_chars"),
)
# Keys of special tokens without a role, as lists or dicts, in files of transformers 4 and 5.
_EXTRA_TOKEN_KEYS = (
    *("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"),
)
_SIDES = ("right", "left")
# Options of save_pretrained that can be ignored.
_SAVE_OPTIONS = (
    *("legacy_format", "is_main_process", "safe_serialization", "max_shard_size", "token"),
)
_CLEANUP_REPLACEMENTS = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't")),
    *((" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


class PreTrainedTokenizerFast:
    """WordPiece tokenizer with padding, truncation, offsets and tensors.

    Args:
        vocab_file: Path to a ``vocab.txt``.
        tokenizer_file: Path to a ``tokenizer.json``.
        do_lower_case: Whether to lowercase texts and strip accents, for a ``vocab_file``.
        tokenizer_object: A ``tokenizers.Tokenizer``.
        model_max_length: Default maximum number of tokens per row.
        **options: ``padding_side``, ``truncation_side``, ``model_input_names``,
            ``split_special_tokens`` (whether special tokens in a text are split into pieces), and
            special tokens by role, such as ``mask_token``.

    Raises:
        ValueError: If an option is not supported, or the tokenizer does not use WordPiece.

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
    # Whether only the pieces of a tokenizer.json are used, with BERT's rules, as in transformers 5.
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
                    f"{type(self).__name__}: no vocabulary. Pass vocab_file or use from_pretrained."
                )
            pieces = load_vocabulary(os.fspath(vocab_file))
            tokenization = Tokenization(tuple(pieces), do_lower_case, BERT_RULES)
            tokenizer_object = build_tokenizer(tokenization.with_special_tokens(True))
        if not isinstance(tokenizer_object.model, tokenizers.models.WordPiece):
            raise ValueError(
                f"{tokenizer_file or 'tokenizer_object'}: expected a WordPiece tokenizer, got "
                f"{type(tokenizer_object.model).__name__}."
            )
        normalizer = tokenizer_object.normalizer
        for name, setting in _NORMALIZATION.items():
            if options.get(name) is not None:
                if not hasattr(normalizer, setting):
                    raise ValueError(f"{name}: the tokenizer's normalizer has no {setting}.")
                setattr(normalizer, setting, options[name])
        if options.get("never_split") or options.get("do_basic_tokenize") is False:
            raise ValueError(
                f"{type(self).__name__} does not support never_split or do_basic_tokenize=False. "
                "Use add_tokens for words that must not be split."
            )
        self.backend_tokenizer = tokenizer_object
        self.do_lower_case = do_lower_case
        self.model_max_length = model_max_length or options.get("max_len") or _NO_LIMIT
        truncation, padding = tokenizer_object.truncation or {}, tokenizer_object.padding or {}
        for name, file in (("padding_side", padding), ("truncation_side", truncation)):
            side = options.get(name) or file.get("direction", _SIDES[0])
            if side not in _SIDES:
                raise ValueError(f"{name}={side!r}: expected 'right' or 'left'.")
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
                raise ValueError(f"unk_token={unknown!r}: expected a piece of the vocabulary.")
            tokenizer_object.model.unk_token = unknown
            tokenizer_object.post_processor = tokenizers.processors.BertProcessing(
                (self.sep_token, self.sep_token_id), (self.cls_token, self.cls_token_id)
            )

    # === Loading and saving ===

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """Loads a tokenizer from a directory, a ``vocab.txt`` or the hub."""
        path, options = resolve_directory(pretrained_model_name_or_path, options)
        options.pop("config", None)
        if options.get("do_lower_case") is None:
            options.pop("do_lower_case", None)
        if os.path.isfile(path):
            return cls(path, **options)
        config = config_keys.read(os.path.join(path, TOKENIZER_CONFIG))
        if "added_tokens_decoder" not in config:
            config |= config_keys.read(os.path.join(path, SPECIAL_TOKENS_MAP))
        settings = {
            key: _token_content(value)
            for key, value in config.items()
            if value is not None
            and (key in (*_SETTINGS, *_EXTRA_TOKEN_KEYS) or key.endswith("_token"))
        }
        if os.path.isfile(file := os.path.join(path, TOKENIZER)):
            settings["tokenizer_object"] = tokenizers.Tokenizer.from_file(file)
            if cls._uses_bert_rules:
                apply_bert_rules(settings["tokenizer_object"], {**settings, **options})
        else:
            tokenization, notes = read_tokenization(path, options.get("do_lower_case"))
            if tokenization is None:
                remedy = "Pass the path of a tokenizer (for a pipeline, tokenizer=)."
                raise ValueError(" ".join([*notes, remedy]))
            warn(notes)
            settings["tokenizer_object"] = build_tokenizer(tokenization)
            settings["do_lower_case"] = tokenization.do_lower_case
        return cls(**{**settings, "name_or_path": path, **options})

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], **options: Any
    ) -> tuple[str, ...]:
        """Writes ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json``."""
        folder, name = os.fspath(save_directory), type(self).__name__
        for option, value in options.items():
            if option not in _SAVE_OPTIONS and value:
                raise ValueError(
                    f"{name}.save_pretrained does not support {option}. Upload the directory with "
                    "huggingface_hub, or rename its files."
                )
        os.makedirs(folder, exist_ok=True)
        config, file = (os.path.join(folder, name) for name in (TOKENIZER_CONFIG, TOKENIZER))
        values = {
            "tokenizer_class": name.removesuffix("Fast" if self._uses_bert_rules else ""),
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
        """Writes ``vocab.txt`` without added tokens; returns its path."""
        name = f"{filename_prefix}-{VOCABULARY}" if filename_prefix else VOCABULARY
        path = os.path.join(save_directory, name)
        vocabulary = self.backend_tokenizer.get_vocab(with_added_tokens=False)
        save_vocabulary(path, sorted(vocabulary, key=vocabulary.__getitem__))
        return (path,)

    # === Tokenization ===

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        *,  # text_target and text_pair_target of transformers are not supported
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
        """Tokenizes a text, a list of texts, or pairs of them.

        Args:
            text: String, or list of strings or pairs.
            text_pair: Second text, or list of second texts.
            add_special_tokens: Whether to add [CLS] and [SEP].
            padding: True or ``"longest"`` to pad to the longest row, or ``"max_length"`` to pad to
                ``max_length``.
            truncation: True or ``"longest_first"``, ``"only_first"``, or ``"only_second"``.
            max_length: Maximum number of tokens per row; by default ``model_max_length``.
            stride: Number of tokens that an overflow row shares with the previous row.
            is_split_into_words: Whether texts are lists of words.
            pad_to_multiple_of: Multiple to which lengths are rounded up.
            padding_side: ``"right"`` or ``"left"``; defaults to the attribute of the same name.
            return_tensors: ``"tf"``, ``"np"``, or ``None`` for lists.
            return_token_type_ids: Whether to return token types; by default true if they are in
                ``model_input_names``.
            return_attention_mask: Whether to return the mask, 1 for tokens and 0 for padding.
            return_overflowing_tokens: Whether to return truncated tokens as further rows.
            return_special_tokens_mask: Whether to return the mask of special tokens.
            return_offsets_mapping: Whether to return the offsets of tokens in the text.
            return_length: Whether to return the lengths of rows.
            pad_to_max_length: The older form of ``padding``.
            verbose: Ignored.
            split_special_tokens: Whether special tokens in a text are split into pieces; by default
                the attribute of this name.
            truncation_strategy: The older form of ``truncation``.
            return_attention_masks: A misspelling of ``return_attention_mask``; causes a warning.

        Returns:
            ``BatchEncoding`` of the rows.
        """
        batch = as_batch(text, text_pair, is_split_into_words)
        if max_length is not None and padding is False and truncation is None:
            truncation = True
        truncation = truncation_strategy if truncation is None else truncation
        if pad_to_max_length and padding is False:
            padding = "longest" if max_length is None else "max_length"
        if return_attention_masks is not None:
            warn(["return_attention_masks is ignored. Pass return_attention_mask."])
        limit = self.model_max_length if max_length is None else max_length
        multiple, side = pad_to_multiple_of, padding_side or self.padding_side
        cut = self._truncation(truncation, limit, stride)
        if cut and multiple and padding and limit % multiple:
            raise ValueError(
                f"max_length={limit}: expected a multiple of pad_to_multiple_of={multiple}."
            )
        splits = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        encoder = self._encoders.find(
            self.backend_tokenizer, cut, self._padding(padding, limit, multiple, side), splits
        )
        rows = encoder.encode_batch(
            batch, add_special_tokens=add_special_tokens, is_pretokenized=is_split_into_words
        )
        if return_overflowing_tokens:
            samples = [index for index, row in enumerate(rows) for _ in (row, *row.overflowing)]
            rows = [window for row in rows for window in (row, *row.overflowing)]
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
            lists = {
                name: column[0] for name, column in data.items() if isinstance(column[0], list)
            }
            data |= lists  # lengths stay in a list, as in transformers
        return BatchEncoding(data, rows, return_tensors)

    def encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """Tokenizes a text or a pair; lists contain tokens or ids, unless they are split words."""
        texts = [text for text in (text, text_pair) if text is not None]
        are_lists = all(isinstance(text, list | tuple) for text in texts)
        if not texts or not are_lists or options.get("is_split_into_words"):
            return self(text, text_pair, **options)
        tokens = [
            [item if isinstance(item, str) else self.convert_ids_to_tokens(item) for item in items]
            for items in texts
        ]
        model = tokenizers.models.WordLevel(self.get_vocab(), self._roles["unk"])
        token_tokenizer = copy.copy(self)  # its words are tokens
        token_tokenizer._encoders = Encoders()
        token_tokenizer.backend_tokenizer = tokenizers.Tokenizer(model)
        token_tokenizer.backend_tokenizer.post_processor = self.backend_tokenizer.post_processor
        pair = tokens[1] if len(tokens) > 1 else None
        return token_tokenizer(tokens[0], pair, **{**options, "is_split_into_words": True})

    prepare_for_model = encode_plus

    def batch_encode_plus(self, batch_text_or_text_pairs: Any, **options: Any) -> BatchEncoding:
        """Tokenizes a list of texts or pairs."""
        return self(batch_text_or_text_pairs, **options)

    def encode(self, text: Any, text_pair: Any = None, **options: Any) -> Any:
        """Returns the ids of a text or a pair."""
        return self.encode_plus(text, text_pair, **options)["input_ids"]

    def tokenize(
        self, text: str, pair: str | None = None, add_special_tokens: bool = False, **options: Any
    ) -> list[str]:
        """Returns the tokens of a text or a pair."""
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
        """Pads rows, given as a dict of lists or a list of dicts."""
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
        width = widths[check_strategy("padding", padding, PADDINGS)]
        if pad_to_multiple_of:
            width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
        paddings = {
            "input_ids": self.pad_token_id,
            "token_type_ids": 0,
            "attention_mask": 0,
            "special_tokens_mask": 1,
        }
        pads_right = (padding_side or self.padding_side) == "right"
        for key in paddings.keys() & data.keys():
            for index, values in enumerate(data[key]):
                missing = [paddings[key]] * (width - len(values))
                data[key][index] = [*values, *missing] if pads_right else [*missing, *values]
        if is_one_row:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _truncation(self, truncation: Any, limit: int, stride: int) -> Options:
        """Returns the arguments of ``enable_truncation``."""
        strategy = check_strategy("truncation", truncation, TRUNCATIONS)
        if strategy == "do_not_truncate" or limit >= _NO_LIMIT:
            return None
        direction = self.truncation_side
        return {"max_length": limit, "stride": stride, "strategy": strategy, "direction": direction}

    def _padding(self, padding: Any, limit: int, multiple: int | None, side: str) -> Options:
        """Returns the arguments of ``enable_padding``."""
        strategy = check_strategy("padding", padding, PADDINGS)
        if strategy == "do_not_pad":
            return None
        return {
            "direction": side,
            "pad_id": self.pad_token_id,
            "pad_token": self._roles["pad"],
            "length": limit if strategy == "max_length" and limit < _NO_LIMIT else None,
            "pad_to_multiple_of": multiple,
        }

    # === Detokenization ===

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **options: Any,
    ) -> str:
        """Converts ids to a text."""
        ids = as_list(token_ids)
        ids = ids if isinstance(ids, list) else [ids]
        text: str = self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text if clean_up_tokenization_spaces is False else self.clean_up_tokenization(text)

    @staticmethod
    def clean_up_tokenization(out_string: str) -> str:
        """Removes spaces before punctuation and contractions."""
        for spaced, joined in _CLEANUP_REPLACEMENTS:
            out_string = out_string.replace(spaced, joined)
        return out_string

    def batch_decode(self, sequences: Any, **options: Any) -> list[str]:
        """Converts rows of ids to texts."""
        return [self.decode(ids, **options) for ids in sequences]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Converts a token or a list of tokens to ids; unknown tokens have the id of [UNK]."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        token_id = self.backend_tokenizer.token_to_id(tokens)
        return self.unk_token_id if token_id is None else token_id

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Converts an id or a list of ids to tokens."""
        ids = as_list(ids)
        if not isinstance(ids, list):
            return self.backend_tokenizer.id_to_token(ids)
        special = set(self.all_special_ids) if skip_special_tokens else set()
        return [self.backend_tokenizer.id_to_token(i) for i in ids if i not in special]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Converts tokens to a text."""
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
        """Special tokens with a role, followed by the others."""
        return [*self._roles.values(), *self.additional_special_tokens]

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of the special tokens in the vocabulary."""
        vocabulary = self.get_vocab()
        return [vocabulary[token] for token in self.all_special_tokens if token in vocabulary]

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """Special tokens by role."""
        tokens: dict[str, Any] = {f"{role}_token": token for role, token in self._roles.items()}
        if self.additional_special_tokens:
            tokens["additional_special_tokens"] = self.additional_special_tokens
        return tokens

    def build_inputs_with_special_tokens(
        self, token_ids_0: Sequence[int], token_ids_1: Sequence[int] | None = None
    ) -> list[int]:
        """Returns [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
        first = [self.cls_token_id, *token_ids_0, self.sep_token_id]
        return first if token_ids_1 is None else [*first, *token_ids_1, self.sep_token_id]

    def create_token_type_ids_from_sequences(
        self, token_ids_0: Sequence[int], token_ids_1: Sequence[int] | None = None
    ) -> list[int]:
        """Returns 0 for [CLS] A [SEP] and 1 for B [SEP]."""
        first = [0] * (len(token_ids_0) + 2)
        return first if token_ids_1 is None else [*first, *[1] * (len(token_ids_1) + 1)]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Returns the number of special tokens in a row."""
        return 3 if pair else 2

    def get_special_tokens_mask(
        self,
        token_ids_0: Sequence[int],
        token_ids_1: Sequence[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """Returns 1 for special tokens and 0 for others."""
        ids = token_ids_0
        if not already_has_special_tokens:
            ids = self.build_inputs_with_special_tokens(token_ids_0, token_ids_1)
        special = set(self.all_special_ids)
        return [int(token_id in special) for token_id in ids]

    # === Vocabulary ===

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Adds tokens at the end of the vocabulary; returns the number of new tokens.

        Resize the model with ``resize_token_embeddings(len(tokenizer))``.
        """
        is_single = isinstance(new_tokens, str | AddedToken)
        tokens = [new_tokens] if is_single else list(new_tokens)
        self._encoders.clear()
        backend = self.backend_tokenizer
        return int((backend.add_special_tokens if special_tokens else backend.add_tokens)(tokens))

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
        """Returns the ids by token, including added tokens."""
        return dict(self.backend_tokenizer.get_vocab())

    vocab = property(get_vocab)

    @property
    def ids_to_tokens(self) -> dict[int, str]:
        """Tokens by id."""
        return {token_id: token for token, token_id in self.get_vocab().items()}

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens by id."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    @property
    def vocab_size(self) -> int:
        """Number of pieces without added tokens."""
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=False))

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(name_or_path={self.name_or_path!r}, "
            f"vocab_size={self.vocab_size}, model_max_length={self.model_max_length})"
        )


def _special_tokens(options: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """Returns the special tokens of a constructor's options, with defaults for ``roles``."""
    tokens: dict[str, Any] = {f"{role}_token": token for role, token in roles.items()}
    additional: list[Any] = []
    for name, token in options.items():
        if name in _EXTRA_TOKEN_KEYS:
            additional += token.values() if isinstance(token, Mapping) else token or ()
        elif name.removesuffix("_token") in _ROLES and name.endswith("_token"):
            tokens[name] = token
        elif name.endswith("_token") and isinstance(token, str | AddedToken):
            additional.append(token)
    for name, token in tokens.items():
        if not isinstance(token, str | AddedToken):
            raise ValueError(f"{name}={token!r}: expected a string.")
    return {**tokens, "additional_special_tokens": additional}


def _token_content(value: Any) -> Any:
    """Returns a value of ``tokenizer_config.json``, where tokens can be dicts."""
    if isinstance(value, list):
        return [_token_content(item) for item in value]
    if isinstance(value, Mapping) and "content" not in value:  # a dict of tokens
        return {name: _token_content(token) for name, token in value.items()}
    return value["content"] if isinstance(value, Mapping) else value


PreTrainedTokenizerBase = PreTrainedTokenizerFast


class BertTokenizerFast(PreTrainedTokenizerFast):
    """BERT's tokenizer, which ignores all rules in a ``tokenizer.json``."""

    model_input_names: tuple[str, ...] = ("input_ids", "token_type_ids", "attention_mask")
    _uses_bert_rules = True


class BertTokenizer(BertTokenizerFast):
    """Alias of ``BertTokenizerFast``, with the same ids."""


class DistilBertTokenizerFast(BertTokenizerFast):
    """DistilBERT's tokenizer, without token types."""

    model_input_names = ("input_ids", "attention_mask")


class DistilBertTokenizer(DistilBertTokenizerFast):
    """Alias of ``DistilBertTokenizerFast``, with the same ids."""


class AutoTokenizer:
    """Factory of tokenizers; ``from_pretrained`` selects the class by the files."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """Loads a tokenizer from a directory or the hub."""
        path, model_type = pretrained_model_name_or_path, "bert"
        location = location_options(options)
        with contextlib.suppress(ValueError):  # a directory with only a tokenizer has no config
            model_type = AutoConfig.from_pretrained(path, **location).model_type
        classes: dict[str, type[PreTrainedTokenizerFast]] = {
            **{"bert": BertTokenizerFast, "distilbert": DistilBertTokenizerFast},
            **{c.__name__: c for c in (DistilBertTokenizer, DistilBertTokenizerFast)},
            **dict.fromkeys(BACKENDS, PreTrainedTokenizerFast),
        }
        folder, _ = resolve_directory(path, location)
        name = config_keys.read(os.path.join(folder, TOKENIZER_CONFIG)).get("tokenizer_class")
        tokenizer_class = classes.get(str(name), classes[model_type])
        return tokenizer_class.from_pretrained(path, *inputs, **options)
