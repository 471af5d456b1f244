"""Embeddings, by pairs of texts with a score and by texts that belong together."""
