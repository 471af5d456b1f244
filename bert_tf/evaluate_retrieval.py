r"""Judges a model of sentence embeddings by a search: nDCG, MRR, recall, mean average precision.

    python -m bert_tf.evaluate_retrieval --model=runs/faq --data_dir=scifact

    python -m bert_tf.evaluate_retrieval --model=hf://sentence-transformers/all-MiniLM-L6-v2 \
        --data_dir=scifact --output=metrics.json

--model is what ``bert_tf.finetune --task=similarity`` left, or a directory of
sentence-transformers. --data_dir has files as BEIR has them: corpus.jsonl, queries.jsonl and
qrels/SPLIT.tsv. Every document is compared with every query, by cosine, and the best 1,000 are
judged. As in BEIR, a document with the query's own id is not counted as found. --reranker names a
second model, which orders the first --rerank_top documents of each query anew.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_tf import paths
from bert_tf.choices import PRECISIONS, STRATEGIES
from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_rules import needs, required
from bert_tf.untrusted import quote

if TYPE_CHECKING:
    import numpy as np

    from bert_tf.readers.retrieval import RetrievalSet

_QUERIES_AT_ONCE = 32
_NEEDED = required("evaluate_retrieval needs --model and --data_dir")


@dataclasses.dataclass(frozen=True)
class RetrievalSettings:
    """Every flag."""

    model: str = flag_fields.string(
        None, "The model of embeddings: a directory, or hf://OWNER/NAME.", rules=[_NEEDED]
    )
    data_dir: str = flag_fields.string(
        None, "The folder with corpus.jsonl, queries.jsonl and qrels/.", rules=[_NEEDED]
    )
    reranker: str | None = flag_fields.string(
        None,
        "Order the best documents of each query anew by this model, which reads the query and a "
        "document together: a fine-tuned regression of pairs, or a classification of two classes, "
        "whose second one is relevance.",
    )
    rerank_top: int = flag_fields.integer(
        100, "--reranker: how many documents of a query.", least=1, rules=[needs("reranker")]
    )
    split: str = flag_fields.string("test", "Which judgements: those of qrels/SPLIT.tsv.")
    output: str | None = flag_fields.string(
        None, "Write the numbers as JSON to this file, replacing it."
    )
    max_seq_length: int | None = flag_fields.integer(
        None, "The most tokens of a text; by default the training's.", least=3
    )
    embedding_dims: int | None = flag_fields.integer(None, flag_fields.EMBEDDING_DIMS, least=1)
    batch_size: int = flag_fields.integer(64, "Texts at once, over all devices.", least=1)
    precision: str = flag_fields.choice(
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
    )
    strategy: str = flag_fields.choice("auto", STRATEGIES, flag_fields.STRATEGY)


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(RetrievalSettings, flags.FLAGS)


def main(argv: Sequence[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    settings = flag_fields.checked(RetrievalSettings, flags.FLAGS)
    models = [settings.model, *([settings.reranker] if settings.reranker else [])]
    paths.check_inputs(checkpoints=models)
    evaluate(settings)


def evaluate(settings: RetrievalSettings) -> dict[str, Any]:
    """Searches, prints the scores and writes them where that is asked for; gives the numbers.

    Raises:
        ValueError: the model gives no vectors of texts or has no vocabulary, a length is more than
            its positions, or a file is malformed.
        OSError: a file cannot be read or written.
    """
    # TensorFlow loads here, after the flags were found good.
    from bert_tf.files import write_json
    from bert_tf.metrics.judging import Judged
    from bert_tf.metrics.resampling import bootstrap
    from bert_tf.metrics.retrieval import judge_rankings
    from bert_tf.readers.retrieval import files_of, read_retrieval
    from bert_tf.training.distribution import open_devices

    read = [os.path.realpath(path) for path in files_of(settings.data_dir, settings.split)]
    if settings.output and os.path.realpath(settings.output) in read:
        raise ValueError(f"--output={settings.output} is one of the files to read: name another.")
    found = read_retrieval(settings.data_dir, settings.split)
    print(f"{len(found.queries):,} queries, {len(found.documents):,} documents.", flush=True)
    if found.missing:
        print(f"{found.missing:,} relevant documents are not there: they count as not found.")
    with open_devices(settings.strategy, settings.precision).scope():
        ranked = first_ranked = _rank(settings, found)
        if settings.reranker:
            ranked = _rerank(settings, found, ranked)
    judged: Judged = judge_rankings(ranked, found.relevant)
    scores = judged.scores(judged.metrics)
    headline = next(iter(scores))
    low, high = bootstrap(judged.metrics[headline], judged.count)
    for name, score in scores.items():
        print(f"{name:<12}{score:.4f}" + f"  (95%: {low:.4f} to {high:.4f})" * (name == headline))
    results: dict[str, Any] = {
        "scores": scores,
        "intervals": {headline: [low, high]},
        "queries": len(found.queries),
        "documents": len(found.documents),
    }
    if settings.reranker:
        before = judge_rankings(first_ranked, found.relevant)
        results["before_reranking"] = before.scores(before.metrics)
        print(f"Before reranking: {headline} {results['before_reranking'][headline]:.4f}.")
    if settings.output:
        write_json(settings.output, results)
        print(f"Written: {settings.output}")
    return results


def _rank(settings: RetrievalSettings, found: "RetrievalSet") -> "np.ndarray":
    """The documents' numbers for each query, (Q, K), the best first, -1 behind the last."""
    import numpy as np

    from bert_tf.metrics.retrieval import RANKS, search, without_own
    from bert_tf.tasks.embedding import open_embedder
    from bert_tf.training.progress import Progress

    embedder = open_embedder(
        settings.model,
        settings.max_seq_length,
        settings.batch_size,
        settings.embedding_dims,
    )
    documents = embedder.directions([*found.documents.values()], "Documents")
    queries = embedder.directions([*found.queries.values()], "Queries", are_queries=True)
    progress = Progress("Searching", len(queries), "queries")
    ranked, _ = search(queries, documents, RANKS + 1, progress.update)
    progress.close()
    places = {name: place for place, name in enumerate(found.documents)}
    return without_own(ranked, np.array([places.get(name, -1) for name in found.queries]))


def _rerank(
    settings: RetrievalSettings, found: "RetrievalSet", ranked: "np.ndarray"
) -> "np.ndarray":
    """The rankings whose first documents are in the order of the second model."""
    import numpy as np

    from bert_tf.predicting.predictor import Predictor
    from bert_tf.training.progress import Progress

    model = Predictor(settings.reranker, batch_size=settings.batch_size)
    documents, reranked = [*found.documents.values()], ranked.copy()
    progress = Progress("Reranking", len(ranked), "queries")
    for first in range(0, len(ranked), _QUERIES_AT_ONCE):
        block = slice(first, first + _QUERIES_AT_ONCE)
        tops = [row[row >= 0][: settings.rerank_top] for row in ranked[block]]
        queries = [*found.queries.values()][block]
        pairs = [(q, documents[n]) for q, top in zip(queries, tops, strict=True) for n in top]
        scores = np.split(model.relevance(pairs), np.cumsum([len(top) for top in tops])[:-1])
        for row, top, own in zip(reranked[block], tops, scores, strict=True):
            row[: len(top)] = top[np.argsort(-own, kind="stable")]
        progress.update(first + len(tops))
    progress.close()
    if model.labels:
        print(f"Reranked by the probability of {quote(model.labels[1])}.")
    return reranked


if __name__ == "__main__":
    define_flags()
    command.run(main)
