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
from collections.abc import Iterable, Mapping

from .examples import BadRowError, BadRows, filled_text, number, row_id, text
from .tables import Row, read_columns, read_rows


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """What is searched, for what, and what is to be found.

    Attributes:
        queries: by id, those to which something is relevant.
        documents: by id; a title stands before its text.
        relevant: of each query, in order, the documents' relevance by their numbers in
            ``documents``, all above 0.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    relevant: list[dict[int, float]]


def read_retrieval(folder: str, split: str = "test") -> RetrievalSet:
    """Reads a folder of BEIR's files."""
    corpus, asked, path = files_of(folder, split)
    documents, queries = _read_texts(corpus), _read_texts(asked)
    places = {name: place for place, name in enumerate(documents)}
    found: dict[str, dict[int, float]] = {}
    bad = BadRows(path, skip=None)

    def judge(row: Row) -> float:
        query, document, score = (value.strip() for value in row.values)
        for name, known, what in ((query, queries, "query"), (document, places, "document")):
            if name not in known:
                raise BadRowError(f"expected a {what} of {folder}, got the id {name!r}")
        relevance = number(score, "column 'score'")
        own = found.setdefault(query, {})
        own.pop(places[document], None)
        if relevance > 0:
            own[places[document]] = relevance
        return relevance

    bad.collect(read_columns(path, ["query-id", "corpus-id", "score"], bad), judge)
    names = [name for name in queries if found.get(name)]
    if not names:
        raise ValueError(f"{path}: expected a score above 0, and every one is 0.")
    return RetrievalSet({n: queries[n] for n in names}, documents, [found[n] for n in names])


def files_of(folder: str, split: str) -> tuple[str, str, str]:
    """The paths of the documents, the queries and the judgements of a folder."""
    texts = [os.path.join(folder, name) for name in ("corpus.jsonl", "queries.jsonl")]
    corpus, queries = (
        f"{path}.gz" if not os.path.exists(path) and os.path.exists(f"{path}.gz") else path
        for path in texts
    )
    return corpus, queries, os.path.join(folder, "qrels", f"{split}.tsv")


def _read_texts(path: str) -> dict[str, str]:
    """The texts of a file by their ids, with their titles before them."""
    columns: Iterable[str] = next(iter(read_rows(path)), {})
    title = "title" if "title" in columns else None
    bad, found = BadRows(path, skip=None), dict[str, str]()

    def take(row: Row) -> None:
        name = row_id(row.values[0], row.number)
        before = "" if row.values[1] is None else text(row.values[1], "'title'")
        if name in found:
            raise BadRowError(f"expected a unique id, got {name!r} again")
        found[name] = filled_text(f"{before} {text(row.values[2], repr('text'))}".strip(), "'text'")

    bad.collect(read_columns(path, ["_id", title, "text"], bad), take)
    return found
