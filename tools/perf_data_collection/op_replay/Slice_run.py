"""Slice: the leading part of each dimension."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, tuple[int, ...]]:
    """x and the size of the part; entries for offsets and strides are not needed."""
    x, size = row.input(0, "x"), row.output(0, "y").shape
    if len(size) != len(x.shape) or any(part > whole for part, whole in zip(size, x.shape, strict=True)):
        raise RowError(f"{size} is no part of {x.shape}.")
    return make(x), size


def launch(x: torch.Tensor, size: tuple[int, ...]) -> object:
    """From the origin."""
    return npu_function("npu_slice")(x, offsets=[0] * len(size), size=list(size))


def host(x: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """A copy of the part: a view would do nothing."""
    return x[tuple(slice(part) for part in size)].clone(memory_format=torch.contiguous_format)


def reference(x: torch.Tensor, size: tuple[int, ...]) -> Array:
    """The part."""
    return float64(x)[tuple(slice(part) for part in size)]


KERNEL = Kernel("Slice", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
