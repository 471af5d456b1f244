"""transformers' TensorFlow classes for BERT, as names over this library's models.

transformers 5 has no TensorFlow. A script that says ``from transformers import
TFBertForSequenceClassification, BertTokenizerFast`` says ``from bert_tf.transformers import ...``,
and goes on. The tables say where each name of transformers 4 that concerns BERT in TensorFlow is,
or what takes its place.
"""

import functools
import importlib
import logging as python_logging
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

from .outputs import OUTPUTS

# By what follows a family's name in its classes': "TFBert" + "ForMaskedLM".
_HEADS = (
    *("Model", "ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForNextSentencePrediction"),
    *("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"),
    "ForQuestionAnswering",
)
_BERT_ONLY = ("ForPreTraining", "LMHeadModel", "ForNextSentencePrediction")
_PARTS = ("configuration", "tokenization", "modeling_tf")
# transformers' modules, each of which has every name; ``utils.logging`` is ``logging``.
_PATHS = (
    *("configuration_utils", "file_utils", "generation", "keras_callbacks", "modeling_tf_outputs"),
    *("modeling_tf_utils", "optimization_tf"),
    *("pipelines", "tf_utils", "tokenization_utils", "tokenization_utils_base", "trainer_utils"),
    *("tokenization_utils_fast", "utils", "data", "data.data_collator", "data.processors.utils"),
    *(f"models.{kind}" for kind in ("auto", "bert", "distilbert")),
    *(f"models.{kind}.{part}_{kind}" for kind in ("auto", "bert", "distilbert") for part in _PARTS),
    *("models.bert.tokenization_bert_fast", "models.bert.tokenization_bert_tf"),
    "models.distilbert.tokenization_distilbert_fast",
)
_MODULES: Mapping[str, tuple[str, ...]] = {
    "task_pipelines": (
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
    "fitting": ("KerasMetricCallback",),
    "main_layer": (
        *("TFBertEmbeddings", "TFBertEncoder", "TFBertMainLayer", "TFDistilBertMainLayer"),
    ),
    "models": (
        *("TFPreTrainedModel", "TFBertPreTrainedModel", "TFDistilBertPreTrainedModel"),
        *(f"TFBert{head}" for head in _HEADS),
        *(f"TFDistilBert{head}" for head in _HEADS if head not in _BERT_ONLY),
        *(f"TFAutoModel{head}" for head in _HEADS if head.startswith("For")),
        *("TFAutoModel", "TFAutoModelForCausalLM", "TFAutoModelWithLMHead"),
        "TFAutoModelForTextEncoding",
    ),
    "heads": (
        *("TFMaskedLanguageModelingLoss", "TFMultipleChoiceLoss", "TFQuestionAnsweringLoss"),
        *("TFSequenceClassificationLoss", "TFTokenClassificationLoss", "get_initializer"),
        *("keras_serializable", "shape_list"),
    ),
    "outputs": ("ModelOutput", *OUTPUTS),
    "optimization": (
        *("AdamWeightDecay", "GradientAccumulator", "WarmUp", "create_optimizer"),
        *("enable_full_determinism", "set_seed"),
    ),
    "tokenization": (
        *("AddedToken", "AutoTokenizer", "BertTokenizer", "BertTokenizerFast"),
        *("DistilBertTokenizer", "DistilBertTokenizerFast"),
        *("PreTrainedTokenizerBase", "PreTrainedTokenizerFast"),
    ),
    "__init__": ("logging",),
}
#: By each name that is here: the module that it is in.
NAMES: Mapping[str, str] = {name: module for module, names in _MODULES.items() for name in names}
# Patterns of transformers' names that are not here, and what replaces them. The first that fits.
_REPLACEMENTS = (
    (r"PushToHubCallback|push_to_hub",
     "save_pretrained, and upload the directory with huggingface_hub"),
    (r"(TF)?Train(er|ingArguments)|HfArgumentParser", "python -m bert_tf.finetune"),
    (r"(Auto|Distil|)(Bert)?(Model|PreTrainedModel|For).*|(Bert|DistilBert|Auto)\w*|logging_\w+",
     "the same name with TF in front; this class is PyTorch's"),
    (r"Squad.*|squad_.*", "python -m bert_tf.finetune --task=squad"),
    (r"glue_.*|xnli_.*", "python -m bert_tf.finetune --task=mrpc and kin"),
    (r"zero-shot-classification|ZeroShot\w+",
     "text-classification on {'text': ..., 'text_pair': 'This example is about ...'}"),
    (r"\w+Pipeline", "pipeline of one of the five tasks that it names"),
    (r"DataCollator\w*", "python -m bert_tf.pretrain, or a collator that is here"),
    (r"load_(pytorch|tf)_\w+", "from_pretrained, which reads every format"),
    (r"TF_\w*MAPPING", "the TFAutoModel classes"),
    (r"Generation\w+|TFGenerationMixin|generate|prepare_inputs_for_generation",
     "nothing: no text is generated"),
    (r"\w*Tokenizer|SpecialTokensMixin", "BertTokenizerFast"),
    (r"TF\w*Output\w*", "the output of a model that is here"),
    (r"TF(Distil)?Bert\w+|TF(Embeddings|FFN|MultiHead\w+|Transformer\w*|Sequence\w+|Shared\w+)",
     "TFBertMainLayer and its parts"),
    (r"prune_heads", "nothing: no head can be switched off"),
    (r"set_output_embeddings", "set_input_embeddings: both are one table"),
    (r"set_bias", "get_bias()['bias'].assign(values)"),
    (r"truncate_sequences", "truncation=, max_length= and stride= of a call"),
    (r"(is_\w+_available|TensorType|\w+_NAME)", "TensorFlow's and Python's own"),
)  # fmt: skip


def replacement(name: str) -> str:
    """Replacement of a name of transformers that is not here; "" for other names.

    >>> replacement("PushToHubCallback")
    'save_pretrained, and upload the directory with huggingface_hub'
    """
    return next((use for pattern, use in _REPLACEMENTS if re.fullmatch(pattern, name)), "")


def missing_attribute_error(thing: object, name: str) -> AttributeError:
    """The error that something has no member of a name, with what replaces transformers' own."""
    use = replacement(name)
    return AttributeError(f"{type(thing).__name__} has no {name!r}{use and f': use {use}'}.")


# === As a module ===

__all__ = [*sorted(NAMES)]

_LOGGER = python_logging.getLogger("bert_tf")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: ``transformers.logging``; there are no bars to switch off.
logging = types.SimpleNamespace(
    get_logger=lambda name="bert_tf": python_logging.getLogger(name),
    get_verbosity=_LOGGER.getEffectiveLevel,
    set_verbosity=_LOGGER.setLevel,
    disable_progress_bar=lambda: None,
    enable_progress_bar=lambda: None,
    **{level: getattr(python_logging, level) for level in _LEVELS},
    **{
        f"set_verbosity_{level.lower()}": functools.partial(_LOGGER.setLevel, level)
        for level in _LEVELS
    },
)


def __getattr__(name: str) -> Any:
    if name in NAMES:
        if name not in globals():
            module = importlib.import_module(f".{NAMES[name]}", __name__)
            globals()[name] = getattr(module, name)
        return globals()[name]
    use = "" if name.startswith("_") else replacement(name)
    if use:
        raise ImportError(f"bert_tf.transformers has no {name}: use {use}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})


for _path in _PATHS:
    _module: Any = types.ModuleType(f"{__name__}.{_path}", "Every name that is here.")
    _module.__getattr__ = __getattr__
    sys.modules[_module.__name__] = _module
sys.modules[f"{__name__}.utils.logging"] = logging  # type: ignore[assignment]
