"""The tasks that BERT is fine-tuned on: published files read, predictions written, metrics."""
