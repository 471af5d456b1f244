"""Files, paths, validation of untrusted input, message formatting, and process setup."""
