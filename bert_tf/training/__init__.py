"""Training: its order, loop and step, losses, optimizers, distribution, checkpoints.

The modules are imported by name, for example ``from bert_tf.training import trainer``:

* ``trainer``: the order of every training: steps, callbacks, saves, evaluations, how it ends.
* ``loop``: the compiled steps of every training, whatever the strategy.
* ``step``: one replica's update, of an objective: gradients are reduced, clipped, applied.
* ``losses``: softmax cross-entropy as sums, to be reduced and then divided.
* ``schedules``: the paper's learning-rate curve.
* ``optimizers``: Google's Adam and AdamW, with the paper's weight-decay exclusions.
* ``distribution``: which devices to run on, and in which precision.
* ``saved_states``: flat, exact, verified checkpoints of a training's state.
* ``run_directory``: what a run keeps in its ``--model_dir``, and when it resumes.
"""
