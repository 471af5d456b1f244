"""Texts that are similar: a model of embeddings, judged by their cosines or as a search is.

Sources: Reimers and Gurevych 2019, "Sentence-BERT"; the losses have theirs.

Letters: N examples, K texts of an example, U different texts, D numbers of a vector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.choices import BOTH_WAYS, COSENT, COSINE, ONE_WAY, SIMILARITY_LOSSES
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import Given, Values
from bert_tf.evaluation.scores import CORRELATIONS, compare, ranks
from bert_tf.tasks.task import RANDOM_SPLIT, Items, Task

from .retrieval import RANKING_SCORES, compare_rankings, drop_own_text, search

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.readers.examples import SimilarityExample

from bert_tf.readers.examples import (
    BadRows,
    ExampleSet,
    SimilarityExample,
    non_empty_text,
    number,
    row_id,
)
from bert_tf.readers.tables import Row, TableFile, read_columns

# === A user's own tables to compare: pairs with a score, or that belong together, and triples ===


def read_similarity(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[SimilarityExample]:
    """Reads pairs of texts with a score, pairs that belong together, or triples.

    ``text_columns`` are those of two texts, or of an anchor, a text that belongs to it and one that
    does not. ``label_column`` has a pair's score, a finite number; without it the two belong
    together, or are to be predicted.
    """
    if label_column is not None and len(text_columns) > 2:
        raise ValueError(
            f"The column {label_column!r} has a score, and a score is of two texts: name two text "
            f"columns, not {', '.join(text_columns)}; or no column of scores."
        )
    bad = BadRows.from_option(str(path), skip_bad_rows)
    what = [f"column {name!r}" for name in text_columns]

    def make_example(row: Row) -> SimilarityExample:
        example_id, label, *texts = row.values
        return SimilarityExample(
            row_id(example_id, row.number),
            tuple(map(non_empty_text, texts, what)),
            None if label_column is None else number(label, f"column {label_column!r}"),
        )

    rows = read_columns(path, [id_column, label_column, *text_columns], bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


# Of so few different cosines a model says nothing.
_MIN_SPREAD = 1e-3


def _check_batch_size(name: str, values: Values, given_flags: Given) -> str:
    """Refuses steps and parts in which a pair has nothing to be compared with."""
    size, parts = values["train_batch_size"], values["gradient_accumulation_steps"]
    if values[name] == COSINE:  # the error of a cosine is that of one pair
        return ""
    # A triple has a wrong text of its own.
    if size == 1 and len(values["text_columns"] or ()) < 3:
        return (
            f"--train_batch_size={size}: a pair of --task={values['task']} is compared with the "
            "others of its step, and alone teaches nothing: expected 2 or more."
        )
    if parts > 1:
        return (
            f"--gradient_accumulation_steps={parts}: the loss compares the rows of a batch with "
            "each other, which parts cannot: leave it out, and give a --train_batch_size that "
            "fits, or --remat."
        )
    return ""


@dataclasses.dataclass(frozen=True)
class _Options:
    normalize: bool | None = flag_fields.switch(
        None,
        "similarity: scale vectors to length 1, by default as --init_checkpoint does, else true.",
        heading="Vectors of texts",
        advanced=True,
    )
    similarity_loss: str | None = flag_fields.choice(
        None,
        SIMILARITY_LOSSES,
        "similarity: learn from scores their order (cosent, the default) or their values "
        "(cosine), and without scores each anchor's own text (one_way, the default) or also each "
        "text's own anchor (both_ways).",
        rules=[_check_batch_size],
        advanced=True,
    )


class SimilarityTask(Task):
    """Pairs of texts with scores, pairs that belong together, or triples.

    Of ``embedding`` the task reads the texts' prefixes.

    Pairs with scores are judged by the rank correlation of the scores with the cosines. Of the
    others each anchor is a query, and every other text of the set that is not only an anchor a
    document, of which those are relevant that belong to it.
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
    # No pooler: the vectors are of the last states.
    model_arguments = {"pooler": False}  # noqa: RUF012

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Pairs of the same texts with scores; without, pairs that share a text."""
        if items[0].label is not None:
            return (lambda item: tuple(sorted(item.texts))), RANDOM_SPLIT
        groups = _group_by_shared_text(items)
        return (lambda item: groups[item.texts[1]]), RANDOM_SPLIT

    @property
    def _prefixes(self) -> tuple[str, str]:
        """Prefixes of the first text of an example, the query, and of the others."""
        embedding = self.embedding
        return (embedding.query_prefix, embedding.document_prefix) if embedding else ("", "")

    @property
    def _has_scores(self) -> bool:
        sets = [*([self._train] if self._train else ()), *self.sets.values()]
        return any(item.label is not None for examples in sets for item in examples.items)

    @property
    def default_metric(self) -> str:
        """Spearman correlation for pairs with scores, else NDCG@10 of the search."""
        return "spearman" if self._has_scores else "ndcg@10"

    @property
    def unavailable_metrics(self) -> Sequence[str]:
        """Scores of the search for pairs with scores, and of cosines for other pairs."""
        return [*(RANKING_SCORES if self._has_scores else CORRELATIONS)]

    def describe_constant_targets(self) -> str:
        """Sentence if all scores are equal, or if no text is wrong for any anchor; else ""."""
        items = self.training_items()
        scores = {item.label for item in items}
        if self._has_scores:
            return f"Every pair has the score {scores.pop():.6g}" if len(scores) == 1 else ""
        right: dict[str, set[str]] = {item.texts[0]: {item.texts[0]} for item in items}
        for item in items:
            right[item.texts[0]].add(item.texts[1])
        others = {text for item in items for text in item.texts[1:]}
        has_wrong = any(not others <= own for own in right.values())
        return "" if has_wrong else "Every text is a right one for every anchor"

    def loss(self) -> Any:
        """The named loss, by default the first that suits the pairs."""
        from .losses import similarity_loss

        names = (COSENT, COSINE) if self._has_scores else (ONE_WAY, BOTH_WAYS)
        name = self.options.similarity_loss or names[0]
        if name not in names:
            have = "scores (--label_column)" if self._has_scores else "no scores (--label_column)"
            raise ValueError(
                f"--similarity_loss={name}: the texts have {have}: expected one of "
                f"{', '.join(names)}."
            )
        return similarity_loss(name)

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Examples:
        """Rows of K texts to train on, or each different text once to run a model on."""
        from bert_tf.pipelines.classification import similarity_examples

        if not labelled:
            texts, _ = self._numbered(items)
            return similarity_examples(tokenizer, [texts], max_seq_length=max_seq_length)
        # Equal texts have equal labels, whatever prefix stands before them.
        _, labels = _numbered(item.texts for item in items)
        if self._has_scores:
            labels = np.array([item.label for item in items], np.float64)
            lowest, highest = labels.min(), labels.max()
            # Cosines are learned as 0 to 1, whatever the scores' units.
            labels = (labels - lowest) / max(highest - lowest, np.finfo(np.float32).tiny)
        columns = zip(*(prefixed(item.texts, self._prefixes) for item in items), strict=True)
        return similarity_examples(
            tokenizer, [*columns], labels=labels, max_seq_length=max_seq_length
        )

    def _numbered(self, items: Items) -> tuple[list[str], np.ndarray]:
        """The different texts to embed, as ``_numbered`` has them."""
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

        def show(at: int) -> tuple[Mapping[str, str], str, str]:
            return self.display_texts(items[at]), f"{true[at]:.6g}", f"{cosines[at]:.3f}"

        comparison = compare(CORRELATIONS, true, cosines)
        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(np.ptp(cosines) < _MIN_SPREAD < np.ptp(true)),
            constant_description="every two texts have the same cosine",
            mistakes=worst_mistakes(items, errors, errors > 0, show),
        )

    def _score_search(
        self, items: Items, texts: Sequence[str], numbers: np.ndarray, vectors: np.ndarray
    ) -> Evaluation:
        """Judges how each anchor ranks all texts that are not only anchors."""
        from bert_tf.evaluation.evaluation import Evaluation, worst_mistakes

        queries, first = np.unique(numbers[:, 0], return_index=True)
        documents = np.unique(numbers[:, 1:])
        column = {number: at for at, number in enumerate(documents.tolist())}
        relevant: dict[int, dict[int, float]] = {query: {} for query in queries.tolist()}
        for query, document in numbers[:, :2].tolist():
            relevant[query][column[document]] = 1.0
        ranked, scores = search(vectors[queries], vectors[documents])
        column_of_text = {texts[n].removeprefix(self._prefixes[1]): at for n, at in column.items()}
        own = np.full(len(queries), -1)  # the document that is the query's own text
        for row, (item, matches) in enumerate(zip(first, relevant.values(), strict=True)):
            at = column_of_text.get(items[item].texts[0], -1)
            if at not in matches:
                own[row] = at
        ranked = drop_own_text(ranked, own)
        comparison = compare_rankings(ranked, [*relevant.values()])
        first_relevant = [
            next((rank for rank, at in enumerate(row) if at in matches), len(documents))
            for row, matches in zip(ranked.tolist(), relevant.values(), strict=True)
        ]
        anchors = [items[at] for at in first]

        def show(at: int) -> tuple[Mapping[str, str], str, str]:
            query_prefix, document_prefix = self._prefixes
            first = next(iter(relevant[int(queries[at])]))
            query = texts[queries[at]].removeprefix(query_prefix)
            expected = texts[documents[first]].removeprefix(document_prefix)
            best = texts[documents[ranked[at, 0]]].removeprefix(document_prefix)
            return {"": query}, expected, best

        losses = np.log2(1.0 + np.array(first_relevant))
        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(len(documents) > 1 and np.ptp(scores) < _MIN_SPREAD),
            constant_description="every two texts have the same cosine",
            mistakes=worst_mistakes(anchors, losses, losses > 0, show),
        )

    @staticmethod
    def display_texts(item: SimilarityExample) -> dict[str, str]:
        return dict(zip("ABC", item.texts, strict=False))

    def answers(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[Mapping[str, Any]]:
        """The cosines of each example's first text and its others."""
        _, numbers = self._numbered(items)
        vectors = normalize_rows(outputs[:, 0])
        for row in numbers:
            yield {"similarity": (vectors[row[1:]] @ vectors[row[0]]).tolist()}

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The cosine of the first text and the second, and of three that with the third."""
        return dict(zip(("prediction", "third"), answer["similarity"], strict=False))

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """Columns of predictions, ``third`` among them where there are three texts."""
        record = super().record_columns(labels, items, columns, options)
        has_third = any(len(item.texts) > 2 for item in items)
        return {**record, "third": None} if has_third else record


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N, D) at length 1; zeros stay zeros.

    >>> normalize_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def prefixed(texts: Sequence[str], prefixes: tuple[str, str]) -> tuple[str, ...]:
    """An example's texts as they are embedded.

    >>> prefixed(["a", "b", "c"], ("query: ", "passage: "))
    ('query: a', 'passage: b', 'passage: c')
    """
    query, document = prefixes
    return (query + texts[0], *(document + text for text in texts[1:]))


def _numbered(rows: Iterable[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """Every different text, in the order of its first place, and (N, K) int32, each one's number.

    >>> _numbered([("a", "b"), ("b", "a")])
    (['a', 'b'], array([[0, 1],
           [1, 0]], dtype=int32))
    """
    number_of: dict[str, int] = {}
    numbers = [[number_of.setdefault(text, len(number_of)) for text in texts] for texts in rows]
    return list(number_of), np.array(numbers, np.int32)


def _group_by_shared_text(items: Sequence[SimilarityExample]) -> dict[str, str]:
    """The least text of a pair's group, which shares texts, by the pair's second text.

    A question's other answers, and an answer's other questions, are known once one was trained on.

    >>> pairs = [("q", "b"), ("q", "a"), ("r", "b"), ("s", "c")]
    >>> from bert_tf.readers.examples import SimilarityExample
    >>> _group_by_shared_text([SimilarityExample("", pair, None) for pair in pairs])
    {'b': 'a', 'a': 'a', 'c': 'c'}
    """
    root_of: dict[str, str] = {}
    second_of: dict[str, str] = {}  # by text, the second text of the first pair that has it

    def group(own: str) -> str:
        while root_of.setdefault(own, own) != own:
            root_of[own] = own = root_of[root_of[own]]
        return own

    for item in items:
        for text in item.texts[:2]:
            own = item.texts[1]
            first, second = sorted((group(own), group(second_of.setdefault(text, own))))
            root_of[second] = first
    return {own: group(own) for own in root_of}
