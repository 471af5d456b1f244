"""Plain loops over Python lists that replicate the pipeline's vector operations.

Each function takes the random draws of the operation and must return the same result. Google's
script draws as it proceeds; drawing in advance does not change a distribution, because each draw of
the pairs is used at most once.
"""

import random


def below(bits, bound):
    return bits * bound >> 32


def cut(lengths, targets, max_tokens):
    """``cut_long_sentences``: returns the new lengths, the targets and piece flags."""
    lengths, targets = [list(document) for document in lengths], list(targets)
    pieces = [[False] * len(document) for document in lengths]
    for d, document in enumerate(lengths):
        if max(document) <= max_tokens:
            continue
        targets[d] = max(targets[d], max_tokens // 4)
        piece = (targets[d] + 2) // 3
        lengths[d], pieces[d] = [], []
        for length in document:
            is_long = length > max_tokens
            while is_long and length > piece:
                lengths[d].append(piece)
                pieces[d].append(True)
                length -= piece
            lengths[d].append(length)
            pieces[d].append(is_long)
    return lengths, targets, pieces


def pairs(lengths, draws, pieces=None):
    """Google's loop over ``PairDraws``; ``lengths`` has a list of sentence lengths per document.

    A piece that forms a chunk by itself is split in half if its next segment is not random.

    Returns (a_start, a_end, b_start, b_end, label) in tokens of the pool, in order.
    """
    targets, segment_ends, random_next, other_documents, other_starts = draws
    token_starts, first_sentences = _layout(lengths)
    rows = []
    for d, sentences in enumerate(lengths):
        chunk, filled, i = [], 0, 0
        while i < len(sentences):
            chunk.append(i)
            filled += sentences[i]
            if i == len(sentences) - 1 or filled >= targets[d]:
                draw = first_sentences[d] + chunk[0]
                k = 1 + below(segment_ends[draw], len(chunk) - 1) if len(chunk) > 1 else 1
                a_start = token_starts[d][chunk[0]]
                a_end = token_starts[d][chunk[0] + k]
                piece = pieces is not None and pieces[d][chunk[0]]
                if len(chunk) == 1 and piece and filled > 1 and not random_next[draw]:
                    middle = (a_start + a_end + 1) // 2
                    rows.append((a_start, middle, middle, a_end, 0))
                elif len(chunk) == 1 or random_next[draw]:
                    others = [other for other in range(len(lengths)) if other != d] or [d]
                    other = others[below(other_documents[draw], len(others))]
                    start = end = below(other_starts[draw], len(lengths[other]))
                    missing = targets[d] - (a_end - a_start)
                    while end < len(lengths[other]):
                        missing -= lengths[other][end]
                        end += 1
                        if missing <= 0:
                            break
                    b = token_starts[other][start], token_starts[other][end]
                    rows.append((a_start, a_end, *b, 1))
                    i -= len(chunk) - k
                else:
                    rows.append((a_start, a_end, a_end, token_starts[d][chunk[-1] + 1], 0))
                chunk, filled = [], 0
            i += 1
    return rows


def draw_targets(lengths, max_tokens, short_seq_prob, generator):
    return [
        generator.randint(2, max_tokens) if generator.random() < short_seq_prob else max_tokens
        for _ in lengths
    ]


def draw_in_advance(lengths, max_tokens, short_seq_prob, generator):
    """Draws values for ``pairs`` as lists."""
    sentences = sum(map(len, lengths))
    bits = [[generator.getrandbits(32) for _ in range(sentences)] for _ in range(3)]
    coins = [generator.random() < 0.5 for _ in range(sentences)]
    targets = draw_targets(lengths, max_tokens, short_seq_prob, generator)
    return targets, bits[0], coins, bits[1], bits[2]


def truncate(a, b, max_tokens, generator: random.Random):
    """Google's ``truncate_seq_pair``."""
    a, b = list(a), list(b)
    while len(a) + len(b) > max_tokens:
        longer = a if len(a) > len(b) else b
        if generator.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return a, b


def words(starts, candidates):
    """Returns the words of a row as lists of positions."""
    found = []
    for position, (start, candidate) in enumerate(zip(starts, candidates, strict=True)):
        if start:
            found.append([position])
        elif candidate:
            found[-1].append(position)
    return found


def choose_words(row_words, keys, count):
    """Google's whole-word loop, in descending order of keys; returns the chosen positions."""

    chosen = []
    for index in sorted(range(len(row_words)), key=lambda w: -keys[w]):
        if len(chosen) + len(row_words[index]) <= count:
            chosen += row_words[index]
    return sorted(chosen)


def _layout(lengths):
    token_starts, first_sentences, tokens, sentences = [], [], 0, 0
    for document in lengths:
        first_sentences.append(sentences)
        token_starts.append([tokens])
        for length in document:
            tokens += length
            token_starts[-1].append(tokens)
        sentences += len(document)
    return token_starts, first_sentences
