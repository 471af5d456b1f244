"""Implementation of ``python -m bert_tf.extract_features``."""
