"""The directory of a fine-tuning."""

import os

import tensorflow as tf

from bert_tf.checkpoints.model_card import README
from bert_tf.training import saved_states
from bert_tf.training.run_directory import RunDirectory


class FineTuningDirectory(RunDirectory):
    """The paths of a fine-tuning's ``--model_dir``; ``bert_tf.load`` takes it.

    | path              | what, besides the paths of every run                              |
    |-------------------|-------------------------------------------------------------------|
    | task.json         | what ``bert_tf.predict`` needs: columns, lengths                  |
    | checkpoints/      | the weights of the best evaluation                                |
    | last/             | the whole state at the newest save, until the run has finished    |
    | dev/, test/, ...  | by set: predictions, a page of scores and errors                  |
    | skipped_rows.txt  | the bad rows that were left out                                   |
    | runs/             | of a sweep: a directory like this for each run                    |
    | README.md         | the model card, for people and model hubs                         |
    | results.tsv       | of a sweep: its table                                             |
    """

    def __init__(self, path: str, *, is_temporary: bool = False) -> None:
        """``is_temporary``: the directory is gone after the run; nothing is kept to resume from."""
        super().__init__(path)
        self.is_temporary = is_temporary
        self.last = os.path.join(path, "last")
        self.described.append(os.path.join(path, "task.json"))
        self.skipped_rows = os.path.join(path, "skipped_rows.txt")
        self.runs = os.path.join(path, "runs")
        self.card = os.path.join(path, README)
        self.table = os.path.join(path, "results.tsv")

    def has_state(self) -> bool:
        """True if the training has saved a state to go on from."""
        return saved_states.has_finished(self.last)

    def delete_state(self) -> None:
        """Deletes the training's state, which a finished run does not need."""
        saved_states.delete_all(self.last)

    def has_checkpoint(self) -> bool:
        """True if the training, or one of a sweep, has saved anything."""
        if super().has_checkpoint() or self.has_state():
            return True
        runs = tf.io.gfile.listdir(self.runs) if tf.io.gfile.isdir(self.runs) else ()
        below = [FineTuningDirectory(os.path.join(self.runs, name)) for name in runs]
        return any(run.has_progress() for run in below)
