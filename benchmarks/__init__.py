"""Measurements against the peers, each side by side in one run."""
