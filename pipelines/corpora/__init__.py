"""Corpora: files of text found, opened and cut into documents of sentences, in blocks."""
