"""The pre-training loop round ``step.ReplicaStep``: the same code for every strategy.

Dimension letters: B batch, K micro-batches.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features, modeling

from . import losses
from .bad_steps import BadStep, BadStepError, Trend
from .input_pipelines import MakeBatches, distribute, last_cursors
from .step import ReplicaStep, model_inputs


class EvaluationResult(NamedTuple):
    """Measures over a whole evaluation set, as Python numbers.

    Losses are means in nats, accuracies shares. ``masked_lm_baseline`` is the share that the most
    frequent original token would get right, ``next_sentence_baseline`` that of the majority's
    label. Those of the next sentence are 0 without that head.
    """

    masked_lm_loss: float
    masked_lm_perplexity: float
    masked_lm_accuracy: float
    masked_lm_baseline: float
    masked_lm_predictions: int
    next_sentence_loss: float
    next_sentence_accuracy: float
    next_sentence_baseline: float
    next_sentence_rows: int


class Evaluator:
    """Evaluates a `BertPretrainer` without dropout, under the strategy that it was built under."""

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
        self._model = model
        self._strategy = strategy
        self._step = tf.function(self._evaluate_step, autograph=False)

    def evaluate(
        self,
        batches: tf.data.Dataset | MakeBatches,
        max_steps: int | None = None,
        report: Callable[[int], None] = lambda done: None,
    ) -> EvaluationResult:
        """Runs the model over finite batches (``max_steps`` at most) and sums in double precision.

        Every input pipeline reads all of them: a dataset, or what a function makes for each, which
        several hosts need. Its replicas are given their rows alone, so that each row counts once.
        Rows of padding (``input_mask`` and ``masked_lm_weights`` all 0) weigh nothing. ``report``
        is called with the number of batches that are done.
        """

        def first_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
            dataset = batches if isinstance(batches, tf.data.Dataset) else batches(context)
            return dataset.take(-1 if max_steps is None else max_steps)

        totals = np.zeros(len(losses.PretrainingSums._fields))
        tokens, labels = np.zeros(1), np.zeros(2)
        shared = distribute(self._strategy, first_batches, reads_all=True)
        for number, batch in enumerate(shared, 1):
            batch_sums, batch_tokens, batch_labels = self._step(batch)
            totals = totals + batch_sums.numpy()
            tokens, labels = tokens + batch_tokens.numpy(), labels + batch_labels.numpy()
            report(number)
        sums = losses.PretrainingSums(*totals)
        if sums.masked_lm_weight == 0:
            raise ValueError(
                "The evaluation data holds no masked position: give documents to evaluate on, or "
                "hold out a larger fraction."
            )
        means = losses.means(sums)
        has_rows = sums.next_sentence_rows > 0
        return EvaluationResult(
            **means,
            masked_lm_perplexity=math.exp(min(means["masked_lm_loss"], 700.0)),
            masked_lm_baseline=float(tokens.max() / tokens.sum()),
            masked_lm_predictions=int(sums.masked_lm_weight),
            next_sentence_baseline=float(labels.max() / labels.sum()) if has_rows else 0.0,
            next_sentence_rows=int(sums.next_sentence_rows),
        )

    def _evaluate_step(self, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        outputs = self._strategy.run(self._replica_step, args=(batch,))
        return tuple(self._strategy.experimental_local_results(value)[0] for value in outputs)

    def _replica_step(self, batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """The loss sums (7,), and how often each token (V,) and each label (2,) is the answer."""
        outputs = self._model(model_inputs(batch), training=False)
        tokens = tf.math.unsorted_segment_sum(
            tf.reshape(batch[features.MASKED_LM_WEIGHTS], [-1]),
            tf.reshape(batch[features.MASKED_LM_IDS], [-1]),
            outputs[features.MASKED_LM_LOGITS].shape[-1],
        )
        labels = tf.math.unsorted_segment_sum(
            losses.row_weights(batch[features.INPUT_MASK]),
            batch[features.NEXT_SENTENCE_LABELS],
            2,
        )
        sums = tf.stack(losses.batch_sums(outputs, batch))
        context = tf.distribute.get_replica_context()
        reduced: list[tf.Tensor] = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [sums, tokens, labels]
        )
        return reduced


class TrainingResult(NamedTuple):
    """What `PretrainingLoop.train` returns: Python numbers over the updates it made.

    ``step`` counts the updates of all calls. ``loss`` is the sum of the two losses, means in nats;
    ``gradient_norm`` is the mean over the updates of the global norm before clipping,
    ``learning_rate`` the last step's. ``tokens`` are those that are not padding; ``cursors`` are
    the (epoch, pool, row) of the last row of each input pipeline; ``skipped`` are the steps that
    were bad, in their order; ``waited`` are the seconds in which a step had ended and the next
    batch was not there, where they are measured.
    """

    step: int
    loss: float
    masked_lm_loss: float
    masked_lm_accuracy: float
    next_sentence_loss: float
    next_sentence_accuracy: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    predictions: int
    cursors: tuple[tuple[int, int, int], ...]
    skipped: tuple[BadStep, ...]
    waited: float | None


class PretrainingLoop:
    """Trains a `BertPretrainer`.

    Args:
        model: inputs and outputs as `BertPretrainer` has them, built in the strategy's scope; the
            next-sentence head may be missing.
        optimizer: a Keras optimizer built for ``model.trainable_variables`` in the strategy's
            scope. It is the loop's from then on: its own reduction of gradients over the replicas
            is switched off, because the loop reduces them before it clips.
        strategy: any ``tf.distribute`` strategy.
        seed: seeds the dropout masks.
        gradient_accumulation_steps: K, the number of micro-batches that a replica cuts its share
            of the batch into; one update for all of them.
        clip_norm: the global norm that the summed gradients are clipped to; ``None`` for none.
        jit_compile: compile the gradients with XLA. (On a TPU everything is, regardless.)
        device_type: "CPU", "GPU" or "TPU", the strategy's.
        spike_factor: a step is bad if its loss or its gradients are not finite, or, where this is
            above 0, if its loss or their norm before clipping is over so many times the running
            mean of the good steps (see `Trend`), of which there must be 100.
        skip_bad_steps: make no update in a bad step: all is as if its batch had not been there.
        most_bad_steps: how many are skipped in a row.
        measures_waits: TensorFlow's clock runs only without ``enable_op_determinism``.

    Attributes:
        trend: what a spike is measured by: Python floats, to be kept with a checkpoint.

    Raises:
        ValueError: an argument is out of range, or the optimizer is not built.

    >>> from bert_tf.config import BertConfig
    >>> from bert_tf.training.optimizers import create_optimizer
    >>> sizes = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1}
    >>> sizes |= {"num_attention_heads": 2, "intermediate_size": 4, "max_position_embeddings": 6}
    >>> model = modeling.BertPretrainer(BertConfig(**sizes))
    >>> optimizer = create_optimizer("adam", 1e-4, model.trainable_variables)
    >>> training = PretrainingLoop(model, optimizer, tf.distribute.get_strategy(), seed=0)
    >>> ids, predicted = tf.ones((2, 6), tf.int32), tf.ones((2, 1), tf.int32)
    >>> batch = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids,
    ...          "masked_lm_positions": predicted, "masked_lm_ids": predicted,
    ...          "masked_lm_weights": tf.ones((2, 1)), "next_sentence_labels": ids[:, 0],
    ...          "cursor": tf.constant([[0, 0, 0], [0, 0, 1]])}
    >>> iterator = training.distribute(tf.data.Dataset.from_tensors(batch).repeat())
    >>> result = training.train(iterator, 3)
    >>> result.step, result.tokens, result.cursors
    (3, 36, ((0, 0, 1),))
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        *,
        seed: int,
        gradient_accumulation_steps: int = 1,
        clip_norm: float | None = 1.0,
        jit_compile: bool = False,
        device_type: str = "CPU",
        spike_factor: float = 0.0,
        skip_bad_steps: bool = False,
        most_bad_steps: int = 10,
        measures_waits: bool = True,
    ) -> None:
        if gradient_accumulation_steps < 1:
            raise ValueError(
                "gradient_accumulation_steps must be at least 1, "
                f"got {gradient_accumulation_steps}."
            )
        if clip_norm is not None and not clip_norm > 0.0:
            raise ValueError(f"clip_norm must be positive or None, got {clip_norm!r}.")
        if not optimizer.built:
            raise ValueError(
                "The optimizer is not built: call optimizer.build(model.trainable_variables) in "
                "the strategy's scope first."
            )
        self.model = model
        self.optimizer = optimizer
        self.strategy = strategy
        self.replica_step = ReplicaStep(
            model,
            optimizer,
            seed=seed,
            micro_batches=gradient_accumulation_steps,
            clip_norm=clip_norm,
            jit_compile=jit_compile,
            device_type=device_type,
        )
        self._micro_batches = gradient_accumulation_steps
        self.trend = Trend()
        self._spike_factor = spike_factor
        self._skips = skip_bad_steps
        self._most_bad_steps = most_bad_steps
        self._measures_waits = measures_waits
        self._bad_in_a_row = 0
        self._train = tf.function(self._train_steps)
        self._evaluator = Evaluator(model, strategy)

    @property
    def step(self) -> int:
        """The number of updates made, across restarts."""
        return int(self.optimizer.iterations.numpy())

    def state(self) -> dict[str, keras.Variable]:
        """Everything that a checkpoint has to keep, by unique name.

        What ``model_state`` gives, and ``optimizer/PATH`` for the optimizer's variables: its
        moments and the number of updates.
        """
        return {**model_state(self.model), **_named("optimizer", self.optimizer.variables)}

    def distribute(self, batches: tf.data.Dataset | MakeBatches) -> Iterator[Any]:
        """An iterator, for `train`, that hands each replica its share of every batch.

        The batches are ``features.PRETRAINING_FEATURES`` and ``features.CURSOR`` with static
        shapes: whole ones of a dataset that every input pipeline reads, or what a function makes
        of a pipeline's ``tf.distribute.InputContext``, its share of each batch, of rows of its own.
        """
        return iter(distribute(self.strategy, batches, self._micro_batches))

    def train(self, iterator: Iterator[Any], num_steps: int) -> TrainingResult:
        """Makes updates, all in one call of a compiled function, the same for any number.

        Of ``num_steps`` batches those of skipped steps make no update.

        Raises:
            BadStepError: a step was bad, or too many in a row were, or the weights have no finite
                norm after the last one; the weights are unusable then, and an earlier checkpoint
                has to be restored.
            ValueError: the data ended before the last step.
        """
        if num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, got {num_steps}.")
        first_step = self.step
        try:
            sums, rate, trend, measures, cursors, waited, weights_norm = self._train(
                iterator, tf.constant(num_steps), Trend(*map(tf.constant, self.trend))
            )
        except tf.errors.OutOfRangeError as error:
            raise ValueError(
                f"The data ended before the {num_steps} updates that were asked for at step "
                f"{first_step}: give a dataset that repeats."
            ) from error
        step, skipped = first_step, []
        for (loss, norm, is_good), of_replicas in zip(
            measures.numpy().tolist(), cursors.numpy().tolist(), strict=True
        ):
            last = last_cursors(of_replicas)
            if is_good:
                step, self._bad_in_a_row = step + 1, 0
                continue
            bad = BadStep(step, last, loss, norm)
            self._bad_in_a_row += 1
            if not self._skips or self._bad_in_a_row > self._most_bad_steps:
                raise BadStepError(bad)
            skipped.append(bad)
        if not math.isfinite(weights_norm):
            raise BadStepError(BadStep(self.step - 1, last, loss, norm, ruins=True))
        self.trend = Trend(*map(float, trend))
        means = losses.means(sums)
        norms = [norm for _, norm, is_good in measures.numpy() if is_good]
        return TrainingResult(
            step=self.step,
            loss=means["masked_lm_loss"] + means["next_sentence_loss"],
            **means,
            gradient_norm=float(np.mean(norms)) if norms else 0.0,
            learning_rate=float(rate),
            tokens=int(sums.tokens),
            predictions=int(sums.masked_lm_weight),
            cursors=last,
            skipped=tuple(skipped),
            waited=float(waited) if self._measures_waits else None,
        )

    def evaluate(
        self, batches: tf.data.Dataset | MakeBatches, max_steps: int | None = None
    ) -> EvaluationResult:
        """Losses and accuracies without dropout; see `Evaluator.evaluate`."""
        return self._evaluator.evaluate(batches, max_steps)

    def _train_steps(
        self, iterator: Iterator[Any], num_steps: tf.Tensor, trend: Trend
    ) -> tuple[Any, ...]:
        """Sums over the updates, the last rate, the trend, each step's measures and cursor, waits.

        Behind them is the norm of the weights after the last step.
        The measures are (steps, 3): loss, gradient norm, and 1 if the step is good.
        """
        sums, rate = losses.PretrainingSums.zeros(), tf.zeros(())
        measures = tf.TensorArray(tf.float32, num_steps, element_shape=(3,))
        cursors = tf.TensorArray(
            tf.int32, num_steps, element_shape=(self.strategy.num_replicas_in_sync, 4)
        )
        ended, waited = self._time_after([]), tf.zeros((), tf.float64)
        for index in tf.range(num_steps):
            # A turn begins when the one before has ended on a CPU, and earlier on other devices.
            ended = tf.maximum(ended, self._time_after([]))
            batch = next(iterator)
            waited += tf.maximum(self._time_after(batch[features.CURSOR]) - ended, 0.0)
            rate = tf.cast(tf.convert_to_tensor(self.optimizer.learning_rate), tf.float32)
            gradients: Any = None
            if self._skips:
                gradients, outcome = self.strategy.run(self.replica_step.reduce, args=(batch,))
            else:
                outcome = self.strategy.run(self.replica_step, args=(batch,))
            # They are the same on every replica.
            flat, norm, step_cursors = (
                self.strategy.experimental_local_results(value)[0] for value in outcome
            )
            step_sums = losses.PretrainingSums(
                *tf.unstack(flat, num=len(losses.PretrainingSums._fields))
            )
            loss = losses.loss(step_sums)
            is_good = trend.is_good(loss, norm, self._spike_factor)
            if self._skips:
                if is_good:
                    self.strategy.run(self.replica_step.apply, args=(gradients,))
                    sums = sums.plus(step_sums)
            else:
                sums = sums.plus(step_sums)
            if self._spike_factor:
                trend = trend.after(loss, norm, is_good)
            measures = measures.write(index, tf.stack([loss, norm, tf.cast(is_good, tf.float32)]))
            cursors = cursors.write(index, step_cursors)
            ended = self._time_after(norm)  # the loss is there before the gradients
        weights_norm = self.strategy.run(self.replica_step.weights_norm)
        weights_norm = self.strategy.experimental_local_results(weights_norm)[0]
        return sums, rate, trend, measures.stack(), cursors.stack(), waited, weights_norm

    @tf.autograph.experimental.do_not_convert
    def _time_after(self, values: Any) -> tf.Tensor:
        """The seconds at which tensors, of any device, have been computed; 0 without a clock."""
        if not self._measures_waits:
            return tf.zeros((), tf.float64)
        with tf.device("CPU:0"):
            there = [tf.identity(v) for v in tf.nest.flatten(values, expand_composites=True)]
            with tf.control_dependencies(there):
                return tf.timestamp()


def model_state(model: keras.Model) -> dict[str, keras.Variable]:
    """A model's variables by the names that checkpoints have for them, ``model/PATH``.

    The seed generators' states are left out: the loop never reads them.
    """
    generators = {id(variable) for variable in modeling.seed_variables(model)}
    return _named("model", [v for v in model.variables if id(v) not in generators])


def _named(owner: str, variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        name = f"{owner}/{variable.path}"
        if name in named:
            raise ValueError(
                f"Two variables are called {name!r}, and a checkpoint could keep only one: give "
                "the model's layers different names."
            )
        named[name] = variable
    return named
