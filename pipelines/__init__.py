"""Text pipelines with tf.data: corpora, tokens, sentence pairs, masks and batches."""

from bert_tf.io.runtime import check_versions

# Checked before tensorflow_text is imported, which fails with undefined symbols if its version does
# not match TensorFlow.
check_versions()
