"""transformers' TensorFlow classes for BERT, as names over this library's models.

transformers 5 has no TensorFlow. A script that says ``from transformers import
TFBertForSequenceClassification, BertTokenizerFast`` says ``from bert_tf.transformers import ...``,
and goes on. ``NAMES`` has what is here, ``REFUSED`` what is not, and what takes its place.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_HEADS = (
    *("Model", "ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForNextSentencePrediction"),
    *("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"),
    "ForQuestionAnswering",
)
_DISTIL_HEADS = (
    *("Model", "ForMaskedLM", "ForMultipleChoice", "ForQuestionAnswering"),
    *("ForSequenceClassification", "ForTokenClassification"),
)
_AUTO = (
    *("TFAutoModel", "TFAutoModelForPreTraining", "TFAutoModelForMaskedLM"),
    *("TFAutoModelForCausalLM", "TFAutoModelForNextSentencePrediction", "TFAutoModelWithLMHead"),
    *("TFAutoModelForSequenceClassification", "TFAutoModelForMultipleChoice"),
    *("TFAutoModelForTokenClassification", "TFAutoModelForQuestionAnswering", "AutoTokenizer"),
)
_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "auto": _AUTO,
        "collators": (
            *("DataCollatorForLanguageModeling", "DataCollatorForTokenClassification"),
            *("DataCollatorWithPadding", "DefaultDataCollator", "default_data_collator"),
        ),
        "configuration": ("AutoConfig", "BertConfig", "DistilBertConfig", "PretrainedConfig"),
        "encoding": ("BatchEncoding",),
        "graph_tokenizer": ("TFBertTokenizer",),
        "layers": ("TFBertEmbeddings", "TFBertMainLayer", "TFDistilBertMainLayer"),
        "models": (
            *("TFPreTrainedModel", "TFBertPreTrainedModel", "TFDistilBertPreTrainedModel"),
            *(f"TFBert{head}" for head in _HEADS),
            *(f"TFDistilBert{head}" for head in _DISTIL_HEADS),
        ),
        "optimization": ("AdamWeightDecay", "GradientAccumulator", "WarmUp", "create_optimizer"),
        "answering": (
            *("FeatureExtractionPipeline", "FillMaskPipeline", "Pipeline"),
            *("QuestionAnsweringPipeline", "TextClassificationPipeline"),
            *("TokenClassificationPipeline", "pipeline"),
        ),
        "tokenization": (
            *("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer"),
            "DistilBertTokenizerFast",
        ),
    }
)
#: By each name that is here: the module that it is in.
NAMES: Mapping[str, str] = MappingProxyType(
    {name: module for module, names in _MODULES.items() for name in names}
)
#: By each name of theirs that is not here: what takes its place.
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "PushToHubCallback": "save_pretrained, and upload the directory with huggingface_hub",
        "KerasMetricCallback": "python -m bert_tf.finetune, which judges after each epoch",
        "TFTrainer": "python -m bert_tf.finetune",
        "TFTrainingArguments": "the flags of python -m bert_tf.finetune",
        "Trainer": "python -m bert_tf.finetune; Trainer is PyTorch's",
        "TrainingArguments": "the flags of python -m bert_tf.finetune",
    }
)

__all__ = [*sorted(NAMES)]


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seeds Python's, NumPy's and TensorFlow's random numbers."""
    import keras

    keras.utils.set_random_seed(seed)


def __getattr__(name: str) -> Any:
    if name in NAMES:
        module = importlib.import_module(f".{NAMES[name]}", __name__)
        value = module.MODELS[name] if name in getattr(module, "MODELS", ()) else None
        globals()[name] = value = getattr(module, name) if value is None else value
        return value
    if name in REFUSED:
        raise ImportError(f"bert_tf.transformers has no {name}: use {REFUSED[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
