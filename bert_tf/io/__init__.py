"""Files, paths, input that is not trusted, and text for people; the process and its machine."""
