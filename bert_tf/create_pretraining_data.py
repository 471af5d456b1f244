r"""Writes pre-training examples as TFRecords in the format of google-research/bert.

    python -m bert_tf.create_pretraining_data --input='corpus/*.txt' --vocab_file=vocab.txt \
        --output_file=examples.tfrecord

The records are for other programs; ``pretrain`` reads text directly.
docs/guides/pretraining_data.md describes parallel writing and Apache Beam.
"""

import contextlib
import dataclasses
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from typing import Any, ClassVar

from bert_tf.choices import INPUT_FORMATS
from bert_tf.cli import command
from bert_tf.cli.flag_fields import choice, integer, number, required, string, switch, words
from bert_tf.io.messages import listed, reason
from bert_tf.io.paths import absolute_path, local_path

_SHARDED = re.compile(r"(.+)@([1-9]\d{0,4})")
_A_FILE = "pass a file"
_ROW_FLAGS = (
    *("max_seq_length", "max_predictions_per_seq", "masked_lm_prob", "short_seq_prob"),
    "seed",
)


@dataclasses.dataclass(frozen=True)
class RecordSettings:
    """Flags of the command, except those of Apache Beam."""

    # Flag names of google-research/bert.
    other_names: ClassVar = {
        **{"input_file": "input", "dupe_factor": "num_epochs", "random_seed": "seed"}
    }

    input: Sequence[str] = words(
        (),
        "Text files to read, plain or gzip: paths and globs, separated by commas.",
        rules=[required(_A_FILE)],
    )
    input_format: str | None = choice(
        None,
        INPUT_FORMATS,
        "Format of the input; by default detected from the file name and the first lines.",
    )
    vocab_file: str = string(
        None,
        "Vocabulary file, one piece per line.",
        rules=[required(f"{_A_FILE}, such as one that python -m bert_tf.vocab creates")],
    )
    output_file: Sequence[str] = words(
        (),
        "TFRecord files, separated by commas, to which records are written in turn; or NAME@N for "
        "N files NAME-00000-of-N and so on, each with a part of the text.",
        rules=[required(_A_FILE)],
    )
    runner: str | None = string(
        None,
        "Apache Beam runner that writes NAME@N, such as DirectRunner, or the full path of a runner "
        "class (module.Class); all workers need access to the input, --vocab_file and "
        "--output_file.",
    )
    do_lower_case: bool = switch(True, "Lower-case the text and strip accents.")
    max_seq_length: int = integer(128, "Number of tokens per row.")
    max_predictions_per_seq: int = integer(20, "Maximum number of predictions per row.")
    masked_lm_prob: float = number(0.15, "Fraction of the tokens in a row to mask.")
    short_seq_prob: float = number(0.1, "Fraction of the documents to split into shorter rows.")
    do_whole_word_mask: bool = switch(False, "Mask whole words.")
    num_epochs: int = integer(
        10, "Number of passes over the text, each with new pairs and masks.", min_value=1
    )
    seed: int = integer(12345, "Random seed.")


def _shard_paths(outputs: Sequence[str]) -> list[str] | None:
    """Returns the files of ``NAME@N``; ``None`` for other paths."""
    matches = [_SHARDED.fullmatch(output) for output in outputs]
    if not any(matches):
        return None
    (match, *rest) = matches
    if match is None or rest:
        raise ValueError(
            f"--output_file={','.join(outputs)}: NAME@N cannot be combined with other files. Pass "
            "a single NAME@N."
        )
    count = int(match[2])
    return [f"{match[1]}-{number:05d}-of-{count:05d}" for number in range(count)]


