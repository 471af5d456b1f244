"""What a compiled step costs on a TPU: its roofline, and the instructions that move most bytes."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Chip(NamedTuple):
    """A kind of TPU: 1e12 bfloat16 operations and 1e9 bytes a second, 1e9 bytes of memory."""

    peak_tflops: float
    gigabytes_per_second: float
    gigabytes: float


# By the name that topologies begin with; the figures of https://cloud.google.com/tpu/docs.
CHIPS = {
    "v4": Chip(275, 1228, 32),
    "v5e": Chip(197, 819, 16),
    "v5p": Chip(459, 2765, 95),
    "v6e": Chip(918, 1640, 32),
}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says: seconds, bytes of memory, and what an execution does."""

    seconds: float
    arguments: int
    temporaries: int
    code: int
    flops: float
    bytes: float


def lines(found: Compiled, chip: Chip, model_flops: float) -> list[str]:
    """The account of a step, for people; ``model_flops`` are those of its matrix products."""
    memory = (found.arguments + found.temporaries + found.code) / 1e9
    of_products = found.flops / (chip.peak_tflops * 1e12)
    of_memory = found.bytes / (chip.gigabytes_per_second * 1e9)
    seconds = max(of_products, of_memory)
    mfu = model_flops / (seconds * chip.peak_tflops * 1e12)
    bound = "memory" if of_memory > of_products else "arithmetic"
    return [
        f"Compiled in {found.seconds:.0f} s.",
        f"Memory: {memory:.1f} GB of the chip's {chip.gigabytes:g}: {found.arguments / 1e9:.1f} "
        f"variables and batch, {found.temporaries / 1e9:.1f} temporaries, "
        f"{found.code / 1e9:.1f} program." + ("" if memory < chip.gigabytes else " TOO MUCH."),
        f"Work: {found.flops / 1e12:.3g} TFLOP, {of_products:.3g} s at {chip.peak_tflops:g} "
        f"TFLOP/s; {found.bytes / 1e9:.3g} GB accessed, {of_memory:.3g} s at "
        f"{chip.gigabytes_per_second:g} GB/s.",
        f"Roofline: {seconds:.3g} s a step, bound by {bound}; MFU {mfu:.0%} at most, of "
        f"{model_flops / 1e12:.3g} TFLOP of the model's matrix products.",
    ]


# === The compiled program ===


class Instruction(NamedTuple):
    """An instruction: the bytes that it reads and writes, as they are tiled and as they are."""

    padded: int
    plain: int
    operation: str
    shape: str
    source: str


_BYTES = {
    **dict.fromkeys(("pred", "s8", "u8"), 1),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64"), 8),
}
_ARRAY = re.compile(rf"\b({'|'.join(_BYTES)})\[([\d,]*)\](?:\{{([\d,]*)(?::T\(([\d,]+)\))?)?")
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.+?) ([\w\-]+)\((.*)")
_SOURCE = re.compile(r'op_name="([^"]*)"')
# What only names or regroups what is there.
_FREE = {"get-tuple-element", "tuple", "parameter", "bitcast", "constant"}


def array_bytes(shape: str) -> tuple[int, int]:
    """The bytes of a shape's arrays as they are tiled in memory, and without padding."""
    padded = plain = 0
    for name, sizes, order, tile in _ARRAY.findall(shape):
        dimensions = [int(size) for size in sizes.split(",") if size]
        size = _BYTES[name]
        plain += math.prod(dimensions) * size
        if tile:
            tiles = [int(number) for number in tile.split(",")]
            # The order has the fastest dimension first, and a tile has it last.
            for dimension, multiple in zip(_numbers(order), reversed(tiles), strict=False):
                dimensions[dimension] = -(-dimensions[dimension] // multiple) * multiple
        padded += math.prod(dimensions) * size
    return padded, plain


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def instructions(hlo: str) -> Iterator[Instruction]:
    """The instructions of a program's entry that move bytes."""
    entry = hlo[hlo.index("\nENTRY") :]
    sizes: dict[str, tuple[int, int]] = {}
    for line in entry[: entry.index("\n}")].split("\n"):
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, shape, operation, rest = found.groups()
        sizes[name] = array_bytes(shape)
        if operation in _FREE:
            continue
        operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
        moved = [sizes[name], *(sizes.get(operand, (0, 0)) for operand in operands)]
        source = _SOURCE.search(line)
        yield Instruction(
            sum(padded for padded, _ in moved),
            sum(plain for _, plain in moved),
            operation,
            shape,
            source.group(1) if source else "",
        )


def table(largest: Sequence[Instruction]) -> list[str]:
    """The instructions that move most, for people."""
    return [
        f"{'GB':>7} {'padded':>7}  instruction, what it makes, where it comes from",
        *(
            f"{each.plain / 1e9:7.2f} {each.padded / 1e9:7.2f}  {each.operation} "
            f"{each.shape[:60]}  {each.source[-70:]}"
            for each in largest
        ),
    ]
