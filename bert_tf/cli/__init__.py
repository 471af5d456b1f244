"""Shared parts of the commands: flags, errors in a sentence."""
