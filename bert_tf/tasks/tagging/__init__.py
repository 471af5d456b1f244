"""A tag for each word, as of the entities that CoNLL's files name."""
