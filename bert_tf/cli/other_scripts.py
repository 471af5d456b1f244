"""Flags of scripts of google-research/bert, transformers and Keras: what to do here instead."""

from collections.abc import Container, Iterable

# Flags that another command of this library has are among them.
_LEAVE = "leave it out"
_TPU = f"pretrain alone runs on a TPU, other commands on the CPU or the GPUs; {_LEAVE}"
_DECIDED = (
    "evaluation_strategy eval_strategy eval_steps evaluate_during_training save_strategy "
    "save_steps save_total_limit load_best_model_at_end logging_steps logging_dir report_to "
    "disable_tqdm overwrite_cache pad_to_max_length local_rank dataloader_num_workers "
    "use_fast_tokenizer tokenizer_name config_name fp16_opt_level"
)
_OTHERS = {
    "do_train": f"finetune and pretrain always train; {_LEAVE}",
    "do_eval": f"a run always evaluates what is held out; {_LEAVE}",
    "do_predict": f"finetune predicts --test_file, python -m bert_tf.predict any file; {_LEAVE}",
    "use_tpu": f"--tpu=NAME alone chooses a TPU; {_LEAVE}",
    "dupe_factor": f"every epoch pairs and masks the text anew; {_LEAVE}",
    "num_tpu_cores": f"every core of the TPU is used; {_LEAVE}",
    "tpu": _TPU,
    "tpu_name": _TPU,
    "master": "name the coordinator by --tpu=grpc://HOST:PORT",
    "tpu_zone": f"--tpu=NAME is looked up in the machine's own zone; {_LEAVE}",
    "gcp_project": f"--tpu=NAME is looked up in the machine's own project; {_LEAVE}",
    "iterations_per_loop": f"the run chooses how many steps a call makes; {_LEAVE}",
    "bert_config_file": f"--init_checkpoint has its config beside it; {_LEAVE}",
    "vocab_file": f"--init_checkpoint has its vocabulary beside it; {_LEAVE}",
    "do_lower_case": f"--init_checkpoint records its casing; {_LEAVE}",
    "save_checkpoints_steps": f"every epoch is saved; {_LEAVE}",
    "do_whole_word_mask": "use --masking=whole_word",
    "verbose_logging": f"--debug shows the traceback of an error; {_LEAVE}",
    "version_2_with_negative": "whether a question may have no answer is read from the training "
    f"file; {_LEAVE}",
    "layers": "extract_features --layers writes the states of blocks",
    "allow_pickle": "convert a pytorch_model.bin once with python -m bert_tf.convert "
    "--allow_pickle, and name its output here",
    "overwrite_output_dir": "a run goes on in its --model_dir; name another, or remove it yourself",
    "no_cuda": f"an environment with CUDA_VISIBLE_DEVICES=-1 hides the GPUs; {_LEAVE}",
    "max_grad_norm": f"gradients are clipped as in the paper's code; {_LEAVE}",
    "lr_scheduler_type": f"the rate rises, and falls to 0 in a line, as in the paper; {_LEAVE}",
    **dict.fromkeys(_DECIDED.split(), f"the command decides that itself; {_LEAVE}"),
}
# Flags of this library by what scripts of transformers, Keras and others call them.
_HERE = {
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


def instead(names: Iterable[str], known: Container[str]) -> list[str]:
    """For each name that a table has and a command does not, a clause of what to do instead."""
    clauses = {}
    for name in names:
        plain = name.lower().replace("-", "_")
        plain = plain if plain == "no_cuda" else plain.removeprefix("no")
        here = (flag for flag, others in _HERE.items() if plain in others.split())
        flag = next((flag for flag in here if flag.split("=")[0] in known), "")
        todo = f"use --{flag}" if flag else _OTHERS.get(plain, "")
        if todo and plain not in known:
            clauses[f"--{plain}"] = todo
    return [f"{flag}: {todo}" for flag, todo in clauses.items()]
