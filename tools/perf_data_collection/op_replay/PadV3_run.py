"""PadV3: zeros after the end of each dimension."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch
import torch.nn.functional as functional

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, list[int]]:
    """x, and how many zeros follow it, the last dimension first, as output and input shapes tell."""
    x, result = row.input(0, "x"), row.output(0, "y")
    added = [after - before for before, after in zip(x.shape, result.shape, strict=False)]
    if len(x.shape) != len(result.shape) or min(added, default=0) < 0:
        raise RowError(f"{x.shape} cannot be padded to {result.shape}.")
    return make(x), [count for size in reversed(added) for count in (0, size)]


def pad(x: torch.Tensor, pads: list[int]) -> torch.Tensor:
    """x with zeros behind it."""
    return functional.pad(x, pads, "constant", 0.0)


def reference(x: torch.Tensor, pads: list[int]) -> Array:
    """The same."""
    return np.pad(float64(x), [(0, after) for after in reversed(pads[1::2])])


KERNEL = Kernel("PadV3", operands, launch=pad, host=pad, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
