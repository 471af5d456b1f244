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

from absl import flags

from bert_tf.choices import INPUT_FORMATS
from bert_tf.cli import command
from bert_tf.untrusted import listed

_INPUT = flags.DEFINE_list("input", [], "Text files, with globs and commas; gzip allowed.")
_INPUT_FORMAT = flags.DEFINE_enum(
    "input_format",
    None,
    INPUT_FORMATS,
    "How documents are told apart; by default recognised by the suffix and the first lines.",
)
_OUTPUT = flags.DEFINE_list(
    "output_file",
    [],
    "The TFRecord files to write, with commas; they take the examples in turn. Or NAME@N: N files "
    "NAME-00000-of-N and so on, each with a share of the text.",
)
_RUNNER = flags.DEFINE_string(
    "runner",
    None,
    "Write NAME@N on Apache Beam, by this runner of it, such as DirectRunner or DataflowRunner. "
    "Every worker has to see the input, --vocab_file, --output_file and --cache_dir.",
)
_VOCAB = flags.DEFINE_string("vocab_file", None, "The vocabulary, one piece a line.")
_LOWER = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens in a row.")
_PREDICTIONS = flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "The most masked tokens in a row."
)
_MASKED = flags.DEFINE_float("masked_lm_prob", 0.15, "The share of a row's tokens to mask.")
_SHORT = flags.DEFINE_float("short_seq_prob", 0.1, "The share of documents cut shorter.")
_WHOLE = flags.DEFINE_bool("do_whole_word_mask", False, "Mask whole words.")
_EPOCHS = flags.DEFINE_integer(
    "num_epochs", 10, "Passes over the text, each paired and masked anew.", lower_bound=1
)
_SEED = flags.DEFINE_integer("seed", 12345, "The seed of everything random.")
_CACHE = flags.DEFINE_string(
    "cache_dir",
    None,
    "Where blocks of JSON lines and large gzip files are kept; by default a temporary folder.",
)
flags.adopt_module_key_flags(command)
flags.DEFINE_alias("input_file", "input")
flags.DEFINE_alias("dupe_factor", "num_epochs")
flags.DEFINE_alias("random_seed", "seed")


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name and, with a runner, Beam's flags."""
    for flag, value in (
        ("input", _INPUT.value),
        ("vocab_file", _VOCAB.value),
        ("output_file", _OUTPUT.value),
    ):
        if not value:
            hint = "; python -m bert_tf.vocab learns one" if flag == "vocab_file" else ""
            raise ValueError(f"--{flag} is missing: it has to name a file{hint}.")
    if argv[1:] and not _RUNNER.value:
        raise ValueError(
            f"{listed(argv[1:])}: no flag of this command, whose --help lists them; flags of "
            "Apache Beam are given with --runner."
        )

    from bert_tf.files import check_new
    from bert_tf.pipelines import pretraining, tfrecords
    from bert_tf.pipelines.vocabulary import casing_note
    from bert_tf.preparation import beam, record_shards

    sharded = record_shards.shard_paths(_OUTPUT.value)
    paths = sharded or _OUTPUT.value
    beam_flags = [f"--runner={_RUNNER.value}", *argv[1:]]
    if _RUNNER.value and not sharded:
        raise ValueError(
            "--runner is for files that workers write each on its own: give --output_file=NAME@N."
        )
    if _RUNNER.value and not beam.is_local(beam_flags) and not _CACHE.value:
        raise ValueError(
            f"--runner={_RUNNER.value} needs --cache_dir: a folder that every worker sees."
        )
    for path in paths:
        check_new(path)  # before all the work
    with record_shards.cache_folder(_CACHE.value) as cache_dir, contextlib.ExitStack() as stack:
        process = stack.enter_context(beam.started(beam_flags)) if _RUNNER.value else None
        settings = record_shards.RecordSettings(
            input=tuple(_INPUT.value),
            input_format=_INPUT_FORMAT.value,
            cache_dir=cache_dir,
            vocab_file=_VOCAB.value,
            do_lower_case=_LOWER.value,
            max_seq_length=_LENGTH.value,
            max_predictions_per_seq=_PREDICTIONS.value,
            masked_lm_prob=_MASKED.value,
            short_seq_prob=_SHORT.value,
            do_whole_word_mask=_WHOLE.value,
            num_epochs=_EPOCHS.value,
            seed=_SEED.value,
        )
        corpus, tokenizer = settings.open()
        if note := casing_note(tokenizer.vocab, _LOWER.value):
            print(note, flush=True)
        print(f"Corpus: {corpus.describe()}.", flush=True)
        share, sample = pretraining.measure_share(
            corpus,
            tokenizer,
            max_seq_length=_LENGTH.value,
            short_seq_prob=_SHORT.value,
            seed=_SEED.value,
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
        "input": f"{_OUTPUT.value[0].rpartition('@')[0]}-*" if sharded else ",".join(paths),
        "input_format": "tfrecord",
        "vocab_file": _VOCAB.value,
        "do_lower_case": str(_LOWER.value).lower(),
        "max_seq_length": _LENGTH.value,
        "max_predictions_per_seq": _PREDICTIONS.value,
    }
    next_command = " ".join(
        shlex.quote(f"--{name}={value}") for name, value in flags_of_next.items()
    )
    print(
        f"{written} in {', '.join(_OUTPUT.value)}. Next:\n"
        f"  python -m bert_tf.pretrain {next_command}"
    )


if __name__ == "__main__":
    command.run(main, passes_on=True)
