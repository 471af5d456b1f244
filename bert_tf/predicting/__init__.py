"""The stages of ``python -m bert_tf.predict``: files of texts to files of answers."""
