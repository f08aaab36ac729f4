"""TensorMove: a copy of a tensor into another of the same layout."""

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


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """Source and destination; a destination made by clone() would be a second copy in the profile."""
    source = make(row.input(0, "src"))
    return source, torch.empty_like(source)


def copy(source: torch.Tensor, destination: torch.Tensor) -> torch.Tensor:
    """The copy."""
    return destination.copy_(source)


def reference(source: torch.Tensor, destination: torch.Tensor) -> Array:
    """The source."""
    return float64(source)


KERNEL = Kernel("TensorMove", operands, launch=copy, host=copy, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
