"""Transpose: two dimensions exchanged, with a copy into the new order."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, int, int]:
    """x and the first two dimensions that differ between input and output; the first two when none do."""
    x, result = row.input(0, "x"), row.output(0, "y")
    differing = [place for place, (a, b) in enumerate(zip(x.shape, result.shape, strict=False)) if a != b]
    first, second = (differing[0], differing[1]) if len(differing) > 1 else (0, 1)
    return make(x), first, second


def transpose(x: torch.Tensor, first: int, second: int) -> torch.Tensor:
    """The copy."""
    return torch.transpose(x, first, second).contiguous()


def reference(x: torch.Tensor, first: int, second: int) -> Array:
    """The same."""
    return np.swapaxes(float64(x), first, second)


KERNEL = Kernel("Transpose", operands, launch=transpose, host=transpose, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
