"""Kinds of task: data, model, loss, scores, predictions and ``task.json`` of each."""
