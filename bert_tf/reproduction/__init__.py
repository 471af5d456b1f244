"""The stages of ``python -m bert_tf.reproduce``."""
