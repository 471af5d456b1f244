"""Results of a fine-tuning for people: its directory, printed lines, pages."""
