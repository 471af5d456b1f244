"""The stages of a preparation: what one unit of each does, without Apache Beam.

| stage     | a unit is | it reads                          | it writes                            |
|-----------|-----------|-----------------------------------|--------------------------------------|
| documents | a group   | its blocks of the input           | documents, keys, buckets             |
| pairs     | partition | its part of all buckets           | pairs that may be near duplicates    |
| choices   | a shard   | its part of all keys and pairs    | duplicates, smallest fingerprints    |
| held_out  | all       | all choices                       | what is held out                     |
| shards    | a shard   | its part of all documents         | a file of the output                 |

Every unit depends on the files that it reads and on the plan alone, in no order, and its files
appear whole, what says that it is done last. So units can run on any machines at any time, and
twice; and a run that is started again does what is missing.

A document is known by its *identity*, which its text alone decides; of documents with the same text
the first of the input is kept, of near duplicates the one with the smallest identity.
"""

import collections
import dataclasses
import functools
import hashlib
import heapq
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files import (
    check_new,
    move_new,
    read_json_object,
    replace_whole,
    size_of,
    write_json,
)
from bert_tf.pipelines.corpus import MOST_HELD_OUT, fingerprint_texts, held_out_fingerprints
from bert_tf.pipelines.sources import load_part
from bert_tf.seals import sha256_of

from . import documents, near_duplicates
from .exchange import read_at, read_part, split_rows, write_parts
from .plan import Plan

# A document in a group's file: its position and its identity, in whose order it is there, the
# fingerprint that decides whether it is held out, and the bytes of its text, which follows.
_RECORD = struct.Struct(f">Q{documents.IDENTITY_BYTES}sqI")
# A place is a document's group and, in the lower bits, where in the group's file it is.
_OFFSET_BITS = 44
_IDENTITY = f"S{documents.IDENTITY_BYTES}"
_KEY = np.dtype(
    [
        *(("identity", _IDENTITY), ("place", "<u8"), ("fingerprint", "<i8")),
        *(("sentences", "<u4"), ("bytes", "<u4")),
    ]
)
_BUCKET = np.dtype([("bucket", "<u8"), ("identity", _IDENTITY), ("place", "<u8")])
_PAIR = np.dtype(
    [
        *(("identity", _IDENTITY), ("place", "<u8")),
        *(("smaller", _IDENTITY), ("smaller_place", "<u8")),
    ]
)
# In a bucket every document is compared with this many of the smallest identities; in a large one
# only with the smallest, so that the pairs are never many times the buckets' entries.
_COMPARED = 8
_LARGE_BUCKET = 1000
# Shingles of documents that other pairs may ask for again, a few kilobytes each.
_REMEMBERED = 1024


# === documents ===


