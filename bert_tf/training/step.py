"""The step of one replica, inside ``strategy.run``: the same code for every strategy.

``Update`` is every training's: gradients are summed over the replicas, then clipped by their global
norm, then applied. The model runs inside a ``keras.StatelessScope`` that gives each seed generator
its value, so the dropout masks are a function of what the seeds are made from, and nothing about
them changes in a training.

``ReplicaStep`` is the pre-training's. The weights of the whole batch are summed over the replicas;
each micro-batch's gradient of (its summed loss / those sums) is added up, and ``Update`` does the
rest. So the number of replicas and of micro-batches changes the result by rounding only (and by
which dropout masks are drawn: they are a function of (seed, step, replica, micro-batch)).

Dimension letters: B batch, S sequence, P masked-LM predictions, K micro-batches.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features, modeling
from bert_tf.modeling.dropout import Draw, drawing
from bert_tf.modeling.keras_hooks import without_reduction
from bert_tf.modeling.transformer import Attend, attending

from . import losses
from .attention import attend_in_groups


class Update:
    """Computes and applies the gradients of a model's trainable variables.

    The optimizer, built for these variables, no longer reduces gradients over the replicas: they
    are reduced here, before they are clipped to the global norm ``clip_norm``. ``draw`` is how
    dropout draws its masks, if not as on a CPU, and ``attend`` how attention is computed, if not
    at once.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        clip_norm: float | None,
    ) -> None:
        self._model = model
        self.draw: Draw | None = None
        self.attend: Attend | None = None
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self._apply = without_reduction(optimizer)
        self._seed_variables = modeling.seed_variables(model)

    @property
    def step(self) -> tf.Tensor:
        """The number of updates made before."""
        return tf.convert_to_tensor(self._optimizer.iterations.value)

    def gradients(
        self, seeds: list[tf.Tensor], compute: Callable[[], tuple[tf.Tensor, Any]]
    ) -> tuple[list[tf.Tensor], Any]:
        """The replica's gradients, dense, and what ``compute`` returns behind the loss.

        ``compute`` runs the model; ``seeds``, (2,) int64 each, are for its seed generators.
        """
        mapping = list(zip(self._seed_variables, seeds, strict=True))
        variables = [variable.value for variable in self._model.trainable_variables]
        with drawing(self.draw), attending(self.attend):
            with tf.GradientTape() as tape, keras.StatelessScope(state_mapping=mapping):
                loss, others = compute()
            gradients = tape.gradient(
                loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
        # Embedding gradients come as IndexedSlices, which neither reduce nor clip as a dense one.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], others

    @tf.autograph.experimental.do_not_convert
    def reduce(
        self, gradients: list[tf.Tensor], sums: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """The clipped gradients, ``sums`` and the norm before clipping, all of all replicas."""
        context = tf.distribute.get_replica_context()
        *gradients, sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, sums])
        norm = tf.linalg.global_norm(gradients)
        if self._clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
        return gradients, sums, norm

    @tf.autograph.experimental.do_not_convert
    def apply(self, gradients: list[tf.Tensor]) -> None:
        """Makes the update with what ``reduce`` returned."""
        self._apply(gradients, self._model.trainable_variables)


