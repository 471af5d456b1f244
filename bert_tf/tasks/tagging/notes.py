"""Notes on tags and spans that are read as they are and may not be meant; none is an error."""

from collections.abc import Collection

from bert_tf.readers.examples import shown
from bert_tf.readers.notes import NUMBER, LabelPlaces, alike_notes

from .entities import find_odd_tags, is_tag


def tag_notes(path: str, places: LabelPlaces) -> list[str]:
    """Notes on tags that look like tags of entities and are not."""
    odd = find_odd_tags(places.counts)
    if places.counts and all(map(NUMBER.fullmatch, places.counts)):
        return [
            f"{path}: the tags are numbers, such as {places.shown([*places.counts][:1])}: words "
            "are scored, not entities; if they stand for names, as in datasets' ClassLabel, write "
            "the names."
        ]
    if not odd:
        return alike_notes(path, places)
    if any(is_tag(tag) and tag != "O" for tag in places.counts):
        return [
            f"{path}: most tags are those of entities, but not {places.shown(odd)}: they count as "
            "O where entities are scored; correct them if they are misspelt."
        ]
    return [
        f"{path}: the tags look like those of entities and are none, such as {places.shown(odd)}: "
        "words are scored, not entities; spell them O, B-TYPE and I-TYPE."
    ]


def span_notes(path: str, spans: Collection[tuple[str, str]]) -> list[str]:
    """A note on spans that seem to count UTF-16 units.

    ``spans`` are the texts of entities by the characters, and by the units, that they count; ""
    where these cannot be meant.
    """
    entities = {here for here, by_units in spans if here == by_units}
    moved = [pair for pair in spans if pair[0] not in entities and pair[1] in entities]
    right = sum(not by_units or (here != by_units and here in entities) for here, by_units in spans)
    seem = "seem to" if moved else "may"
    if not moved and not right:  # nothing says which are meant
        moved = [pair for pair in spans if pair[0] != pair[1]]
    if len(moved) <= right:
        return []
    here, by_units = map(shown, min(moved))
    return [
        f"{path}: spans behind an emoji or a rare ideograph {seem} count UTF-16 units, as browsers "
        f"do: {here} is read, by units it would be {by_units}; count characters."
    ]
