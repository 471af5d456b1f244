"""Predictions against labels: scores, calibration, the tasks' own files."""
