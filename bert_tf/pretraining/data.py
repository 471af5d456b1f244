"""From settings to data: corpora, vocabulary, and the batches of training and evaluation."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.pipelines import masking, pretraining, sample_corpus, sources, tfrecords, vocabulary
from bert_tf.pipelines.pools import Reached
from bert_tf.pipelines.tfrecords import Records, open_records
from bert_tf.pipelines.vocabulary import learn_vocabulary, marks_note
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training.distribution import Distribution
from bert_tf.training.input_pipelines import MakeBatches
from bert_tf.training.progress import Progress
from bert_tf.training.run_directory import RunDirectory

from .objective import EvaluationResult
from .settings import Phase, PretrainingSettings, phases_of

# Enough text for a vocabulary: learning from more changes few pieces and takes minutes.
_VOCABULARY_BYTES = 200_000_000

# The key of inputs.json that says what the held-out documents are.
_HELD_OUT = "held_out"


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """Data that a run trains and evaluates on.

    TFRecords are ``records`` and ``eval_records``; ``train`` is None then. Where nothing is
    evaluated, ``held_out`` and ``eval_records`` are None. ``fingerprints`` hold by flag what
    changes when the files behind it do, and what is held out.
    """

    train: sources.Corpus | None
    held_out: sources.Corpus | None
    records: Records | None
    eval_records: Records | None
    fingerprints: dict[str, str]

    @property
    def is_held_out(self) -> bool:
        """True if what is evaluated on is not trained on."""
        return self.evaluated is not None and self.evaluated is not self.records

    @property
    def evaluated(self) -> sources.Corpus | Records | None:
        """Held-out text or records to evaluate on, if there are any."""
        return self.held_out or self.eval_records

    @property
    def evaluates_next_sentence(self) -> bool:
        """True if random next segments can be drawn: one document has no other to draw from."""
        return self.held_out is None or self.held_out.num_documents > 1


def check_hosts_can_read(devices: Distribution, input_format: str | None) -> None:
    """Checks that the hosts of a TPU slice are given records: they cannot tokenise text."""
    if devices.device_type == "TPU" and devices.hosts > 1 and input_format != "tfrecord":
        raise ValueError(
            f"The TPU has {devices.hosts} hosts, which read the input themselves and have no "
            "operations of tensorflow-text: write the text to TFRecords before, with python -m "
            "bert_tf.create_pretraining_data, and give them with --input_format=tfrecord."
        )


def open_data(settings: PretrainingSettings, run: RunDirectory) -> PretrainingData:
    """Opens, checks and indexes the input, and prints what it found."""
    if settings.input_format == "tfrecord":
        if not settings.input:
            raise ValueError("--input_format=tfrecord needs --input: the files to read.")
        cache = _cache(settings, run)
        records = open_records(settings.input, cache)
        print(f"Corpus: TFRecords, {len(records.files)} files.")
        fingerprints = {"--input": tfrecords.fingerprint(records)}
        eval_records: Records | None = records
        if settings.eval_input:
            eval_records = open_records(settings.eval_input, cache)
            fingerprints["--eval_input"] = tfrecords.fingerprint(eval_records)
        elif settings.held_out_fraction == 0:
            eval_records = None
            print("--held_out_fraction=0: nothing is evaluated.")
        else:
            print("No --eval_input: the evaluation reads the training records.")
        return PretrainingData(None, None, records, eval_records, fingerprints)
    parts = _open_corpora(settings, run)
    corpus = sources.join(list(parts.values()))
    print(f"Corpus: {corpus.describe()}.", flush=True)
    fingerprints = {flag: part.fingerprint for flag, part in parts.items()}
    held_out: sources.Corpus | None
    if settings.eval_input:
        held_out = _open_text(
            settings.eval_input, settings.input_format, _cache(settings, run), "evaluation corpus"
        )
        fingerprints["--eval_input"] = held_out.fingerprint
        train = corpus
    elif settings.held_out_fraction == 0:
        train, held_out = corpus, None
        print("--held_out_fraction=0: nothing is held out or evaluated.")
    else:
        train, held_out = corpus.split_held_out(settings.held_out_fraction)
        if held_out is None:
            print("The corpus is a single document: nothing is held out or evaluated.")
        else:
            print(f"Held out for evaluation: {held_out.num_documents:,} documents.", flush=True)
            # Each evaluation would read every block that has one of them.
            held_out = sources.copy_documents(held_out, run.corpus)
            fingerprints[_HELD_OUT] = held_out.fingerprint
    if settings.pairs and train.num_documents < 2:
        raise ValueError(
            f"The corpus leaves {train.num_documents} document to train on, and next-sentence "
            "pairs take their random segments from another one: add documents, or pass "
            "--pairs=false."
        )
    return PretrainingData(train, held_out, None, None, fingerprints)


def _open_corpora(settings: PretrainingSettings, run: RunDirectory) -> dict[str, sources.Corpus]:
    """Corpora to train on by the flags that name them; the sample corpus without such flags."""
    cache, parts = _cache(settings, run), {}
    if settings.input:
        parts["--input"] = _open_text(settings.input, settings.input_format, cache, "corpus")
    if settings.tfds:
        parts["--tfds"] = sources.open_tfds(settings.tfds, cache_dir=cache)
    if parts:
        return parts
    path = os.path.join(run.corpus, "sample.txt")
    if not tf.io.gfile.exists(path):
        print(
            f"No --input: writing a sample corpus to {path}, from {sample_corpus.DESCRIPTION}.",
            flush=True,
        )
        sample_corpus.write_sample_corpus(path)
    return {"--input": _open_text([path], "google", cache, "sample corpus")}


def _cache(settings: PretrainingSettings, run: RunDirectory) -> str:
    return settings.cache_dir or run.corpus


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
    """The run's vocabulary: the checkpoint's, the file's, the one kept already, else a new one."""
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
    if settings.do_lower_case and (note := marks_note(data.train)):
        print(note, flush=True)
    return learn_vocabulary(
        data.train.sentences(_VOCABULARY_BYTES),
        vocab_size=size,
        do_lower_case=bool(settings.do_lower_case),
    )


