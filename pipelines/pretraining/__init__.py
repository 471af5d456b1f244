"""The rows of pre-training: pairs, masked tokens, and their batches, in an order to resume."""
