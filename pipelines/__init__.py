"""Text to model features with tf.data, in the graph: corpora, tokens, pairs, masks, batches."""
