"""Pre-training examples: sentence pairs, masked tokens, and resumable batches."""

from .dataset import pretraining_dataset as pretraining_dataset

__all__ = ["pretraining_dataset"]
