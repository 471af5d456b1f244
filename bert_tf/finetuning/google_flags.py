"""Flags of google-research/bert's scripts that fine-tuning takes, too."""

from bert_tf.cli.flag_fields import WithoutEffect

# By their names, those here.
ALIASES = {
    "task_name": "task",
    "output_dir": "model_dir",
    "predict_file": "dev_file",
    "predict_batch_size": "eval_batch_size",
    "random_seed": "seed",
}

_ALL_THREE = "a run trains, evaluates and predicts; python -m bert_tf.predict uses a finished one"
# Flags of Google's scripts that are accepted.
WITHOUT_EFFECT = {
    "do_train": WithoutEffect(_ALL_THREE, True),
    "do_eval": WithoutEffect(_ALL_THREE, True),
    "do_predict": WithoutEffect(_ALL_THREE, True),
    "use_tpu": WithoutEffect("fine-tuning runs on GPUs or the CPU (--strategy)", False),
    "bert_config_file": WithoutEffect("--init_checkpoint has its config beside it", ""),
    "vocab_file": WithoutEffect("--init_checkpoint has its vocabulary beside it", ""),
    "do_lower_case": WithoutEffect("--init_checkpoint records its casing"),
    "save_checkpoints_steps": WithoutEffect(
        "every epoch is saved; --save_checkpoints_minutes adds saves within an epoch"
    ),
    "iterations_per_loop": WithoutEffect("every step is a call", "1"),
}
