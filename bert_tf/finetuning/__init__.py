"""The stages of fine-tuning, from its flags to its results, for every kind of task."""
