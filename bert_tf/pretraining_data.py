"""From settings to data: the corpora, the vocabulary, the tokenizer, and the batches of a phase."""

import dataclasses
import itertools
import math
import os

import tensorflow as tf

from bert_tf.pipelines import pretraining, sample_corpus, sources, tfrecords, vocabulary
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.pretraining_settings import PretrainingSettings
from bert_tf.training.phases import Phase
from bert_tf.training.progress import Progress
from bert_tf.training.run_directory import RunDirectory

# Enough text for a vocabulary: learning from more changes few pieces and takes minutes.
_VOCABULARY_BYTES = 200_000_000
_EVALUATION_SEED_OFFSET = 1_000_000_007


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """What a run trains and evaluates on.

    Attributes:
        train: the documents to train on; None where the input is TFRecords.
        held_out: the documents to evaluate on; None where there are none.
        records: TFRecord files to train on, in place of ``train``.
        eval_records: TFRecord files to evaluate on.
        fingerprint: changes when the input's files do.
    """

    train: sources.Corpus | None
    held_out: sources.Corpus | None
    records: list[str]
    eval_records: list[str]
    fingerprint: str


def open_data(settings: PretrainingSettings, run: RunDirectory) -> PretrainingData:
    """Opens, checks and indexes the input, and prints what it found.

    Raises:
        ValueError: a file is missing, empty or not valid, or nothing can be held out.
    """
    if settings.input_format == "tfrecord":
        if not settings.input:
            raise ValueError("--input_format=tfrecord needs --input: the files to read.")
        if not settings.eval_input:
            print("No --eval_input: the evaluation reads the training records.")
        return PretrainingData(
            None,
            None,
            settings.input,
            settings.eval_input or settings.input,
            tfrecords.fingerprint(settings.input),
        )
    corpus = _open_corpus(settings, run)
    print(f"Corpus: {corpus.describe()}.", flush=True)
    held_out: sources.Corpus | None
    if settings.eval_input:
        held_out = _open(settings.eval_input, settings.input_format, settings, run, "evaluation")
        train = corpus
    else:
        train, held_out = corpus.split_held_out(settings.held_out_fraction)
        if held_out is None:
            if settings.nsp:
                raise ValueError(
                    "The corpus is a single document, and next-sentence prediction draws its "
                    "random segments from another one: add documents, or pass --nsp=false."
                )
            print("The corpus is a single document: nothing is held out, nor evaluated.")
        else:
            print(f"Held out for evaluation: {held_out.num_documents:,} documents.", flush=True)
    return PretrainingData(train, held_out, [], [], corpus.fingerprint)


def _open_corpus(settings: PretrainingSettings, run: RunDirectory) -> sources.Corpus:
    cache = settings.cache_dir or run.corpus
    if settings.tfds:
        return sources.open_tfds(settings.tfds, cache_dir=cache)
    if settings.input:
        return _open(settings.input, settings.input_format, settings, run, "corpus")
    path = os.path.join(run.corpus, "sample.txt")
    if not tf.io.gfile.exists(path):
        print(
            "No --input: writing a sample corpus from the documentation of this Python "
            f"installation to {path}.",
            flush=True,
        )
        tf.io.gfile.makedirs(run.corpus)
        sample_corpus.write_sample_corpus(path)
    return _open([path], "google", settings, run, "sample corpus")


def _open(
    patterns: list[str],
    input_format: str | None,
    settings: PretrainingSettings,
    run: RunDirectory,
    label: str,
) -> sources.Corpus:
    progress: Progress | None = None

    def show(done: int, total: int) -> None:
        nonlocal progress
        if progress is None:
            progress = Progress(f"Reading the {label}", total >> 20, "MB")
        progress.update(done >> 20)

    corpus = sources.open_corpus(
        patterns,
        input_format=input_format,
        cache_dir=settings.cache_dir or run.corpus,
        progress=show,
    )
    if progress is not None:
        progress.close()
    return corpus


