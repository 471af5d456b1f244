"""Task type for embedding models: similarity of texts."""
