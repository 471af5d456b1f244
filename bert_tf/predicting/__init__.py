"""Predictions on files and on data in memory."""