_EVALUATION_SEED_OFFSET = 1_000_000_007
# Of evaluation batches that are kept in memory.
_MOST_BYTES = 1 << 26


def predictions_per_row(settings: PretrainingSettings, max_seq_length: int) -> int:
    """The predictions of a row, P: the flag's, the phase's, or the share of a full row, rounded up.

    From one side every token but one is predicted.
    """
    if settings.objective != "mlm":
        return max_seq_length - 1
    own = {phase.max_seq_length: phase.predictions for phase in phases_of(settings)}
    return (
        settings.max_predictions_per_seq
        or own.get(max_seq_length)
        or masking.default_max_predictions(max_seq_length, settings.masked_lm_prob)
    )


def _batches(
    settings: PretrainingSettings,
    tokenizer: BertTokenizer,
    source: sources.Corpus | Records,
    max_seq_length: int,
    *,
    pairs: bool,
    **order: Any,
) -> tf.data.Dataset:
    """The batches of a corpus, or of TFRecords; ``order`` is what datasets of both kinds take."""
    order["max_seq_length"] = max_seq_length
    order["max_predictions_per_seq"] = predictions_per_row(settings, max_seq_length)
    if isinstance(source, Records):
        return tfrecords.tfrecord_dataset(source, **order)
    return pretraining.pretraining_dataset(
        source,
        tokenizer,
        masked_lm_prob=settings.masked_lm_prob,
        short_seq_prob=settings.short_seq_prob,
        masking=settings.masking,
        replacement=masking.Replacement(*settings.replacement),
        pairs=pairs,
        objective=settings.objective,
        **order,
    )


def training_batches(
    settings: PretrainingSettings,
    data: PretrainingData,
    tokenizer: BertTokenizer,
    phase: Phase,
    phase_number: int,
    start: Reached,
    *,
    shard_index: int,
    num_shards: int,
) -> tf.data.Dataset:
    """One host's share of a phase's endless batches: pre-training features and the cursor.

    Each phase draws from a seed of its own, as its epochs count from zero again.
    """
    return _batches(
        settings,
        tokenizer,
        cast(sources.Corpus | Records, data.train or data.records),
        phase.max_seq_length,
        pairs=settings.pairs,
        batch_size=phase.rows(settings) // num_shards,
        seed=settings.seed + phase_number,
        start=start,
        shard_index=shard_index,
        num_shards=num_shards,
    )


