"""Queries, documents and which are relevant to which, in files as BEIR has them.

| file              | what                                                                       |
|-------------------|----------------------------------------------------------------------------|
| queries.jsonl     | ``_id`` and ``text`` of each query                                         |
| corpus.jsonl      | ``_id``, ``text`` and perhaps ``title`` of each document                   |
| qrels/SPLIT.tsv   | ``query-id``, ``corpus-id`` and ``score`` of what is judged; 0: irrelevant |

Of a pair that is judged twice the last score counts, as where BEIR reads it.

Source: Thakur et al. 2021, "BEIR"; the first two may be gzip too (``.jsonl.gz``).
"""

import dataclasses
import os
from collections.abc import Mapping

from .examples import BadRowError, BadRows, filled_text, number, row_id, text
from .tables import Row, read_columns, read_rows


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """What is searched, for what, and what is to be found.

    Attributes:
        queries: by id, those to which something is relevant.
        documents: by id; a title stands before its text.
        relevant: of each query, in order, the documents' relevance by their numbers in
            ``documents``, all above 0; that of one which is missing lies behind them.
        missing: how many documents are relevant and not there, as in ArguAna: they are never found.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    relevant: list[dict[int, float]]
    missing: int


def read_retrieval(folder: str, split: str = "test") -> RetrievalSet:
    """Reads a folder of BEIR's files."""
    corpus, asked, path = files_of(folder, split)
    documents, queries = _read_texts(corpus, may_be_empty=True), _read_texts(asked)
    places = {name: place for place, name in enumerate(documents)}
    found: dict[str, dict[int, float]] = {}
    bad = BadRows(path, skip=None)

    def judge(row: Row) -> float:
        query, document, score = (value.strip() for value in row.values)
        if query not in queries:
            raise BadRowError(f"expected a query of {folder}, got the id {query!r}")
        relevance = number(score, "column 'score'")
        own = found.setdefault(query, {})
        place = places.setdefault(document, len(places))
        own.pop(place, None)
        if relevance > 0:
            own[place] = relevance
        return relevance

    bad.collect(read_columns(path, ["query-id", "corpus-id", "score"], bad), judge)
    names = [name for name in queries if found.get(name)]
    if not names:
        raise ValueError(f"{path}: expected a score above 0, and every one is 0.")
    judged: set[int] = set().union(*found.values())
    missing = [name for name in [*places][len(documents) :] if places[name] in judged]
    if len(missing) == len(judged):
        raise ValueError(f"{path}: expected documents of {corpus}, which has no {missing[0]!r}.")
    relevant = [found[name] for name in names]
    return RetrievalSet({n: queries[n] for n in names}, documents, relevant, len(missing))


def files_of(folder: str, split: str) -> tuple[str, str, str]:
    """The paths of the documents, the queries and the judgements of a folder."""
    texts = [os.path.join(folder, name) for name in ("corpus.jsonl", "queries.jsonl")]
    corpus, queries = (
        f"{path}.gz" if not os.path.exists(path) and os.path.exists(f"{path}.gz") else path
        for path in texts
    )
    return corpus, queries, os.path.join(folder, "qrels", f"{split}.tsv")


def _read_texts(path: str, may_be_empty: bool = False) -> dict[str, str]:
    """The texts of a file by their ids, with their titles before them."""
    title = "title" if any("title" in row for row in read_rows(path)) else None
    bad, found = BadRows(path, skip=None), dict[str, str]()

    def take(row: Row) -> None:
        name = row_id(row.values[0], row.number)
        before = "" if row.values[1] is None else text(row.values[1], "'title'")
        if name in found:
            raise BadRowError(f"expected a unique id, got {name!r} again")
        whole = f"{before} {text(row.values[2], repr('text'))}".strip()
        found[name] = whole if may_be_empty else filled_text(whole, "'text'")

    bad.collect(read_columns(path, ["_id", title, "text"], bad), take)
    return found
