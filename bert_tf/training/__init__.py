"""Training loop, losses, optimizers, devices, checkpoints and run directories.

Import the modules by name, for example ``from bert_tf.training import optimizers``.
"""
