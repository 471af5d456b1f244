"""Flags of scripts of google-research/bert, transformers and Keras, and their replacements."""

from collections.abc import Container, Iterable

# Some of these are flags of other bert_tf commands.
_REMOVE = "remove it"
_TPU = f"only pretrain runs on a TPU; {_REMOVE}"
_AUTOMATIC = (
    "evaluation_strategy eval_strategy eval_steps evaluate_during_training save_strategy "
    "save_steps save_total_limit load_best_model_at_end logging_steps logging_dir report_to "
    "disable_tqdm overwrite_cache pad_to_max_length local_rank dataloader_num_workers "
    "use_fast_tokenizer tokenizer_name config_name fp16_opt_level"
)
_OTHERS = {
    "do_train": f"finetune and pretrain always train; {_REMOVE}",
    "do_eval": f"a run always evaluates the held-out data; {_REMOVE}",
    "do_predict": "use finetune --test_file, or python -m bert_tf.predict",
    "use_tpu": f"--tpu=NAME selects a TPU; {_REMOVE}",
    "dupe_factor": f"pairs and masks are drawn again in every epoch; {_REMOVE}",
    "num_tpu_cores": f"all cores of the TPU are used; {_REMOVE}",
    "tpu": _TPU,
    "tpu_name": _TPU,
    "master": "use --tpu=grpc://HOST:PORT",
    "tpu_zone": f"--tpu=NAME is looked up in the zone of this machine; {_REMOVE}",
    "gcp_project": f"--tpu=NAME is looked up in the project of this machine; {_REMOVE}",
    "iterations_per_loop": f"the number of steps per call is automatic; {_REMOVE}",
    "bert_config_file": f"the config next to --init_checkpoint is used; {_REMOVE}",
    "vocab_file": f"the vocabulary next to --init_checkpoint is used; {_REMOVE}",
    "do_lower_case": f"--init_checkpoint determines the casing; {_REMOVE}",
    "save_checkpoints_steps": f"every epoch is saved; {_REMOVE}",
    "do_whole_word_mask": "use --masking=whole_word",
    "verbose_logging": "use --debug to print tracebacks",
    "version_2_with_negative": "whether questions can be unanswerable is inferred from the "
    f"training file; {_REMOVE}",
    "layers": "use extract_features --layers for hidden states",
    "allow_pickle": "convert the file once with python -m bert_tf.convert --allow_pickle",
    "overwrite_output_dir": "use another --model_dir, or delete the old one",
    "no_cuda": "set CUDA_VISIBLE_DEVICES=-1 in the environment",
    "max_grad_norm": f"gradients are clipped to norm 1; {_REMOVE}",
    "lr_scheduler_type": f"the schedule is linear with warm-up; {_REMOVE}",
    **dict.fromkeys(_AUTOMATIC.split(), f"this is automatic; {_REMOVE}"),
}
# Flags of bert_tf, and equivalent names in scripts of transformers, Keras and others.
FOREIGN_NAMES = {
    "train_batch_size": "batch_size per_device_train_batch_size per_gpu_train_batch_size bs",
    "eval_batch_size": "per_device_eval_batch_size per_gpu_eval_batch_size",
    "batch_size": "eval_batch_size per_device_eval_batch_size predict_batch_size",
    "learning_rate": "lr init_lr peak_lr",
    "num_train_epochs": "epochs n_epochs num_epochs max_epochs",
    "num_train_steps": "max_steps train_steps steps epochs num_epochs num_train_epochs",
    "max_steps": "num_train_steps train_steps steps",
    "max_seq_length": "max_length max_len max_seq_len seq_length seq_len block_size",
    "init_checkpoint": "model_name_or_path model_name pretrained_model_name_or_path bert_model "
    "model checkpoint",
    "model": "model_name_or_path model_name model_path model_dir checkpoint init_checkpoint",
    "model_dir": "save_dir out_dir output",
    "output": "output_dir output_file",
    "precision=bfloat16": "fp16 bf16 use_fp16 amp use_amp half mixed_precision bf16_full_eval",
    "jit_compile": "use_xla xla enable_xla torch_compile",
    "remat": "gradient_checkpointing",
    "warmup_proportion": "warmup_steps num_warmup_steps warmup_ratio warmup",
    "num_warmup_steps": "warmup_steps warmup_ratio warmup warmup_proportion",
    "gradient_accumulation_steps": "accumulate_grad_batches grad_accum_steps",
    "optimizer": "optim",
    "early_stopping_epochs": "early_stopping_patience patience",
    "label_smoothing": "label_smoothing_factor",
    "hidden_dropout_prob": "dropout dropout_rate",
    "train_file": "train_data_file train_data input input_file",
    "dev_file": "validation_file eval_file eval_data_file valid_file",
    "input": "train_file train_data_file train_data data_file predict_file test_file",
    "text_columns": "text_column text_column_name sentence1_key",
    "label_column": "label_column_name label_name",
    "masked_lm_prob": "mlm_probability",
    "masking=whole_word": "whole_word_mask wwm",
    "save_checkpoints_steps": "save_steps",
    "keep_checkpoints": "save_total_limit",
    "strategy": "distribution_strategy num_gpus n_gpu",
}


def foreign_flag_hints(names: Iterable[str], known: Container[str]) -> list[str]:
    """Returns a hint for each foreign flag in ``names``; ``known`` are the command's own flags."""
    hints = {}
    for name in names:
        plain = name.lower().replace("-", "_")
        plain = plain if plain == "no_cuda" else plain.removeprefix("no")
        equivalents = (flag for flag, others in FOREIGN_NAMES.items() if plain in others.split())
        flag = next((flag for flag in equivalents if flag.split("=")[0] in known), "")
        hint = f"use --{flag}" if flag else _OTHERS.get(plain, "")
        if hint and plain not in known:
            hints[f"--{plain}"] = hint
    return [f"{flag}: {hint}" for flag, hint in hints.items()]
