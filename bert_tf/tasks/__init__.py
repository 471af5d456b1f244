"""What each kind of task is: its data, model, loss, scores, predictions and ``task.json``."""
