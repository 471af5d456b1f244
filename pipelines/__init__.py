"""Text to model features with tf.data, in the graph: corpora, tokens, pairs, masks, batches."""

from bert_tf.io.runtime import check_versions

# Before a module here imports tensorflow_text, which fails beside another TensorFlow with a message
# about undefined symbols.
check_versions()
