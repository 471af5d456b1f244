"""The rows of pre-training: pairs, masked tokens, and their batches, in an order to resume."""

from .dataset import pretraining_dataset as pretraining_dataset

__all__ = ["pretraining_dataset"]
