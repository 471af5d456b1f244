"""Checkpoints of other libraries, and of this one: in and out."""
