"""Corpora: text files split into documents of sentences, in blocks."""
