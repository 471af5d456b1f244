r"""Writes pre-training examples as TFRecords in the format of Google's script of the same name.

    python -m bert_tf.create_pretraining_data --input='corpus/*.txt' --vocab_file=vocab.txt \
        --output_file=examples.tfrecord

``python -m bert_tf.pretrain`` needs no such files: it pairs and masks anew in every epoch, as it
reads. They are for other programs, and for fixing the examples of an experiment once.
"""

import shlex
import tempfile

from absl import flags

from bert_tf import command
from bert_tf.choices import INPUT_FORMATS

_INPUT = flags.DEFINE_list("input", [], "Text files, with globs and commas; gzip allowed.")
_INPUT_FORMAT = flags.DEFINE_enum(
    "input_format",
    None,
    INPUT_FORMATS,
    "How documents are told apart; by default told from the suffix and the first lines.",
)
_OUTPUT = flags.DEFINE_list(
    "output_file", [], "The TFRecord files to write, with commas; they take the examples in turn."
)
_VOCAB = flags.DEFINE_string("vocab_file", None, "The vocabulary, one piece a line.")
_LOWER = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens in a row.")
_PREDICTIONS = flags.DEFINE_integer("max_predictions_per_seq", 20, "The most masked in a row.")
_MASKED = flags.DEFINE_float("masked_lm_prob", 0.15, "The share of a row's tokens to mask.")
_SHORT = flags.DEFINE_float("short_seq_prob", 0.1, "The share of documents cut shorter.")
_WHOLE = flags.DEFINE_bool("do_whole_word_mask", False, "Mask whole words.")
_EPOCHS = flags.DEFINE_integer(
    "num_epochs", 10, "Passes over the text, each paired and masked anew.", lower_bound=1
)
_SEED = flags.DEFINE_integer("seed", 12345, "What all that is random is drawn from.")
_CACHE = flags.DEFINE_string(
    "cache_dir",
    None,
    "Where blocks of JSON lines and large gzip files are kept; by default a temporary folder.",
)
flags.adopt_module_key_flags(command)
flags.DEFINE_alias("input_file", "input")
flags.DEFINE_alias("dupe_factor", "num_epochs")
flags.DEFINE_alias("random_seed", "seed")

_BATCH = 256


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    for flag, value in (
        ("input", _INPUT.value),
        ("vocab_file", _VOCAB.value),
        ("output_file", _OUTPUT.value),
    ):
        if not value:
            raise ValueError(f"--{flag} is missing: it has to name a file.")

    from bert_tf.files import check_new
    from bert_tf.pipelines import pretraining, sources, tfrecords
    from bert_tf.pipelines.vocabulary import casing_note
    from bert_tf.pipelines.wordpiece import BertTokenizer

    for path in _OUTPUT.value:
        check_new(path)  # before all the work
    tokenizer = BertTokenizer(_VOCAB.value, do_lower_case=_LOWER.value)
    if note := casing_note(tokenizer.vocab, _LOWER.value):
        print(note, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        corpus = sources.open_corpus(
            _INPUT.value, input_format=_INPUT_FORMAT.value, cache_dir=_CACHE.value or temporary
        )
        print(f"Corpus: {corpus.describe()}.", flush=True)
        share, sample = pretraining.measure_share(
            corpus,
            tokenizer,
            max_seq_length=_LENGTH.value,
            short_seq_prob=_SHORT.value,
            seed=_SEED.value,
        )
        print(f"Tokens that reach rows: {share:.1%} of a sample of {sample:,}.", flush=True)
        examples = pretraining.pretraining_dataset(
            corpus,
            tokenizer,
            batch_size=_BATCH,
            max_seq_length=_LENGTH.value,
            max_predictions_per_seq=_PREDICTIONS.value,
            masked_lm_prob=_MASKED.value,
            short_seq_prob=_SHORT.value,
            masking="whole_word" if _WHOLE.value else "token",
            seed=_SEED.value,
            num_epochs=_EPOCHS.value,
            drop_remainder=False,
        )
        count = tfrecords.write_tfrecords(examples, _OUTPUT.value)
    flags_of_next = {
        "input": ",".join(_OUTPUT.value),
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
        f"{count:,} examples in {', '.join(_OUTPUT.value)}. Next:\n"
        f"  python -m bert_tf.pretrain {next_command}"
    )


if __name__ == "__main__":
    command.run(main)
