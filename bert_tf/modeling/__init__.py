"""Keras layers and models that use only ``keras`` and ``keras.ops``."""

from .base import BertModel
from .encoder import BertEncoder
from .feature_based import BertFeatures, BertFeatureTagger, LayerMixture
from .layers import seed_variables
from .pretrainer import BertPretrainer
from .task_models import (
    BertClassifier,
    BertMultipleChoice,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)

__all__ = [
    "MODEL_CLASSES",
    "BertClassifier",
    "BertEncoder",
    "BertFeatureTagger",
    "BertFeatures",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertRegressor",
    "BertSpanPredictor",
    "BertTokenClassifier",
    "LayerMixture",
    "seed_variables",
]

# All model classes by name. ``BertModel`` documents their class attributes.
MODEL_CLASSES: dict[str, type[BertModel]] = {
    model_class.__name__: model_class
    for model_class in (
        BertEncoder,
        BertPretrainer,
        BertClassifier,
        BertRegressor,
        BertTokenClassifier,
        BertFeatureTagger,
        BertSpanPredictor,
        BertMultipleChoice,
    )
}
