"""Windows and answers as defined by google-research/bert's run_squad.py, in plain loops."""

import functools
import math
import unicodedata


@functools.cache
def tokenize(tokenizer, text):
    """Returns (id, start byte, end byte) of each token."""
    outputs = tokenizer.tokenize_with_offsets([text])
    return list(zip(*(output[0].numpy().tolist() for output in outputs), strict=True))


def windows(num_question_tokens, num_context_tokens, max_seq_length, doc_stride):
    """Returns (first token, number of tokens) per window; an empty context has one empty window."""
    room = max_seq_length - num_question_tokens - 3
    found, first = [], 0
    while True:
        length = min(num_context_tokens - first, room)
        found.append((first, length))
        if first + length >= num_context_tokens:
            return found
        first += min(length, doc_stride)


def most_context(spans, token):
    """Returns the index of the window in which the token has the most context."""
    best_score, best = None, None
    for number, (first, length) in enumerate(spans):
        last = first + length - 1
        if not first <= token <= last:
            continue
        score = min(token - first, last - token) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best = score, number
    return best


def row(tokenizer, question, context, window):
    first, length = window
    context_ids = [token[0] for token in context[first : first + length]]
    ids = [tokenizer.cls_id, *(token[0] for token in question), tokenizer.sep_id]
    return [*ids, *context_ids, tokenizer.sep_id], [0] * len(ids) + [1] * (length + 1)


def overlapping_tokens(context, start, end):
    """Returns the first and the last token that overlap the bytes [start, end)."""
    found = [
        number
        for number, (_, byte_start, byte_end) in enumerate(context)
        if byte_start < end and byte_end > start
    ]
    return (found[0], found[-1]) if start >= 0 and found else (-1, -1)


def columns(num_question_tokens, window, first_token, last_token):
    first, length = window
    if first_token < first or last_token >= first + length:
        return 0, 0
    shift = num_question_tokens + 2 - first
    return first_token + shift, last_token + shift


def text(context, start, end):
    """Returns the text of the bytes, without trailing characters that the tokenizer removes."""
    decoded = context[start:end].decode("utf-8", "ignore")
    while len(decoded) > 1 and (
        unicodedata.category(decoded[-1]) in ("Cc", "Cf") or decoded[-1] == "\ufffd"
    ):
        decoded = decoded[:-1]
    return decoded


def n_best(context, context_tokens, question_length, spans, logits, size, max_answer_length):
    """Returns the best entries (text, start byte, start logit, end logit) and the null logits.

    ``logits`` contains a pair of lists per window, with one value per token of its row.
    """
    candidates, null = [], None
    for number, (window, (starts, ends)) in enumerate(zip(spans, logits, strict=True)):
        if null is None or starts[0] + ends[0] < sum(null):
            null = (starts[0], ends[0])
        first, length = window
        tokens = {question_length + 2 + i: first + i for i in range(length)}
        for start in _greatest(starts, size):
            for end in _greatest(ends, size):
                if start not in tokens or end not in tokens:
                    continue
                if most_context(spans, tokens[start]) != number:
                    continue
                if not start <= end < start + max_answer_length:
                    continue
                candidates.append((tokens[start], tokens[end], starts[start], ends[end]))
    candidates.sort(key=lambda candidate: candidate[2] + candidate[3], reverse=True)
    entries, seen = [], set()
    for start, end, start_logit, end_logit in candidates:
        if len(entries) == size:
            break
        begin = context_tokens[start][1]
        answer = text(context, begin, context_tokens[end][2])
        if answer not in seen:
            seen.add(answer)
            entries.append((answer, begin, start_logit, end_logit))
    return entries, null


def softmax(scores):
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def _greatest(values, size):
    return sorted(range(len(values)), key=lambda index: values[index], reverse=True)[:size]