def _read_group(plan: Plan, group: int) -> None:
    settings = plan.settings
    corpus = load_part(plan.path("blocks", group))
    dropped: collections.Counter[str] = collections.Counter()
    texts, sentences, buckets = [], [], []
    rows = near_duplicates.rows_per_band(settings.near_duplicates or 1)
    for block in range(corpus.num_blocks):
        read = corpus.read_documents(tf.constant(block, tf.int64))
        for joined in tf.strings.reduce_join(read, axis=-1, separator="\n").numpy():
            text = documents.clean(joined.decode())
            reason = documents.reason_to_drop(text, settings)
            if reason is not None:
                dropped[reason] += 1
                continue
            texts.append(text.encode())
            sentences.append(documents.num_sentences(text))
            if settings.near_duplicates:
                hashes = near_duplicates.shingles(text)
                buckets.append(near_duplicates.buckets(hashes, rows))

    keys = np.zeros(len(texts), _KEY)
    keys["identity"] = [documents.identity(text) for text in texts]
    keys["fingerprint"] = fingerprint_texts(tf.constant(texts, tf.string)).numpy()
    keys["sentences"] = sentences
    keys["bytes"] = [len(text) for text in texts]
    positions = documents.positions(keys["identity"], settings.seed)
    order = np.lexsort((keys["identity"], positions))
    lengths = keys["bytes"][order].astype(np.uint64) + np.uint64(_RECORD.size)
    keys["place"][order] = (
        (np.uint64(group) << np.uint64(_OFFSET_BITS)) + np.cumsum(lengths) - lengths
    )
    shards = documents.part_of(positions[order], plan.num_shards)

    if settings.near_duplicates:
        entries = np.zeros((len(texts), near_duplicates.NUM_BANDS), _BUCKET)
        entries["bucket"] = np.reshape(buckets, entries.shape)
        entries["identity"] = keys["identity"][:, None]
        entries["place"] = keys["place"][:, None]
        entries = np.sort(entries.reshape(-1), order="bucket")
        partitions = documents.part_of(entries["bucket"], plan.num_partitions)
        write_parts(
            plan.path("buckets", group), split_rows(entries, partitions, plan.num_partitions)
        )
    counts = _encode({"read": len(texts) + dropped.total(), "dropped": dropped})
    write_parts(
        plan.path("keys", group), [*split_rows(keys[order], shards, plan.num_shards), [counts]]
    )
    borders = np.searchsorted(shards, np.arange(plan.num_shards + 1))
    write_parts(
        plan.path("documents", group),
        [
            [
                piece
                for number in order[begin:end]
                for piece in (_head(keys[number], positions[number]), texts[number])
            ]
            for begin, end in itertools.pairwise(borders)
        ],
    )


def _head(key: np.void, position: np.uint64) -> bytes:
    identity = key["identity"].ljust(documents.IDENTITY_BYTES, b"\0")  # NumPy drops zeros
    return _RECORD.pack(int(position), identity, int(key["fingerprint"]), int(key["bytes"]))


# === pairs ===


