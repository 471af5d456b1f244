"""``--dry_run``: what a pre-training would take, without writing anything."""

import dataclasses
import os

from bert_tf.config import BertConfig
from bert_tf.training import distribution
from bert_tf.training.progress import duration

from .data import predictions_per_row
from .model import open_start, sized_config
from .settings import PretrainingSettings, phases_of
from .timing import choose_precision, choose_steps, step_seconds

# float32 bytes a parameter takes while it trains: the weight, its gradient, Adam's two moments.
_TRAINING_BYTES_PER_PARAMETER = 16


@dataclasses.dataclass(frozen=True)
class StepEstimate:
    """The cost of one step: trainable weights, tokens with padding (B * S), and the next two.

    ``flops`` are of the forward and backward pass, a multiply-add two; ``memory_bytes`` are
    weights, gradients, moments, and what one micro-batch on one replica keeps for the backward
    pass.
    """

    parameters: int
    tokens: int
    flops: int
    memory_bytes: int


def parameter_count(config: BertConfig, nsp: bool = True) -> int:
    """Trainable weights of a ``BertPretrainer``: encoder, masked-LM head, NSP head.

    The pooler is there for NSP's head alone: without NSP neither is counted.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    norm = 2 * hidden
    positions = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    embeddings = positions * hidden + norm
    attention = 4 * (hidden * hidden + hidden) + norm
    feed_forward = hidden * inner + inner + inner * hidden + hidden + norm
    masked_lm = hidden * hidden + hidden + norm + config.vocab_size
    pooler_and_next_sentence = hidden * hidden + hidden + 2 * hidden + 2 if nsp else 0
    blocks = config.num_hidden_layers * (attention + feed_forward)
    return embeddings + blocks + masked_lm + pooler_and_next_sentence


def describe_parameters(config: BertConfig, nsp: bool = True) -> str:
    """``parameter_count`` as the words' table, the blocks' matrices, and all else.

    >>> describe_parameters(BertConfig())
    '110,106,428 = V*H 23,440,896 + 12*L*H*H 84,934,656 + 1,730,876 else'
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    total = parameter_count(config, nsp)
    words = config.vocab_size * hidden
    matrices = config.num_hidden_layers * (4 * hidden * hidden + 2 * hidden * inner)
    formula = "12*L*H*H" if inner == 4 * hidden else "L*(4*H*H + 2*H*F)"
    rest = total - words - matrices
    return f"{total:,} = V*H {words:,} + {formula} {matrices:,} + {rest:,} else"


def estimate_step(
    config: BertConfig,
    *,
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
    replicas: int = 1,
    gradient_accumulation_steps: int = 1,
    nsp: bool = True,
    bytes_per_activation: int = 4,
    remat: bool = False,
    real: tuple[float, float] | None = None,
) -> StepEstimate:
    """Estimates a step of ``batch_size`` rows over all replicas.

    ``real`` are the tokens and the predictions that are computed, where padding is not; in
    attention all rows have the mean length then.

    Matrix products alone are counted, three times over: once forward, twice backward; what
    ``remat`` computes again is not. ``bytes_per_activation`` is 4 for float32, 2 for bfloat16.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    length, layers = max_seq_length, config.num_hidden_layers
    tokens, predictions = real or (
        batch_size * max_seq_length,
        batch_size * max_predictions_per_seq,
    )
    attended = tokens / batch_size
    per_token_layer = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 2 * (2 * attended * hidden)
    per_prediction = 2 * (hidden * hidden + hidden * config.vocab_size)
    forward = layers * tokens * per_token_layer + predictions * per_prediction
    if nsp:
        forward += batch_size * 2 * hidden * hidden  # the pooler

    # Kept for the backward pass in each layer: about 12 arrays as wide as the hidden size (inputs
    # of products, of normalisations, dropout's masks), 3 as wide as the feed-forward layer and 3
    # of attention's S x S probabilities a head; and the logits with their softmax.
    rows = -(-batch_size // (replicas * gradient_accumulation_steps))
    layer = length * (12 * hidden + 3 * inner + 3 * config.num_attention_heads * length)
    # With remat one layer's at a time, and the inputs of all.
    kept = layer + layers * length * hidden if remat else layers * layer
    kept += 3 * max_predictions_per_seq * config.vocab_size
    parameters = parameter_count(config, nsp)
    return StepEstimate(
        parameters=parameters,
        tokens=batch_size * max_seq_length,
        flops=round(3 * forward),
        memory_bytes=parameters * _TRAINING_BYTES_PER_PARAMETER
        + rows * kept * bytes_per_activation,
    )


def report_cost(settings: PretrainingSettings) -> None:
    """Prints parameters, memory, FLOPs and tokens per step, and an estimate of the time.

    The time is measured: some steps of the real model on a few rows of random ids, scaled to the
    batch. It leaves out reading the corpus, evaluations and checkpoints.
    """
    devices = distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
    settings, start = open_start(settings)
    config = sized_config(settings, start)
    settings = choose_precision(settings, config, devices)
    settings = choose_steps(settings, config, devices)
    phases = phases_of(settings)
    replicas = devices.strategy.num_replicas_in_sync
    print(f"Devices: {devices.description}.")
    low_precision = settings.precision == "bfloat16" and devices.device_type != "CPU"
    total = 0.0
    for number, phase in enumerate(phases):
        estimate = estimate_step(
            config,
            batch_size=phase.rows(settings),
            max_seq_length=phase.max_seq_length,
            max_predictions_per_seq=predictions_per_row(settings, phase.max_seq_length),
            replicas=replicas,
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            nsp=settings.nsp,
            # On a CPU only the products are bfloat16, and what is kept between them is not.
            bytes_per_activation=2 if low_precision else 4,
            remat=settings.remat,
        )
        if number == 0:
            print(f"Parameters: {describe_parameters(config, settings.nsp)}.")
        print(
            f"Length {phase.max_seq_length}, steps {phase.first_step:,} to {phase.last_step:,}: "
            f"{phase.rows(settings)} rows, {estimate.tokens:,} tokens and "
            f"{estimate.flops / 1e12:,.2f} TFLOP a step; about "
            f"{estimate.memory_bytes / 2**30:,.1f} GiB of memory on each device."
        )
        if devices.device_type == "CPU" and estimate.memory_bytes > _machine_memory():
            print(
                f"  that is more than this machine's {_machine_memory() / 2**30:.0f} GiB: raise "
                "--gradient_accumulation_steps" + ("." if settings.remat else ", or give --remat.")
            )
        if devices.device_type == "CPU" and estimate.parameters * 20 > _machine_memory():
            print(
                f"  not timed: this machine's {_machine_memory() / 2**30:.0f} GiB do not hold the "
                "model while it trains."
            )
            return
        seconds = step_seconds(settings, config, devices, phase)
        steps = phase.last_step - phase.first_step
        total += seconds * steps
        print(
            f"  about {seconds:.3g} s a step ({estimate.tokens / seconds:,.0f} tokens/s, "
            f"{estimate.flops / seconds / 1e9:,.0f} GFLOP/s), "
            f"{duration(seconds * steps)} for {steps:,} steps.",
            flush=True,
        )
    print(f"Estimated time: {duration(total)}. Nothing was written.")


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
