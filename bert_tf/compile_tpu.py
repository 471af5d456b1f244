r"""Compiles a pre-training's step for a TPU, without a TPU, and says what it would cost there.

    python -m bert_tf.compile_tpu --bert_config=bert-base --vocab_size=30522 --topology=v5e:2x2 \
        --train_batch_size=32 --max_seq_length=512 --precision=bfloat16

Its flags are those of bert_tf.pretrain, of which the model, the batch, the lengths, the precision
and the optimizer matter. The compiler, which pip install 'bert_tf[tpu-compiler]' brings, is the one
that a TPU's own machine has: what it says of memory decides whether a run starts. It prints the
memory, the work, the least time that the chip's arithmetic or memory needs for it, and the
instructions that move most bytes. Communication between cores is not counted.
"""

from absl import flags

from bert_tf.cli import command
from bert_tf.pretraining import settings as pretraining_settings
from bert_tf.pretraining.settings import settings_from_flags

_TOPOLOGY = flags.DEFINE_string(
    "topology", "v5e:2x2", "The kind of TPU and its chips: v4, v5e, v5p or v6e, such as v5e:2x2."
)
_CORES = flags.DEFINE_integer(
    "cores",
    1,
    "How many cores share --train_batch_size; the step of one is compiled.",
    lower_bound=1,
)
_HLO_FILE = flags.DEFINE_string("hlo_file", None, "Where to write the compiled program, as text.")


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    settings, _ = settings_from_flags(without_corpus="default")
    # Only now: --help and wrong flags answer without loading TensorFlow.
    from bert_tf.tpu_compiler.run import run

    run(settings, _TOPOLOGY.value, _CORES.value, _HLO_FILE.value)


if __name__ == "__main__":
    pretraining_settings.define_flags()
    flags.adopt_module_key_flags(pretraining_settings)
    flags.adopt_module_key_flags(command)
    command.run(main)
