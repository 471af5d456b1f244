"""Task types for single texts and text pairs: classification, regression and multiple choice."""
