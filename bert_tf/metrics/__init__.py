"""Predictions against labels: scores, their intervals, calibration, the tasks' own files."""
