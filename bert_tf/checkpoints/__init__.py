"""Checkpoints of other libraries, and of this one: in and out."""

# Formats that ``python -m bert_tf.convert`` writes; here, so that its --help loads no TensorFlow.
FORMATS = ("bert_tf", "huggingface", "google_tf1")
