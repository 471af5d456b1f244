"""Google's TFRecords of a corpus, written at once or shard by shard, by any process.

A shard has every ``num_shards``-th pool of rows, which the seed and the pool's number decide: each
shard is the same whoever writes it, and whether or not others are written.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.files import check_new, move_new, scratch_directory
from bert_tf.pipelines import pretraining, tfrecords
from bert_tf.pipelines.sources import Corpus, open_corpus
from bert_tf.pipelines.wordpiece import BertTokenizer

from .settings import RecordFlags

_BATCH = 256
_SHARDED = re.compile(r"(.+)@([1-9]\d{0,4})")


@dataclasses.dataclass(frozen=True)
class RecordSettings(RecordFlags):
    """What the records of a corpus depend on, and where its index is kept."""

    def open(self) -> tuple[Corpus, BertTokenizer]:
        """Opens the corpus, whose index is made at the first call, and the tokenizer."""
        tokenizer = BertTokenizer(self.vocab_file, do_lower_case=self.do_lower_case)
        corpus = open_corpus(self.input, input_format=self.input_format, cache_dir=self.cache_dir)
        return corpus, tokenizer

    def examples(
        self, corpus: Corpus, tokenizer: BertTokenizer, shard: int = 0, num_shards: int = 1
    ) -> tf.data.Dataset:
        """The batches of a shard's examples; without one, of all."""
        return pretraining.pretraining_dataset(
            corpus,
            tokenizer,
            batch_size=_BATCH,
            max_seq_length=self.max_seq_length,
            max_predictions_per_seq=self.max_predictions_per_seq,
            masked_lm_prob=self.masked_lm_prob,
            short_seq_prob=self.short_seq_prob,
            masking="whole_word" if self.do_whole_word_mask else "token",
            seed=self.seed,
            num_epochs=self.num_epochs,
            shard_index=shard,
            num_shards=num_shards,
            drop_remainder=False,
        )


def shard_paths(outputs: Sequence[str]) -> list[str] | None:
    """The files that ``NAME@N`` stands for; ``None`` where files are named themselves."""
    matches = [_SHARDED.fullmatch(output) for output in outputs]
    if not any(matches):
        return None
    (match, *others) = matches
    if match is None or others:
        raise ValueError(
            f"--output_file={','.join(outputs)}: NAME@N stands for N files, and is given alone."
        )
    count = int(match[2])
    return [f"{match[1]}-{number:05d}-of-{count:05d}" for number in range(count)]


@functools.lru_cache(maxsize=1)  # a process may write many shards
def _opened(settings: RecordSettings) -> tuple[Corpus, BertTokenizer]:
    return settings.open()


def write_shard(settings: RecordSettings, paths: Sequence[str], shard: int) -> None:
    """Writes one shard, in a process that may have opened nothing yet."""
    corpus, tokenizer = _opened(settings)
    tfrecords.write_tfrecords(settings.examples(corpus, tokenizer, shard, len(paths)), paths[shard])


@contextlib.contextmanager
def named_together(paths: Sequence[str]) -> Iterator[list[str]]:
    """Gives paths to write all shards to, which get their names after the block has ended well.

    Where one of the names is taken, no shard gets its own. A killed process leaves no such name.
    """
    # NAME, without what tells the shards apart.
    with scratch_directory(paths[0].rsplit("-", 3)[0]) as folder:
        written = [os.path.join(folder, os.path.basename(path)) for path in paths]
        yield written
        for path in paths:
            check_new(path)
        for source, path in zip(written, paths, strict=True):
            move_new(source, path)
