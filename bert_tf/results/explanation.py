"""Why a model predicts what it does: how much each word spoke for it, as lines or as a page.

Integrated gradients (Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017): on the
way from a text of [MASK] alone to the text, the gradients of the prediction's score are summed. All
that the words are given adds up to the difference of the two texts' scores, but for a rest, which
is that of a sum in place of an integral. The way is cut in two where the rest is largest, until all
of it is under 1% of the difference, or the way has 64 pieces; what is left then is told.

Letters: N points on a piece of the way, S tokens, H hidden.
"""

import html
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.files import replace_whole
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.classification import classification_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.examples import TextExample
from bert_tf.reports.page import page
from bert_tf.untrusted import one_line

EXPLANATIONS = (".html", ".jsonl")
# Of more rows the first are explained: each costs as much as hundreds of predictions.
MOST = 50
_POINTS = 24
_MOST_PIECES = 64
_REST = 0.01
_NO_DIFFERENCE = 0.01  # logarithms of odds: a hundredth of this is nobody's to see
_STYLE = """
header { color: var(--faint); font-size: 13px; font-variant-numeric: tabular-nums; }
header b { color: var(--ink); font-size: 15px; }
.text { line-height: 1.7; }
.text + .text { border-top: 1px dashed var(--line); padding-top: 8px; }
"""


class Word(NamedTuple):
    """A word of a text, the bytes where it begins and ends, and what it adds to the score."""

    text: int  # 0, or 1 for the second of a pair
    start: int
    end: int
    attribution: float


class Explanation(NamedTuple):
    """A prediction and what spoke for it.

    ``score`` is the logarithm of the odds of what is ``explained``, a class, or of a regressor the
    number itself; ``baseline`` that of a text of [MASK] alone.
    """

    id: str
    texts: tuple[str, ...]
    explained: str
    score: float
    baseline: float
    words: list[Word]

    @property
    def rest(self) -> float:
        """What no word was given of the difference, by the limits of the computation."""
        given = sum(word.attribution for word in self.words)
        return self.score - self.baseline - given


def explain_texts(
    model: BertModel,
    tokenizer: BertTokenizer,
    items: Sequence[TextExample],
    labels: Sequence[str],
    max_seq_length: int,
) -> Iterator[Explanation]:
    """Explains what a classifier or a regressor predicts for texts: the likeliest class of each."""
    for item in items:
        texts = tuple(text for text in (item.text_a, item.text_b) if text is not None)
        examples = classification_examples(
            tokenizer, *([text] for text in texts), max_seq_length=max_seq_length
        )
        rows, _ = examples.whole_batch()
        logits = np.atleast_2d(model(rows, training=False).numpy())
        at = int(logits[0].argmax())
        score = _score_of(at, len(labels), model.multi_label)
        attributions, ends = integrated_gradients(model, tokenizer, rows, score)
        words = _words(tokenizer, texts, rows, attributions)
        explained = labels[at] if labels else "the number"
        yield Explanation(item.id, texts, explained, ends[1], ends[0], words)


def _score_of(at: int, num_classes: int, multi_label: bool) -> Callable[[tf.Tensor], tf.Tensor]:
    """Outputs of a model to the scores of one class, (N,): how much it speaks for it."""

    def score(outputs: tf.Tensor) -> tf.Tensor:
        if num_classes == 0:
            return tf.reshape(outputs, [-1])
        if multi_label or num_classes == 1:
            return outputs[:, at]
        others = tf.concat([outputs[:, :at], outputs[:, at + 1 :]], 1)
        return outputs[:, at] - tf.reduce_logsumexp(others, 1)

    return score