def _find_pairs(plan: Plan, partition: int) -> None:
    entries = _parts(plan, "buckets", plan.num_groups, partition, _BUCKET)
    entries = entries[np.lexsort((entries["place"], entries["identity"], entries["bucket"]))]
    entries = entries[_first_of_each(entries, "bucket", "identity")]
    numbers = np.arange(len(entries))
    starts = np.flatnonzero(_first_of_each(entries, "bucket"))
    sizes = np.diff(starts, append=len(entries))
    start, size = np.repeat(starts, sizes), np.repeat(sizes, sizes)
    # A pair is a number, member by member and smaller by smaller: a sixth of its row's bytes.
    _, first, ranks = np.unique(entries["identity"], return_index=True, return_inverse=True)
    found = []
    for smaller in range(_COMPARED):
        compared = (numbers - start > smaller) & ((smaller == 0) | (size <= _LARGE_BUCKET))
        partners = start[compared] + smaller
        found.append(np.unique(ranks[compared] * len(first) + ranks[partners]))
    pairs = np.unique(np.concatenate(found))
    members = entries[first]
    del entries, numbers, start, size, ranks, found
    positions = documents.positions(members["identity"], plan.settings.seed)
    shards = documents.part_of(positions, plan.num_shards)[pairs // max(1, len(members))]
    pairs = pairs[np.argsort(shards, kind="stable")]
    rows = np.zeros(len(pairs), _PAIR)
    for field in ("identity", "place"):
        rows[field] = members[field][pairs // max(1, len(members))]
    rows["smaller"] = members["identity"][pairs % max(1, len(members))]
    rows["smaller_place"] = members["place"][pairs % max(1, len(members))]
    write_parts(plan.path("pairs", partition), split_rows(rows, np.sort(shards), plan.num_shards))


def _first_of_each(rows: np.ndarray, *names: str) -> np.ndarray:
    """Which rows, bool, differ in some field from the row before."""
    differs = np.ones(len(rows), bool)
    differs[1:] = np.logical_or.reduce([rows[name][1:] != rows[name][:-1] for name in names])
    return differs


def _parts(plan: Plan, kind: str, files: int, number: int, dtype: np.dtype) -> np.ndarray:
    """One part of all files of a kind."""
    read = [read_part(plan.path(kind, file), number) for file in range(files)]
    return np.frombuffer(b"".join(read), dtype)


# === choices ===


def _choose(plan: Plan, shard: int) -> None:
    keys = _parts(plan, "keys", plan.num_groups, shard, _KEY)
    keys = keys[np.lexsort((keys["place"], keys["identity"]))]
    unique = keys[_first_of_each(keys, "identity")]
    near = np.zeros(0, _IDENTITY)
    if plan.settings.near_duplicates:
        pairs = _parts(plan, "pairs", plan.num_partitions, shard, _PAIR)
        near = _near_duplicates(plan, pairs)
    kept = unique[~np.isin(unique["identity"], near)]
    smallest = kept[np.lexsort((kept["identity"], kept["fingerprint"]))][:MOST_HELD_OUT]
    counts = {
        "dropped": {"exact_duplicate": len(keys) - len(unique), "near_duplicate": len(near)},
        "kept": _sizes(kept),
    }
    write_parts(
        plan.path("choices", shard), [[near.tobytes()], [smallest.tobytes()], [_encode(counts)]]
    )


_NEAR, _SMALLEST, _COUNTS = range(3)  # the parts of a file of choices


def _sizes(keys: np.ndarray) -> dict[str, int]:
    sums = {name: int(keys[name].sum(dtype=np.int64)) for name in ("sentences", "bytes")}
    return {"documents": len(keys), **sums}


def _near_duplicates(plan: Plan, pairs: np.ndarray) -> np.ndarray:
    """The identities, ascending, of documents whose similarity to a smaller one is high enough."""

    @functools.lru_cache(_REMEMBERED)
    def shingles(place: int) -> np.ndarray:
        _, text = _read_document(plan, place)
        return np.unique(near_duplicates.shingles(text.decode()))

    pairs = pairs[np.lexsort((pairs["smaller"], pairs["identity"]))]
    pairs = pairs[_first_of_each(pairs, "identity", "smaller")]
    found: list[bytes] = []
    for pair in pairs:
        if found and found[-1] == pair["identity"]:
            continue
        first, second = shingles(int(pair["place"])), shingles(int(pair["smaller_place"]))
        if near_duplicates.jaccard(first, second) >= plan.settings.near_duplicates:
            found.append(pair["identity"])
    return np.array(found, _IDENTITY)


def _read_document(plan: Plan, place: int) -> tuple[tuple[Any, ...], bytes]:
    """The head and the text of the document at a place."""
    group, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
    return read_at(plan.path("documents", group), offset, _RECORD)


# === held_out ===


def _hold_out(plan: Plan, number: int) -> None:
    dropped: collections.Counter[str] = collections.Counter()
    kept: collections.Counter[str] = collections.Counter()
    keys = np.zeros(0, _KEY)
    for shard in range(plan.num_shards):
        path = plan.path("choices", shard)
        counts = json.loads(read_part(path, _COUNTS))
        dropped.update(counts["dropped"])
        kept.update(counts["kept"])
        smallest = np.frombuffer(read_part(path, _SMALLEST), _KEY)
        keys = np.concatenate([keys, smallest])
        keys = keys[np.lexsort((keys["identity"], keys["fingerprint"]))][:MOST_HELD_OUT]
    if not kept["documents"]:
        raise ValueError(
            "No document is left: all are shorter than --min_characters, have fewer than "
            "--min_sentences, or are in other scripts than --scripts."
        )
    fraction = plan.settings.held_out_fraction
    chosen = np.zeros(0, np.int64)
    if fraction:
        chosen = held_out_fingerprints(keys["fingerprint"], kept["documents"], fraction)
    keys = keys[np.isin(keys["fingerprint"], chosen)]
    if len(keys):
        texts = (_read_document(plan, int(place))[1] for place in keys["place"])
        _write_output(plan, "held_out", 0, 1, texts)
    held_out = _sizes(keys)
    kept.subtract(held_out)
    counts = {"dropped": dropped, "train": kept, "held_out": held_out}
    write_parts(
        plan.path("held_out", number), [[chosen.astype("<i8").tobytes()], [_encode(counts)]]
    )


# === shards ===


def _write_shard(plan: Plan, shard: int) -> None:
    held_out = set(np.frombuffer(read_part(plan.path("held_out", 0), 0), "<i8").tolist())
    near = read_part(plan.path("choices", shard), _NEAR)
    step = documents.IDENTITY_BYTES
    dropped = {near[begin : begin + step] for begin in range(0, len(near), step)}
    parts = (read_part(plan.path("documents", group), shard) for group in range(plan.num_groups))

    def kept() -> Iterator[bytes]:
        before = b""
        for _, identity, fingerprint, text in heapq.merge(*map(_records, parts)):
            if identity != before and identity not in dropped and fingerprint not in held_out:
                yield text
            before = identity

    _write_output(plan, "train", shard, plan.num_shards, kept())


def _records(part: bytes) -> Iterator[tuple[int, bytes, int, bytes]]:
    """Position, identity, fingerprint and text of the documents of a group's file."""
    begin = 0
    while begin < len(part):
        position, identity, fingerprint, length = _RECORD.unpack_from(part, begin)
        begin += _RECORD.size
        yield position, identity, fingerprint, part[begin : begin + length]
        begin += length


def _write_output(plan: Plan, kind: str, number: int, count: int, texts: Iterator[bytes]) -> None:
    """Writes a file of the output in the format google; it has to be new, or what is written."""
    path, written = plan.output_path(kind, number, count), plan.path(f"{kind}_text", number)
    digest = hashlib.sha256()
    with replace_whole(written) as file:
        for text in texts:
            digest.update(text + b"\n\n")
            file.write(text + b"\n\n")
    # A run that was killed here has moved it already.
    if tf.io.gfile.exists(path) and sha256_of(path) == digest.hexdigest():
        tf.io.gfile.remove(written)
    else:
        check_new(path)
        move_new(written, path)
    done = {"file": os.path.basename(path), "bytes": size_of(path), "sha256": digest.hexdigest()}
    write_json(plan.path(f"{kind}_done", number), done)


# === the report ===


def count_all(plan: Plan) -> dict[str, Any]:
    """What finished units counted: documents read and dropped, what is left, and the files."""
    read: collections.Counter[str] = collections.Counter()
    for group in range(plan.num_groups):
        counts = json.loads(read_part(plan.path("keys", group), plan.num_shards))
        read.update({"read": counts["read"], **counts["dropped"]})
    left = json.loads(read_part(plan.path("held_out", 0), 1))
    done = [plan.path("train_done", shard) for shard in range(plan.num_shards)]
    if left["held_out"]["documents"]:
        done.append(plan.path("held_out_done", 0))
    dropped = {**read, **left["dropped"]}
    return {
        "documents_read": read["read"],
        "dropped": {reason: dropped.get(reason, 0) for reason in documents.REASONS},
        "train": left["train"],
        "held_out": left["held_out"],
        "files": [read_json_object(path) for path in done],
    }


# === the table ===


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage: how many units it has, what one does, and the file that says that it is done."""

    name: str
    count: Callable[[Plan], int]
    work: Callable[[Plan, int], None]
    written: str


def _num_partitions(plan: Plan) -> int:
    return plan.num_partitions if plan.settings.near_duplicates else 0


STAGES = (
    Stage("documents", lambda plan: plan.num_groups, _read_group, "documents"),
    Stage("pairs", _num_partitions, _find_pairs, "pairs"),
    Stage("choices", lambda plan: plan.num_shards, _choose, "choices"),
    Stage("held_out", lambda plan: 1, _hold_out, "held_out"),
    Stage("shards", lambda plan: plan.num_shards, _write_shard, "train_done"),
)


def run_unit(plan: Plan, name: str, number: int) -> None:
    """Does a unit of the stage of that name, unless it is done."""
    (stage,) = (stage for stage in STAGES if stage.name == name)
    if not tf.io.gfile.exists(plan.path(stage.written, number)):
        stage.work(plan, number)


def _encode(counts: dict[str, Any]) -> bytes:
    return json.dumps(counts).encode()
