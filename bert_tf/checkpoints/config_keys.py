"""Keys in the settings files of other libraries, and how bert_tf handles them.

Each key is supported, has no effect on ids, vectors, logits and labels, or causes a warning or an
error if its value is not neutral. ``null`` is the same as a missing key, and an unknown key causes
a warning. ``A.B`` is the key B of the object A.

``tests/checkpoints/data/config_keys.json`` contains the keys that the libraries declare and read.
docs/reference/compatibility.md is generated from this module.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config import ONLY_AS_PUBLISHED, BertConfig
from bert_tf.io.files import read_json_object
from bert_tf.io.messages import listed, quote

SUPPORTED, NO_EFFECT, WARNED, REJECTED = "supported", "no effect", "warned", "rejected"


class Answer(NamedTuple):
    """Status of a key.

    Attributes:
        status: ``SUPPORTED``, ``NO_EFFECT``, ``WARNED`` or ``REJECTED``.
        reason: Limit of a supported key, reason for having no effect, or consequence of other
            values.
        neutral_values: Values that cause neither a warning nor an error.
    """

    status: str
    reason: str
    neutral_values: tuple[Any, ...] = ()


def _no_effect(reason: str) -> Answer:
    return Answer(NO_EFFECT, reason)


def _warned(reason: str, *neutral_values: Any) -> Answer:
    return Answer(WARNED, reason, neutral_values)


def _rejected(reason: str, *neutral_values: Any) -> Answer:
    return Answer(REJECTED, reason, neutral_values)


# In the tables below, keys with the same answer share a string.
_SUPPORTED = Answer(SUPPORTED, "has the same effect as in that library")
_CALLER_LENGTH = _no_effect("the caller sets the length, and padding is masked")
_LOAD_DTYPE = _no_effect("weights keep their stored dtype; load sets the compute dtype")
_SAME_RESULT = _no_effect("selects an implementation with the same result")
_DECODING = _no_effect("only affects decoding")

# === transformers: config.json ===

_CONFIG = {
    "architectures model_type id2label label2id problem_type tokenizer_class "
    "sentence_transformers.activation_fn sbert_ce_default_activation_function": _SUPPORTED,
    "tie_word_embeddings": Answer(SUPPORTED, "the decoder must equal the embeddings"),
    "transformers_weights": Answer(SUPPORTED, "name of the weights file, without a directory"),
    "sentence_transformers.version": _no_effect("records the release that wrote the file"),
    "num_labels _num_labels": _no_effect("the tensors determine the number of classes"),
    "output_attentions output_hidden_states return_dict use_return_dict use_cache output_past "
    "torchscript": _no_effect("only selects additional outputs and their format"),
    "chunk_size_feed_forward gradient_checkpointing attn_implementation _attn_implementation "
    "_attn_implementation_internal _attn_implementation_autoset _experts_implementation "
    "_experts_implementation_internal experts_implementation use_bfloat16 "
    "tf_legacy_loss": _SAME_RESULT,
    "dtype torch_dtype": _LOAD_DTYPE,
    "pad_token_id": _no_effect("padding is masked, with the id of the tokenizer's [PAD]"),
    "transformers_version _name_or_path name_or_path _commit_hash name language license "
    "finetuning_task model_name": _no_effect("records the origin of the model"),
    "bos_token_id eos_token_id sep_token_id decoder_start_token_id prefix "
    "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens "
    "diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty "
    "forced_bos_token_id forced_eos_token_id length_penalty max_length min_length "
    "no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups "
    "num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty "
    "return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p "
    "typical_p task_specific_params": _no_effect("no text is generated"),
    "cross_attention_hidden_size tie_encoder_decoder": _no_effect("only for encoder-decoders"),
    "function_to_apply": _warned(
        "pipelines of transformers apply this function to logits; bert_tf uses problem_type"
    ),
    "auto_map custom_pipelines": _warned("custom model code is not run"),
    "is_encoder_decoder": _rejected("encoder-decoder models are not supported", False),
    "quantization_config": _rejected("quantized weights are not supported; dequantize first"),
    "per_layer_config": _rejected("layers of different sizes are not supported"),
    "pruned_heads": _rejected("pruned heads are not supported", {}, []),
}
_BERT = {
    # ``BertConfig.from_dict`` also rejects these.
    **{
        key: _rejected("only the standard BERT architecture is supported", published)
        for key, published in ONLY_AS_PUBLISHED.items()
    },
    **_CONFIG,
    **{field.name: _SUPPORTED for field in dataclasses.fields(BertConfig)},
    "classifier_dropout": _SUPPORTED,
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
    "pooler_size_per_head pooler_type": _no_effect(
        "part of Google's releases, but not read by any code"
    ),
}
# Fields of ``BertConfig`` by DistilBERT's keys.
DISTILBERT_FIELDS = {
    "dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    **{key: key for key in ("vocab_size", "max_position_embeddings", "initializer_range")},
}
_DISTILBERT = {
    **_CONFIG,
    **dict.fromkeys(DISTILBERT_FIELDS, _SUPPORTED),
    "hidden_size num_attention_heads num_hidden_layers": Answer(
        SUPPORTED, "take precedence over dim, n_heads and n_layers"
    ),
    "seq_classif_dropout": _SUPPORTED,
    "qa_dropout": _no_effect("only for training; span heads have no dropout here"),
    "sinusoidal_pos_embds": _no_effect("the position embeddings are stored"),
    "tie_weights_": _no_effect("the decoder must equal the embeddings"),
}

# === sentence-transformers ===

_MODULES = {
    "type path": _SUPPORTED,
    "idx name": _no_effect("modules run in the order of the list"),
    "kwargs": _warned("arguments of encode are not passed to the module", [], {}),
}
_TRANSFORMER = {
    "max_seq_length tokenizer_args.model_max_length processor_kwargs.model_max_length "
    "processing_kwargs.text.max_length processing_kwargs.common.max_length do_lower_case "
    "transformer_task": _SUPPORTED,
    "config_args config_kwargs": Answer(SUPPORTED, "override the keys of config.json"),
    "modality_config module_output_name": _no_effect("only for inputs other than text"),
    "unpad_inputs": _SAME_RESULT,
    "tokenizer_args.max_length processor_kwargs.max_length": _no_effect(
        "model_max_length sets the maximum length"
    ),
    "processing_kwargs.text.truncation processing_kwargs.common.truncation "
    "processing_kwargs.text.padding processing_kwargs.common.padding "
    "processing_kwargs.text.return_tensors processing_kwargs.common.return_tensors": _no_effect(
        "long texts are truncated, and padding is masked"
    ),
    "model_args model_kwargs": _no_effect("load sets the dtype; TensorFlow selects the device"),
    "query_length document_length": _warned(
        "queries and documents are truncated to the tokenizer's maximum length"
    ),
    "query_expansion": _warned("queries are not padded with [MASK]"),
    "tokenizer_name_or_path": _warned("the tokenizer in this directory is used"),
}
_SENTENCES = {
    "prompts truncate_dim activation_fn model_type": _SUPPORTED,
    "default_prompt_name": Answer(SUPPORTED, "the prompt of a role without its own prompt"),
    "similarity_fn_name": Answer(
        SUPPORTED, "cosine; other functions cause a warning unless vectors are normalized"
    ),
    "__version__": _no_effect("records the releases that wrote the file"),
    "requirements": _no_effect("lists required packages"),
    "keep_in_fp32_modules": _no_effect("only for half precision"),
}
# Boolean keys of older 1_Pooling/config.json files.
POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
_MODULE = {
    **dict.fromkeys(POOLING_MODES, _SUPPORTED),
    "pooling_mode include_prompt out_features activation_function bias use_residual": _SUPPORTED,
    "module_input_name module_output_name": Answer(SUPPORTED, "only sentence_embedding"),
    "embedding_dimension word_embedding_dimension in_features": _no_effect(
        "the tensors determine the dimension"
    ),
}

# === transformers' tokenizers ===

_TOKENIZER_CONFIG = {
    "model_max_length max_len model_input_names split_special_tokens added_tokens_decoder "
    "extra_special_tokens additional_special_tokens model_specific_special_tokens": _SUPPORTED,
    "tokenizer_class": Answer(SUPPORTED, "selects these settings or those of tokenizer.json"),
    "do_lower_case strip_accents tokenize_chinese_chars": Answer(
        SUPPORTED, "only for BERT tokenizer classes; other classes use tokenizer.json"
    ),
    "unk_token sep_token pad_token cls_token mask_token bos_token eos_token": Answer(
        SUPPORTED,
        "special tokens, like all keys that end in _token; the first five must be BERT's",
    ),
    "__type": _no_effect("the type of a serialized token"),
    "do_basic_tokenize never_split tokenize_unused errors keep_accents": _no_effect(
        "not read by transformers 5"
    ),
    "clean_up_tokenization_spaces": _DECODING,
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": _DECODING,
    "chat_template chat_control_tokens response_schema response_template": _no_effect(
        "only for chat models"
    ),
    "add_bos_token add_eos_token add_prefix_space": _no_effect("only for other models"),
    "padding pad_token_type_id pad_to_multiple_of max_length truncation truncation_strategy "
    "stride return_tensors padding_strategy": _CALLER_LENGTH,
    "backend name_or_path is_local local_files_only files_loaded special_tokens_map_file "
    "tokenizer_file vocab_file full_tokenizer_file processor_class device_map init_inputs "
    "verbose slow_tokenizer_class from_slow use_fast trust_remote_code _commit_hash "
    "transformers_version tokenizer_type fix_mistral_regex": _no_effect(
        "records the origin of the tokenizer, or how it is loaded"
    ),
    "truncation_side": _warned("long texts are truncated on the right", "right"),
    "padding_side": _warned("padding is added on the right", "right"),
    "auto_map": _warned("custom tokenizer code is not run"),
    "fast_tokenizer_files": _rejected("rename the file for your release to tokenizer.json"),
    "word_tokenizer_type": _rejected("only BERT's basic tokenizer is supported", "basic"),
    "subword_tokenizer_type": _rejected("only WordPiece is supported", "wordpiece"),
}
_SHARED_TOKENIZER = {
    "added_tokens": _SUPPORTED,
    "version": _no_effect("the file format has only one version"),
    "decoder": _DECODING,
    "truncation.direction": _warned("long texts are truncated on the right", "Right"),
    "padding.direction": _warned("padding is added on the right", "Right"),
    "truncation.max_length truncation.strategy truncation.stride padding.strategy "
    "padding.pad_to_multiple_of padding.pad_id padding.pad_type_id "
    "padding.pad_token": _CALLER_LENGTH,
}
_TOKENIZER = {
    **_SHARED_TOKENIZER,
    "model.type model.vocab model.max_input_chars_per_word normalizer.handle_chinese_chars "
    "normalizer.strip_accents normalizer.lowercase": _SUPPORTED,
    "post_processor": Answer(SUPPORTED, "only BERT's template, with or without token types"),
    "model.unk_token": _rejected("only BERT's token is supported", "[UNK]"),
    "model.continuing_subword_prefix": _rejected("only BERT's prefix is supported", "##"),
    "normalizer.type": _rejected("only BERT's normalizer is supported", "BertNormalizer"),
    "normalizer.clean_text": _rejected("control characters are always removed", True),
    "pre_tokenizer.type": _rejected("only BERT's pre-tokenizer is supported", "BertPreTokenizer"),
}
_TOKENIZER_OF_BERT = {
    **_SHARED_TOKENIZER,
    "model": Answer(SUPPORTED, "only the vocabulary"),
    "normalizer pre_tokenizer post_processor": _no_effect(
        "class BertTokenizer creates its own from tokenizer_config.json"
    ),
}

# === setfit, peft ===

_SETFIT = {
    "labels normalize_embeddings span_context spacy_model": _warned(
        "the classifier in model_head.pkl, which uses this key, is not read"
    )
}
_ADAPTER = {"peft_type": _rejected("merge the adapter into the weights first")}

# === KerasHub: the object ``config`` in each file ===

KERAS_KEYS = {
    **dict.fromkeys(("name", "trainable", "config_file"), _no_effect("only for the Keras object")),
    "dtype": _LOAD_DTYPE,
}
# Fields of ``BertConfig`` by KerasHub's keys.
KERAS_HUB_SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_KERAS_HUB_BACKBONE = {
    **KERAS_KEYS,
    **dict.fromkeys(KERAS_HUB_SIZES, _SUPPORTED),
    "dropout": _SUPPORTED,
}
_KERAS_HUB_TOKENIZER = {
    **KERAS_KEYS,
    "lowercase strip_accents": Answer(
        SUPPORTED, "both or neither; lowercase without strip_accents causes a warning"
    ),
    "vocabulary": _no_effect("the vocabulary is read from assets/tokenizer"),
    "special_tokens": _no_effect("only for special_tokens_in_strings"),
    "split split_on_cjk": _rejected("only BERT's word splitting is supported", True),
    "suffix_indicator": _rejected("only BERT's prefix is supported", "##"),
    "oov_token": _rejected("only BERT's token is supported", "[UNK]"),
    "special_tokens_in_strings": _rejected("special tokens in texts are split", False),
    "sequence_length": _rejected("padding before packing is not supported"),
}
_KERAS_HUB_PREPROCESSOR = {
    **KERAS_KEYS,
    "sequence_length": _SUPPORTED,
    "tokenizer": Answer(SUPPORTED, "must be the same as in tokenizer.json"),
    "mask_selection_rate mask_selection_length mask_token_rate random_token_rate": _no_effect(
        "only for training; the flags of pretrain set the masking"
    ),
    "truncate": _warned("long pairs are truncated as with round_robin", "round_robin"),
}
_KERAS_HUB_TASK = {
    **KERAS_KEYS,
    "num_classes dropout": _SUPPORTED,
    "preprocessor": Answer(SUPPORTED, "takes precedence over preprocessor.json"),
    "backbone": _no_effect("the same as in config.json"),
    "activation": _warned("logits are returned without it", "linear"),
}

#: Answers by file and key.
FILES: Mapping[str, Mapping[str, Answer]] = {
    file: {key: answer for keys, answer in table.items() for key in keys.split()}
    for file, table in {
        "config.json": _BERT,
        "config.json of a DistilBERT": _DISTILBERT,
        "modules.json": _MODULES,
        "sentence_bert_config.json": _TRANSFORMER,
        "config_sentence_transformers.json": _SENTENCES,
        "N_*/config.json": _MODULE,
        "tokenizer_config.json": _TOKENIZER_CONFIG,
        "tokenizer.json": _TOKENIZER,
        "tokenizer.json of class BertTokenizer": _TOKENIZER_OF_BERT,
        "config_setfit.json": _SETFIT,
        "adapter_config.json": _ADAPTER,
        "config.json of KerasHub": _KERAS_HUB_BACKBONE,
        "tokenizer.json of KerasHub": _KERAS_HUB_TOKENIZER,
        "preprocessor.json of KerasHub": _KERAS_HUB_PREPROCESSOR,
        "task.json of KerasHub": _KERAS_HUB_TASK,
    }.items()
}


# === The values ===

Check = tuple[Callable[[Any], bool], str]  # a predicate, and a description of valid values
IS_SWITCH: Check = (lambda value: isinstance(value, bool), "true or false")
IS_OBJECT: Check = (lambda value: isinstance(value, Mapping), "an object")
IS_POSITIVE: Check = (lambda value: type(value) is int and value > 0, "a positive integer")


def check_value(value: Any, check: Check, name: str) -> Any:
    """Returns a valid value of an untrusted file; ``name`` is its file and key, for errors."""
    is_valid, expected = check
    if not is_valid(value):
        raise ValueError(f"{name}: expected {expected}, got {quote(value)}.")
    return value


def read(path: str) -> dict[str, Any]:
    """Reads the settings in a JSON file, ``{}`` if it does not exist."""
    return read_json_object(path) if tf.io.gfile.exists(path) else {}


def messages(file: str, values: Mapping[str, Any], source: str) -> Iterator[str]:
    """Yields the warnings about the keys of a settings file.

    Args:
        file: A key of ``FILES``.
        values: The settings.
        source: The path of the file, for messages.

    Raises:
        ValueError: If a key is rejected.
    """
    answers = FILES[file]
    parents = {key[:at] for key in answers for at, letter in enumerate(key) if letter == "."}
    flat = [(key, value) for key, value in _flat(values, parents) if value is not None]
    if unknown := [quote(key) for key, _ in flat if key not in answers]:
        yield f"{source}: unknown keys are ignored: {listed(unknown)}."
    for key, value in flat:
        answer = answers.get(key)
        if answer is None or value in answer.neutral_values:
            continue
        elif answer.status == WARNED:
            yield f"{source}: {key}={quote(value)}: {answer.reason}."
        elif answer.status == REJECTED:
            neutral = " or ".join(map(repr, answer.neutral_values))
            expected = f"expected {neutral}; " if neutral else ""
            raise ValueError(f"{source}: {key}={quote(value)}: {expected}{answer.reason}.")


def _flat(
    values: Mapping[str, Any], parents: set[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yields the keys and values of an object, and of the nested objects in ``parents``."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in parents and isinstance(value, Mapping):
            yield from _flat(value, parents, f"{name}.")
        else:
            yield name, value
