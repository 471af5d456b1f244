"""The Keras model: layers, encoder, pre-training and task models; keras and keras.ops only."""

from .classifier import BertClassifier, BertRegressor
from .dropout import seed_variables
from .encoder import BertEncoder
from .feature_tagger import BertFeatureTagger
from .frozen_features import BertFeatures
from .layer_mixing import LayerMixture
from .multiple_choice import BertMultipleChoice
from .pretrainer import BertPretrainer
from .span_predictor import BertSpanPredictor
from .token_classifier import BertTokenClassifier

__all__ = [
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
