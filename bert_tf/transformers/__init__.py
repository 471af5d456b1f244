"""The TensorFlow API of transformers 4 for BERT and DistilBERT, based on this library's models.

transformers 5 does not support TensorFlow. Replace ``from transformers import
TFBertForSequenceClassification, BertTokenizerFast`` with ``from bert_tf.transformers import ...``.
Importing a name that is not available raises an error that suggests a replacement.
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

# Suffixes of the classes' names: "TFBert" + "ForMaskedLM".
_HEADS = (
    *("Model", "ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForNextSentencePrediction"),
    *("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"),
    "ForQuestionAnswering",
)
_BERT_ONLY = ("ForPreTraining", "LMHeadModel", "ForNextSentencePrediction")
_PARTS = ("configuration", "tokenization", "modeling_tf")
# Modules of transformers. Each exports every name; ``utils.logging`` is ``logging``.
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
#: Module that defines each name.
NAMES: Mapping[str, str] = {name: module for module, names in _MODULES.items() for name in names}
# Patterns of transformers' names that are not available, with advice. The first match is used.
_REPLACEMENTS = (
    (r"PushToHubCallback|push_to_hub",
     "Use save_pretrained, and upload the directory with huggingface_hub."),
    (r"(TF)?Train(er|ingArguments)|HfArgumentParser", "Use python -m bert_tf.finetune."),
    (r"(Auto|Distil|)(Bert)?(Model|PreTrainedModel|For).*|(Bert|DistilBert|Auto)\w*|logging_\w+",
     "This is a PyTorch class. Use the class with the prefix TF."),
    (r"Squad.*|squad_.*", "Use python -m bert_tf.finetune --task=squad."),
    (r"glue_.*|xnli_.*", "Use python -m bert_tf.finetune with a GLUE task, such as --task=mrpc."),
    (r"zero-shot-classification|ZeroShot\w+",
     "Use text-classification on {'text': ..., 'text_pair': 'This example is about ...'}."),
    (r"\w+Pipeline", "Use pipeline with one of its five tasks."),
    (r"DataCollator\w*", "Use python -m bert_tf.pretrain or another collator."),
    (r"load_(pytorch|tf)_\w+", "Use from_pretrained, which loads every format."),
    (r"TF_\w*MAPPING", "Use the TFAutoModel classes."),
    (r"Generation\w+|TFGenerationMixin|generate|prepare_inputs_for_generation",
     "Text generation is not supported."),
    (r"\w*Tokenizer|SpecialTokensMixin", "Use BertTokenizerFast."),
    (r"TF\w*Output\w*", "Use the output class of a supported model."),
    (r"TF(Distil)?Bert\w+|TF(Embeddings|FFN|MultiHead\w+|Transformer\w*|Sequence\w+|Shared\w+)",
     "Use TFBertMainLayer and its layers."),
    (r"prune_heads", "Pruning attention heads is not supported."),
    (r"set_output_embeddings", "Use set_input_embeddings, which sets the shared table."),
    (r"set_bias", "Use get_bias()['bias'].assign(values)."),
    (r"truncate_sequences", "Pass truncation=, max_length= and stride= to the tokenizer."),
    (r"(is_\w+_available|TensorType|\w+_NAME)", "Use functions of TensorFlow or Python."),
)  # fmt: skip


def replacement(name: str) -> str:
    """Returns advice for a name of transformers that is not available; "" for other names.

    >>> replacement("PushToHubCallback")
    'Use save_pretrained, and upload the directory with huggingface_hub.'
    """
    return next((advice for regex, advice in _REPLACEMENTS if re.fullmatch(regex, name)), "")


def missing_attribute_error(instance: object, name: str) -> AttributeError:
    """Returns the error for a missing attribute, with advice for names of transformers."""
    message = f"{type(instance).__name__} has no {name!r}. {replacement(name)}"
    return AttributeError(message.rstrip())


# === Attributes of the module ===

__all__ = [*sorted(NAMES)]

_LOGGER = python_logging.getLogger("bert_tf")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: ``transformers.logging``. There are no progress bars to disable.
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
    advice = "" if name.startswith("_") else replacement(name)
    if advice:
        raise ImportError(f"bert_tf.transformers has no {name}. {advice}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})


for _path in _PATHS:
    _module: Any = types.ModuleType(f"{__name__}.{_path}", "Alias of bert_tf.transformers.")
    _module.__getattr__ = __getattr__
    sys.modules[_module.__name__] = _module
sys.modules[f"{__name__}.utils.logging"] = logging  # type: ignore[assignment]
