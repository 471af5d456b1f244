"""Benchmarks against other libraries; each comparison runs all contenders side by side."""
