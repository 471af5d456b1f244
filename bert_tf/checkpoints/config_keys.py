"""Every key of other libraries' files of settings, and what this library makes of it.

A key has one answer: *honoured*; *without effect* on ids, vectors, logits and labels; *told*, where
what another value than the usual ones says is done otherwise here; or *refused*. Null means what a
key that is not there means. A key that is not in the table is told. ``A.B`` is the key B of the
object A.

``tests/checkpoints/data/config_keys.json`` has the keys that the peers declare and read, and their
versions; docs/reference/compatibility.md prints the table.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config import ONLY_AS_PUBLISHED, BertConfig
from bert_tf.io.files import read_json_object
from bert_tf.io.wording import listed, quote

SUPPORTED, NO_EFFECT, WARNED, REJECTED = "honoured", "without effect", "told", "refused"


class Answer(NamedTuple):
    """Answer to a key.

    ``reason`` is a limit of a supported key, the reason why a key has no effect, or the consequence
    of a key that is warned about or rejected. ``neutral_values`` have no consequence.
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


# In the tables below, keys that have the same answer stand in one text.
_SUPPORTED = Answer(SUPPORTED, "has the same effect as in that library")
_CALLER_LENGTH = _no_effect("the caller says how long rows are, and padding is masked")
_LOAD_DTYPE = _no_effect("weights are read as stored; load's dtype computes")
_SAME_RESULT = _no_effect("it says how the same is computed")
_DECODING = _no_effect("of ids that become text")

# === transformers: config.json ===

_CONFIG = {
    "architectures model_type id2label label2id problem_type tokenizer_class "
    "sentence_transformers.activation_fn sbert_ce_default_activation_function": _SUPPORTED,
    "tie_word_embeddings": Answer(SUPPORTED, "the decoder has to equal the embeddings"),
    "transformers_weights": Answer(SUPPORTED, "the file that has the weights, by its plain name"),
    "sentence_transformers.version": _no_effect("a note of the release that wrote it"),
    "num_labels _num_labels": _no_effect("the tensors have the number of classes"),
    "output_attentions output_hidden_states return_dict use_return_dict use_cache output_past "
    "torchscript": _no_effect("it says what else is returned, and in which form"),
    "chunk_size_feed_forward gradient_checkpointing attn_implementation _attn_implementation "
    "_attn_implementation_internal _attn_implementation_autoset _experts_implementation "
    "_experts_implementation_internal experts_implementation use_bfloat16 "
    "tf_legacy_loss": _SAME_RESULT,
    "dtype torch_dtype": _LOAD_DTYPE,
    "pad_token_id": _no_effect("padding is masked; its id is that of the tokenizer's [PAD]"),
    "transformers_version _name_or_path name_or_path _commit_hash name language license "
    "finetuning_task model_name": _no_effect("a note of where the model comes from"),
    "bos_token_id eos_token_id sep_token_id decoder_start_token_id prefix "
    "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens "
    "diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty "
    "forced_bos_token_id forced_eos_token_id length_penalty max_length min_length "
    "no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups "
    "num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty "
    "return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p "
    "typical_p task_specific_params": _no_effect("no text is generated"),
    "cross_attention_hidden_size tie_encoder_decoder": _no_effect("of a pair of models alone"),
    "function_to_apply": _warned(
        "transformers' pipelines apply it to a classifier's logits, and here problem_type says "
        "what is applied"
    ),
    "auto_map custom_pipelines": _warned(
        "code of the model's own is not run: BERT as published is computed"
    ),
    "is_encoder_decoder": _rejected("one half of a pair of models cannot be computed", False),
    "quantization_config": _rejected("save the model dequantised: quantised weights are not read"),
    "per_layer_config": _rejected("layers of different sizes cannot be built"),
    "pruned_heads": _rejected("heads that were cut out cannot be left out here", {}, []),
}
_BERT = {
    # ``BertConfig.from_dict`` refuses these, of Google's files, too.
    **{
        key: _rejected("only BERT as published can be built", published)
        for key, published in ONLY_AS_PUBLISHED.items()
    },
    **_CONFIG,
    **{field.name: _SUPPORTED for field in dataclasses.fields(BertConfig)},
    "classifier_dropout": _SUPPORTED,
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
    "pooler_size_per_head pooler_type": _no_effect(
        "Google's releases have it, and no code reads it"
    ),
}
# By DistilBERT's names, the fields of ``BertConfig``.
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
        SUPPORTED, "a size of the encoder, before the shorter names"
    ),
    "seq_classif_dropout": _SUPPORTED,
    "qa_dropout": _no_effect("of training alone: no dropout is in front of a span head"),
    "sinusoidal_pos_embds": _no_effect("the table of positions is stored"),
    "tie_weights_": _no_effect("the decoder has to equal the embeddings"),
}

# === sentence-transformers ===

