"""Evaluation of a model on a data set: outputs, scores, a report page and prediction files."""
