#!/usr/bin/env bash
# TensorFlow 2.21.0's SlurmClusterResolver sorts the nodes of a step by their names as texts, and Slurm counts the
# tasks in the order of its list: of n[9-10] the task of rank 0 runs on n9, and is told that its address is n10's.
# Without arguments it runs nvidia-smi, and fails where there is none, with FileNotFoundError; with gpus_per_node=0
# it fails later, as range() is given a step of 0.
#
# Guessed: worker i has the address of the i-th node, and a machine without a GPU counts none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow-cpu==2.21.0
# What srun --nodes=2 sets for the task on n9.
export SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 'SLURM_STEP_NODELIST=n[9-10]' 'SLURM_STEP_TASKS_PER_NODE=1(x2)'
unset CUDA_VISIBLE_DEVICES
TF_CPP_MIN_LOG_LEVEL=3 PATH="" venv/bin/python - 2>/dev/null <<'PY'
import tensorflow as tf


def addresses(**arguments):
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(**arguments)
    return resolver.cluster_spec().as_dict()["worker"], resolver.get_task_info()


found = addresses(gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False)
print(tf.__version__, "the task of rank 0, on n9:", found)
assert found == (["n10:8888", "n9:8888"], ("worker", 0)), found
for arguments, expected in (({}, FileNotFoundError), ({"gpus_per_node": 0}, ValueError)):
    try:
        print(addresses(**arguments))
    except expected as error:
        print(arguments, repr(error))
    else:
        raise SystemExit("no error")
PY
