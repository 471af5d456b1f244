"""What a fine-tuning leaves, and how people read it: its directory, lines, pages, comparisons."""
