"""Predictions for files and for data in memory."""
