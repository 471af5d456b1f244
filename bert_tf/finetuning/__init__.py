"""Fine-tuning for all task types."""
