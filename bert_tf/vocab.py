"""Learns a WordPiece vocabulary from text.

    python -m bert_tf.vocab --input='corpus/*.txt.gz' --output=vocab.txt

The same text and flags always result in the same vocabulary. 100 MB take less than a minute on
two cores.
"""

import dataclasses
import shlex
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_tf.choices import INPUT_FORMATS
from bert_tf.cli import command
from bert_tf.cli.flag_fields import choice, integer, required, string, switch, words
from bert_tf.io import paths

if TYPE_CHECKING:
    from bert_tf.pipelines.corpora.corpus import Corpus

_NUM_PRINTED = 20
# Maximum number of bytes to learn from; a larger corpus is sampled evenly.
_MAX_BYTES = 500_000_000
# Bytes of the sample in which unknown words are counted; tokenizing it takes about a second.
_COVERAGE_BYTES = 2_000_000
_REQUIRED = required("pass --input=FILES and --output=FILE")


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """Flags of the command."""

    input: Sequence[str] = words(
        (),
        "Text files to learn from, plain or gzip: paths and globs, separated by commas, on any "
        "file system that TensorFlow supports.",
        rules=[_REQUIRED],
    )
    output: str = string("", "New file for the vocabulary, one piece per line.", rules=[_REQUIRED])
    input_format: str | None = choice(
        None,
        INPUT_FORMATS,
        "Format of the input: google (one sentence per line), wikiextractor (<doc> elements), "
        "prose (paragraphs) or jsonl (one document per line, under 'text'); by default detected "
        "from the file name and the first lines.",
    )
    vocab_size: int = integer(30522, "Number of pieces to learn.")
    do_lower_case: bool = switch(True, "Lower-case the text and strip accents (uncased).")
    min_frequency: int = integer(
        2,
        "Minimum number of occurrences of a character, or of a pair of pieces, to become a piece.",
        advanced=True,
    )


def main(settings: VocabularySettings) -> None:
    """Runs the command."""
    paths.check_inputs(texts=settings.input)
    # TensorFlow is loaded late, so that flag errors are reported immediately.
    command.load_tensorflow()
    learn(settings)


def learn(settings: VocabularySettings) -> None:
    """Learns a vocabulary from files, writes it, and prints a summary."""
    from bert_tf.io.files import atomic_write, check_not_exists
    from bert_tf.pipelines.corpora import sources
    from bert_tf.pipelines.vocabulary import encode_vocabulary
    from bert_tf.pipelines.vocabulary_learning import learn_vocabulary
    from bert_tf.pipelines.vocabulary_warnings import marks_note

    output = settings.output
    check_not_exists(output)
    with tempfile.TemporaryDirectory(prefix="bert_tf-") as cache:
        corpus = sources.open_corpus(
            settings.input, input_format=settings.input_format, cache_dir=cache
        )
        print(f"Corpus: {corpus.describe()}.", flush=True)
        print(f"Learning {settings.vocab_size:,} pieces.", flush=True)
        if settings.do_lower_case and (note := marks_note(corpus)):
            print(note, flush=True)
        start = time.monotonic()
        # Open the output first, so that an unwritable path is reported immediately.
        with atomic_write(output) as file:
            vocab = learn_vocabulary(
                corpus.sentences(_MAX_BYTES),
                settings.vocab_size,
                settings.do_lower_case,
                settings.min_frequency,
            )
            file.write(encode_vocabulary(vocab, output))
        print(f"Learned {len(vocab):,} pieces in {time.monotonic() - start:,.0f} s: {output}")
        if len(vocab) < settings.vocab_size:
            print(
                f"These are fewer than --vocab_size={settings.vocab_size}: no other pair of pieces "
                f"occurs {settings.min_frequency} times. To learn more pieces, use more text."
            )
        step = max(1, len(vocab) // _NUM_PRINTED)
        print("Examples:", " ".join(vocab[step // 2 :: step][:_NUM_PRINTED]))
        print(_coverage(corpus, vocab, settings.do_lower_case))
    next_flags = {
        "input": ",".join(settings.input),
        "input_format": settings.input_format,
        "vocab_file": output,
        "do_lower_case": "" if settings.do_lower_case else "false",
    }
    words = [f"--{name}={shlex.quote(value)}" for name, value in next_flags.items() if value]
    print("\nNext steps:\n  python -m bert_tf.pretrain", *words)


def _coverage(corpus: "Corpus", vocab: list[str], do_lower_case: bool) -> str:
    """Describes how well a vocabulary covers a sample of the corpus."""
    from bert_tf.pipelines.vocabulary_warnings import word_counts
    from bert_tf.pipelines.wordpiece import BertTokenizer

    sample = list(corpus.sentences(_COVERAGE_BYTES))
    num_tokens, num_words, num_unknown = word_counts(sample, BertTokenizer(vocab, do_lower_case))
    return (
        f"In a sample of {num_words:,} words: {num_tokens / num_words:.2f} pieces per word, "
        f"{num_unknown:,} unknown words ({num_unknown / num_words:.3%})."
    )


if __name__ == "__main__":
    command.run(main, VocabularySettings)
