"""Converts annotations of doccano (JSONL) and Label Studio (JSON) to a table for --character_spans.

    python examples/convert_annotations.py annotations train.jsonl

Reads all .jsonl and .json files in a folder. Keeps the first annotation of each text. If spans
overlap, keeps the longest.
"""

import argparse
import json
import pathlib


def read_doccano(path):
    """Yields each text of a doccano JSONL file with its spans: start, end, label."""
    with path.open("rb") as file:
        for row in map(json.loads, file):
            yield row["text"], row["label"]


def read_label_studio(path):
    """Yields each text of a Label Studio JSON file with its spans: start, end, label."""
    for task in json.loads(path.read_bytes()):
        for annotation in [each for each in task["annotations"] if not each["was_cancelled"]][:1]:
            spans = [each["value"] for each in annotation["result"] if each["type"] == "labels"]
            yield (
                task["data"]["text"],
                [(span["start"], span["end"], span["labels"][0]) for span in spans],
            )


def to_characters(text, offset):
    """Converts an offset in UTF-16 code units to an offset in characters."""
    return len(text.encode("utf-16-le")[: 2 * offset].decode("utf-16-le"))


def to_entities(text, spans, utf16=False):
    """Returns the entities of a text, without trailing spaces and without overlaps.

    Args:
        text: The text.
        spans: Tuples of start, end and label.
        utf16: Whether the offsets are in UTF-16 code units instead of characters.
    """
    entities = []
    for start, end, label in sorted(spans, key=lambda span: span[0] - span[1]):
        if utf16:
            start, end = to_characters(text, start), to_characters(text, end)
        end = start + len(text[start:end].rstrip())
        if all(end <= other["start"] or start >= other["end"] for other in entities):
            entities.append({"start": start, "end": end, "label": label})
    return entities


def convert(folder, output, utf16=False):
    """Converts the annotations in a folder to a .jsonl file."""
    readers = {".jsonl": read_doccano, ".json": read_label_studio}
    with open(output, "w", encoding="utf-8") as file:
        for path in sorted(pathlib.Path(folder).iterdir()):
            for text, spans in readers[path.suffix](path) if path.suffix in readers else ():
                row = {"text": text, "entities": to_entities(text, spans, utf16)}
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="folder with the exported files")
    parser.add_argument("output", help="path of the .jsonl file to write")
    parser.add_argument("--utf16", action="store_true", help="read offsets as UTF-16 code units")
    arguments = parser.parse_args()
    convert(arguments.folder, arguments.output, arguments.utf16)
