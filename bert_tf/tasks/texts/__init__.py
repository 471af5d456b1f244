"""Task types for single texts and text pairs: classes, numbers and choices."""
