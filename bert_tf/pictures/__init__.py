"""Pictures, as SVG: what a fine-tuning, and several, came to."""
