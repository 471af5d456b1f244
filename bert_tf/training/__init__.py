"""Training: its order, loop and step, losses, optimizers, devices, checkpoints, run directory.

The modules are imported by name, for example ``from bert_tf.training import optimizers``.
"""
