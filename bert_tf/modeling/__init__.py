"""The Keras model: layers, ``BertEncoder``, ``BertPretrainer``; keras and keras.ops only."""

from .dropout import seed_variables
from .encoder import BertEncoder
from .pretrainer import BertPretrainer

__all__ = ["BertEncoder", "BertPretrainer", "seed_variables"]
