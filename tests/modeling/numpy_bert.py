"""BERT's forward pass as plain NumPy loops in float64, one token and one head at a time.

This reference implementation shares only the names of variables with the library. It has no fused
projection, no batched product and no broadcasting over batch or heads.
"""

import math

import numpy as np


def layer_norm(vector, gamma, beta, epsilon):
    mean = sum(vector) / len(vector)
    variance = sum((x - mean) ** 2 for x in vector) / len(vector)
    return [
        (x - mean) / math.sqrt(variance + epsilon) * g + b
        for x, g, b in zip(vector, gamma, beta, strict=True)
    ]


def gelu(x):
    return x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def dense(vector, kernel, bias):
    return [
        sum(x * w for x, w in zip(vector, column, strict=True)) + b
        for column, b in zip(kernel.T, bias, strict=True)
    ]


def attend(vectors, mask, weights, prefix, heads, causal=False):
    """Computes self-attention of one sequence, given as a list of vectors."""
    hidden = len(vectors[0])
    size = hidden // heads
    # The documented layout concatenates the kernels of query, key and value.
    kernels = np.split(weights[prefix + "query_key_value/kernel"], 3, axis=1)
    biases = np.split(weights[prefix + "query_key_value/bias"], 3)
    queries, keys, values = (
        [dense(vector, kernel, bias) for vector in vectors]
        for kernel, bias in zip(kernels, biases, strict=True)
    )
    outputs = []
    for index, query in enumerate(queries):
        last = index if causal else len(mask)
        seen = [real and number <= last for number, real in enumerate(mask)]
        context = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            exponentials = [
                math.exp(np.dot(query[part], key[part]) / math.sqrt(size)) if real else 0.0
                for key, real in zip(keys, seen, strict=True)
            ]
            for d in range(part.start, part.stop):
                context.append(
                    sum(e * value[d] for e, value in zip(exponentials, values, strict=True))
                    / sum(exponentials)
                )
        outputs.append(
            dense(context, weights[prefix + "output/kernel"], weights[prefix + "output/bias"])
        )
    return outputs


def encode(weights, config, word_ids, mask, type_ids, prefix="bert_encoder/"):
    """Computes one sequence's embeddings, all hidden states and the pooled output, if any.

    Args:
        weights: Values of the variables by path.
        config: Object with the sizes as attributes. The activation is exact GELU.
        word_ids: (S,), mask: (S,), type_ids: (S,) integers.
    """

    def normalize_rows(vector, name):
        gamma, beta = weights[name + "/gamma"], weights[name + "/beta"]
        return layer_norm(vector, gamma, beta, config.layer_norm_eps)

    embeddings = prefix + "embeddings/"
    states = [
        normalize_rows(
            weights[embeddings + "word_embeddings"][word]
            + weights[embeddings + "position_embeddings"][position]
            + weights[embeddings + "token_type_embeddings"][kind],
            embeddings + "layer_norm",
        )
        for position, (word, kind) in enumerate(zip(word_ids, type_ids, strict=True))
    ]
    all_states = [states]
    for layer in range(config.num_hidden_layers):
        block = f"{prefix}layer_{layer}/"
        heads = config.num_attention_heads
        attended = attend(states, mask, weights, block + "attention/", heads, config.is_decoder)
        attended = [
            normalize_rows(np.add(a, s), block + "attention_layer_norm")
            for a, s in zip(attended, states, strict=True)
        ]
        states = []
        for vector in attended:
            inner = dense(
                vector, weights[block + "intermediate/kernel"], weights[block + "intermediate/bias"]
            )
            outer = dense(
                [gelu(x) for x in inner],
                weights[block + "output/kernel"],
                weights[block + "output/bias"],
            )
            states.append(normalize_rows(np.add(outer, vector), block + "output_layer_norm"))
        all_states.append(states)
    pooler = prefix + "pooler/dense"
    if pooler + "/kernel" not in weights:
        return np.array(all_states), None
    last = max(index for index, real in enumerate(mask) if real)
    read = last if config.is_decoder else 0
    return np.array(all_states), np.tanh(head(weights, pooler, states[read]))


def head(weights, path, state):
    """Applies the dense layer of a path to one vector."""
    return dense(state, weights[path + "/kernel"], weights[path + "/bias"])


def masked_lm_logits(weights, config, state, prefix="bert_pretrainer/masked_lm/"):
    """Computes the masked-LM logits of one hidden state."""
    inner = dense(state, weights[prefix + "dense/kernel"], weights[prefix + "dense/bias"])
    normal = layer_norm(
        [gelu(x) for x in inner],
        weights[prefix + "layer_norm/gamma"],
        weights[prefix + "layer_norm/beta"],
        config.layer_norm_eps,
    )
    table = weights["bert_encoder/embeddings/word_embeddings"]
    return [
        np.dot(normal, row) + bias
        for row, bias in zip(table, weights[prefix + "output_bias"], strict=True)
    ]


def lstm(states, weights):
    """Computes an LSTM from (W, X) to (W, U), with Keras' order of the gates."""
    kernel, recurrent, bias = weights
    hidden = cell = np.zeros(len(recurrent))
    outputs = []
    for state in states:
        gates = state @ kernel + hidden @ recurrent + bias
        enter, forget, new, out = np.split(gates, 4)
        enter, forget, out = (1 / (1 + np.exp(-gate)) for gate in (enter, forget, out))
        cell = forget * cell + enter * np.tanh(new)
        hidden = out * np.tanh(cell)
        outputs.append(hidden)
    return np.array(outputs)


def bilstm(states, weights, path):
    """Computes a bidirectional LSTM from (W, X) to (W, 2 * U)."""
    read = []
    for direction, step in (("forward", 1), ("backward", -1)):
        cell = f"{path}/{direction}_lstm/lstm_cell"
        given = [weights[f"{cell}/{name}"] for name in ("kernel", "recurrent_kernel", "bias")]
        read.append(lstm(states[::step], given)[::step])
    return np.concatenate(read, 1)
