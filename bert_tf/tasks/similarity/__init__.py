"""Task type for text similarity, which trains embedding models."""
