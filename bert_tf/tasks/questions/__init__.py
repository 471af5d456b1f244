"""Task type for extractive question answering, such as SQuAD."""
