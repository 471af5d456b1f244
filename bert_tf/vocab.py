"""Learns a WordPiece vocabulary from text.

    python -m bert_tf.vocab --input='corpus/*.txt.gz' --output=vocab.txt

The same text and flags give the same vocabulary on every machine; a hundred megabytes take less
than a minute on two cores.
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
# Of more text, as much is taken evenly from the whole.
_MAX_BYTES = 500_000_000
# Enough words for a rate of unknown ones; tokenised in a second.
_COVERAGE_BYTES = 2_000_000
_REQUIRED = required("vocab needs --input=FILES to learn from and --output=FILE to write")


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """Every flag."""

    input: Sequence[str] = words(
        (),
        "Learn from these text files, with globs and commas, on any file system that TensorFlow "
        "reads, gzip too.",
        rules=[_REQUIRED],
    )
    output: str = string(
        "", "Write the vocabulary to this new file, one piece a line.", rules=[_REQUIRED]
    )
    input_format: str | None = choice(
        None,
        INPUT_FORMATS,
        "Read the input as google (a sentence a line), wikiextractor (<doc> elements), prose "
        "(paragraphs) or jsonl (a document a line, in its 'text'), instead of as its name and "
        "first lines say.",
    )
    vocab_size: int = integer(30522, "Learn this many pieces.")
    do_lower_case: bool = switch(True, "Lower-case the text and strip accents (uncased).")
    min_frequency: int = integer(
        2,
        "Make a piece only of a character, or of a pair of pieces, that occurs this often.",
        advanced=True,
    )


def main(settings: VocabularySettings) -> None:
    """Runs the command."""
    paths.check_inputs(texts=settings.input)
    # TensorFlow loads here, after the flags were found good.
    command.load_tensorflow()
    learn(settings)


def learn(settings: VocabularySettings) -> None:
    """Learns a vocabulary from files, writes it, and prints a description."""
    from bert_tf.io.files import atomic_write, check_not_exists
    from bert_tf.pipelines.corpora import sources
    from bert_tf.pipelines.vocabulary import encode_vocabulary, learn_vocabulary
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
        # Opened first: a place that cannot be written to is refused before the learning.
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
                f"That is fewer than --vocab_size={settings.vocab_size}: no other pair of pieces "
                f"occurs {settings.min_frequency} times. More text would give more pieces."
            )
        step = max(1, len(vocab) // _NUM_PRINTED)
        print("Some of them:", " ".join(vocab[step // 2 :: step][:_NUM_PRINTED]))
        print(_coverage(corpus, vocab, settings.do_lower_case))
    next_flags = {
        "input": ",".join(settings.input),
        "input_format": settings.input_format,
        "vocab_file": output,
        "do_lower_case": "" if settings.do_lower_case else "false",
    }
    words = [f"--{name}={shlex.quote(value)}" for name, value in next_flags.items() if value]
    print("\nWhat comes next:\n  python -m bert_tf.pretrain", *words)


def _coverage(corpus: "Corpus", vocab: list[str], do_lower_case: bool) -> str:
    """A sentence on how well a vocabulary fits a sample of its corpus."""
    from bert_tf.pipelines.vocabulary_warnings import word_counts
    from bert_tf.pipelines.wordpiece import BertTokenizer

    sample = list(corpus.sentences(_COVERAGE_BYTES))
    num_tokens, num_words, num_unknown = word_counts(sample, BertTokenizer(vocab, do_lower_case))
    return (
        f"In a sample of {num_words:,} words: {num_tokens / num_words:.2f} pieces a word, "
        f"{num_unknown:,} unknown words ({num_unknown / num_words:.3%})."
    )


if __name__ == "__main__":
    command.run(main, VocabularySettings)
