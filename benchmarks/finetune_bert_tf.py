"""bert_tf's side of ``benchmarks.finetune``: ``fit`` with the attention of the command."""

import os
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import features
from bert_tf.pipelines.classification import classification_examples
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.tasks.questions.rows import QuestionExamples, question_examples
from bert_tf.training.attention import choose_attention
from bert_tf.training.compilation import Compilation
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.precision import NOT_REWRITTEN, set_precision
from bert_tf.training.schedules import WarmupLinearDecay

from .finetune_tasks import (
    BATCH_SIZE,
    CLIP_NORM,
    COMPARISONS,
    DOC_STRIDE,
    EVALUATION_BATCH_SIZE,
    LEARNING_RATE,
    MAX_ANSWER_LENGTH,
    MAX_QUERY_LENGTH,
    N_BEST,
    WARMUP_PROPORTION,
    Comparison,
    Outcome,
    Run,
    Stopwatch,
    text_columns,
)


class _EachStep(keras.callbacks.Callback):
    def __init__(self, stopwatch: Stopwatch, steps: int) -> None:
        super().__init__()
        self._stopwatch = stopwatch
        self._steps = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._stopwatch.steps in (0, self._steps - 1):
            float(logs["loss"])  # waits for a GPU
        self._stopwatch.step()


def train(run: Run, train_items: list[Any], dev_items: list[Any]) -> Outcome:
    """Trains; predicts the dev examples unless training stops early."""
    comparison = COMPARISONS[run.task]
    start_time = time.perf_counter()
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    compilation = Compilation(device)
    os.environ[NOT_REWRITTEN] = "AddN,BiasAddGrad"  # as in training commands
    set_precision(run.precision, device)
    keras.utils.set_random_seed(run.seed)
    model_class, arguments = _model_class(comparison)
    model = model_class.from_checkpoint(run.checkpoint, **arguments)
    examples = _examples(model, train_items, comparison)
    rows = examples.examples if isinstance(examples, QuestionExamples) else examples
    preparation_seconds = time.perf_counter() - start_time

    steps = comparison.epochs * rows.num_batches(BATCH_SIZE)
    batches = rows.training_batches(
        BATCH_SIZE,
        epochs=comparison.epochs,
        seed=run.seed,
        length_multiple=compilation.length_multiple,
    )
    schedule = WarmupLinearDecay(LEARNING_RATE, int(WARMUP_PROPORTION * steps), steps)
    optimizer = create_optimizer(
        "adamw", schedule, model.trainable_variables, global_clipnorm=CLIP_NORM
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # For spans, average the losses of the start and the end of the answer.
    loss_weights = {} if comparison.glue else {"loss_weights": 0.5}
    model.encoder.trains_without_padding = True
    if compilation.groups_attention:
        heads = model.config.num_attention_heads
        model.encoder.training_attention = choose_attention(rows.lengths, BATCH_SIZE, heads)
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False, **loss_weights)
    epochs, steps_per_epoch = comparison.epochs, rows.num_batches(BATCH_SIZE)
    if run.stop_after:
        epochs, steps_per_epoch = 1, min(run.stop_after, steps)
        batches = batches.take(steps_per_epoch)
    stopwatch = Stopwatch()
    stopwatch.start()
    model.fit(
        batches,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[_EachStep(stopwatch, epochs * steps_per_epoch)],
    )

    batch_sizes, positions = [], 0
    for batch, _ in batches:
        batch_sizes.append(len(batch[features.INPUT_MASK]))
        positions += int(tf.size(batch[features.INPUT_MASK]))
    # A long context has several rows.
    examples_per_row = len(train_items) / len(rows)
    return Outcome(
        preparation_seconds=preparation_seconds,
        first_step_seconds=stopwatch.first,
        seconds=stopwatch.last,
        steps=stopwatch.steps,
        examples=sum(batch_sizes) * examples_per_row,
        first_step_examples=batch_sizes[0] * examples_per_row,
        tokens=int(rows.lengths.sum()),
        positions=positions,
        device=device,
        predictions=[] if run.stop_after else _predict(model, dev_items, comparison),
    )


def _model_class(comparison: Comparison) -> tuple[type[Any], dict[str, int]]:
    if comparison.glue:
        return bert_tf.BertClassifier, {"num_classes": 2}
    return bert_tf.BertSpanPredictor, {}


def _examples(model: Any, items: list[Any], comparison: Comparison) -> Examples | QuestionExamples:
    tokenizer = model.preprocessor.tokenizer
    if comparison.glue:
        first, second, labels = text_columns(items)
        return classification_examples(
            tokenizer, first, second, labels=labels, max_seq_length=comparison.max_seq_length
        )
    answers = [item.answers[0] for item in items]
    return question_examples(
        tokenizer,
        [item.question for item in items],
        [item.context for item in items],
        answer_starts=[answer.start for answer in answers],
        answer_ends=[answer.start + len(answer.text.encode()) for answer in answers],
        max_seq_length=comparison.max_seq_length,
        doc_stride=DOC_STRIDE,
        max_query_length=MAX_QUERY_LENGTH,
    )


def _predict(model: Any, items: list[Any], comparison: Comparison) -> list[Any]:
    examples = _examples(model, items, comparison)
    if isinstance(examples, QuestionExamples):
        answers, _ = examples.predict_answers(
            model,
            batch_size=EVALUATION_BATCH_SIZE,
            n_best=N_BEST,
            max_answer_length=MAX_ANSWER_LENGTH,
        )
        return [text.decode() for text in answers.texts[:, 0]]
    predicted = np.zeros(len(items), np.int32)
    batches, _ = examples.sorted_batches(EVALUATION_BATCH_SIZE)
    for batch, _ in batches:
        logits = model.predict_on_batch(batch)
        predicted[batch[features.EXAMPLE_INDEX].numpy()] = logits.argmax(axis=-1)
    return predicted.tolist()
