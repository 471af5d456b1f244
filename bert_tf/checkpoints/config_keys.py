"""Every key of other libraries' files of settings, and what this library makes of it.

A key has one answer: *honoured*; *without effect* on ids, vectors, logits and labels; *told*, where
what another value than the usual ones says is done otherwise here; or *refused*. Null means what a
key that is not there means. A key that is not in the table is told. ``A.B`` is the key B of the
object A.

``tests/checkpoints/data/config_keys.json`` has the keys that the peers declare and read, and their
versions; docs/peers.md prints the table.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_tf.config import ONLY_AS_PUBLISHED
from bert_tf.wording import listed, quote

HONOURED, NO_EFFECT, TOLD, REFUSED = "honoured", "without effect", "told", "refused"


class Answer(NamedTuple):
    """Answer to a key.

    ``reason`` says what becomes of a key that is honoured, why one is without effect, and of what
    is told or refused the consequence. ``usual`` are the values that mean what is done anyway.
    """

    kind: str
    reason: str
    usual: tuple[Any, ...] = ()


Answers = dict[str, Answer]


def _honoured(keys: str, reason: str) -> Answers:
    return dict.fromkeys(keys.split(), Answer(HONOURED, reason))


def _no_effect(keys: str, reason: str) -> Answers:
    return dict.fromkeys(keys.split(), Answer(NO_EFFECT, reason))


def _told(keys: str, reason: str, *usual: Any) -> Answers:
    return dict.fromkeys(keys.split(), Answer(TOLD, reason, usual))


def _refused(keys: str, reason: str, *usual: Any) -> Answers:
    return dict.fromkeys(keys.split(), Answer(REFUSED, reason, usual))


# === transformers: config.json ===

_CONFIG = {
    **_honoured("vocab_size max_position_embeddings", "a size of the encoder"),
    **_honoured("initializer_range", "weights that start anew start so"),
    **_honoured("architectures model_type", "with the tensors they say which model it is"),
    **_honoured("id2label label2id", "the classes' names"),
    **_honoured("problem_type", "whether the answer is a number, one class or several"),
    **_honoured("tie_word_embeddings", "the decoder has to equal the embeddings"),
    **_honoured("tokenizer_class", "the tokenizer that reads the text"),
    **_honoured("transformers_weights", "the file that has the weights, by its plain name"),
    **_honoured("sentence_transformers.activation_fn", "the function of a number"),
    **_honoured("sbert_ce_default_activation_function", "the function of a number"),
    **_no_effect("sentence_transformers.version", "a note of the release that wrote it"),
    **_no_effect("num_labels _num_labels", "the tensors have the number of classes"),
    **_no_effect(
        "output_attentions output_hidden_states return_dict use_return_dict use_cache output_past "
        "torchscript",
        "it says what else is returned, and in which form",
    ),
    **_no_effect(
        "chunk_size_feed_forward gradient_checkpointing attn_implementation _attn_implementation "
        "_attn_implementation_internal _attn_implementation_autoset _experts_implementation "
        "_experts_implementation_internal experts_implementation use_bfloat16 tf_legacy_loss",
        "it says how the same is computed",
    ),
    **_no_effect("dtype torch_dtype", "weights are read as stored; load's dtype computes"),
    **_no_effect("pad_token_id", "padding is masked; its id is that of the tokenizer's [PAD]"),
    **_no_effect(
        "transformers_version _name_or_path name_or_path _commit_hash name language license "
        "finetuning_task model_name",
        "a note of where the model comes from",
    ),
    **_no_effect(
        "bos_token_id eos_token_id sep_token_id decoder_start_token_id prefix "
        "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens "
        "diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
        "encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty "
        "forced_bos_token_id forced_eos_token_id length_penalty max_length min_length "
        "no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups "
        "num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty "
        "return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p "
        "typical_p task_specific_params",
        "no text is generated",
    ),
    **_no_effect("cross_attention_hidden_size tie_encoder_decoder", "of a pair of models alone"),
    **_told(
        "function_to_apply",
        "transformers' pipelines apply it to a classifier's logits, and here problem_type says "
        "what is applied",
    ),
    **_told(
        "auto_map custom_pipelines",
        "code of the model's own is not run: BERT as published is computed",
    ),
    **_refused("is_encoder_decoder", "one half of a pair of models cannot be computed", False),
    **_refused("quantization_config", "save the model dequantised: quantised weights are not read"),
    **_refused("per_layer_config", "layers of different sizes cannot be built"),
    **_refused("pruned_heads", "heads that were cut out cannot be left out here", {}, []),
}
_BERT = {
    **_CONFIG,
    **_honoured(
        "hidden_size num_hidden_layers num_attention_heads intermediate_size type_vocab_size",
        "a size of the encoder",
    ),
    **_honoured("hidden_act layer_norm_eps is_decoder", "a function of the encoder"),
    **_honoured("hidden_dropout_prob attention_probs_dropout_prob", "the rates of training"),
    **_honoured("classifier_dropout", "the rate in front of a head, in training"),
    **_no_effect(
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type",
        "Google's releases have it, and no code reads it",
    ),
    # ``BertConfig.from_dict`` refuses these, of Google's files, too.
    **{
        key: Answer(REFUSED, "only BERT as published can be built", (published,))
        for key, published in ONLY_AS_PUBLISHED.items()
        if key not in _CONFIG
    },
}
_DISTILBERT = {
    **_CONFIG,
    **_honoured(
        "dim n_heads n_layers hidden_dim hidden_size num_attention_heads num_hidden_layers",
        "a size of the encoder; the longer names go first",
    ),
    **_honoured("activation", "a function of the encoder"),
    **_honoured("dropout attention_dropout", "the rates of training"),
    **_honoured("seq_classif_dropout", "the rate in front of a head, in training"),
    **_no_effect("qa_dropout", "of training alone: no dropout is in front of a span head"),
    **_no_effect("sinusoidal_pos_embds", "the table of positions is stored"),
    **_no_effect("tie_weights_", "the decoder has to equal the embeddings"),
}

# === sentence-transformers ===

_LENGTH = "the most tokens of a text"
_MODULES = {
    **_honoured("type path", "a module's class and folder"),
    **_no_effect("idx name", "modules are run in the list's order"),
    **_told("kwargs", "arguments of encode are not handed to the module", [], {}),
}
_TRANSFORMER = {
    **_honoured(
        "max_seq_length tokenizer_args.model_max_length processor_kwargs.model_max_length "
        "processing_kwargs.text.max_length processing_kwargs.common.max_length",
        _LENGTH,
    ),
    **_honoured("config_args config_kwargs", "keys that go before those of config.json"),
    **_honoured("do_lower_case", "text is lower-cased before it is split"),
    **_honoured("transformer_task", "states, or of a cross-encoder the logits"),
    **_no_effect("modality_config module_output_name", "texts have one form"),
    **_no_effect("unpad_inputs", "it says how the same is computed"),
    **_no_effect(
        "tokenizer_args.max_length processor_kwargs.max_length",
        "the most tokens are those of model_max_length there",
    ),
    **_no_effect(
        "processing_kwargs.text.truncation processing_kwargs.common.truncation "
        "processing_kwargs.text.padding processing_kwargs.common.padding "
        "processing_kwargs.text.return_tensors processing_kwargs.common.return_tensors",
        "long texts are cut, and padding is masked",
    ),
    **_no_effect("model_args model_kwargs", "load's dtype and the machine's devices compute"),
    **_told(
        "query_length document_length",
        "queries and documents are cut to one length, the tokenizer's",
    ),
    **_told("query_expansion", "queries are not filled up with [MASK]"),
    **_told("tokenizer_name_or_path", "the tokenizer in this directory is taken"),
}
_SENTENCES = {
    **_honoured("prompts", "those of the query and of the document"),
    **_honoured("default_prompt_name", "where the document has no prompt, this one"),
    **_honoured("truncate_dim", "how many numbers of a vector are kept"),
    **_honoured("activation_fn", "the function of a cross-encoder's number"),
    **_honoured("similarity_fn_name", "cosines: another one is told unless vectors have length 1"),
    **_honoured("model_type", "whether it makes vectors or numbers"),
    **_no_effect("__version__", "a note of the releases that wrote it"),
    **_no_effect("requirements", "a condition on packages"),
    **_no_effect("keep_in_fp32_modules", "of half precision alone"),
}
_MODULE = {
    **_honoured("pooling_mode include_prompt", "how states become a vector"),
    **_honoured(
        "pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens "
        "pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken",
        "how states become a vector",
    ),
    **_honoured("out_features activation_function bias use_residual", "a dense layer"),
    **_honoured("module_input_name module_output_name", "only whole vectors are changed"),
    **_no_effect("embedding_dimension word_embedding_dimension in_features", "the tensors say it"),
}

# === transformers' tokenizers ===

_TOKENIZER_CONFIG = {
    **_honoured("tokenizer_class", "whose settings count, these or tokenizer.json's"),
    **_honoured(
        "do_lower_case strip_accents tokenize_chinese_chars",
        "how a BERT's tokenizer reads text; tokenizer.json says it of another class",
    ),
    **_honoured("model_max_length max_len", "the most tokens of a row"),
    **_honoured("model_input_names", "whether a pair's texts have types"),
    **_honoured("split_special_tokens", "whether special tokens in texts are parted"),
    **_honoured(
        "added_tokens_decoder extra_special_tokens additional_special_tokens "
        "model_specific_special_tokens",
        "tokens that are found before a text is split",
    ),
    **_honoured(
        "unk_token sep_token pad_token cls_token mask_token bos_token eos_token",
        "special tokens, as all keys that end so; the first five have BERT's names or are refused",
    ),
    **_no_effect("__type", "of a token that is spelled out"),
    **_no_effect(
        "do_basic_tokenize never_split tokenize_unused errors keep_accents",
        "transformers 5 reads no such key",
    ),
    **_no_effect("clean_up_tokenization_spaces", "of ids that become text"),
    **_no_effect(
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        "of ids that become text",
    ),
    **_no_effect(
        "chat_template chat_control_tokens response_schema response_template", "of chats alone"
    ),
    **_no_effect("add_bos_token add_eos_token add_prefix_space", "of other models alone"),
    **_no_effect(
        "padding pad_token_type_id pad_to_multiple_of max_length truncation truncation_strategy "
        "stride return_tensors padding_strategy",
        "the caller says how long rows are, and padding is masked",
    ),
    **_no_effect(
        "backend name_or_path is_local local_files_only files_loaded special_tokens_map_file "
        "tokenizer_file vocab_file full_tokenizer_file processor_class device_map init_inputs "
        "verbose slow_tokenizer_class from_slow use_fast trust_remote_code _commit_hash "
        "transformers_version tokenizer_type fix_mistral_regex",
        "a note of where the tokenizer comes from, or of how it is loaded",
    ),
    **_told("truncation_side", "a text that is too long is cut at its end", "right"),
    **_told("padding_side", "rows are padded behind their tokens", "right"),
    **_told("auto_map", "code of the tokenizer's own is not run"),
    **_refused("fast_tokenizer_files", "name the file of the release that you use tokenizer.json"),
    **_refused("word_tokenizer_type", "words are split by BERT's rules alone", "basic"),
    **_refused("subword_tokenizer_type", "words are split into WordPiece's alone", "wordpiece"),
}
_ROWS = {
    **_honoured("added_tokens", "tokens that are found before a text is split"),
    **_no_effect("version", "of the form of the file, which has not changed"),
    **_no_effect("decoder", "of ids that become text"),
    **_told("truncation.direction", "a text that is too long is cut at its end", "Right"),
    **_told("padding.direction", "rows are padded behind their tokens", "Right"),
    **_no_effect(
        "truncation.max_length truncation.strategy truncation.stride padding.strategy "
        "padding.pad_to_multiple_of padding.pad_id padding.pad_type_id padding.pad_token",
        "the caller says how long rows are, and padding is masked",
    ),
}
_TOKENIZER = {
    **_ROWS,
    **_honoured("model.type model.vocab model.max_input_chars_per_word", "words to pieces"),
    **_refused("model.unk_token", "only BERT's can be computed", "[UNK]"),
    **_refused("model.continuing_subword_prefix", "only BERT's can be computed", "##"),
    **_refused("normalizer.type", "only BERT's can be computed", "BertNormalizer"),
    **_refused("normalizer.clean_text", "control characters are removed from every text", True),
    **_honoured(
        "normalizer.handle_chinese_chars normalizer.strip_accents normalizer.lowercase",
        "how text is read",
    ),
    **_refused("pre_tokenizer.type", "only BERT's can be computed", "BertPreTokenizer"),
    **_honoured("post_processor", "rows as BERT's are, and the types of pairs; no others"),
}
_TOKENIZER_OF_BERT = {
    **_ROWS,
    **_honoured("model", "its vocabulary: class BertTokenizer has settings of its own"),
    **_no_effect(
        "normalizer pre_tokenizer post_processor",
        "class BertTokenizer makes its own of tokenizer_config.json",
    ),
}

# === setfit, peft ===

_SETFIT = _told(
    "labels normalize_embeddings span_context spacy_model",
    "it is of the classifier in model_head.pkl, which is never read",
)
_ADAPTER = _refused("peft_type", "an adapter is to be merged into the weights first")

# === KerasHub: the object ``config`` of each file ===

OF_KERAS = {
    **_no_effect("name trainable config_file", "it says how the object is kept in Keras"),
    **_no_effect("dtype", "weights are read as stored; load's dtype computes"),
}
_BACKBONE = {
    **OF_KERAS,
    **_honoured(
        "vocabulary_size num_layers num_heads hidden_dim intermediate_dim max_sequence_length "
        "num_segments",
        "a size of the encoder",
    ),
    **_honoured("dropout", "the rates of training"),
}
_PIECES = {
    **OF_KERAS,
    **_honoured("lowercase strip_accents", "both or neither: lowercase alone is told"),
    **_no_effect("vocabulary", "the file in assets/tokenizer has the pieces"),
    **_no_effect("special_tokens", "of special_tokens_in_strings alone"),
    **_refused("split split_on_cjk", "words are parted as BERT's", True),
    **_refused("suffix_indicator", "BERT's pieces begin so within a word", "##"),
    **_refused("oov_token", "BERT's unknown word is spelled so", "[UNK]"),
    **_refused("special_tokens_in_strings", "a text's [SEP] would be a token of its own", False),
    **_refused("sequence_length", "each text would be filled up before it is packed"),
}
_PACKED = {
    **OF_KERAS,
    **_honoured("sequence_length", "the most tokens of a row"),
    **_honoured("tokenizer", "as tokenizer.json, which has to say the same"),
    **_no_effect(
        "mask_selection_rate mask_selection_length mask_token_rate random_token_rate",
        "of training alone: pretrain's own flags mask",
    ),
    **_told("truncate", "a pair that is too long is cut as round_robin cuts it", "round_robin"),
}
_TASK = {
    **OF_KERAS,
    **_honoured("num_classes", "the size of the head"),
    **_honoured("dropout", "the rate in front of a head, in training"),
    **_honoured("preprocessor", "as preprocessor.json, before which it goes"),
    **_no_effect("backbone", "config.json has the same"),
    **_told("activation", "the logits are given without it", "linear"),
}

#: By file, the answer to each of its keys.
FILES: Mapping[str, Mapping[str, Answer]] = MappingProxyType(
    {
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
        "config.json of KerasHub": _BACKBONE,
        "tokenizer.json of KerasHub": _PIECES,
        "preprocessor.json of KerasHub": _PACKED,
        "task.json of KerasHub": _TASK,
    }
)


def sentences(file: str, values: Mapping[str, Any], source: str) -> Iterator[str]:
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
        if answer is None or value in answer.usual:
            continue
        elif answer.kind == TOLD:
            yield f"{source}: {key} is {quote(value)}: {answer.reason}."
        elif answer.kind == REFUSED:
            usual = " or ".join(map(repr, answer.usual))
            expected = f"expected {usual}: " if usual else ""
            raise ValueError(f"{source}: {key} is {quote(value)}, {expected}{answer.reason}.")


def _flat(
    values: Mapping[str, Any], parents: set[str], before: str = ""
) -> Iterator[tuple[str, Any]]:
    """The keys and values of an object, those of ``parents`` in place of a parent."""
    for key, value in values.items():
        name = f"{before}{key}"
        if name in parents and isinstance(value, Mapping):
            yield from _flat(value, parents, f"{name}.")
        else:
            yield name, value
