"""Corpora, vocabulary, and the batches for training and evaluation, created from settings."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.pipelines import vocabulary
from bert_tf.pipelines.corpora import sample as sample_corpus
from bert_tf.pipelines.corpora import sources
from bert_tf.pipelines.corpora.corpus import format_count
from bert_tf.pipelines.pretraining import masking, tfrecords
from bert_tf.pipelines.pretraining.dataset import RowOptions, make_row_batches
from bert_tf.pipelines.pretraining.pools import ReadCursors
from bert_tf.pipelines.pretraining.tfrecords import Records, open_records
from bert_tf.pipelines.vocabulary_learning import learn_vocabulary
from bert_tf.pipelines.vocabulary_warnings import marks_note
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training.distribution import Distribution
from bert_tf.training.progress import Progress, print_progress
from bert_tf.training.run_directory import RunDirectory

from .objective import BatchFactory
from .settings import Phase, PretrainingSettings

# Bytes of text to learn a vocabulary from; more text takes minutes and changes few pieces.
_VOCABULARY_BYTES = 200_000_000

Source = sources.Corpus | Records

# Number of records to validate before the first step.
_CHECKED_RECORDS = 4096

# Key of inputs.json for the fingerprint of the held-out documents.
_HELD_OUT = "held_out"


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """Training and evaluation data of a run.

    Attributes:
        train: Corpus or TFRecords to train on.
        evaluated: Corpus or TFRecords to evaluate on, or ``None``.
        fingerprints: Fingerprint of the contents per flag, and of the held-out documents.
    """

    train: Source
    evaluated: Source | None
    fingerprints: dict[str, str]

    @property
    def is_held_out(self) -> bool:
        """Whether the evaluation data are not trained on."""
        return self.evaluated is not None and self.evaluated is not self.train

    @property
    def evaluates_next_sentence(self) -> bool:
        """Whether random next segments can be drawn, which requires two documents."""
        return not isinstance(self.evaluated, sources.Corpus) or self.evaluated.num_documents > 1


def check_hosts_can_read(devices: Distribution, input_format: str | None) -> None:
    """Rejects text input if the TPU has several hosts, because these cannot tokenize text."""
    if devices.device_type == "TPU" and devices.hosts > 1 and input_format != "tfrecord":
        raise ValueError(
            f"The TPU has {devices.hosts} hosts, which cannot read text. Convert it with python -m "
            "bert_tf.create_pretraining_data, and pass the new files with --input_format=tfrecord."
        )


def open_data(settings: PretrainingSettings, run: RunDirectory) -> PretrainingData:
    """Opens, checks and indexes the input, and prints a summary."""
    cache = settings.cache_dir or run.corpus
    if settings.input_format == "tfrecord":
        return _open_records(settings, cache)
    parts = _open_corpora(settings, cache, os.path.join(run.corpus, "sample.txt"))
    corpus = sources.join(list(parts.values()))
    print_progress(f"Corpus: {corpus.describe()}.", flush=True)
    fingerprints = {flag: part.fingerprint for flag, part in parts.items()}
    train, held_out = corpus, None
    if settings.eval_input:
        held_out = _open_text(
            settings.eval_input, settings.input_format, cache, "evaluation corpus"
        )
        fingerprints["--eval_input"] = held_out.fingerprint
    elif settings.held_out_fraction == 0:
        print_progress("--held_out_fraction=0: nothing is held out or evaluated.")
    else:
        train, held_out = corpus.split_held_out(settings.held_out_fraction)
        if held_out is None:
            print_progress("The corpus has one document: nothing is held out or evaluated.")
        else:
            print_progress(
                f"Held out for evaluation: {format_count(held_out.num_documents, 'document')}.",
                flush=True,
            )
            # Without the copy, each evaluation would read every block with a held-out document.
            held_out = sources.copy_documents(held_out, run.corpus)
            fingerprints[_HELD_OUT] = held_out.fingerprint
    if settings.pairs and train.num_documents < 2:
        raise ValueError(
            f"The corpus has {format_count(train.num_documents, 'training document')}, but "
            "next-sentence pairs need at least 2. Add documents, pass --input_format=google if "
            "blank lines separate them, or pass --pairs=false."
        )
    data = PretrainingData(train, held_out, fingerprints)
    if settings.nsp and held_out is not None and not data.evaluates_next_sentence:
        print_progress(
            "Next-sentence accuracy is not measured, because it needs at least two documents to "
            "evaluate on."
        )
    return data


def _open_records(settings: PretrainingSettings, cache: str) -> PretrainingData:
    if not settings.input:
        raise ValueError("--input_format=tfrecord requires --input. Pass the files to read.")
    records = open_records(settings.input, cache)
    print_progress(f"Corpus: TFRecords, {format_count(len(records.files), 'file')}.")
    fingerprints = {"--input": tfrecords.fingerprint(records)}
    evaluated: Records | None = records
    if settings.eval_input:
        evaluated = open_records(settings.eval_input, cache)
        fingerprints["--eval_input"] = tfrecords.fingerprint(evaluated)
    elif settings.held_out_fraction == 0:
        evaluated = None
        print_progress("--held_out_fraction=0: nothing is evaluated.")
    else:
        print_progress("No --eval_input: the model is evaluated on the training records.")
    return PretrainingData(records, evaluated, fingerprints)


def _open_corpora(
    settings: PretrainingSettings, cache: str, sample: str
) -> dict[str, sources.Corpus]:
    """Returns the training corpora by flag; without input flags, the sample corpus."""
    parts = {}
    if settings.input:
        parts["--input"] = _open_text(settings.input, settings.input_format, cache, "corpus")
    if settings.tfds:
        parts["--tfds"] = sources.open_tfds(settings.tfds, cache_dir=cache)
    if parts:
        return parts
    if not tf.io.gfile.exists(sample):
        print_progress(
            f"No --input: writing a sample corpus to {sample} from {sample_corpus.DESCRIPTION}.",
            flush=True,
        )
        sample_corpus.write_sample_corpus(sample)
    return {"--input": _open_text([sample], "google", cache, "sample corpus")}


def _open_text(
    patterns: Sequence[str], input_format: str | None, cache_dir: str, label: str
) -> sources.Corpus:
    progress: Progress | None = None

    def show(done: int, total: int) -> None:
        nonlocal progress
        if progress is None and total >> 20:
            progress = Progress(f"Reading the {label}", total >> 20, "MB")
        if progress is not None:
            progress.update(done >> 20)

    corpus = sources.open_corpus(
        patterns, input_format=input_format, cache_dir=cache_dir, progress=show
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
    """Returns the vocabulary of the checkpoint, ``--vocab_file`` or the run, or learns one."""
    if start is not None and start.tokenization is not None:
        return list(start.tokenization.vocabulary)
    if settings.vocab_file:
        return vocabulary.load_vocabulary(settings.vocab_file)
    if tf.io.gfile.exists(run.vocabulary):
        return vocabulary.load_vocabulary(run.vocabulary)
    if isinstance(data.train, Records):
        raise ValueError(
            "TFRecord files (--input_format=tfrecord) contain token ids but no vocabulary. Pass "
            "the vocabulary that the records were written with as --vocab_file."
        )
    print_progress(f"Learning a vocabulary of {size:,} pieces.", flush=True)
    if settings.do_lower_case and (note := marks_note(data.train)):
        print_progress(note, flush=True)
    return learn_vocabulary(
        data.train.sentences(_VOCABULARY_BYTES),
        vocab_size=size,
        do_lower_case=bool(settings.do_lower_case),
    )


_EVALUATION_SEED_OFFSET = 1_000_000_007
# Maximum number of bytes of evaluation batches to keep in memory.
_MAX_BYTES = 1 << 26


def predictions_per_row(settings: PretrainingSettings, phase: Phase) -> int:
    """Returns the number of predictions per row, P.

    A left-to-right model predicts every token except the first.
    """
    if settings.objective != "mlm":
        return phase.max_seq_length - 1
    return (
        settings.max_predictions_per_seq
        or phase.max_predictions
        or masking.default_max_predictions(phase.max_seq_length, settings.masked_lm_prob)
    )


def make_row_options(settings: PretrainingSettings, phase: Phase) -> RowOptions:
    """Creates the options for the rows of a phase."""
    return RowOptions(
        max_seq_length=phase.max_seq_length,
        max_predictions_per_seq=predictions_per_row(settings, phase),
        masked_lm_prob=settings.masked_lm_prob,
        short_seq_prob=settings.short_seq_prob,
        masking=settings.masking,
        replacement=masking.Replacement(*settings.replacement),
        pairs=settings.pairs,
        objective=settings.objective,
        seed=settings.seed,
    )


class Batches:
    """Creates the datasets that a run trains and evaluates on."""

    def __init__(
        self,
        settings: PretrainingSettings,
        data: PretrainingData,
        tokenizer: BertTokenizer,
        replicas: int,
    ) -> None:
        self._settings = settings
        self._data = data
        self._tokenizer = tokenizer
        self._replicas = replicas
        self._evaluation = functools.cache(self._make_evaluation)  # creating one takes seconds

    def training(self, phase: Phase, number: int, start: ReadCursors) -> BatchFactory:
        """Returns a function that creates one host's shards of a phase's endless batches.

        Each phase has its own seed, because epochs restart at 0 in each phase.
        """

        def make_host_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._dataset(
                self._data.train,
                phase,
                pairs=self._settings.pairs,
                seed=self._settings.seed + number,
                batch_size=phase.rows // context.num_input_pipelines,
                start=start,
                shard_index=context.input_pipeline_id,
                num_shards=context.num_input_pipelines,
            )

        return make_host_batches

    def evaluation(self, phase: Phase) -> BatchFactory:
        """Returns a function that creates one pass over the evaluation data.

        Pairs and masks are the same in every pass. The batch size is rounded up to a multiple of
        the number of replicas; padding rows have weight 0.
        """
        return lambda context: self._evaluation(
            phase, context.input_pipeline_id, context.num_input_pipelines
        )

    def _make_evaluation(
        self, phase: Phase, input_pipeline: int, input_pipelines: int
    ) -> tf.data.Dataset:
        batches = self._dataset(
            cast(Source, self._data.evaluated),
            phase,
            pairs=self._settings.pairs and self._data.evaluates_next_sentence,
            seed=self._settings.seed + _EVALUATION_SEED_OFFSET,
            batch_size=-(-self._settings.eval_batch_size // self._replicas) * self._replicas,
            num_epochs=1,
            pad_final_batch=True,
        )
        limit = self._settings.max_eval_steps
        # With several hosts, batches may be on different hosts.
        return _in_memory(batches.take(limit), limit) if input_pipelines == 1 else batches

    def _dataset(
        self, source: Source, phase: Phase, *, pairs: bool, seed: int, **order: Any
    ) -> tf.data.Dataset:
        """Creates batches; ``order`` contains the arguments common to corpora and TFRecords."""
        if isinstance(source, Records):
            return tfrecords.tfrecord_dataset(
                source,
                max_seq_length=phase.max_seq_length,
                max_predictions_per_seq=predictions_per_row(self._settings, phase),
                seed=seed,
                **order,
            )
        rows = dataclasses.replace(make_row_options(self._settings, phase), pairs=pairs, seed=seed)
        return make_row_batches(source, self._tokenizer, rows, **order)


def _in_memory(batches: tf.data.Dataset, limit: int) -> tf.data.Dataset:
    """Reads small datasets into memory, because starting a pipeline takes a second."""
    size = sum(
        spec.dtype.size * spec.shape.num_elements() for spec in batches.element_spec.values()
    )
    in_memory = list(batches) if limit * size <= _MAX_BYTES else []
    if not in_memory:
        return batches
    columns = {key: tf.stack([batch[key] for batch in in_memory]) for key in in_memory[0]}
    return tf.data.Dataset.from_tensor_slices(columns)


def first_sentences(source: Source | None, count: int = 30) -> list[str]:
    """Returns up to ``count`` sentences of medium length, to illustrate predictions."""
    if not isinstance(source, sources.Corpus):
        return []
    fitting = (
        sentence
        for sentence in source.sentences(limit_bytes=1_000_000)
        if 8 <= len(sentence.split()) <= 20 and sentence.isascii() and sentence[:1].isupper()
    )
    # Take every seventh sentence, so that the sentences come from several documents.
    return list(itertools.islice(fitting, 0, 7 * count, 7))


def check_records(
    settings: PretrainingSettings, data: PretrainingData, vocab_size: int, types: int, phase: Phase
) -> None:
    """Validates the first records against the model's sizes."""
    # Exclusive upper bounds; the lower bound is 0. Models without token types ignore the types.
    sizes = {
        features.INPUT_WORD_IDS: vocab_size,
        features.MASKED_LM_IDS: vocab_size,
        features.MASKED_LM_POSITIONS: phase.max_seq_length,
        features.INPUT_MASK: 2,
        features.INPUT_TYPE_IDS: max(2, types),
    }
    if settings.nsp:
        sizes[features.NEXT_SENTENCE_LABELS] = 2
    sources_read = (data.train, data.evaluated)
    for records in dict.fromkeys(s for s in sources_read if isinstance(s, Records)):
        batches = tfrecords.tfrecord_dataset(
            records,
            batch_size=_CHECKED_RECORDS,
            max_seq_length=phase.max_seq_length,
            max_predictions_per_seq=predictions_per_row(settings, phase),
            num_epochs=1,
            drop_remainder=False,
        )
        rows, path = next(iter(batches)), records.files[0].path
        for name, size in sizes.items():
            wrong = tf.boolean_mask(rows[name], (rows[name] < 0) | (rows[name] >= size))
            if tf.size(wrong):
                is_token_id = name in (features.INPUT_WORD_IDS, features.MASKED_LM_IDS)
                hint = ". Pass the vocabulary of the records as --vocab_file"
                raise ValueError(
                    f"{path}: expected integers from 0 to {size - 1} in feature "
                    f"{tfrecords.GOOGLE_NAMES[name]!r}, got {wrong[0]}"
                    f"{hint if is_token_id else ''}."
                )
