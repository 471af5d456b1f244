r"""Writes a BERT's hidden states of text: a vector for each token, or one for each line.

    python -m bert_tf.extract_features --init_checkpoint=uncased_L-12_H-768_A-12 \
        --input=sentences.txt --output=states
    python -m bert_tf.extract_features --init_checkpoint=all-MiniLM-L6-v2 --input='text/*.gz' \
        --pooling=mean --normalize --format=parquet --output=embeddings

A line is a sentence, or two with " ||| " between them. The first command's part-*.jsonl are, one
after the other, the JSON lines that google-research/bert's script of the same name writes. A
command that was stopped, however it was, resumes when it is given again, and --output ends as if
it had not been stopped.
"""

import dataclasses

from absl import flags

from bert_tf import command
from bert_tf.extraction.settings import ExtractionSettings, resolve

# As the model's modules have them, which take seconds to load.
FORMATS = ("jsonl", "numpy", "parquet", "tfrecord")
VARIANTS = ("embeddings", "second_to_last", "last", "concat_last_four")
POOLINGS = ("none", "cls", "mean", "max")
PRECISIONS = ("float32", "bfloat16")


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flags.DEFINE_string(
        "init_checkpoint", None, "The model: any directory, prefix or file that bert_tf.load takes."
    )
    flags.DEFINE_list(
        "input",
        [],
        "Text files, with globs and commas, on any file system TensorFlow reads; gzip allowed.",
    )
    flags.DEFINE_string("output", None, "The directory to write, or to resume.")
    flags.DEFINE_enum(
        "format",
        "jsonl",
        FORMATS,
        "jsonl: Google's, a JSON object a line. numpy: .npz files. parquet: takes pyarrow. "
        "tfrecord: tf.train.Example.",
    )
    flags.DEFINE_list(
        "layers",
        None,
        "The blocks to read, -1 for the last and 0 for the lowest. By default -1,-2,-3,-4; with "
        "--pooling -1.",
    )
    flags.DEFINE_enum(
        "variant",
        None,
        VARIANTS,
        "Instead of --layers, a row of the paper's table 7 (feature-based NER).",
    )
    flags.DEFINE_enum(
        "pooling",
        "none",
        POOLINGS,
        "One vector a line: that of [CLS], or the mean or the maximum over all tokens, [CLS] and "
        "[SEP] among them.",
    )
    flags.DEFINE_bool("normalize", False, "Scale the vectors of --pooling to length 1.")
    flags.DEFINE_integer(
        "max_seq_length",
        None,
        "The most tokens of a line, which is cut at its end; by default 128, or the model's "
        "positions if they are fewer.",
    )
    flags.DEFINE_integer("batch_size", 32, "The most lines of a batch.", lower_bound=1)
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "The arithmetic of the model.")
    flags.DEFINE_integer(
        "lines_per_shard",
        None,
        "Lines of each file, which is what is lost when the command is killed; 10,000 by default "
        "with --pooling, 1,000 without.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "allow_pickle",
        False,
        "Read pytorch_model.bin. A pickle can run any code: only from someone you trust.",
    )


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    values = flags.FLAGS
    names = [field.name for field in dataclasses.fields(ExtractionSettings)]
    settings = resolve(**{name: values[name].value for name in names})
    # TensorFlow loads here, after the flags were found good.
    from bert_tf.extraction.run import run

    run(settings)


if __name__ == "__main__":
    define_flags()
    command.run(main)
