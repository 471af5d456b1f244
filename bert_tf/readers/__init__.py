"""Readers of labeled data: published data sets, custom tables, CoNLL columns and JSON."""