def accumulate(
    gradients_of: Callable[..., tuple[list[tf.Tensor], tf.Tensor]],
    shapes: Sequence[Sequence[int]],
    parts: int,
    weight_of: Callable[[Any], tf.Tensor],
    rows: Any,
    targets: Any,
    weights: Any,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """A batch's gradients, of ``shapes``, and mean loss from those of its parts, one at a time.

    ``gradients_of`` takes a part's rows, targets, weights and number; ``weight_of`` says of
    targets what their mean loss counts. A small batch has fewer parts.
    """
    size = tf.shape(tf.nest.flatten(rows)[0])[0]
    part_size = -(-size // parts)
    whole = weight_of(targets)

    def add(number: tf.Tensor, totals: list[tf.Tensor], mean: tf.Tensor) -> Any:
        def part(values: Any) -> Any:
            begin = number * part_size
            return tf.nest.map_structure(lambda value: value[begin : begin + part_size], values)

        own = part(targets)
        of_weights = None if weights is None else part(weights)
        gradients, loss = gradients_of(part(rows), own, of_weights, number)
        share = weight_of(own) / whole
        # Flat: of a chain of sums of one shape TensorFlow makes a sum in place, which fails the
        # second time in a loop.
        totals = [
            total + share * tf.reshape(gradient, [-1])
            for total, gradient in zip(totals, gradients, strict=True)
        ]
        return number + 1, totals, mean + share * loss

    _, totals, mean = tf.while_loop(
        lambda number, *_: number * part_size < size,
        add,
        [tf.constant(0), [tf.zeros([math.prod(shape)]) for shape in shapes], tf.constant(0.0)],
        parallel_iterations=1,
    )
    shaped = zip(totals, shapes, strict=True)
    return [tf.reshape(total, shape) for total, shape in shaped], mean


def dropout_seeds(seed: int, step: Any, replica: Any, micro_batch: Any, count: int) -> tf.Tensor:
    """Independent seeds, one for each of ``count`` seed generators: (count, 2) int64.

    A Keras seed generator keeps a counter, which is mirrored (every replica would draw the same
    mask) and which a checkpoint would have to save. A function of the training's seed, the updates
    made before, the replica and its micro-batch needs neither.

    >>> first, again = (dropout_seeds(7, 0, 0, 0, 1).numpy().tolist() for _ in range(2))
    >>> first == again, first == dropout_seeds(7, 0, 1, 0, 1).numpy().tolist()
    (True, False)
    """
    # Stateless operations take two 32-bit numbers as their key.
    key = tf.constant([seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF], tf.int32)
    for number in (step, replica, micro_batch):
        key = tf.random.fold_in(key, tf.cast(number, tf.int32))
    drawn = tf.random.stateless_uniform((count, 2), key, minval=None, maxval=None, dtype=tf.int32)
    return tf.cast(drawn, tf.int64)


def draw_on_tpu(shape: Sequence[int], dropped: int, generator: Any) -> tf.Tensor:
    """Draws a dropout mask in the tensor's own shape, two elements a word.

    The words' last dimensions are the tensor's, so that a TPU pads neither: of the words that a
    CPU draws, in rows of one or two, it would make sixty-four and more times their size.
    """
    rows = shape[0]
    words = tf.random.stateless_uniform(
        [(rows + 1) // 2, *shape[1:]], generator.next(), None, None, tf.int32, alg="threefry"
    )
    # The sixteen bits decide: what is below them is below one level.
    threshold = (dropped << 16) - (1 << 31)
    halves = [words, tf.bitwise.left_shift(words, 16)]
    return tf.concat([half >= threshold for half in halves], axis=0)[:rows]


# What `BertPretrainer` takes: the encoder's features and where the predictions stand.
_MODEL_INPUTS = (*features.ENCODER_FEATURES, features.MASKED_LM_POSITIONS)


def model_inputs(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The part of a pre-training batch that `BertPretrainer` takes.

    >>> batch = dict.fromkeys([*features.PRETRAINING_FEATURES, features.CURSOR], 0)
    >>> sorted(model_inputs(batch))
    ['input_mask', 'input_type_ids', 'input_word_ids', 'masked_lm_positions']
    """
    return {key: batch[key] for key in _MODEL_INPUTS}


Batch = Mapping[str, tf.Tensor]


class ReplicaStep:
    """One update of a `BertPretrainer`, as one replica runs it inside ``strategy.run``.

    The model may lack the next-sentence head. ``micro_batches`` is K; ``jit_compile`` compiles the
    gradients with XLA. On a TPU dropout draws by ``draw_on_tpu``. The model's encoder, if it has
    one, leaves padding out unless XLA compiles the step. AutoGraph converts the loop over
    micro-batches alone: converting the rest would take a second, and change nothing.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        seed: int,
        micro_batches: int,
        clip_norm: float | None,
        jit_compile: bool,
        device_type: str = "CPU",
    ) -> None:
        self._model = model
        self._update = Update(model, optimizer, clip_norm)
        self._device_type = device_type
        on_tpu = device_type == "TPU"
        self._update.draw = draw_on_tpu if on_tpu else None
        self.leaves_padding_out = not (on_tpu or jit_compile)
        if encoder := getattr(model, "encoder", None):
            encoder.trains_without_padding = self.leaves_padding_out
        on_cpu = self.leaves_padding_out and device_type == "CPU"
        self._predicts_sums = on_cpu and isinstance(model, modeling.BertPretrainer)
        self._update.attend = attend_in_groups if on_cpu else None
        self._seed = seed
        self._num_seeds = len(modeling.seed_variables(model))
        self._micro_batches = micro_batches
        self._has_next_sentence = features.NEXT_SENTENCE_LOGITS in model.output
        # Strategies forbid XLA round their collectives, so it goes round the gradients only.
        self._gradients = (
            tf.function(self.sum_gradients, jit_compile=True) if jit_compile else self.sum_gradients
        )

    def __call__(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes the update from this replica's share of a batch; returns what ``reduce`` does."""
        gradients, outcome = self.reduce(batch)
        self.apply(gradients)
        return outcome

    def reduce(
        self, batch: Batch
    ) -> tuple[list[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """The update's gradients for ``apply``, of all replicas and clipped, and the outcome.

        That is `losses.PretrainingSums` stacked to (7,), the gradients' global norm before
        clipping, and (replicas, C) the cursor of each share's last row.
        """
        context = tf.distribute.get_replica_context()
        masked_lm_weight, rows = context.all_reduce(
            tf.distribute.ReduceOp.SUM,
            [
                tf.reduce_sum(batch[features.MASKED_LM_WEIGHTS]),
                tf.reduce_sum(losses.row_weights(batch[features.INPUT_MASK])),
            ],
        )
        model_batch = {key: batch[key] for key in features.PRETRAINING_FEATURES}
        replica = tf.convert_to_tensor(context.replica_id_in_sync_group)
        gradients, sums = self._gradients(
            model_batch, self._update.step, replica, masked_lm_weight, rows
        )
        cursor = batch[features.CURSOR][-1]
        # In two halves, which float32 holds exactly, to be summed along with the rest.
        halves = tf.cast(tf.stack([cursor // 65536, cursor % 65536]), tf.float32)
        placed = tf.one_hot(replica, context.num_replicas_in_sync)[:, None, None] * halves
        flat = tf.concat([sums, tf.reshape(placed, [-1])], 0)
        gradients, flat, norm = self._update.reduce(gradients, flat)
        cursors = tf.cast(tf.reshape(flat[tf.size(sums) :], tf.shape(placed)), tf.int32)
        cursors = cursors[:, 0] * 65536 + cursors[:, 1]
        return gradients, (flat[: tf.size(sums)], norm, cursors)

    def apply(self, gradients: list[tf.Tensor]) -> None:
        """Makes the update with the gradients that ``reduce`` returned."""
        self._update.apply(gradients)

    @tf.autograph.experimental.do_not_convert
    def weights_norm(self) -> tf.Tensor:
        """The global norm of the trainable variables, which overflows where one is beyond use."""
        return tf.linalg.global_norm([v.value for v in self._model.trainable_variables])

    def sum_gradients(
        self, batch: Batch, step: tf.Tensor, replica: tf.Tensor, weight: tf.Tensor, rows: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The share's gradients, dense, and its sums, added up over its micro-batches."""
        if self._micro_batches == 1:
            return self.micro_gradients(batch, step, replica, tf.constant(0), weight, rows)
        # (B, ...) -> (K, B / K, ...)
        parts = {
            key: tf.reshape(value, [self._micro_batches, -1, *value.shape[1:]])
            for key, value in batch.items()
        }
        variables = self._model.trainable_variables
        # Flat: of a chain of sums of one shape TensorFlow makes a sum in place, which fails the
        # second time in a loop.
        totals = [tf.zeros([math.prod(v.shape)], v.dtype) for v in variables]
        sums = tf.zeros((len(losses.PretrainingSums._fields),))
        # A loop and not K copies of the graph: one micro-batch's activations live at a time.
        for index in tf.range(self._micro_batches):
            micro = {key: value[index] for key, value in parts.items()}
            gradients, micro_sums = self.micro_gradients(micro, step, replica, index, weight, rows)
            totals = [
                total + tf.reshape(gradient, [-1])
                for total, gradient in zip(totals, gradients, strict=True)
            ]
            sums = sums + micro_sums
        shaped = zip(totals, variables, strict=True)
        return [tf.reshape(total, variable.shape) for total, variable in shaped], sums

    @tf.autograph.experimental.do_not_convert
    def micro_gradients(
        self,
        batch: Batch,
        step: tf.Tensor,
        replica: tf.Tensor,
        index: tf.Tensor,
        weight: tf.Tensor,
        rows: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """One micro-batch's gradients, dense, and its sums."""

        def compute() -> tuple[tf.Tensor, tf.Tensor]:
            sums = self._sums(batch)
            loss = losses.masked_lm_mean(sums.masked_lm_loss, weight)
            if self._has_next_sentence:
                loss += losses.next_sentence_mean(sums.next_sentence_loss, rows)
            return loss, tf.stack(sums)

        seeds = dropout_seeds(self._seed, step, replica, index, self._num_seeds)
        return self._update.gradients(tf.unstack(seeds), compute)

    def _sums(self, batch: Batch) -> losses.PretrainingSums:
        """Runs the model in training."""
        if not self._predicts_sums:
            outputs = self._model(model_inputs(batch), training=True)
            return losses.batch_sums(outputs, batch, self._device_type)
        inputs = {key: batch[key] for key in features.ENCODER_FEATURES}
        states = self._model.encoder(inputs, training=True)
        # (N, 2): the row and the number of each prediction that counts, N <= B * P. A weight that
        # is not a number counts too, or nobody would notice it.
        real = tf.where(tf.not_equal(batch[features.MASKED_LM_WEIGHTS], 0.0))
        positions, labels, weights = (
            tf.gather_nd(batch[key], real)
            for key in (
                features.MASKED_LM_POSITIONS,
                features.MASKED_LM_IDS,
                features.MASKED_LM_WEIGHTS,
            )
        )
        head, hidden = self._model.masked_lm, states[features.SEQUENCE_OUTPUT]
        places = tf.cast(real[:, 0], tf.int32) * hidden.shape[1] + positions
        transformed = head.transform(hidden, places, training=True)
        table = tf.cast(head.embedding_table(), transformed.dtype)
        bias = tf.convert_to_tensor(head.output_bias)
        masked_lm = losses.predicted_sums(transformed, table, bias, labels, weights)
        outputs = {}
        if self._has_next_sentence:
            pooled = states[features.POOLED_OUTPUT]
            outputs[features.NEXT_SENTENCE_LOGITS] = self._model.next_sentence(pooled)
        return losses.batch_sums(outputs, batch, self._device_type, masked_lm)
