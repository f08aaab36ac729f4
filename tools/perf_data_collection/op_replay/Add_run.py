"""Add: the elementwise sum, with broadcasting."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Two tensors, or one and the number 1."""
    first = make(row.input(0, "x1"))
    second = row.optional_input(1)
    if second is None:
        return first, 1.0 if first.is_floating_point() else 1
    return first, make(second)


def add(first: torch.Tensor, second: torch.Tensor | float) -> torch.Tensor:
    """The sum."""
    return torch.add(first, second)


def reference(first: torch.Tensor, second: torch.Tensor | float) -> Array:
    """The sum."""
    return float64(first) + (float64(second) if isinstance(second, torch.Tensor) else second)


KERNEL = Kernel("Add", operands, launch=add, host=add, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