def integrated_gradients(
    model: BertModel,
    tokenizer: BertTokenizer,
    rows: Any,
    score: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[np.ndarray, tuple[float, float]]:
    """What each token of one row, (1, S), adds to a score, (S,), and the score without and with it.

    The way is in the space of what enters the first block, between the row and the same row with
    [MASK] for all but [CLS] and [SEP]. On each piece of it the sum is a Gauss-Legendre quadrature,
    whose error shows in the scores at the piece's ends.
    """
    encoder: Any = model.encoder
    ids, types = rows[features.INPUT_WORD_IDS], rows[features.INPUT_TYPE_IDS]
    kept = (ids == tokenizer.cls_id) | (ids == tokenizer.sep_id)
    masked = tf.where(kept, ids, tokenizer.mask_id)
    end, begin = (encoder.embeddings(tokens, types, training=False) for tokens in (ids, masked))
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    way = tf.cast(end - begin, tf.float32)

    def run(shares: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        points = tf.cast(begin, tf.float32) + tf.constant(shares, tf.float32)[:, None, None] * way
        with tf.GradientTape() as tape:
            tape.watch(points)
            found = score(_outputs(model, points, rows[features.INPUT_MASK]))
        return found, tape.gradient(found, points)

    def attribute(low: float, high: float) -> np.ndarray:
        """What the tokens add on a piece of the way, (S,)."""
        _, gradients = run(low + (high - low) * (nodes + 1) / 2)
        mean = tf.einsum("n,nsh->sh", tf.constant(weights / 2, tf.float32), gradients)
        return (high - low) * tf.reduce_sum(mean * way[0], 1).numpy()

    def rest(piece: tuple[float, float]) -> float:
        low, high = piece
        return abs(scores[high] - scores[low] - float(found[piece].sum()))

    begins_and_ends, _ = run(np.array([0.0, 1.0]))
    scores = dict(zip((0.0, 1.0), begins_and_ends.numpy().tolist(), strict=True))
    found = {(0.0, 1.0): attribute(0.0, 1.0)}
    most = _REST * max(abs(scores[1.0] - scores[0.0]), _NO_DIFFERENCE)
    while sum(map(rest, found)) > most and len(found) < _MOST_PIECES:
        low, high = worst = max(found, key=rest)
        del found[worst]
        middle = (low + high) / 2
        scores[middle] = float(run(np.array([middle]))[0][0])
        found |= {(low, middle): attribute(low, middle), (middle, high): attribute(middle, high)}
    return np.sum(list(found.values()), 0), (scores[0.0], scores[1.0])


def _outputs(model: Any, hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """A text model's outputs from what enters its first block, (N, S, H)."""
    mask = tf.tile(mask, [tf.shape(hidden)[0], 1])
    states = model.encoder.from_embedded(hidden, mask)[features.SEQUENCE_OUTPUT]
    logits = getattr(model, model.head)(model.reader(states, mask))
    return tf.cast(logits, tf.float32)


def _words(
    tokenizer: BertTokenizer, texts: Sequence[str], rows: Any, attributions: np.ndarray
) -> list[Word]:
    """The attributions of pieces, put together to words; those of what was cut are left out."""
    kinds = np.where(rows[features.INPUT_MASK][0] > 0, rows[features.INPUT_TYPE_IDS][0], -1)
    lengths = [int(np.sum(kinds == 0)) - 2, int(np.sum(kinds == 1)) - 1]
    found: list[Word] = []
    place = 1
    for number, text in enumerate(texts):
        ids, starts, ends = (
            values[0].numpy() for values in tokenizer.tokenize_with_offsets([text])
        )
        length = min(len(ids), lengths[number])
        for piece in range(length):
            value = float(attributions[place + piece])
            start, end = int(starts[piece]), int(ends[piece])
            if tokenizer.continuation[ids[piece]] and piece:
                last = found.pop()
                start, value = last.start, last.attribution + value
            found.append(Word(number, start, end, value))
        place += length + 1
    return found


# === Files ===


def write_explanations(path: str, explanations: Sequence[Explanation], title: str) -> None:
    """Writes a page (.html) or JSON lines (.jsonl), whole or not at all."""
    if os.path.splitext(path)[1] == ".html":
        content = _page(explanations, title)
    else:
        lines = (json.dumps(values_of(found), ensure_ascii=False) for found in explanations)
        content = "".join(f"{line}\n" for line in lines)
    with replace_whole(path) as file:
        file.write(content.encode())


def values_of(found: Explanation) -> dict[str, Any]:
    """An explanation without its texts, ready for JSON."""
    texts = [text.encode() for text in found.texts]
    return {
        "id": found.id,
        "explained": found.explained,
        "score": found.score,
        "baseline": found.baseline,
        "rest": found.rest,
        "words": [
            {
                "text": word.text,
                "word": texts[word.text][word.start : word.end].decode(errors="replace"),
                "byte_start": word.start,
                "byte_end": word.end,
                "attribution": word.attribution,
            }
            for word in found.words
        ],
    }


def _page(explanations: Sequence[Explanation], title: str) -> str:
    legend = (
        "<p class='note'><span class='for' style='--share:.5'>Blue</span> words spoke for the "
        "named prediction, <span class='against' style='--share:.5'>orange</span> words against "
        "it; a stronger colour is a stronger effect. The numbers are log odds, first with [MASK] "
        "for each word, then with the text.</p>"
    )
    return page(one_line(title), [legend, *map(_article, explanations)], _STYLE)


def _article(found: Explanation) -> str:
    texts = "".join(f"<div class='text'>{text}</div>" for text in coloured_texts(found))
    most = _REST * max(abs(found.score - found.baseline), _NO_DIFFERENCE)
    rest = f" · {found.rest:+.2f} given to no word" if abs(found.rest) > 1.01 * most else ""
    return (
        f"<article><header><b>{html.escape(one_line(found.explained))}</b> "
        f"{found.baseline:+.2f} → {found.score:+.2f}{rest} · id {html.escape(one_line(found.id))}"
        f"</header>{texts}</article>"
    )


def coloured_texts(found: Explanation) -> list[str]:
    """HTML of each text, its words coloured by what they add to the score."""
    most = max((abs(word.attribution) for word in found.words), default=0.0) or 1.0
    texts = []
    for number, text in enumerate(found.texts):
        content, place, parts = text.encode(), 0, []
        for word in found.words:
            if word.text == number:
                parts.append(_escaped(content[place : word.start]))
                side = "for" if word.attribution >= 0 else "against"
                share = 0.65 * abs(word.attribution) / most
                parts.append(
                    f"<span class='{side}' style='--share:{share:.2f}' "
                    f"title='{word.attribution:+.3f}'>"
                    f"{_escaped(content[word.start : word.end])}</span>"
                )
                place = word.end
        texts.append(f"{''.join(parts)}{_escaped(content[place:])}")
    return texts


def _escaped(content: bytes) -> str:
    return html.escape(content.decode(errors="replace"))
