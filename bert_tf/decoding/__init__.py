"""Decoding of a model's outputs, in-graph, shared by evaluation, predictions and exports.

``classes`` is for one class, several, or a choice; ``entities`` for tags. What the logits of spans
say is ``bert_tf.pipelines.answers``, and a regressor's output is the number itself.
"""
