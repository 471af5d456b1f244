"""SavedModel export for TensorFlow Serving: strings in, answers out, the tokenizer inside."""