def evaluation_batches(
    settings: PretrainingSettings,
    data: PretrainingData,
    tokenizer: BertTokenizer,
    max_seq_length: int,
    replicas: int,
) -> tf.data.Dataset:
    """One pass over what is evaluated, the same pairs and masks each time.

    The batch's size is rounded up to a multiple of the replicas: rows of padding weigh nothing.
    """
    return _batches(
        settings,
        tokenizer,
        cast(sources.Corpus | Records, data.evaluated),
        max_seq_length,
        pairs=settings.pairs and data.evaluates_next_sentence,
        batch_size=-(-settings.eval_batch_size // replicas) * replicas,
        seed=settings.seed + _EVALUATION_SEED_OFFSET,
        num_epochs=1,
        pad_final_batch=True,
    )


class HeldOut:
    """The batches that a run evaluates on, and what a model makes of them."""

    def __init__(
        self,
        settings: PretrainingSettings,
        data: PretrainingData,
        tokenizer: BertTokenizer,
        replicas: int,
    ) -> None:
        self._data = data

        # They take seconds to build.
        @functools.cache
        def batches(
            max_seq_length: int, input_pipeline: int, input_pipelines: int
        ) -> tf.data.Dataset:
            built = evaluation_batches(settings, data, tokenizer, max_seq_length, replicas)
            most = settings.max_eval_steps
            # Those of another host are on that host.
            return _in_memory(built.take(most), most) if input_pipelines == 1 else built

        self._batches = batches

    def figures(
        self,
        evaluate: Callable[[MakeBatches, int], EvaluationResult],
        max_steps: int,
        max_seq_length: int,
    ) -> dict[str, float]:
        """Result of ``evaluate`` on batches, ``max_steps`` at most; empty without batches.

        The figures of the next sentence are 0 where random next segments cannot be drawn.
        """
        if not self._data.evaluated:
            return {}

        def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._batches(
                max_seq_length, context.input_pipeline_id, context.num_input_pipelines
            )

        figures = evaluate(of_pipeline, max_steps)._asdict()
        if not self._data.evaluates_next_sentence:
            figures.update((name, 0) for name in figures if name.startswith("next_sentence"))
        return figures


def _in_memory(batches: tf.data.Dataset, most: int) -> tf.data.Dataset:
    """At most so many batches, as tensors if they are small: to start a pipeline takes a second."""
    size = sum(
        each.dtype.size * each.shape.num_elements() for each in batches.element_spec.values()
    )
    found = list(batches) if most * size <= _MOST_BYTES else []
    if not found:
        return batches
    columns = {key: tf.stack([batch[key] for batch in found]) for key in found[0]}
    return tf.data.Dataset.from_tensor_slices(columns)


def first_sentences(corpus: sources.Corpus, count: int = 30) -> list[str]:
    """The first sentences of a corpus that are neither short nor long, to show a model at work."""
    fitting = (
        sentence
        for sentence in corpus.sentences(limit_bytes=1_000_000)
        if 8 <= len(sentence.split()) <= 20 and sentence.isascii() and sentence[:1].isupper()
    )
    # Every seventh, so that they do not all come from one document.
    return list(itertools.islice(fitting, 0, 7 * count, 7))


def check_records(
    settings: PretrainingSettings, data: PretrainingData, vocab_size: int, length: int
) -> None:
    """Checks that the ids of the first records are within the vocabulary."""
    for records in filter(None, dict.fromkeys([data.records, data.eval_records])):
        batch = next(
            iter(
                tfrecords.tfrecord_dataset(
                    records,
                    batch_size=settings.eval_batch_size,
                    max_seq_length=length,
                    max_predictions_per_seq=predictions_per_row(settings, length),
                    num_epochs=1,
                    drop_remainder=False,
                )
            )
        )
        largest = int(tf.reduce_max(batch[features.INPUT_WORD_IDS]))
        if largest >= vocab_size:
            raise ValueError(
                f"{records.files[0].path} holds token id {largest}, and the vocabulary has "
                f"{vocab_size} pieces: name the vocabulary that made the records with --vocab_file."
            )
