"""Task type for embedding models, evaluated by cosine similarities or by retrieval.

Source: Reimers and Gurevych 2019, "Sentence-BERT".

Dimensions: N examples, K texts per example, D vector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.choices import BOTH_WAYS, COSENT, COSINE, ONE_WAY, SIMILARITY_LOSSES
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import Given, Values
from bert_tf.evaluation.metrics import CORRELATIONS, compare, ranks
from bert_tf.readers.examples import (
    BadRows,
    ExampleSet,
    SimilarityExample,
    non_empty_text,
    number,
    row_id,
)
from bert_tf.readers.tables import Row, TableFile, read_columns
from bert_tf.tasks.task import RANDOM, Items, Task

from .retrieval import RANKING_SCORES, compare_rankings, drop_own_text, search

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer

# === Tables of pairs, scored pairs and triples ===


def read_similarity(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[SimilarityExample]:
    """Reads text pairs with a score, pairs that belong together, or triples.

    ``text_columns`` are two texts, or an anchor, a text that belongs to the anchor and a text that
    does not. ``label_column`` contains the score of a pair, a finite number. Without this column,
    the texts belong together or are to be predicted.
    """
    if label_column is not None and len(text_columns) > 2:
        raise ValueError(
            f"The column {label_column!r} contains scores, which require two text columns, but "
            f"there are more: {', '.join(text_columns)}. Use two text columns or remove the label "
            "column."
        )
    bad = BadRows.from_option(str(path), skip_bad_rows)
    columns = [f"column {name!r}" for name in text_columns]

    def make_example(row: Row) -> SimilarityExample:
        example_id, label, *texts = row.values
        return SimilarityExample(
            row_id(example_id, row.number),
            tuple(map(non_empty_text, texts, columns)),
            None if label_column is None else number(label, f"column {label_column!r}"),
        )

    rows = read_columns(path, [id_column, label_column, *text_columns], bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


# If the range of the cosines is below this value, the run has collapsed.
_MIN_SPREAD = 1e-3


def _check_batch_size(name: str, values: Values, given_flags: Given) -> str:
    """Rejects batch sizes with which a pair is not compared with other pairs."""
    size, parts = values["train_batch_size"], values["gradient_accumulation_steps"]
    if values[name] == COSINE:  # this loss does not compare pairs
        return ""
    # In a triple, the anchor is also compared with a negative text.
    if size == 1 and len(values["text_columns"] or ()) < 3:
        return (
            f"--train_batch_size={size}: expected at least 2, because --task={values['task']} "
            "compares the pairs of a batch."
        )
    if parts > 1:
        return (
            f"--gradient_accumulation_steps={parts} is not supported, because the loss compares "
            "the examples of a batch. Remove the flag; to save memory, use a smaller "
            "--train_batch_size or --remat."
        )
    return ""


@dataclasses.dataclass(frozen=True)
class _Options:
    normalize: bool | None = flag_fields.switch(
        None,
        "similarity: scale vectors to length 1; by default as in --init_checkpoint, else true.",
        heading="Text embeddings",
        advanced=True,
    )
    similarity_loss: str | None = flag_fields.choice(
        None,
        SIMILARITY_LOSSES,
        "similarity: loss; with scores, cosent (the default) learns the order of the scores, and "
        "cosine learns their values; without scores, one_way (the default) predicts the text of "
        "each anchor, and both_ways also predicts the anchor of each text.",
        rules=[_check_batch_size],
        advanced=True,
    )


class SimilarityTask(Task):
    """Embedding of texts, trained on scored pairs, pairs that belong together, or triples.

    ``embedding`` provides the prefixes of the texts. Scored pairs are evaluated by the correlation
    between the scores and the cosines. Other data are evaluated by retrieval: each anchor is a
    query, the other texts of all examples are the documents, and the texts paired with an anchor
    are relevant.
    """

    kind = "similarity"
    Options = _Options
    model = "BertEncoder"
    text_form = "A,B or ANCHOR,POSITIVE,NEGATIVE"
    num_texts = (2, 3)
    in_memory_columns = (("text_a", "text_b"),)
    label_is_optional = True
    metrics = (*CORRELATIONS, *RANKING_SCORES)
    embeds = True
    read = staticmethod(read_similarity)
    # Vectors are pooled from the last hidden states.
    model_arguments = {"pooler": False}  # noqa: RUF012

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Groups scored pairs that contain the same texts, or other pairs that share a text."""
        if items[0].label is not None:
            return (lambda item: tuple(sorted(item.texts))), RANDOM
        groups = _group_by_shared_text(items)
        return (lambda item: groups[item.texts[1]]), RANDOM

    @property
    def _prefixes(self) -> tuple[str, str]:
        """Prefix of queries (the first text of each example) and of documents (all other texts)."""
        embedding = self.embedding
        return (embedding.query_prefix, embedding.document_prefix) if embedding else ("", "")

    @property
    def _has_scores(self) -> bool:
        sets = [*([self._train] if self._train else ()), *self.sets.values()]
        return any(item.label is not None for examples in sets for item in examples.items)

    @property
    def default_metric(self) -> str:
        """Spearman correlation for scored pairs, else NDCG@10."""
        return "spearman" if self._has_scores else "ndcg@10"

    @property
    def unavailable_metrics(self) -> Sequence[str]:
        """Retrieval scores for scored pairs, and correlations for other data."""
        return [*(RANKING_SCORES if self._has_scores else CORRELATIONS)]

    def describe_constant_targets(self) -> str:
        """Returns a message if all scores are equal or no text is a negative, else ""."""
        items = self.training_items()
        scores = {item.label for item in items}
        if self._has_scores:
            return f"Every pair has the score {scores.pop():.6g}" if len(scores) == 1 else ""
        positives: dict[str, set[str]] = {item.texts[0]: {item.texts[0]} for item in items}
        for item in items:
            positives[item.texts[0]].add(item.texts[1])
        texts = {text for item in items for text in item.texts[1:]}
        has_negatives = any(not texts <= positive for positive in positives.values())
        return "" if has_negatives else "Every text belongs to every anchor"

    def loss(self) -> Any:
        """Returns the loss of ``--similarity_loss``; by default the first that suits the data."""
        from .losses import similarity_loss

        names = (COSENT, COSINE) if self._has_scores else (ONE_WAY, BOTH_WAYS)
        name = self.options.similarity_loss or names[0]
        if name not in names:
            data = "with" if self._has_scores else "without"
            raise ValueError(
                f"--similarity_loss={name}: expected one of {', '.join(names)} for texts {data} "
                "scores (--label_column)."
            )
        return similarity_loss(name)

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Examples:
        """Tokenizes K texts per example for training, or each distinct text once for inference."""
        from bert_tf.pipelines.classification import similarity_examples

        if not labelled:
            texts, _ = self._numbered(items)
            return similarity_examples(tokenizer, [texts], max_seq_length=max_seq_length)
        # Labels are assigned before prefixes are added, so that equal texts have equal labels.
        _, labels = _numbered(item.texts for item in items)
        if self._has_scores:
            labels = np.array([item.label for item in items], np.float64)
            lowest, highest = labels.min(), labels.max()
            # Scores are scaled to the range [0, 1] of the cosines to learn.
            labels = (labels - lowest) / max(highest - lowest, np.finfo(np.float32).tiny)
        columns = zip(*(prefixed(item.texts, self._prefixes) for item in items), strict=True)
        return similarity_examples(
            tokenizer, [*columns], labels=labels, max_seq_length=max_seq_length
        )

    def _numbered(self, items: Items) -> tuple[list[str], np.ndarray]:
        """Returns the distinct texts with their prefixes, and the index of each text, (N, K)."""
        return _numbered(prefixed(item.texts, self._prefixes) for item in items)

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        from bert_tf.evaluation.evaluation import Evaluation, worst_mistakes

        texts, numbers = self._numbered(items)
        vectors = normalize_rows(outputs[:, 0])
        if not self._has_scores:
            return self._score_search(items, texts, numbers, vectors)
        true = np.array([item.label for item in items], np.float64)
        cosines = (vectors[numbers[:, 0]] * vectors[numbers[:, 1]]).sum(1).astype(np.float64)
        errors = ((ranks(true) - ranks(cosines)) / len(items)) ** 2

        def show(index: int) -> tuple[Mapping[str, str], str, str]:
            return self.display_texts(items[index]), f"{true[index]:.6g}", f"{cosines[index]:.3f}"

        comparison = compare(CORRELATIONS, true, cosines)
        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(np.ptp(cosines) < _MIN_SPREAD < np.ptp(true)),
            constant_description="all pairs of texts have the same cosine",
            mistakes=worst_mistakes(items, errors, errors > 0, show),
        )

    def _score_search(
        self, items: Items, texts: Sequence[str], numbers: np.ndarray, vectors: np.ndarray
    ) -> Evaluation:
        """Scores the ranking of documents for each anchor."""
        from bert_tf.evaluation.evaluation import Evaluation, worst_mistakes

        queries, first = np.unique(numbers[:, 0], return_index=True)
        documents = np.unique(numbers[:, 1:])
        column = {number: index for index, number in enumerate(documents.tolist())}
        relevant: dict[int, dict[int, float]] = {query: {} for query in queries.tolist()}
        for query, document in numbers[:, :2].tolist():
            relevant[query][column[document]] = 1.0
        ranked, scores = search(vectors[queries], vectors[documents])
        _, prefix = self._prefixes
        columns_by_text = {texts[n].removeprefix(prefix): index for n, index in column.items()}
        own_documents = np.full(len(queries), -1)  # index of the document that equals the query
        for row, (item, matches) in enumerate(zip(first, relevant.values(), strict=True)):
            index = columns_by_text.get(items[item].texts[0], -1)
            if index not in matches:
                own_documents[row] = index
        ranked = drop_own_text(ranked, own_documents)
        comparison = compare_rankings(ranked, [*relevant.values()])
        first_relevant = [
            next((rank for rank, index in enumerate(row) if index in matches), len(documents))
            for row, matches in zip(ranked.tolist(), relevant.values(), strict=True)
        ]
        anchors = [items[index] for index in first]

        def show(index: int) -> tuple[Mapping[str, str], str, str]:
            query_prefix, document_prefix = self._prefixes
            first = next(iter(relevant[int(queries[index])]))
            query = texts[queries[index]].removeprefix(query_prefix)
            expected = texts[documents[first]].removeprefix(document_prefix)
            best = texts[documents[ranked[index, 0]]].removeprefix(document_prefix)
            return {"": query}, expected, best

        losses = np.log2(1.0 + np.array(first_relevant))
        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(len(documents) > 1 and np.ptp(scores) < _MIN_SPREAD),
            constant_description="all pairs of texts have the same cosine",
            mistakes=worst_mistakes(anchors, losses, losses > 0, show),
        )

    @staticmethod
    def display_texts(item: SimilarityExample) -> dict[str, str]:
        return dict(zip("ABC", item.texts, strict=False))

    def answers(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[Mapping[str, Any]]:
        """Yields the cosines between each example's first text and its other texts."""
        _, numbers = self._numbered(items)
        vectors = normalize_rows(outputs[:, 0])
        for row in numbers:
            yield {"similarity": (vectors[row[1:]] @ vectors[row[0]]).tolist()}

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the cosines between the first and second text and, in triples, the third."""
        return dict(zip(("prediction", "third"), answer["similarity"], strict=False))

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """Adds the column ``third`` if there are triples."""
        record = super().record_columns(labels, items, columns, options)
        has_third = any(len(item.texts) > 2 for item in items)
        return {**record, "third": None} if has_third else record


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors, (N, D), to unit length; zero vectors are unchanged.

    >>> normalize_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def prefixed(texts: Sequence[str], prefixes: tuple[str, str]) -> tuple[str, ...]:
    """Returns the texts of an example with their prefixes.

    >>> prefixed(["a", "b", "c"], ("query: ", "passage: "))
    ('query: a', 'passage: b', 'passage: c')
    """
    query, document = prefixes
    return (query + texts[0], *(document + text for text in texts[1:]))


def _numbered(rows: Iterable[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """Returns the distinct texts in order of occurrence, and the index of each text, (N, K) int32.

    >>> _numbered([("a", "b"), ("b", "a")])
    (['a', 'b'], array([[0, 1],
           [1, 0]], dtype=int32))
    """
    index_of: dict[str, int] = {}
    numbers = [[index_of.setdefault(text, len(index_of)) for text in texts] for texts in rows]
    return list(index_of), np.array(numbers, np.int32)


def _group_by_shared_text(items: Sequence[SimilarityExample]) -> dict[str, str]:
    """Maps the second text of each pair to the smallest text of its group.

    Pairs that share a text are in the same group, so that all answers to a question, and all
    questions with the same answer, stay in one split.

    >>> pairs = [("q", "b"), ("q", "a"), ("r", "b"), ("s", "c")]
    >>> from bert_tf.readers.examples import SimilarityExample
    >>> _group_by_shared_text([SimilarityExample("", pair, None) for pair in pairs])
    {'b': 'a', 'a': 'a', 'c': 'c'}
    """
    roots: dict[str, str] = {}
    second_texts: dict[str, str] = {}  # for each text, the second text of its first pair

    def group(key: str) -> str:
        while roots.setdefault(key, key) != key:
            roots[key] = key = roots[roots[key]]
        return key

    for item in items:
        for text in item.texts[:2]:
            key = item.texts[1]
            first, second = sorted((group(key), group(second_texts.setdefault(text, key))))
            roots[second] = first
    return {key: group(key) for key in roots}
