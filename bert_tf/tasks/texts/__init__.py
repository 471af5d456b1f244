"""Classes, numbers and choices, of a text or two."""
