"""Rows of a kernel's file in blocks that have the same ranks, dtypes and formats, their sizes as one matrix."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from tensor_cast.performance_model.profiling_database.shapes import RowKey

_DIGITS = str.maketrans("", "", string.digits)


@dataclass(frozen=True)
class BlockOperand:
    """An operand of every row of a block; its sizes are the columns ``first`` to ``first + rank`` of the matrix."""

    rank: int
    dtype: str
    format: str
    first: int

    @property
    def is_absent(self) -> bool:
        """Whether an optional operand was left out; a scalar has rank 0 too, but a dtype."""
        return self.rank == 0 and not self.dtype


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of equal structure: ``positions`` in the file's order, ``sizes`` of (rows, dimensions of all operands)."""

    inputs: tuple[BlockOperand, ...]
    outputs: tuple[BlockOperand, ...]
    positions: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.float64]

    def columns(self, operand: BlockOperand) -> list[npt.NDArray[np.float64]]:
        """Sizes of each dimension of ``operand``, one a row."""
        return [self.sizes[:, operand.first + axis] for axis in range(operand.rank)]


def blocks(keys: Sequence[RowKey]) -> list[Block]:
    """``keys`` grouped by structure; rows whose shapes are not whole numbers are left out.

    The sizes of a group are converted in one call: a file may have tens of thousands of rows.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, key in enumerate(keys):
        skeleton = (key[0].translate(_DIGITS), key[1], key[2], key[3].translate(_DIGITS), key[4], key[5])
        groups.setdefault(skeleton, []).append(position)
    found = []
    for positions in groups.values():
        block = _block([keys[position] for position in positions], positions)
        if block is not None:
            found.append(block)
    return found


def _block(keys: Sequence[RowKey], positions: Sequence[int]) -> Block | None:
    first = keys[0]
    # Canonical text drops trailing blanks, so the longest of the three cells tells how many operands there are.
    ranks = [_ranks(first[0]), _ranks(first[3])]
    inputs = _operands(ranks[0], first[1], first[2], 0)
    outputs = _operands(ranks[1], first[4], first[5], sum(ranks[0]))
    width = sum(ranks[0]) + sum(ranks[1])
    text = ",".join(f"{key[0]},{key[3]}" for key in keys).replace(";", ",")
    numbers = [number for number in text.split(",") if number]
    if len(numbers) != width * len(keys) or not all(map(str.isdecimal, numbers)):
        return None
    sizes = np.array(numbers, dtype=np.float64).reshape(len(keys), width)
    return Block(inputs, outputs, np.array(positions, dtype=np.intp), sizes)


def _ranks(shapes: str) -> list[int]:
    return [entry.count(",") + 1 if entry else 0 for entry in shapes.split(";")] if shapes else []


def _operands(ranks: Sequence[int], dtypes: str, formats: str, first: int) -> tuple[BlockOperand, ...]:
    dtype_names, format_names = dtypes.split(";"), formats.split(";")
    count = max(len(ranks), len(dtype_names) if dtypes else 0)
    padded = [*ranks, *[0] * (count - len(ranks))]
    starts = accumulate(padded, initial=first)
    return tuple(
        BlockOperand(rank, _at(dtype_names, index), _at(format_names, index), start)
        for index, (rank, start) in enumerate(zip(padded, starts, strict=False))
    )


def _at(entries: Sequence[str], index: int) -> str:
    return entries[index] if index < len(entries) else ""
