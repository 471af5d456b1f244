"""What a pre-training step costs, from the sizes alone: parameters, memory, FLOPs, tokens."""

import dataclasses

from bert_tf.config import BertConfig

# float32 bytes a parameter takes while it trains: the weight, its gradient, Adam's two moments.
_TRAINING_BYTES_PER_PARAMETER = 16


@dataclasses.dataclass(frozen=True)
class StepEstimate:
    """The cost of one step.

    Attributes:
        parameters: trainable weights, heads included.
        tokens: positions in the global batch, padding included: B * S.
        flops: floating-point operations of the forward and backward pass; a multiply-add is two.
        memory_bytes: weights, gradients, moments, and the activations of one micro-batch that
            backpropagation keeps, on one replica.
    """

    parameters: int
    tokens: int
    flops: int
    memory_bytes: int


def parameter_count(config: BertConfig, nsp: bool = True) -> int:
    """Trainable weights of a ``BertPretrainer``: encoder, masked-LM head, NSP head.

    The pooler is there for NSP's head alone: without NSP neither is counted.

    >>> parameter_count(BertConfig())  # BERT-base, as released with both heads
    110106428
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
) -> StepEstimate:
    """Estimates a step of ``batch_size`` rows over all replicas.

    Matrix products alone are counted, three times over: once forward, twice backward.

    Args:
        config: the model's sizes.
        batch_size: B, over all replicas.
        max_seq_length: S.
        max_predictions_per_seq: P.
        replicas: how many share the batch.
        gradient_accumulation_steps: how many parts each replica's share is cut into.
        nsp: whether there are a pooler and a next-sentence head.
        bytes_per_activation: 4 for float32, 2 for bfloat16.

    >>> step = estimate_step(BertConfig(), batch_size=256, max_seq_length=128,
    ...                      max_predictions_per_seq=20)
    >>> step.tokens, round(step.flops / 1e12, 1)
    (32768, 17.9)
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    length, layers = max_seq_length, config.num_hidden_layers
    per_token_layer = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 2 * (2 * length * hidden)
    per_prediction = 2 * (hidden * hidden + hidden * config.vocab_size)
    per_row = layers * length * per_token_layer + max_predictions_per_seq * per_prediction
    if nsp:
        per_row += 2 * hidden * hidden  # the pooler

    # Kept for the backward pass in each layer: about 12 arrays as wide as the hidden size (inputs
    # of products, of normalisations, dropout's masks), 3 as wide as the feed-forward layer and 3
    # of attention's S x S probabilities a head; and the logits with their softmax.
    rows = -(-batch_size // (replicas * gradient_accumulation_steps))
    kept = layers * length * (12 * hidden + 3 * inner + 3 * config.num_attention_heads * length)
    kept += 3 * max_predictions_per_seq * config.vocab_size
    parameters = parameter_count(config, nsp)
    return StepEstimate(
        parameters=parameters,
        tokens=batch_size * max_seq_length,
        flops=3 * batch_size * per_row,
        memory_bytes=parameters * _TRAINING_BYTES_PER_PARAMETER
        + rows * kept * bytes_per_activation,
    )
