r"""Writes pre-training examples as TFRecords in the format of Google's script of the same name.

    python -m bert_tf.create_pretraining_data --input='corpus/*.txt' --vocab_file=vocab.txt \
        --output_file=examples.tfrecord

``python -m bert_tf.pretrain`` needs no such files: it pairs and masks anew in every epoch, as it
reads. They are for other programs, and for fixing the examples of an experiment once.

--output_file=examples.tfrecord@16 writes sixteen files, examples.tfrecord-00000-of-00016 and so on.
With --runner=DirectRunner, or another runner of Apache Beam (pip install 'bert_tf[beam]'), its
workers write them, each the same bytes as without; Beam's own flags follow, such as
--direct_running_mode=multi_processing --direct_num_workers=8.
"""

import contextlib
import functools
import shlex
import tempfile

from absl import flags

from bert_tf.cli import command, flag_fields
from bert_tf.preparation.settings import RECORD_ALIASES, RecordFlags
from bert_tf.untrusted import listed


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(RecordFlags, flags.FLAGS, RECORD_ALIASES)


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name and, with a runner, Beam's flags."""
    given = flag_fields.checked(RecordFlags, flags.FLAGS)
    if argv[1:] and not given.runner:
        raise ValueError(
            f"This command has no flag {listed(argv[1:])} (--help lists its flags); those of "
            "Apache Beam need --runner."
        )

    command.load_tensorflow()
    from bert_tf.files import check_new
    from bert_tf.pipelines import pretraining, tfrecords
    from bert_tf.pipelines.vocabulary import casing_note
    from bert_tf.preparation import beam, record_shards

    sharded = record_shards.shard_paths(given.output_file)
    paths = sharded or given.output_file
    beam_flags = [f"--runner={given.runner}", *argv[1:]]
    if given.runner and not sharded:
        raise ValueError(
            "With --runner each worker writes files of its own: give --output_file=NAME@N."
        )
    if given.runner and not beam.is_local(beam_flags) and not given.cache_dir:
        raise ValueError(
            f"--runner={given.runner} needs --cache_dir: a folder that every worker sees."
        )
    for path in paths:
        check_new(path)  # before all the work
    with contextlib.ExitStack() as stack:
        cache_dir = given.cache_dir or stack.enter_context(tempfile.TemporaryDirectory())
        process = stack.enter_context(beam.started(beam_flags)) if given.runner else None
        settings = record_shards.RecordSettings(
            **{**vars(given), "input": tuple(given.input), "output_file": tuple(paths)}
            | {"cache_dir": cache_dir}
        )
        corpus, tokenizer = settings.open()
        if note := casing_note(tokenizer.vocab, given.do_lower_case):
            print(note, flush=True)
        print(f"Corpus: {corpus.describe()}.", flush=True)
        share, sample = pretraining.measure_share(
            corpus,
            tokenizer,
            max_seq_length=given.max_seq_length,
            short_seq_prob=given.short_seq_prob,
            seed=given.seed,
        )
        print(f"Tokens that reach rows: {share:.1%} of a sample of {sample:,}.", flush=True)
        written = "Examples"
        targets = stack.enter_context(record_shards.named_together(paths)) if sharded else paths
        if process is not None:
            work = functools.partial(record_shards.write_shard, settings, targets)
            process.run([beam.Step("shards", len(targets), work)], lambda: None)
        else:
            examples = functools.partial(settings.examples, corpus, tokenizer)
            if sharded:
                counts = [
                    tfrecords.write_tfrecords(examples(shard, len(targets)), path)
                    for shard, path in enumerate(targets)
                ]
            else:
                counts = [tfrecords.write_tfrecords(examples(), targets, are_new=True)]
            written = f"{sum(counts):,} examples"
    flags_of_next = {
        "input": f"{given.output_file[0].rpartition('@')[0]}-*" if sharded else ",".join(paths),
        "input_format": "tfrecord",
        "vocab_file": given.vocab_file,
        "do_lower_case": str(given.do_lower_case).lower(),
        "max_seq_length": given.max_seq_length,
        "max_predictions_per_seq": given.max_predictions_per_seq,
    }
    next_command = " ".join(
        shlex.quote(f"--{name}={value}") for name, value in flags_of_next.items()
    )
    print(
        f"{written} in {', '.join(given.output_file)}. Next:\n"
        f"  python -m bert_tf.pretrain {next_command}"
    )


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(command)
    command.run(main, passes_on=True)