def load_or_learn_vocabulary(
    settings: PretrainingSettings, data: PretrainingData, run: RunDirectory
) -> list[str]:
    """The run's vocabulary: the one kept already, else the file's, else one learned and kept.

    Raises:
        ValueError: the file is not a valid vocabulary, or there is no text to learn one from.
    """
    if settings.vocab_file:
        vocab = vocabulary.load_vocabulary(settings.vocab_file)
    elif tf.io.gfile.exists(run.vocabulary):
        return vocabulary.load_vocabulary(run.vocabulary)
    elif data.train is None:
        raise ValueError(
            "--input_format=tfrecord holds token ids, not text: name the vocabulary that made "
            "them with --vocab_file."
        )
    else:
        print(f"Learning a vocabulary of {settings.vocab_size:,} pieces.", flush=True)
        vocab = vocabulary.learn_vocabulary(
            data.train.sentences(_VOCABULARY_BYTES),
            vocab_size=settings.vocab_size,
            do_lower_case=settings.do_lower_case,
        )
    vocabulary.save_vocabulary(run.vocabulary, vocab)
    return vocab


def predictions_per_row(settings: PretrainingSettings, max_seq_length: int) -> int:
    """The masked-LM predictions of a row, P: the flag's, or the share of a full row, rounded up.

    The paper's 20 at length 128 and 77 at 512 follow from its 15%.
    """
    if settings.max_predictions_per_seq is not None:
        return settings.max_predictions_per_seq
    return math.ceil(settings.masked_lm_prob * max_seq_length)


def training_batches(
    settings: PretrainingSettings,
    data: PretrainingData,
    tokenizer: BertTokenizer,
    phase: Phase,
    phase_number: int,
    start: tuple[int, int, int],
) -> tf.data.Dataset:
    """The endless batches of a phase, from the row ``start`` on: (epoch, pool, row)."""
    predictions = predictions_per_row(settings, phase.max_seq_length)
    if data.train is None:
        return tfrecords.tfrecord_dataset(
            data.records,
            batch_size=settings.train_batch_size,
            max_seq_length=phase.max_seq_length,
            max_predictions_per_seq=predictions,
            seed=settings.seed + phase_number,
            start=start,
        )
    return pretraining.pretraining_dataset(
        data.train,
        tokenizer,
        batch_size=settings.train_batch_size,
        max_seq_length=phase.max_seq_length,
        max_predictions_per_seq=predictions,
        masked_lm_prob=settings.masked_lm_prob,
        short_seq_prob=settings.short_seq_prob,
        masking=settings.masking,
        nsp=settings.nsp,
        # Each phase draws from a seed of its own: its epochs count from zero again.
        seed=settings.seed + phase_number,
        start=start,
    )


def evaluation_batches(
    settings: PretrainingSettings,
    data: PretrainingData,
    tokenizer: BertTokenizer,
    max_seq_length: int,
) -> tf.data.Dataset | None:
    """One pass over what is evaluated, the same pairs and masks each time; None without any."""
    predictions = predictions_per_row(settings, max_seq_length)
    seed = settings.seed + _EVALUATION_SEED_OFFSET
    if data.eval_records:
        return tfrecords.tfrecord_dataset(
            data.eval_records,
            batch_size=settings.eval_batch_size,
            max_seq_length=max_seq_length,
            max_predictions_per_seq=predictions,
            seed=seed,
            num_epochs=1,
            pad_final_batch=True,
        )
    if data.held_out is None:
        return None
    return pretraining.pretraining_dataset(
        data.held_out,
        tokenizer,
        batch_size=settings.eval_batch_size,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=predictions,
        masked_lm_prob=settings.masked_lm_prob,
        short_seq_prob=settings.short_seq_prob,
        masking=settings.masking,
        # One held-out document has no other to draw a random segment from.
        nsp=settings.nsp and data.held_out.num_documents > 1,
        seed=seed,
        num_epochs=1,
        pad_final_batch=True,
    )


def first_sentences(corpus: sources.Corpus, count: int = 3) -> list[str]:
    """The first sentences of a corpus that are neither short nor long, to show a model at work.

    Args:
        corpus: where they are looked for.
        count: how many are wanted; fewer come where the corpus has no more.
    """
    fitting = (
        sentence
        for sentence in corpus.sentences(limit_bytes=1_000_000)
        if 8 <= len(sentence.split()) <= 20 and sentence.isascii() and sentence[:1].isupper()
    )
    # Every seventh, so that they do not all come from one document.
    return list(itertools.islice(fitting, 0, 7 * count, 7))
