"""What a model's outputs say, in-graph: evaluation, predictions and exports share these functions.

``classes`` is for one class, several, or a choice; ``entities`` for tags. What the logits of spans
say is ``bert_tf.pipelines.answers``, and a regressor's output is the number itself.
"""
