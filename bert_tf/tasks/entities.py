"""Entities in tag sequences: found, scored, and their tags checked and converted.

A tag is ``O``, or ``B-`` or ``I-`` followed by a type. In *IOB2* an entity begins with B- and goes
on with I-. In *IOB1* it begins with I-, and with B- only where it follows an entity of its own type
without a gap.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["IOB1", "IOB2"]


class Entity(NamedTuple):
    """A span of tokens.

    Attributes:
        type: what its tags say behind B- and I-.
        start: its first token's index in the sequence.
        end: the index behind its last token.
    """

    type: str
    start: int
    end: int


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Finds the entities of one sequence, as CoNLL's conlleval and seqeval's default mode do.

    The rule takes both schemes and any order of tags, valid or not: B- begins an entity; so does I-
    unless the tag before is B- or I- of the same type.

    Raises:
        ValueError: a tag is none, with its index.

    >>> find_entities(["I-PER", "I-PER", "O", "B-LOC", "I-ORG"])
    [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4), ...]
    """
    found: list[Entity] = []
    open_type, start = "", 0
    for index, tag in enumerate(tags):
        prefix, kind = _split(tag, index)
        if open_type and (prefix != "I" or kind != open_type):
            found.append(Entity(open_type, start, index))
            open_type = ""
        if prefix != "O" and not open_type:
            open_type, start = kind, index
    if open_type:
        found.append(Entity(open_type, start, len(tags)))
    return found


def _split(tag: str, index: int) -> tuple[str, str]:
    prefix, dash, kind = tag.partition("-")
    if tag != "O" and not (prefix in ("B", "I") and dash and kind):
        raise ValueError(f"Tag {index} is {tag!r}: expected O, B-TYPE or I-TYPE.")
    return prefix, kind


def check_tags(tags: Sequence[str], scheme: Scheme) -> None:
    """Checks that one sequence is valid in a scheme.

    Raises:
        ValueError: at the first tag that is none or cannot stand where it does, with its index.

    >>> check_tags(["O", "I-PER"], "IOB2")
    Traceback (most recent call last):
    ValueError: Tag 1 is 'I-PER' behind 'O': in IOB2 an entity begins with B-PER.
    """
    before = "O"
    for index, tag in enumerate(tags):
        prefix, kind = _split(tag, index)
        continues = before in (f"B-{kind}", f"I-{kind}")
        behind = f"Tag {index} is {tag!r} behind {before!r}" if index else f"Tag 0 is {tag!r}"
        if scheme == "IOB2" and prefix == "I" and not continues:
            raise ValueError(f"{behind}: in IOB2 an entity begins with B-{kind}.")
        if scheme == "IOB1" and prefix == "B" and not continues:
            raise ValueError(
                f"{behind}: in IOB1 an entity begins with I-{kind}, but right behind another "
                f"{kind}."
            )
        before = tag


def convert_tags(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Writes the entities of one sequence as tags of a scheme, whichever they were in.

    Raises:
        ValueError: a tag is none, with its index.

    >>> convert_tags(["I-PER", "I-PER", "B-PER", "O"], "IOB2")
    ['B-PER', 'I-PER', 'B-PER', 'O']
    """
    converted = ["O"] * len(tags)
    for kind, start, end in find_entities(tags):
        touches = start > 0 and converted[start - 1][2:] == kind
        first = "B" if scheme == "IOB2" or touches else "I"
        converted[start:end] = [f"{first}-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return converted


@dataclasses.dataclass(frozen=True)
class EntityScore:
    """Precision, recall and F1 of entities, each 0.0 to 1.0, and 0.0 where it divides by zero.

    Attributes:
        num_true: entities in the truth.
        num_predicted: entities predicted.
        num_correct: predicted ones whose type, start and end are a true one's.
    """

    num_true: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """The share of the predicted entities that are correct."""
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the true entities that are found."""
        return self.num_correct / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        entities = self.num_true + self.num_predicted
        return 2 * self.num_correct / entities if entities else 0.0


@dataclasses.dataclass(frozen=True)
class EntityScores:
    """Scores of a data set.

    Attributes:
        overall: of all entities alike (the micro average, CoNLL's F1).
        by_type: of each type that is true or predicted somewhere, sorted.
    """

    overall: EntityScore
    by_type: dict[str, EntityScore]


def entity_scores(
    true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> EntityScores:
    """Scores predicted tags by the entities that they spell, as seqeval's default mode does.

    Args:
        true: the tags of each sequence, in either scheme.
        predicted: likewise, of the same lengths; a token that the model did not see has ``O``.

    Raises:
        ValueError: the numbers of sequences or of a sequence's tags differ, or a tag is none.

    >>> scores = entity_scores([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-LOC"]])
    >>> scores.overall.f1, scores.by_type["LOC"].f1
    (0.5, 1.0)
    """
    if len(true) != len(predicted):
        raise ValueError(
            f"Expected predictions for {len(true)} sequences, got them for {len(predicted)}."
        )
    truth: set[tuple[int, Entity]] = set()
    guesses: set[tuple[int, Entity]] = set()
    for number, (tags, guess) in enumerate(zip(true, predicted, strict=True)):
        if len(tags) != len(guess):
            raise ValueError(
                f"Sequence {number}: expected {len(tags)} predicted tags, got {len(guess)}."
            )
        truth.update((number, entity) for entity in find_entities(tags))
        guesses.update((number, entity) for entity in find_entities(guess))
    kinds = sorted({entity.type for _, entity in truth | guesses})
    return EntityScores(
        EntityScore(len(truth), len(guesses), len(truth & guesses)),
        {
            kind: EntityScore(*(_count(part, kind) for part in (truth, guesses, truth & guesses)))
            for kind in kinds
        },
    )


def _count(entities: Iterable[tuple[int, Entity]], kind: str) -> int:
    return sum(entity.type == kind for _, entity in entities)