_MODULES = {
    "type path": _SUPPORTED,
    "idx name": _no_effect("modules are run in the list's order"),
    "kwargs": _warned("arguments of encode are not handed to the module", [], {}),
}
_TRANSFORMER = {
    "max_seq_length tokenizer_args.model_max_length processor_kwargs.model_max_length "
    "processing_kwargs.text.max_length processing_kwargs.common.max_length do_lower_case "
    "transformer_task": _SUPPORTED,
    "config_args config_kwargs": Answer(SUPPORTED, "keys that go before those of config.json"),
    "modality_config module_output_name": _no_effect("texts have one form"),
    "unpad_inputs": _SAME_RESULT,
    "tokenizer_args.max_length processor_kwargs.max_length": _no_effect(
        "the most tokens are those of model_max_length there"
    ),
    "processing_kwargs.text.truncation processing_kwargs.common.truncation "
    "processing_kwargs.text.padding processing_kwargs.common.padding "
    "processing_kwargs.text.return_tensors processing_kwargs.common.return_tensors": _no_effect(
        "long texts are cut, and padding is masked"
    ),
    "model_args model_kwargs": _no_effect("load's dtype and the machine's devices compute"),
    "query_length document_length": _warned(
        "queries and documents are cut to one length, the tokenizer's"
    ),
    "query_expansion": _warned("queries are not filled up with [MASK]"),
    "tokenizer_name_or_path": _warned("the tokenizer in this directory is taken"),
}
_SENTENCES = {
    "prompts truncate_dim activation_fn model_type": _SUPPORTED,
    "default_prompt_name": Answer(SUPPORTED, "where the document has no prompt, this one"),
    "similarity_fn_name": Answer(
        SUPPORTED, "cosines: another one is told unless vectors have length 1"
    ),
    "__version__": _no_effect("a note of the releases that wrote it"),
    "requirements": _no_effect("a condition on packages"),
    "keep_in_fp32_modules": _no_effect("of half precision alone"),
}
# The modes in the older form of 1_Pooling/config.json, true or false each.
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
    "module_input_name module_output_name": Answer(SUPPORTED, "only whole vectors are changed"),
    "embedding_dimension word_embedding_dimension in_features": _no_effect("the tensors say it"),
}

# === transformers' tokenizers ===

_TOKENIZER_CONFIG = {
    "model_max_length max_len model_input_names split_special_tokens added_tokens_decoder "
    "extra_special_tokens additional_special_tokens model_specific_special_tokens": _SUPPORTED,
    "tokenizer_class": Answer(SUPPORTED, "whose settings count, these or tokenizer.json's"),
    "do_lower_case strip_accents tokenize_chinese_chars": Answer(
        SUPPORTED, "how a BERT's tokenizer reads text; tokenizer.json says it of another class"
    ),
    "unk_token sep_token pad_token cls_token mask_token bos_token eos_token": Answer(
        SUPPORTED,
        "special tokens, as all keys that end so; the first five have BERT's names or are refused",
    ),
    "__type": _no_effect("of a token that is spelled out"),
    "do_basic_tokenize never_split tokenize_unused errors keep_accents": _no_effect(
        "transformers 5 reads no such key"
    ),
    "clean_up_tokenization_spaces": _DECODING,
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": _DECODING,
    "chat_template chat_control_tokens response_schema response_template": _no_effect(
        "of chats alone"
    ),
    "add_bos_token add_eos_token add_prefix_space": _no_effect("of other models alone"),
    "padding pad_token_type_id pad_to_multiple_of max_length truncation truncation_strategy "
    "stride return_tensors padding_strategy": _CALLER_LENGTH,
    "backend name_or_path is_local local_files_only files_loaded special_tokens_map_file "
    "tokenizer_file vocab_file full_tokenizer_file processor_class device_map init_inputs "
    "verbose slow_tokenizer_class from_slow use_fast trust_remote_code _commit_hash "
    "transformers_version tokenizer_type fix_mistral_regex": _no_effect(
        "a note of where the tokenizer comes from, or of how it is loaded"
    ),
    "truncation_side": _warned("a text that is too long is cut at its end", "right"),
    "padding_side": _warned("rows are padded behind their tokens", "right"),
    "auto_map": _warned("code of the tokenizer's own is not run"),
    "fast_tokenizer_files": _rejected("name the file of the release that you use tokenizer.json"),
    "word_tokenizer_type": _rejected("words are split by BERT's rules alone", "basic"),
    "subword_tokenizer_type": _rejected("words are split into WordPiece's alone", "wordpiece"),
}
_SHARED_TOKENIZER = {
    "added_tokens": _SUPPORTED,
    "version": _no_effect("of the form of the file, which has not changed"),
    "decoder": _DECODING,
    "truncation.direction": _warned("a text that is too long is cut at its end", "Right"),
    "padding.direction": _warned("rows are padded behind their tokens", "Right"),
    "truncation.max_length truncation.strategy truncation.stride padding.strategy "
    "padding.pad_to_multiple_of padding.pad_id padding.pad_type_id "
    "padding.pad_token": _CALLER_LENGTH,
}
_TOKENIZER = {
    **_SHARED_TOKENIZER,
    "model.type model.vocab model.max_input_chars_per_word normalizer.handle_chinese_chars "
    "normalizer.strip_accents normalizer.lowercase": _SUPPORTED,
    "post_processor": Answer(SUPPORTED, "rows as BERT's are, and the types of pairs; no others"),
    "model.unk_token": _rejected("only BERT's can be computed", "[UNK]"),
    "model.continuing_subword_prefix": _rejected("only BERT's can be computed", "##"),
    "normalizer.type": _rejected("only BERT's can be computed", "BertNormalizer"),
    "normalizer.clean_text": _rejected("control characters are removed from every text", True),
    "pre_tokenizer.type": _rejected("only BERT's can be computed", "BertPreTokenizer"),
}
_TOKENIZER_OF_BERT = {
    **_SHARED_TOKENIZER,
    "model": Answer(SUPPORTED, "its vocabulary: class BertTokenizer has settings of its own"),
    "normalizer pre_tokenizer post_processor": _no_effect(
        "class BertTokenizer makes its own of tokenizer_config.json"
    ),
}

