"""From settings to data: the corpora and the vocabulary."""

import dataclasses
import os

import tensorflow as tf

from bert_tf.files import read_json_object
from bert_tf.interchange.checkpoint import Checkpoint
from bert_tf.pipelines import pretraining, sample_corpus, sources, tfrecords, vocabulary
from bert_tf.pipelines.vocabulary_learning import learn_vocabulary
from bert_tf.training.progress import Progress
from bert_tf.training.run_directory import RunDirectory

from .settings import PretrainingSettings

# Enough text for a vocabulary: learning from more changes few pieces and takes minutes.
_VOCABULARY_BYTES = 200_000_000

# The key of the rows' version in inputs.json.
_ROWS = "rows_version"


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """What a run trains and evaluates on.

    Attributes:
        train: the documents to train on; None where the input is TFRecords.
        held_out: the documents to evaluate on; None where there are none.
        records: TFRecord files to train on, in place of ``train``.
        eval_records: TFRecord files to evaluate on.
        fingerprints: by flag, what changes when the files behind it do; and the rows' version.
        rows_version: of ``pretraining.pretraining_dataset``.
    """

    train: sources.Corpus | None
    held_out: sources.Corpus | None
    records: list[str]
    eval_records: list[str]
    fingerprints: dict[str, str]
    rows_version: int = pretraining.ROWS_VERSION

    @property
    def is_held_out(self) -> bool:
        """Whether what is evaluated on is not trained on."""
        return self.held_out is not None or self.eval_records != self.records

    @property
    def evaluates_next_sentence(self) -> bool:
        """Whether random next segments can be drawn: one document has no other to draw from."""
        return self.held_out is None or self.held_out.num_documents > 1


def open_data(settings: PretrainingSettings, run: RunDirectory) -> PretrainingData:
    """Opens, checks and indexes the input, and prints what it found.

    Raises:
        ValueError: a file is missing, empty or not valid, or nothing can be held out.
    """
    if settings.input_format == "tfrecord":
        if not settings.input:
            raise ValueError("--input_format=tfrecord needs --input: the files to read.")
        records = tfrecords.match_files(settings.input)
        print(f"Corpus: TFRecords, {len(records)} files.")
        fingerprints = {"--input": tfrecords.fingerprint(records)}
        eval_records = records
        if settings.eval_input:
            eval_records = tfrecords.match_files(settings.eval_input)
            fingerprints["--eval_input"] = tfrecords.fingerprint(eval_records)
        else:
            print("No --eval_input: the evaluation reads the training records.")
        return PretrainingData(None, None, records, eval_records, fingerprints)
    corpus = _open_corpus(settings, run)
    print(f"Corpus: {corpus.describe()}.", flush=True)
    fingerprints = {"--tfds" if settings.tfds else "--input": corpus.fingerprint}
    held_out: sources.Corpus | None
    if settings.eval_input:
        held_out = _open(
            settings.eval_input, settings.input_format, settings, run, "evaluation corpus"
        )
        fingerprints["--eval_input"] = held_out.fingerprint
        train = corpus
    elif settings.held_out_fraction == 0:
        train, held_out = corpus, None
        print("--held_out_fraction=0: nothing is held out, nor evaluated.")
    else:
        train, held_out = corpus.split_held_out(settings.held_out_fraction)
        if held_out is None:
            print("The corpus is a single document: nothing is held out, nor evaluated.")
        else:
            print(f"Held out for evaluation: {held_out.num_documents:,} documents.", flush=True)
            # Each evaluation would read every block that has one of them.
            held_out = sources.copy_documents(held_out, run.corpus)
    if settings.nsp and train.num_documents < 2:
        raise ValueError(
            f"The corpus leaves {train.num_documents} document to train on, and next-sentence "
            "prediction draws its random segments from another one: add documents, or pass "
            "--nsp=false."
        )
    rows_version = _rows_version(run)
    if rows_version > 1:
        fingerprints[_ROWS] = str(rows_version)
    return PretrainingData(train, held_out, [], [], fingerprints, rows_version)


def _rows_version(run: RunDirectory) -> int:
    """The newest; 1 for a run that got somewhere with a release that wrote no version down."""
    if not run.has_progress() or _ROWS in read_json_object(run.inputs):
        return pretraining.ROWS_VERSION
    return 1


def _open_corpus(settings: PretrainingSettings, run: RunDirectory) -> sources.Corpus:
    cache = settings.cache_dir or run.corpus
    if settings.tfds:
        return sources.open_tfds(settings.tfds, cache_dir=cache)
    if settings.input:
        return _open(settings.input, settings.input_format, settings, run, "corpus")
    path = os.path.join(run.corpus, "sample.txt")
    if not tf.io.gfile.exists(path):
        print(
            f"No --input: writing a sample corpus to {path}, from {sample_corpus.DESCRIPTION}.",
            flush=True,
        )
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
        if progress is None and total >> 20:
            progress = Progress(f"Reading the {label}", total >> 20, "MB")
        if progress is not None:
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
    settings: PretrainingSettings,
    data: PretrainingData,
    size: int,
    run: RunDirectory,
    start: Checkpoint | None = None,
) -> list[str]:
    """The run's vocabulary: the checkpoint's, the file's, the one kept already, else a new one.

    Args:
        settings: ``vocab_file``, casing.
        data: what to learn from.
        size: how many pieces to learn.
        run: where it is kept.
        start: the checkpoint that the run starts from.

    Raises:
        ValueError: the file is not a valid vocabulary, or there is no text to learn one from.
    """
    if start is not None and start.tokenization is not None:
        return list(start.tokenization.vocabulary)
    if settings.vocab_file:
        return vocabulary.load_vocabulary(settings.vocab_file)
    if tf.io.gfile.exists(run.vocabulary):
        return vocabulary.load_vocabulary(run.vocabulary)
    if data.train is None:
        raise ValueError(
            "--input_format=tfrecord holds token ids, not text: name the vocabulary that made "
            "them with --vocab_file."
        )
    print(f"Learning a vocabulary of {size:,} pieces.", flush=True)
    return learn_vocabulary(
        data.train.sentences(_VOCABULARY_BYTES),
        vocab_size=size,
        do_lower_case=bool(settings.do_lower_case),
    )
