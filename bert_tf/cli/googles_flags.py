"""Flags of google-research/bert's scripts that have no meaning here, and what to do instead.

Flags that another command of this library has are among them. Each sentence follows the flag and a
colon.
"""

from collections.abc import Container, Iterable

_LEAVE = "leave it out"
_TPU = f"pretrain alone runs on a TPU, other commands on the CPU or the GPUs; {_LEAVE}"

FLAGS = {
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
}


def instead(names: Iterable[str], known: Container[str]) -> list[str]:
    """For each name that the table has and a command does not, a clause of what to do instead."""
    return [
        f"--{name}: {FLAGS[name]}"
        for name in dict.fromkeys(names)
        if name in FLAGS and name not in known
    ]
