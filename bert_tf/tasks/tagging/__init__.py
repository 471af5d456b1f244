"""Task type for tagging words, such as named entity recognition."""
