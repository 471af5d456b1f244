"""Flags and public names are stable: they match the lists in this file."""

import importlib

import pytest

from tests.documents import parse

FLAGS = {
    "pretrain": """
        input input_format tfds eval_input held_out_fraction vocab_file vocab_size
        do_lower_case special_tokens_in_texts max_predictions_per_seq masked_lm_prob
        short_seq_prob masking mask_split nsp pairs objective recipe bert_config config_overrides
        init_checkpoint precision num_train_steps num_warmup_steps train_batch_size
        gradient_accumulation_steps learning_rate optimizer weight_decay adam_beta_2
        phases equal_tokens max_seq_length seed strategy worker_hosts task_index worker_wait_minutes
        tpu deterministic
        jit_compile remat model_dir save_checkpoints_steps keep_checkpoints
        eval_batch_size max_eval_steps export cache_dir dry_run
    """,
    "finetune": """
        task train_file text_columns label_column init_checkpoint model_dir dev_file
        dev_fraction test_file skip_bad_rows data_dir tfds id_column label_separator
        answer_start_column title_column delimiter encoding character_spans
        document_context doc_stride max_query_length n_best_size max_answer_length
        null_score_diff_threshold max_seq_length special_tokens_in_texts long_text
        train_batch_size
        gradient_accumulation_steps remat learning_rate num_train_epochs max_steps
        warmup_proportion optimizer weight_decay hidden_dropout_prob label_smoothing
        class_weights few_shot few_shot_pairs freeze pooling normalize similarity_loss
        feature_based lstm_units metric early_stopping_epochs seed sweep restarts
        precision strategy jit_compile eval_batch_size save_checkpoints_minutes export
    """,
    "predict": """
        model input output text_columns id_column input_format delimiter encoding
        keep_columns skip_bad_rows threshold top_k max_seq_length batch_size precision
        strategy
    """,
    "export": """
        model output name special_tokens_in_texts max_seq_length pair normalize
        transformers_signature precision
        max_rows max_bytes allowed_batch_sizes
    """,
    "serve": """
        model name special_tokens_in_texts host port max_rows max_bytes max_waiting
        max_wait_seconds
    """,
    "verify": """
        python tolerance
    """,
    "extract_features": """
        model input output format layers pooling normalize max_seq_length batch_size
        precision
    """,
    "convert": """
        model output format allow_pickle
    """,
    "vocab": """
        input output input_format vocab_size do_lower_case min_frequency
    """,
    "create_pretraining_data": """
        input input_format vocab_file output_file runner do_lower_case max_seq_length
        max_predictions_per_seq masked_lm_prob short_seq_prob do_whole_word_mask
        num_epochs seed
    """,
}
ALIASES = {
    "pretrain": "input_file output_dir bert_config_file tpu_name random_seed",
    "finetune": "task_name output_dir predict_file predict_batch_size random_seed",
    "export": "checkpoint",
    "predict": "model_dir",
    "extract_features": "init_checkpoint",
    "convert": "input",
    "create_pretraining_data": "dupe_factor input_file random_seed",
}
TRANSFORMERS = """
    AdamWeightDecay AddedToken AutoConfig AutoTokenizer BatchEncoding BertConfig
    BertTokenizer BertTokenizerFast CharSpan DataCollatorForLanguageModeling
    DataCollatorForTokenClassification DataCollatorWithPadding DefaultDataCollator
    DistilBertConfig DistilBertTokenizer DistilBertTokenizerFast FeatureExtractionPipeline
    FillMaskPipeline GradientAccumulator InputExample InputFeatures KerasMetricCallback
    ModelOutput NerPipeline Pipeline PreTrainedTokenizerBase PreTrainedTokenizerFast
    PretrainedConfig QuestionAnsweringPipeline TFAutoModel TFAutoModelForCausalLM
    TFAutoModelForMaskedLM TFAutoModelForMultipleChoice
    TFAutoModelForNextSentencePrediction TFAutoModelForPreTraining
    TFAutoModelForQuestionAnswering TFAutoModelForSequenceClassification
    TFAutoModelForTextEncoding TFAutoModelForTokenClassification TFAutoModelWithLMHead
    TFBaseModelOutput TFBaseModelOutputWithPooling
    TFBaseModelOutputWithPoolingAndCrossAttentions TFBertEmbeddings TFBertEncoder
    TFBertForMaskedLM TFBertForMultipleChoice TFBertForNextSentencePrediction
    TFBertForPreTraining TFBertForPreTrainingOutput TFBertForQuestionAnswering
    TFBertForSequenceClassification TFBertForTokenClassification TFBertLMHeadModel
    TFBertMainLayer TFBertModel TFBertPreTrainedModel TFBertTokenizer
    TFCausalLMOutputWithCrossAttentions TFDistilBertForMaskedLM
    TFDistilBertForMultipleChoice TFDistilBertForQuestionAnswering
    TFDistilBertForSequenceClassification TFDistilBertForTokenClassification
    TFDistilBertMainLayer TFDistilBertModel TFDistilBertPreTrainedModel TFMaskedLMOutput
    TFMaskedLanguageModelingLoss TFMultipleChoiceLoss TFMultipleChoiceModelOutput
    TFNextSentencePredictorOutput TFPreTrainedModel TFQuestionAnsweringLoss
    TFQuestionAnsweringModelOutput TFSequenceClassificationLoss TFSequenceClassifierOutput
    TFTokenClassificationLoss TFTokenClassifierOutput TextClassificationPipeline
    TokenClassificationPipeline TokenSpan WarmUp create_optimizer default_data_collator
    enable_full_determinism get_initializer keras_serializable logging pipeline set_seed
    shape_list
"""
NAMES = {
    "bert_tf": """
        BatchPredictor BertClassifier BertConfig BertEncoder BertFeatureTagger BertFeatures
        BertMultipleChoice BertPreprocessor BertPretrainer BertRegressor BertSpanPredictor
        BertTokenClassifier DifferenceWarning Predictor __version__ load save
    """,
    "bert_tf.saved_models": "ExportOptions export verify",
    "bert_tf.transformers": TRANSFORMERS,
}


def test_flags_are_stable():
    found = {name: flags for name, (_, flags) in parse({name: [] for name in FLAGS}).items()}
    common = set.intersection(*found.values())  # absl's flags and --debug
    for name, flags in found.items():
        expected = {*FLAGS[name].split(), *ALIASES.get(name, "").split()}
        assert flags - common == expected, name


@pytest.mark.parametrize("module", NAMES)
def test_public_names_are_stable(module):
    assert set(NAMES[module].split()) == set(importlib.import_module(module).__all__)
