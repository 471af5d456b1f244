"""The stages of a pre-training run, from its flags to its results."""