# === setfit, peft ===

_SETFIT = {
    "labels normalize_embeddings span_context spacy_model": _warned(
        "it is of the classifier in model_head.pkl, which is never read"
    )
}
_ADAPTER = {"peft_type": _rejected("an adapter is to be merged into the weights first")}

# === KerasHub: the object ``config`` of each file ===

KERAS_KEYS = {
    **dict.fromkeys(
        ("name", "trainable", "config_file"), _no_effect("it says how the object is kept in Keras")
    ),
    "dtype": _LOAD_DTYPE,
}
# By KerasHub's names, the fields of ``BertConfig``.
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
    "lowercase strip_accents": Answer(SUPPORTED, "both or neither: lowercase alone is told"),
    "vocabulary": _no_effect("the file in assets/tokenizer has the pieces"),
    "special_tokens": _no_effect("of special_tokens_in_strings alone"),
    "split split_on_cjk": _rejected("words are parted as BERT's", True),
    "suffix_indicator": _rejected("BERT's pieces begin so within a word", "##"),
    "oov_token": _rejected("BERT's unknown word is spelled so", "[UNK]"),
    "special_tokens_in_strings": _rejected("a text's [SEP] would be a token of its own", False),
    "sequence_length": _rejected("each text would be filled up before it is packed"),
}
_KERAS_HUB_PREPROCESSOR = {
    **KERAS_KEYS,
    "sequence_length": _SUPPORTED,
    "tokenizer": Answer(SUPPORTED, "as tokenizer.json, which has to say the same"),
    "mask_selection_rate mask_selection_length mask_token_rate random_token_rate": _no_effect(
        "of training alone: pretrain's own flags mask"
    ),
    "truncate": _warned("a pair that is too long is cut as round_robin cuts it", "round_robin"),
}
_KERAS_HUB_TASK = {
    **KERAS_KEYS,
    "num_classes dropout": _SUPPORTED,
    "preprocessor": Answer(SUPPORTED, "as preprocessor.json, before which it goes"),
    "backbone": _no_effect("config.json has the same"),
    "activation": _warned("the logits are given without it", "linear"),
}

#: By file, the answer to each of its keys.
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

Check = tuple[Callable[[Any], bool], str]  # whether a value is good, and what is expected
IS_SWITCH: Check = (lambda value: isinstance(value, bool), "true or false")
IS_OBJECT: Check = (lambda value: isinstance(value, Mapping), "an object")
IS_POSITIVE: Check = (lambda value: type(value) is int and value > 0, "a positive whole number")


def check_value(value: Any, check: Check, what: str) -> Any:
    """A value of a stranger's file, once it is good; ``what`` names file and key in the error."""
    is_good, expected = check
    if not is_good(value):
        raise ValueError(f"{what} is {quote(value)}, expected {expected}.")
    return value


def read(path: str) -> dict[str, Any]:
    """The settings in a JSON file; none where there is no such file."""
    return read_json_object(path) if tf.io.gfile.exists(path) else {}


def messages(file: str, values: Mapping[str, Any], source: str) -> Iterator[str]:
    """What is to be told of a file's keys; a ``ValueError`` where one is refused.

    ``file`` is a name of ``FILES``, ``source`` what sentences call the file.
    """
    answers = FILES[file]
    parents = {key[:at] for key in answers for at, letter in enumerate(key) if letter == "."}
    flat = [(key, value) for key, value in _flat(values, parents) if value is not None]
    if unknown := [quote(key) for key, _ in flat if key not in answers]:
        yield f"{source}: {listed(unknown)} is not known here, and what it says is not done."
    for key, value in flat:
        answer = answers.get(key)
        if answer is None or value in answer.neutral_values:
            continue
        elif answer.status == WARNED:
            yield f"{source}: {key} is {quote(value)}: {answer.reason}."
        elif answer.status == REJECTED:
            neutral = " or ".join(map(repr, answer.neutral_values))
            expected = f"expected {neutral}: " if neutral else ""
            raise ValueError(f"{source}: {key} is {quote(value)}, {expected}{answer.reason}.")


def _flat(
    values: Mapping[str, Any], parents: set[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The keys and values of an object, those of ``parents`` in place of a parent."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in parents and isinstance(value, Mapping):
            yield from _flat(value, parents, f"{name}.")
        else:
            yield name, value
