"""Scores predicted answers on SQuAD 1.1 or 2.0 by the official definition.

    python -m bert_tf.evaluate_squad DATA PREDICTIONS [--output=metrics.json]
    python -m bert_tf.evaluate_squad dev-v2.0.json predictions.json --null_odds=null_odds.json

DATA is a SQuAD file; PREDICTIONS a JSON object from question ids to answers, "" for no answer. They
may be plain, gzipped or zipped. The data show which version it is.
"""

import dataclasses
import os
from typing import Any

from absl import flags

from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import number, string
from bert_tf.cli.flag_rules import check, needs
from bert_tf.metrics.squad_scores import SquadScores, score_predictions
from bert_tf.readers.squad import read_null_odds, read_predictions, read_references
from bert_tf.untrusted import listed


@dataclasses.dataclass(frozen=True)
class _Settings:
    """Every flag."""

    null_odds: str | None = string(
        None,
        "SQuAD 2.0: a JSON object from question ids to numbers, the higher the likelier that there "
        "is no answer. The thresholds that score best are searched.",
    )
    null_threshold: float | None = number(
        None,
        "Count an answer as none where its --null_odds are above this. Without it the predictions "
        "are taken as they are.",
        rules=[
            needs(
                "null_odds",
                "--{flag}={value:g} needs --null_odds: the file of the odds that it is for.",
            )
        ],
    )
    output: str | None = string(None, "Write the numbers as JSON to this file, replacing it.")


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(_Settings, flags.FLAGS)


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name, the data and the predictions."""
    _, data, predictions = argv
    evaluate(data, predictions, **vars(flag_fields.checked(_Settings, flags.FLAGS)))


def evaluate(data: str, predictions: str, **given: Any) -> SquadScores:
    """Scores a file of predictions, prints a table and writes the numbers to ``output``, if given.

    The files are those of the command, and ``given`` are its flags. A ``ValueError`` says that a
    file is not what it should be, that ``output`` is one of them, or that an option does not fit
    the data's version.
    """
    settings = _Settings(**given)
    check(_Settings, vars(settings), given)
    odds_file, output = settings.null_odds, settings.output
    inputs = [data, predictions, *([odds_file] if odds_file else [])]
    if output and os.path.realpath(output) in map(os.path.realpath, inputs):
        raise ValueError(f"--output={output} is one of the files to read: name another.")
    references = read_references(data)
    answers = read_predictions(predictions, references)
    predicted = [name for name in references.answers if name in answers]
    odds = read_null_odds(odds_file, predicted) if odds_file else None
    scores = score_predictions(references, answers, odds, settings.null_threshold)
    _print_table(scores)
    unknown = len(answers.keys() - references.answers.keys())
    if unknown:
        are_for = (
            "prediction is for a question" if unknown == 1 else "predictions are for questions"
        )
        print(f"{unknown:,} {are_for} that {data} does not hold.")
    if output:
        # Only now: a table alone needs no TensorFlow.
        from bert_tf.files import write_json

        write_json(output, scores.to_dict())
        print(f"Written: {output}")
    return scores


def _print_table(scores: SquadScores) -> None:
    print(f"{'SQuAD ' + scores.version:<20} {'questions':>9} {'exact':>7} {'F1':>7}")
    rows = {
        "all": scores.overall,
        "with an answer": scores.has_answer,
        "without an answer": scores.no_answer,
    }
    for name, row in rows.items():
        if row:
            print(f"{name:<20} {row.total:>9,} {row.exact:>7.2f} {row.f1:>7.2f}")
    if best := scores.thresholds:
        for name, score, threshold in (
            ("exact", best.best_exact, best.best_exact_threshold),
            ("F1", best.best_f1, best.best_f1_threshold),
        ):
            print(f"Best {name} {score:.2f}, with --null_threshold={threshold!r}.")
    if scores.missing:
        score_0 = "questions without a prediction score 0"
        if len(scores.missing) == 1:
            score_0 = "question without a prediction scores 0"
        print(f"{len(scores.missing):,} {score_0}: {listed(scores.missing, 3)}")


if __name__ == "__main__":
    define_flags()
    command.run(main, arguments=("DATA", "PREDICTIONS"))
