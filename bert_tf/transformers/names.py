"""Every name of transformers 4 that concerns BERT in TensorFlow: where it is, or what to use."""

import re
from collections.abc import Mapping
from types import MappingProxyType

#: By what follows a family's name in its classes': "TFBert" + "ForMaskedLM".
HEADS = (
    *("Model", "ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForNextSentencePrediction"),
    *("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"),
    "ForQuestionAnswering",
)
DISTIL_HEADS = (
    *("Model", "ForMaskedLM", "ForMultipleChoice", "ForQuestionAnswering"),
    *("ForSequenceClassification", "ForTokenClassification"),
)
_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "auto": (
            *("TFAutoModel", "TFAutoModelForPreTraining", "TFAutoModelForMaskedLM"),
            *("TFAutoModelForCausalLM", "TFAutoModelForNextSentencePrediction"),
            *("TFAutoModelWithLMHead", "TFAutoModelForSequenceClassification"),
            *("TFAutoModelForMultipleChoice", "TFAutoModelForTokenClassification"),
            *("TFAutoModelForQuestionAnswering", "TFAutoModelForTextEncoding", "AutoTokenizer"),
        ),
        "answering": (
            *("FeatureExtractionPipeline", "FillMaskPipeline", "NerPipeline", "Pipeline"),
            *("QuestionAnsweringPipeline", "TextClassificationPipeline"),
            *("TokenClassificationPipeline", "pipeline"),
        ),
        "collators": (
            *("DataCollatorForLanguageModeling", "DataCollatorForTokenClassification"),
            *("DataCollatorWithPadding", "DefaultDataCollator", "default_data_collator"),
            *("InputExample", "InputFeatures"),
        ),
        "configuration": ("AutoConfig", "BertConfig", "DistilBertConfig", "PretrainedConfig"),
        "encoding": ("BatchEncoding", "CharSpan", "TokenSpan"),
        "graph_tokenizer": ("TFBertTokenizer",),
        "keras_callbacks": ("KerasMetricCallback",),
        "layers": (
            *("TFBertEmbeddings", "TFBertEncoder", "TFBertMainLayer", "TFDistilBertMainLayer"),
        ),
        "models": (
            *("TFPreTrainedModel", "TFBertPreTrainedModel", "TFDistilBertPreTrainedModel"),
            *(f"TFBert{head}" for head in HEADS),
            *(f"TFDistilBert{head}" for head in DISTIL_HEADS),
        ),
        "optimization": (
            *("AdamWeightDecay", "GradientAccumulator", "WarmUp", "create_optimizer"),
            *("enable_full_determinism", "set_seed"),
        ),
        "tokenization": (
            *("AddedToken", "BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer"),
            *("DistilBertTokenizerFast", "PreTrainedTokenizerBase", "PreTrainedTokenizerFast"),
        ),
        "verbosity": ("logging",),
    }
)
#: By each name that is here: the module that it is in.
NAMES: Mapping[str, str] = MappingProxyType(
    {name: module for module, names in _MODULES.items() for name in names}
)
# By a pattern of their names that are not here: what takes their place. The first that fits.
_REFUSED = (
    (r"PushToHubCallback", "save_pretrained, and upload the directory with huggingface_hub"),
    (r"(TF)?Train(er|ingArguments)|HfArgumentParser", "python -m bert_tf.finetune"),
    (r"(Auto|Distil|)(Bert)?(Model|PreTrainedModel|For).*|(Bert|DistilBert|Auto)\w*|logging_\w+",
     "the same name with TF in front; this class is PyTorch's"),
    (r"Squad.*|squad_.*", "python -m bert_tf.finetune --task=squad"),
    (r"glue_.*|xnli_.*", "python -m bert_tf.finetune --task=mrpc and kin"),
    (r"\w+Pipeline", "pipeline of one of the five tasks that it names"),
    (r"DataCollator\w*", "python -m bert_tf.pretrain, or a collator that is here"),
    (r"load_(pytorch|tf)_\w+", "from_pretrained, which reads every format"),
    (r"TF_\w*MAPPING", "the TFAutoModel classes"),
    (r"Generation\w+|TFGenerationMixin", "nothing: no text is generated"),
    (r"\w*Tokenizer|SpecialTokensMixin", "BertTokenizerFast"),
    (r"TF\w*Output\w*", "a class of bert_tf.transformers.modeling_tf_outputs"),
    (r"TF(Distil)?Bert\w+|TF(Embeddings|FFN|MultiHead\w+|Transformer\w*|Sequence\w+|Shared\w+)",
     "TFBertMainLayer and its parts"),
    (r"(is_\w+_available|shape_list|TensorType|\w+_NAME)", "TensorFlow's and Python's own"),
)  # fmt: skip


def replacement(name: str) -> str:
    """What takes the place of a name of theirs that is not here; "" where it is none of theirs.

    >>> replacement("PushToHubCallback")
    'save_pretrained, and upload the directory with huggingface_hub'
    """
    return next((use for pattern, use in _REFUSED if re.fullmatch(pattern, name)), "")