def _beam_pipeline(runner: str, beam_flags: Sequence[str]) -> Any:
    """Creates an Apache Beam pipeline with a runner and further Beam flags."""
    arguments = [f"--runner={runner}", *beam_flags]
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ImportError("--runner needs Apache Beam. Run pip install 'bert_tf[beam]'.") from error
    try:
        # The import of a runner's module defines the runner's flags.
        pipeline = beam.Pipeline(options=PipelineOptions(arguments))
    except (AttributeError, ImportError) as error:
        raise ValueError(
            f"{arguments[0]}: Apache Beam has no such runner ({reason(error)}). Pass a runner from "
            "docs/guides/clusters.md or a full class path, and install the runner's packages."
        ) from error
    unknown: list[str] = []
    PipelineOptions([]).get_all_options(
        add_extra_args_fn=lambda parser: unknown.extend(parser.parse_known_args(arguments)[1])
    )
    if unknown:
        raise ValueError(
            f"Unknown flags {listed(unknown)}: neither this command (--help=all) nor the Apache "
            "Beam runner defines them."
        )
    return pipeline


def main(settings: RecordSettings, *beam_flags: str) -> None:
    """Runs the command; ``beam_flags`` are passed to Apache Beam."""
    if beam_flags and not settings.runner:
        raise ValueError(
            f"Unknown flags {listed(beam_flags)}: use flags of this command (--help=all), or also "
            "pass --runner to use flags of Apache Beam."
        )

    sharded = _shard_paths(settings.output_file)
    # Beam workers may have different working directories.
    resolve = absolute_path if settings.runner else str
    paths = [*map(resolve, sharded or settings.output_file)]
    if settings.runner and not sharded:
        raise ValueError("--runner needs one output file per worker. Pass --output_file=NAME@N.")
    pipeline = _beam_pipeline(settings.runner, beam_flags) if settings.runner else None
    command.load_tensorflow()
    from bert_tf.io.files import check_not_exists
    from bert_tf.pipelines.pretraining import record_shards, tfrecords
    from bert_tf.pipelines.pretraining.dataset import RowOptions, describe_rows

    for path in paths:
        check_not_exists(path)
    rows = RowOptions(
        masking="whole_word" if settings.do_whole_word_mask else "token",
        **{name: getattr(settings, name) for name in _ROW_FLAGS},
    )
    with contextlib.ExitStack() as stack:
        targets = stack.enter_context(record_shards.atomic_shards(paths)) if sharded else paths
        scratch = local_path(os.path.dirname(targets[0])) if sharded else None
        if settings.runner or scratch:  # visible to all workers, and deleted with the shards
            cache_dir = os.path.join(os.path.dirname(targets[0]), "corpus")
        else:
            cache_dir = stack.enter_context(tempfile.TemporaryDirectory())
        source = record_shards.Source(
            tuple(map(resolve, settings.input)),
            settings.input_format,
            cache_dir,
            resolve(settings.vocab_file),
            settings.do_lower_case,
            settings.num_epochs,
        )
        corpus, tokenizer = record_shards.open_source(source)
        print(f"Corpus: {corpus.describe()}.", flush=True)
        lines = describe_rows(corpus, tokenizer, rows)
        print(*lines, sep="\n", flush=True)
        summary = "Examples"
        if pipeline is not None:
            record_shards.write_on_beam(pipeline, source, rows, targets)
        elif sharded:
            summary = f"{record_shards.write_shards(source, rows, targets, scratch):,} examples"
        else:
            examples = record_shards.examples(source, rows)
            summary = f"{tfrecords.write_tfrecords(examples, targets, are_new=True):,} examples"
    next_flags = {
        "input": (
            f"{settings.output_file[0].rpartition('@')[0]}-?????-of-{len(paths):05d}"
            if sharded
            else ",".join(paths)
        ),
        "input_format": "tfrecord",
        "vocab_file": settings.vocab_file,
        "do_lower_case": str(settings.do_lower_case).lower(),
        "max_seq_length": settings.max_seq_length,
        "max_predictions_per_seq": settings.max_predictions_per_seq,
    }
    words = [shlex.quote(f"--{name}={value}") for name, value in next_flags.items()]
    print(f"{summary} in {', '.join(settings.output_file)}. Next:")
    print("  python -m bert_tf.pretrain", *words)


if __name__ == "__main__":
    command.run(main, RecordSettings, passes_on=True)
