"""The batches of a run: of its phases, of its evaluation; and the sentences of its examples."""

import itertools

import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines import masking, pretraining, sources, tfrecords
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training.phases import Phase

from .data import PretrainingData
from .settings import PretrainingSettings

_EVALUATION_SEED_OFFSET = 1_000_000_007

# English text has 0.85 to 0.98.
_LOW_SHARE = 0.7


def predictions_per_row(settings: PretrainingSettings, max_seq_length: int) -> int:
    """The masked-LM predictions of a row, P: the flag's, or the share of a full row, rounded up."""
    return settings.max_predictions_per_seq or masking.default_max_predictions(
        max_seq_length, settings.masked_lm_prob
    )


def training_batches(
    settings: PretrainingSettings,
    data: PretrainingData,
    tokenizer: BertTokenizer,
    phase: Phase,
    phase_number: int,
    start: tuple[int, int, int],
) -> tf.data.Dataset:
    """The endless batches of a phase, ``features.PRETRAINING_FEATURES`` and the cursor.

    Args:
        settings: batch size, masking, seed.
        data: what to train on.
        tokenizer: the vocabulary's.
        phase: its length is the rows'.
        phase_number: counted from 0; each phase draws from a seed of its own.
        start: (epoch, pool, row) of the first row.
    """
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
        rows_version=data.rows_version,
    )


def report_share(
    settings: PretrainingSettings, data: PretrainingData, tokenizer: BertTokenizer, phase: Phase
) -> None:
    """Prints how much of the text reaches the rows of the first phase, and what helps a low share.

    Args:
        settings: NSP, short rows, seed.
        data: what to train on; nothing is printed of TFRecords.
        tokenizer: the vocabulary's.
        phase: the first.
    """
    if data.train is None:
        return
    share, tokens = pretraining.measure_share(
        data.train,
        tokenizer,
        max_seq_length=phase.max_seq_length,
        short_seq_prob=settings.short_seq_prob,
        nsp=settings.nsp,
        seed=settings.seed,
        rows_version=data.rows_version,
    )
    print(f"Tokens that reach rows: {share:.1%} of a sample of {tokens:,}.")
    if share < _LOW_SHARE:
        reason = (
            f"most sentences nearly fill the {phase.max_seq_length} tokens of a row, and pairs of "
            "them are cut to length. Longer rows (--max_seq_length) use more of the text, and "
            "--nsp=false leaves no token out."
            if data.rows_version > 1
            else "this run goes on as the release that began it, which keeps one row of a sentence "
            "longer than that. A run in another --model_dir cuts such sentences into several."
        )
        print(f"  That is little: {reason}")


def evaluation_batches(
    settings: PretrainingSettings,
    data: PretrainingData,
    tokenizer: BertTokenizer,
    max_seq_length: int,
    replicas: int,
) -> tf.data.Dataset | None:
    """One pass over what is evaluated, the same pairs and masks each time; None without any.

    Args:
        settings: batch size, masking, seed.
        data: what to evaluate on.
        tokenizer: the vocabulary's.
        max_seq_length: the rows' length.
        replicas: how many share a batch; its size is rounded up to a multiple, as the rows of
            padding at the end weigh nothing.
    """
    batch_size = -(-settings.eval_batch_size // replicas) * replicas
    predictions = predictions_per_row(settings, max_seq_length)
    seed = settings.seed + _EVALUATION_SEED_OFFSET
    if data.eval_records:
        return tfrecords.tfrecord_dataset(
            data.eval_records,
            batch_size=batch_size,
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
        batch_size=batch_size,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=predictions,
        masked_lm_prob=settings.masked_lm_prob,
        short_seq_prob=settings.short_seq_prob,
        masking=settings.masking,
        nsp=settings.nsp and data.evaluates_next_sentence,
        seed=seed,
        num_epochs=1,
        pad_final_batch=True,
        rows_version=data.rows_version,
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


def check_records(
    settings: PretrainingSettings, data: PretrainingData, vocab_size: int, length: int
) -> None:
    """Checks that the ids of the first records are within the vocabulary.

    Raises:
        ValueError: an id is beyond it, or the records are of another length.
    """
    for files in {tuple(data.records), tuple(data.eval_records)} - {()}:
        batch = next(
            iter(
                tfrecords.tfrecord_dataset(
                    files,
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
                f"{files[0]} holds token id {largest}, and the vocabulary has {vocab_size} pieces: "
                "name the vocabulary that made the records with --vocab_file."
            )
