"""Evaluation of a model on a set: its outputs, scores, a report page, files of predictions."""
