"""Command-line parsing, flags and error reporting shared by all commands."""
