"""Training: losses, optimizers, schedules, distribution, checkpoints and the pre-training loop.

The modules are imported by name, for example ``from bert_tf.training import loop``:

* ``losses``: the two pre-training losses as sums, to be reduced and then divided.
* ``schedules``: the paper's learning-rate curve.
* ``optimizers``: Google's Adam and AdamW, with the paper's weight-decay exclusions.
* ``distribution``: which devices to run on, and in which precision.
* ``step``: one replica's update: gradients are reduced over the replicas, clipped, applied.
* ``loop``: the pre-training loop round its step, the same for every strategy; held-out losses and
  accuracies next to their trivial baselines.
* ``checkpoints``: flat, exact, verified checkpoints.
* ``run_directory``: what a run keeps in its ``--model_dir``, and when it resumes.
"""
